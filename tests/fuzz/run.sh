#!/bin/sh
# Builds the fuzz targets with clang, ASan and UBSan, and runs each for SECONDS.
#
#   tests/fuzz/run.sh SECONDS [target...]     targets: safetensors container npy smtx pattern
#
# New inputs go to the build folder, the seeds in tests/fuzz/corpus stay as they are. LAC_FUZZ_BUILD names another build
# folder, LAC_FUZZ_CC another clang. A finding is written to BUILD/findings and ends the script with 1.
set -eu

seconds=${1:?usage: tests/fuzz/run.sh SECONDS [target...]}
shift
[ $# -gt 0 ] || set -- safetensors container npy smtx pattern
root=$(cd "$(dirname "$0")/../.." && pwd)
build=${LAC_FUZZ_BUILD:-$root/build-fuzz}

mkdir -p "$build/findings"
if [ ! -f "$build/build.ninja" ]; then
    cmake -S "$root" -B "$build" -G Ninja -DCMAKE_C_COMPILER="${LAC_FUZZ_CC:-clang}" -DCMAKE_BUILD_TYPE=RelWithDebInfo \
        -DLAC_FUZZ=ON -DLAC_OPENMP=OFF -DLAC_SANITIZE=address,undefined >"$build/configure.log" 2>&1 || {
        cat "$build/configure.log" >&2
        exit 2
    }
fi
ninja -C "$build" $(printf 'fuzz_%s ' "$@")

failed=0
for target in "$@"; do
    corpus=$build/corpus/$target
    seeds=$root/tests/fuzz/corpus/$target
    mkdir -p "$corpus"
    log=$build/$target.log
    dictionary=$root/tests/fuzz/$target.dict
    set -- -max_total_time="$seconds" -max_len=8192 -timeout=20 -rss_limit_mb=2048 -print_final_stats=1 \
        -artifact_prefix="$build/findings/$target-"
    [ ! -f "$dictionary" ] || set -- "$@" -dict="$dictionary"
    if "$build/tests/fuzz/fuzz_$target" "$@" "$corpus" "$seeds" >"$log" 2>&1; then
        printf '%-12s ok: %s, %s\n' "$target" "$(sed -n 's/^stat::number_of_executed_units: */executions /p' "$log")" \
            "$(grep -o 'cov: [0-9]* ft: [0-9]*' "$log" | tail -n 1)"
    else
        printf '%-12s FINDING, see %s and %s\n' "$target" "$log" "$build/findings" >&2
        tail -n 40 "$log" >&2
        failed=1
    fi
done
exit $failed
