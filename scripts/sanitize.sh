#!/bin/sh
# sanitize.sh - builds everything with clang and sanitizers and runs the tests. `make asan` and `make tsan` call it.
#
#   scripts/sanitize.sh address|thread BUILD JOBS SCALE PYTHON      SCALE divides the cases of the randomised tests; PYTHON has numpy
#
# The Python package's module is tested under the address sanitizer only: the thread sanitizer would report on the interpreter, which it does not know.
# Under the thread sanitizer OpenMP stays on: libarcher tells the sanitizer of OpenMP's own synchronisation. Where clang
# comes without libarcher, OpenMP is off in that build, and the message says so.
set -eu
cd "$(dirname "$0")/.."
kind=$1 build=$2 jobs=$3 scale=$4 python=$5

openmp=ON module=OFF
case $kind in
address)
    sanitizers=address,undefined module=ON
    # Without its own list of dynamic TLS, in which clang 14's leak checker follows entries that nobody wrote, and falls.
    ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1:intercept_tls_get_addr=0${ASAN_OPTIONS:+:$ASAN_OPTIONS}
    UBSAN_OPTIONS=print_stacktrace=1${UBSAN_OPTIONS:+:$UBSAN_OPTIONS}
    # quoted for the sanitizer, since a space in the path would end the option
    # shellcheck disable=SC2089
    LSAN_OPTIONS="suppressions='$PWD/scripts/lsan.supp':print_suppressions=0${LSAN_OPTIONS:+:$LSAN_OPTIONS}"
    # shellcheck disable=SC2090
    export ASAN_OPTIONS UBSAN_OPTIONS LSAN_OPTIONS
    ;;
thread)
    sanitizers=thread
    archer=$(dirname "$(readlink -f "$(command -v clang)")")/../lib/libarcher.so
    if [ -e "$archer" ]; then
        OMP_TOOL_LIBRARIES=$(readlink -f "$archer")
        TSAN_OPTIONS=ignore_noninstrumented_modules=1:halt_on_error=1${TSAN_OPTIONS:+:$TSAN_OPTIONS}
        # more threads than cores, so that they meet
        OMP_NUM_THREADS=${OMP_NUM_THREADS:-4}
        export OMP_TOOL_LIBRARIES TSAN_OPTIONS OMP_NUM_THREADS
    else
        echo "sanitize.sh: no libarcher.so beside clang: the thread sanitizer runs without OpenMP"
        openmp=OFF
    fi
    ;;
*)
    echo "sanitize.sh: unknown kind '$kind'; it is address or thread" >&2
    exit 2
    ;;
esac

cmake -S . -B "$build" -G Ninja -DCMAKE_C_COMPILER=clang -DCMAKE_BUILD_TYPE=RelWithDebInfo \
    -DLAC_SANITIZE=$sanitizers -DLAC_OPENMP=$openmp -DLAC_PYTHON=$module -DLAC_TEST_PYTHON:FILEPATH="$python"
cmake --build "$build" -j "$jobs"
# test_prune_speed prints times, which mean nothing here
LAC_TEST_SCALE=$scale ctest --test-dir "$build" --output-on-failure -j "$jobs" -E '^test_prune_speed$'
