#!/bin/sh
# counters_gpu.sh LACUNA OUT.csv [SECONDS] - what bounds each GPU kernel, by the counters of Nsight Compute (`ncu`): one launch of each
# problem below, with how busy it kept the tensor cores, shared memory, L2, device memory and the issue slots. A problem that is in
# OUT.csv is passed over; none is begun after SECONDS (600). `docs/kernels/` and `bench/results/h200.md` read the file.
#
#   clocks       of the multiprocessor that took longest
#   tensor       share of these clocks in which the tensor pipes of a multiprocessor worked, the mean of its four
#   shared       reads and writes of shared memory's banks (and the L1's in it), of 32 a clock. It is no strict
#                share: 1.2 has been counted of cuda_f16_stream, whose operands all come by the copy engine
#   l2, memory   share of what L2 and device memory can move at most
#   issue        instructions issued, of four a clock
#   stalls       for each instruction issued, the warps that waited: the four longest reasons
set -eu
lacuna=$1
out=$2
seconds=${3:-600}
begin=$(date +%s)
command -v ncu >/dev/null || { echo "counters_gpu.sh: there is no 'ncu' (Nsight Compute) on the path" >&2; exit 2; }
work=$(mktemp -d)
info=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -1 | sed "s/, /; driver /")"; clocks not fixed"
trap 'rm -rf "$work"' EXIT
counters=device__attribute_multiprocessor_count,gpu__time_duration.sum,sm__cycles_elapsed.max,sm__pipe_tensor_op_hmma_cycles_active.sum,l1tex__data_bank_reads.sum
counters=$counters,l1tex__data_bank_writes.sum,lts__t_bytes.avg.pct_of_peak_sustained_elapsed,lts__t_bytes.sum,dram__bytes.sum
counters=$counters,dram__throughput.avg.pct_of_peak_sustained_elapsed,sm__inst_issued.sum
for reason in barrier gmma long_scoreboard math_pipe_throttle mio_throttle short_scoreboard wait not_selected; do
    counters=$counters,smsp__average_warps_issue_stalled_${reason}_per_issue_active.ratio
done
if ! [ -s "$out" ]; then echo "entry,kernel,m,n,k,pattern,dtype,layout,precision,time_us,clocks,tensor,shared,l2,memory,issue,l2_bytes,memory_bytes,stalls,commit,device_info" >"$out"; fi

# KERNEL SHAPE PATTERN DTYPE LAYOUT PRECISION: a line for each of Lacuna's entries that a call launches, of its last launch here
count() {
    if grep -q "^[a-z_]*,$1,$2,$3,$4,$5,$6," "$out" || [ $(($(date +%s) - begin)) -ge "$seconds" ]; then return 0; fi
    if ! ncu --csv --log-file "$work/log" --clock-control none --cache-control none -k regex:^lac_ --launch-skip 2 --launch-count 4 \
        --metrics "$counters" "$lacuna" bench "$2" --pattern "$3" --dtype "$4" --layout "$5" --precision "$6" --kernel "$1" \
        --device cuda:0 --baseline none --quick-check --min-time 0.001 --max-seconds 10 --progress never >"$work/text" 2>&1 ||
        ! python3 - "$work/log" "$1,$2,$3,$4,$5,$6" "${LAC_COMMIT:-}" "$info" >>"$out" <<'END'; then
import csv, sys

lines = open(sys.argv[1]).read().splitlines()
first = next(i for i, line in enumerate(lines) if line.startswith('"ID"'))
launches = {}
for row in csv.DictReader(lines[first:]):
    launches.setdefault(row["Kernel Name"], {}).setdefault(int(row["ID"]), []).append(row)
to_us = {"nsecond": 1e-3, "ns": 1e-3, "usecond": 1.0, "us": 1.0, "msecond": 1e3, "ms": 1e3}
to_bytes = {"byte": 1.0, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9}
before, after = "smsp__average_warps_issue_stalled_", "_per_issue_active.ratio"
for entry, by_number in launches.items():
    rows = by_number[max(by_number)]
    value = {row["Metric Name"]: float(row["Metric Value"].replace(",", "")) for row in rows}
    unit = {row["Metric Name"]: row["Metric Unit"] for row in rows}
    clocks = value["sm__cycles_elapsed.max"]
    all_clocks = clocks * value["device__attribute_multiprocessor_count"]
    banks = value["l1tex__data_bank_reads.sum"] + value["l1tex__data_bank_writes.sum"]
    stalls = sorted(((v, name[len(before) : -len(after)]) for name, v in value.items() if name.startswith(before)), reverse=True)
    print(
        "%s,%s,%.2f,%.0f,%.3f,%.3f,%.3f,%.3f,%.3f,%.0f,%.0f,%s,%s,%s"
        % (
            entry.split("(")[0],
            sys.argv[2],
            value["gpu__time_duration.sum"] * to_us[unit["gpu__time_duration.sum"]],
            clocks,
            value["sm__pipe_tensor_op_hmma_cycles_active.sum"] / (all_clocks * 4),
            banks / (all_clocks * 32),
            value["lts__t_bytes.avg.pct_of_peak_sustained_elapsed"] / 100,
            value["dram__throughput.avg.pct_of_peak_sustained_elapsed"] / 100,
            value["sm__inst_issued.sum"] / (all_clocks * 4),
            value["lts__t_bytes.sum"] * to_bytes[unit["lts__t_bytes.sum"]],
            value["dram__bytes.sum"] * to_bytes[unit["dram__bytes.sum"]],
            " ".join("%s=%.2f" % (name, v) for v, name in stalls[:4]),
            sys.argv[3],
            sys.argv[4],
        )
    )
END
        echo "counters_gpu.sh: $1 on $2 $3: $(tail -1 "$work/text"); $(tail -1 "$work/log")" >&2
        failed=1
    fi
}

failed=0
large=4096,4096,4096
for pattern in vw128:8:32 vw64:8:32; do count cuda_f16_gather $large $pattern f16 feature default; done
for pattern in 128:2:16 128:2:32; do count cuda_f16_gather_sparse $large $pattern f16 feature default; done
count cuda_f16_stream $large 2:4 f16 feature default
count cuda_f16_expand_ring $large 16:32 f16 feature default
count cuda_f32_tf32 $large vw32:4:32 f32 feature tf32
count cuda_spmv_select 16,8192,8192 8:32 f16 token default
count cuda_spmv_gather 1,8192,8192 8:32 f16 token default
for pattern in vw32:16:32 vw32:8:32 vw32:4:32; do count cuda_f16_pick $large $pattern f16 feature default; done
count cuda_f32_strict $large vw32:8:32 f32 feature strict
count cuda_f16_choose 4096,1024,4096 vw128:8:32 f16 token default
count cuda_f16_stream 64,8192,8192 64:2:8 f16 token default
for pattern in vw128:16:32 vw128:4:32; do count cuda_f16_gather $large $pattern f16 feature default; done
for pattern in 128:2:8 256:2:16 vw32:16:32 vw32:8:32 vw32:4:32; do count cuda_f16_gather_sparse $large $pattern f16 feature default; done
count cuda_f32_tf32 $large vw32:8:32 f32 feature tf32
count cuda_f16_gather_sparse 4096,1024,12288 64:2:8 f16 feature default
count cuda_f16_gather_sparse 4096,1024,1536 64:2:100 f16 feature default
exit $failed
