#!/bin/sh
# standing.sh LACUNA FOLDER bench|bench-store|bench-gpu - the standing set of problems behind `make bench`: small enough for five
# minutes on 2 cores, wide enough that a slower kernel shows. `bench` writes FOLDER/bench.csv and .html and compares the
# speedups with bench/results/standing.csv (exit status 1 when one lost more than 10%); `bench-store` writes the latter.
# `bench-gpu` is the same for the first GPU, half a minute: a cell or two of every kernel, large and small, compared with the
# results stored of an H200. A kernel that passes its tests may still have become slower: run it before and after each change.
set -eu
lacuna=$1
folder=$2
action=$3
here=$(dirname "$0")
stored=$here/results/standing.csv

if [ "$action" = bench-gpu ]; then
    out=$folder/bench-gpu.csv
    stored=$folder/bench-gpu-stored.csv
    rm -f "$out"
    awk 'FNR > 1 || NR == 1' "$here"/results/h200_fp32.csv "$here"/results/h200_f16.csv "$here"/results/h200_venom.csv \
        "$here"/results/h200_shflbw.csv "$here"/results/h200_choose.csv >"$stored"
    run() {
        "$lacuna" bench "$@" --device cuda:0 --extended --quick-check --min-time 0.01 --csv "$out" --resume
    }
    large=4096,4096,4096
    run $large --pattern vw32:8:32 --layout feature --precision strict,fast
    run $large --pattern vw32:8:32 --layout feature --precision tf32
    run $large --pattern 2:4,vw128:8:32,vw64:8:32,vw32:8:32,128:2:8,64:2:8,bw64x64:1:4 --dtype f16 --layout feature
    run $large --pattern 2:4,vw128:8:32 --dtype f16 --layout token
    run 4096,1024,4096 --pattern vw128:8:32 --dtype f16 --layout token
    run 4096,768,768 --pattern 128:2:8,64:2:20 --dtype f16 --layout feature
    run 1024,1024,1024 --pattern shfl64:25%,shfl32:25% --dtype f16 --layout feature
    run 1,8192,8192 16,8192,8192 64,8192,8192 --pattern 2:4,8:32 --dtype f16
    exec "$lacuna" bench --from "$out" --compare "$stored" --report "$folder/bench-gpu.html"
fi

out=$folder/bench
if [ "$action" = bench-store ]; then out=$here/results/standing; fi
set -- --device cpu --shapes "$here/shapes/standing.csv" --min-time 0.1 --max-seconds 270 \
    --pattern 2:4,8:32,4:32,vw32:16:32,vw32:8:32,vw32:4:32,64:2:8,64:2:16,bw4x4:2:8,shfl64:25% \
    --extended --csv "$out.csv" --report "$out.html"
if [ "$action" = bench ]; then
    if [ -e "$stored" ]; then
        set -- "$@" --compare "$stored"
    else
        echo "There are no stored results to compare with; 'make bench-store' makes some."
    fi
fi
exec "$lacuna" bench "$@"
