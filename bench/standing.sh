#!/bin/sh
# standing.sh LACUNA FOLDER bench|bench-store - the standing set of problems behind `make bench`: small enough for five
# minutes on 2 cores, wide enough that a slower kernel shows. `bench` writes FOLDER/bench.csv and .html and compares the
# speedups with bench/results/standing.csv (exit status 1 when one lost more than 10%); `bench-store` writes the latter.
set -eu
lacuna=$1
folder=$2
action=$3
here=$(dirname "$0")
stored=$here/results/standing.csv

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
