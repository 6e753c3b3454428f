#!/bin/sh
# goals_gpu.sh LACUNA FOLDER [PEER.so...] - the problems by which Lacuna is judged on a GPU: fp32 and f16 at m = n = k = 4096, other
# families and odd patterns, few tokens. FOLDER/fp32.csv and FOLDER/f16.csv with their reports; each `run` below is one call of
# `lacuna bench` of LIMIT seconds at most (12). MIN_TIME (0.02) seconds of calls are timed for each contender.
set -eu
lacuna=$1
folder=$2
shift 2
mkdir -p "$folder"
for peer in "$@"; do set -- "$@" --peer "$peer" && shift; done
failed=0

run() {
    file=$1
    shift
    number=$((number + 1))
    part=$folder/${file}_part_$number
    status=0
    "$lacuna" bench "$@" --device cuda:0 --extended --progress never --min-time "${MIN_TIME:-0.02}" --max-seconds "${LIMIT:-12}" \
        --csv "$part.csv" >"$part.txt" 2>"$part.log" </dev/null || status=$?
    grep -h 'WRONG\|time is up\|failed' "$part.log" >&2 || true
    [ "$status" -eq 0 ] || failed=1
    out=$folder/$file.csv
    if [ "$number" -eq 1 ] || [ ! -e "$out" ]; then cp "$part.csv" "$out"; else tail -n +2 "$part.csv" >>"$out"; fi
}

number=0
rm -f "$folder/fp32.csv" "$folder/f16.csv"
large=4096,4096,4096
vectors=vw32:16:32,vw32:12:32,vw32:8:32,vw32:4:32
families=16:32,8:32,4:32,bw4x4:4:8,bw4x4:2:8,bw4x4:1:8,64:2:4,64:2:8,64:2:16,shfl64:50%,shfl64:25%,shfl64:12.5%
run fp32 $large --pattern $vectors --layout feature --precision strict,fast "$@"
run fp32 $large --pattern $vectors --layout feature --precision tf32
run fp32 $large --pattern $families --layout feature --precision fast "$@"
run fp32 $large --pattern 3:8,3:7,5:13,vw24:8:32,vw24:3:10 --layout feature --precision strict,fast
run fp32 1,8192,8192 --pattern 16:32,8:32,4:32 --precision strict "$@"
wide=vw128:16:32,vw128:8:32,vw128:4:32,shfl128:50%,shfl128:25%,shfl128:12.5%,vw64:16:32,vw64:8:32,vw64:4:32,vw32:16:32,vw32:8:32,vw32:4:32
run f16 $large --pattern $wide,bw64x64:1:2,bw64x64:1:4,bw64x64:1:8 --dtype f16 --layout feature
run f16 $large --pattern 2:4,128:2:8,128:2:16,128:2:32,256:2:8,256:2:16,64:2:8,64:2:16 --dtype f16 --layout feature
run f16 $large --pattern 2:4,vw128:8:32,128:2:8 --dtype f16,bf16 --layout token
run f16 4096,1024,12288 --pattern 128:2:40,128:2:100 --dtype f16 --layout feature
run f16 1,4096,4096 1,8192,8192 1,11008,4096 1,20480,5120 --pattern 2:4,8:32,4:32 --dtype f16
run f16 2,8192,8192 8,8192,8192 16,8192,8192 --pattern 2:4,8:32,vw32:8:32,64:2:8 --dtype f16
run f16 32,8192,8192 64,8192,8192 128,8192,8192 --pattern 2:4,8:32,vw64:8:32,64:2:8 --dtype f16
for file in fp32 f16; do
    "$lacuna" bench --from "$folder/$file.csv" --report "$folder/$file.html" >/dev/null
    awk -F, -v file=$file 'NR > 1 { rows++ } END { print file ": " rows " rows" }' "$folder/$file.csv"
done
exit $failed
