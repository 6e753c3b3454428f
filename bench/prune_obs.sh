#!/bin/sh
# prune_obs.sh OBS_TIME CSV DEVICE... - how long `obs` takes for a layer of 4096 x 11008 at 2:4 on each DEVICE (cpu, cuda:0), twice on a GPU, and beside it a small layer with every family, whose error must be the same everywhere.
# Appends rows to CSV, with the driver, the host's cores and the commit (LAC_COMMIT where there is no git).
set -eu
program=$1
csv=$2
shift 2
commit=${LAC_COMMIT:-$(git -C "$(dirname "$0")" rev-parse --short=12 HEAD)}
driver=$(nvidia-smi --query-gpu=driver_version,clocks.max.sm --format=csv,noheader 2>/dev/null | head -1 | sed 's/, / at up to /') || driver=
[ -e "$csv" ] || echo "device,model,n,k,samples,pattern,method,run,seconds,output_error,host_cores,driver,commit" >"$csv"
for device in "$@"; do
    runs=1 said=
    case $device in cuda*) runs=2 said=$driver ;; esac
    {
        "$program" "$device" 4096 11008 2048 2:4 "$runs"
        for pattern in 2:4 vw32:8:32 64:2:8 50% bw4x4:4:8 bw4x4:25% shfl64:25%; do "$program" "$device" 512 1024 2048 "$pattern" "$runs"; done
    } | sed "s/\$/,$(nproc),$said,$commit/" | tee -a "$csv"
done
