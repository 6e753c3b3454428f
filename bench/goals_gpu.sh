#!/bin/sh
# goals_gpu.sh LACUNA FOLDER [PEER.so...] - the problems by which Lacuna is judged on a GPU: fp32 and f16 at m = n = k = 4096, other
# families, odd patterns, other shapes, few tokens. FOLDER/fp32.csv, f16.csv and mma.csv (the kernels for every GPU) with their
# reports; each `run` below is one call of `lacuna bench` of LIMIT seconds at most (12), and one that was interrupted goes on where it
# stopped when all is called again. PROCESSES (1) of them prepare side by side and time in turns. MIN_TIME (0.02) seconds of calls
# are timed for each contender, ten times as long at 8192^3, where the GPU's power limit lowers its clocks. FILES names those that are
# wanted (fp32 f16 mma). ROUNDS (1): all is run so many times, each time by new processes, whose ratios to dense differ by some percent;
# goals_table.py tells their mean.
set -eu
lacuna=$1
folder=$2
shift 2
mkdir -p "$folder"
for peer in "$@"; do set -- "$@" --peer "$peer" && shift; done
rm -f "$folder/failed"
number=0
running=
TIME=

# Each call has a file of its own, which it goes on with when all is called again; they are joined at the end.
run() {
    case " ${FILES:-fp32 f16 mma} " in *" $1 "*) ;; *) return 0 ;; esac
    number=$((number + 1))
    part=$folder/$(printf '%s_part_%03d' "$1" $number)
    shift
    if [ $number -gt "${PROCESSES:-1}" ]; then # the oldest of those that run makes room
        wait "${running%% *}" || true
        running=${running#* }
    fi
    (
        "$lacuna" bench "$@" --device cuda:0 --extended --stages --progress never --min-time "${TIME:-${MIN_TIME:-0.02}}" \
            --max-seconds "${LIMIT:-12}" --csv "$part.csv" --resume --turns "$folder/turns" >"$part.txt" 2>"$part.log" </dev/null ||
            echo "$part" >>"$folder/failed"
        grep -h 'WRONG\|time is up\|failed' "$part.log" >&2 || true
    ) &
    running="$running$! "
}

large=4096,4096,4096
vectors=vw32:16:32,vw32:12:32,vw32:8:32,vw32:4:32
families=16:32,8:32,4:32,bw4x4:4:8,bw4x4:2:8,bw4x4:1:8,64:2:4,64:2:8,64:2:16,shfl64:50%,shfl64:25%,shfl64:12.5%
wide=vw128:16:32,vw128:8:32,vw128:4:32,shfl128:50%,shfl128:25%,shfl128:12.5%,vw64:16:32,vw64:8:32,vw64:4:32,shfl64:50%,shfl64:25%,shfl64:12.5%
problems() {
    run fp32 $large --pattern $vectors --layout feature --precision strict,fast "$@"
    run fp32 $large --pattern $vectors --layout feature --precision tf32
    run f16 $large --pattern 128:2:8,128:2:16,128:2:32,256:2:8,256:2:16,64:2:8,64:2:16 --dtype f16 --layout feature "$@"
    run f16 $large --pattern 2:4 --dtype f16,bf16 --layout feature
    run f16 $large --pattern $wide --dtype f16 --layout feature "$@"
    run f16 $large --pattern vw32:16:32,vw32:8:32,vw32:4:32,bw64x64:1:2,bw64x64:1:4,bw64x64:1:8 --dtype f16 --layout feature "$@"
    run f16 4096,1024,12288 --pattern 128:2:40,128:2:100 --dtype f16 --layout feature "$@"
    run f16 $large --pattern 2:4,vw128:16:32,vw128:8:32,vw128:4:32,vw64:16:32,vw64:8:32,vw64:4:32,vw32:8:32,128:2:8,128:2:16,64:2:8,64:2:16 --dtype f16 --layout token
    run f16 $large --pattern shfl128:50%,shfl128:25%,shfl128:12.5%,shfl64:50%,shfl64:25%,shfl64:12.5%,shfl32:25% --dtype f16 --layout token
    run f16 1,4096,4096 1,8192,8192 1,11008,4096 1,20480,5120 --pattern 2:4,8:32,4:32 --dtype f16
    run f16 2,8192,8192 8,8192,8192 16,8192,8192 --pattern 2:4,8:32,vw32:8:32,64:2:8 --dtype f16
    run f16 32,8192,8192 64,8192,8192 128,8192,8192 --pattern 2:4,8:32,vw64:8:32,64:2:8 --dtype f16,bf16
    run f16 $large --pattern 4:8,8:16,16:32,4:16,8:32 --dtype f16 --layout feature
    run f16 $large --pattern 4:8,8:16,16:32,4:16,8:32 --dtype f16,bf16 --layout feature --kernel cuda_f16_expand_ring
    run fp32 $large --pattern $families --layout feature --precision fast "$@"
    run fp32 $large --pattern 3:8,3:7,5:13,vw24:8:32,vw24:3:10 --layout feature --precision strict,fast
    run fp32 1,8192,8192 --pattern 16:32,8:32,4:32 --precision strict "$@"
    TIME=0.2
    run f16 8192,8192,8192 --pattern 128:2:8,vw128:8:32,2:4,128:2:16 --dtype f16 --layout feature "$@"
    TIME=
    run f16 4096,1024,4096 4096,4096,1024 4096,12288,4096 256,4096,4096 --pattern 2:4,128:2:8,vw128:8:32,shfl128:25% --dtype f16,bf16 \
        --layout feature "$@"
    run f16 $large --pattern vw128:8:32,128:2:8,64:2:8,shfl64:25% --dtype bf16 --layout feature
    run mma $large --pattern vw128:16:32,vw128:8:32,vw128:4:32,vw64:8:32,shfl128:25% --dtype f16 --layout feature --kernel cuda_f16_mma "$@"
    run mma $large --pattern 2:4,128:2:8,128:2:16,64:2:8,64:2:16 --dtype f16 --layout feature --kernel cuda_f16_mma_sparse "$@"
}

round=0
while [ $((round += 1)) -le "${ROUNDS:-1}" ]; do problems "$@"; done
wait
for file in fp32 f16 mma; do
    rm -f "$folder/$file.csv"
    for part in "$folder/${file}"_part_*.csv; do
        [ -e "$part" ] || continue
        if [ -e "$folder/$file.csv" ]; then tail -n +2 "$part" >>"$folder/$file.csv"; else cp "$part" "$folder/$file.csv"; fi
    done
    [ -e "$folder/$file.csv" ] || continue
    "$lacuna" bench --from "$folder/$file.csv" --report "$folder/$file.html" >/dev/null
    awk -F, -v file=$file 'NR > 1 { rows++ } END { print file ": " rows " rows" }' "$folder/$file.csv"
done
[ ! -e "$folder/failed" ]
