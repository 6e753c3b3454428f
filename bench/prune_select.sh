#!/bin/sh
# prune_select.sh OBS_SELECT CSV - what `obs` loses and how long its choice takes, by pattern: layers of 256 x 512 of two kinds, four seeds each, and for the time one of 2048 x 1024 of each. One thread; processor's seconds.
# Appends rows to CSV, with the processor and the commit (LAC_COMMIT where there is no git). Two builds beside each other tell what a change of the choice is worth.
set -eu
program=$1
csv=$2
commit=${LAC_COMMIT:-$(git -C "$(dirname "$0")" rev-parse --short=7 HEAD)}
machine=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1 | tr -d ',')
[ -e "$csv" ] || echo "inputs,n,k,samples,seed,pattern,processor_seconds,output_error,machine,commit" >"$csv"
patterns=
for unit in '' vw4: vw32:; do
    for choice in 1:16 2:16 4:16 8:16 8:32 3:8 5:13; do patterns="$patterns $unit$choice"; done
done
{
    # shellcheck disable=SC2086 # words
    "$program" 256 512 1024 4 $patterns 2:4 16:32 50% 25% 64:2:4 64:2:8 64:2:16 64:2:20 64:2:32 64:2:100
    "$program" 2048 1024 1024 1 2:4 1:16 2:16 4:16 8:16 8:32 16:32 vw4:8:32 vw32:8:32 64:2:8 64:2:16 64:2:32
} | sed "s/\$/,$machine,$commit/" | tee -a "$csv"
