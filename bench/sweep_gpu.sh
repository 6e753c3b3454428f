#!/bin/sh
# sweep_gpu.sh SET LACUNA FOLDER SECONDS [PEER.so...] - a whole shape file on a GPU with the patterns of its paper, in as many calls
# as it takes. A call goes on for SECONDS at most and adds to FOLDER/SET.csv; the next one begins with the problems that have no rows
# yet. `sweep_gpu.sh SET LACUNA FOLDER gather` writes FOLDER/SET.html and says how Lacuna stands against dense and against the peers;
# `sweep_gpu.sh SET LACUNA FOLDER list` prints the problems, a line each.
#
#   llama          NM-SpMM's 100 shapes, vw32 at its four densities, fp32 strict and fast
#   venom          VENOM's BERT shapes, V of 64 and 128, 2:4 to 2:100, f16
#   venom_bf16     the same shapes, 128:2:8 and 128:2:40, bf16
#   shflbw         Shfl-BW's products, V of 32, 64 and 128 at 50, 25 and 12.5%, f16
#   shflbw_sparse  the same at 5 and 2%
#   shflbw_bf16    the same shapes, shfl64 at 25%, bf16
#   nmsparse       nmSPARSE's shapes, the families of its tensor-core kernels at 50, 75 and 90%, f16
#   nmsparse_f32   nmSPARSE's shapes, its three families at 50, 75 and 90%, fp32 fast
#   decode         1 to 16 tokens and more, element-wise at 50, 75 and 87.5%, f16
#   decode_f32     the same in fp32
#   conv           Shfl-BW's convolutions of ResNet-50 as products of at most MAX_M (8192) tokens, shfl64 at 25%, f16
#
# PROCESSES (1) prepare side by side, each some of the layers, and time in turns.
#
# MIN_TIME (0.003) seconds of calls are timed for each contender. Shapes with one n and k are neighbours, since they share their
# weights; small ones come first, or large ones with LARGEST_FIRST=1.
set -eu
set_name=$1
lacuna=$2
folder=$3
seconds=$4
shift 4
here=$(dirname "$0")
layout=feature
precision=default
dtype=f16
max_m=0
case $set_name in
llama) file=nmspmm_llama patterns=vw32:16:32,vw32:12:32,vw32:8:32,vw32:4:32 dtype=f32 precision=strict,fast ;;
venom) file=venom_bert patterns=128:2:8,64:2:8,128:2:10,128:2:20,128:2:40,128:2:100,64:2:10,64:2:20,64:2:40,64:2:100,128:2:4,64:2:4 ;;
venom_bf16) file=venom_bert patterns=128:2:8,128:2:40 dtype=bf16 ;;
shflbw) file=shflbw_gemm patterns=shfl64:25%,shfl128:25%,shfl32:25%,shfl64:12.5%,shfl128:12.5%,shfl32:12.5%,shfl64:50%,shfl128:50%,shfl32:50% ;;
shflbw_sparse) file=shflbw_gemm patterns=shfl64:5%,shfl128:5%,shfl32:5%,shfl64:2%,shfl128:2%,shfl32:2% ;;
shflbw_bf16) file=shflbw_gemm patterns=shfl64:25% dtype=bf16 ;;
nmsparse) file=nmsparse patterns=vw64:8:32,bw64x64:1:4,vw64:3:32,bw64x64:1:10,vw64:16:32,bw64x64:1:2 ;;
nmsparse_f32) file=nmsparse patterns=16:32,8:32,3:32,vw32:16:32,vw32:8:32,vw32:3:32,bw4x4:4:8,bw4x4:2:8,bw4x4:1:10 dtype=f32 ;;
decode) file=decode patterns=2:4,8:32,4:32 layout=token ;;
decode_f32) file=decode patterns=16:32,8:32,4:32 dtype=f32 layout=token ;;
conv) file=shflbw_conv_resnet50 patterns=shfl64:25% max_m=${MAX_M:-8192} ;;
*)
    echo "sweep_gpu.sh: there is no set '$set_name'" >&2
    exit 2
    ;;
esac
mkdir -p "$folder"
out=$folder/$set_name.csv

if [ "$seconds" = gather ]; then
    "$lacuna" bench --from "$out" --report "$folder/$set_name.html" >/dev/null
    awk -F, '
        NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
        {
            cell = $at["m"] "," $at["n"] "," $at["k"] " " $at["pattern"]
            if ($at["kernel"] ~ /^peer:/) { peer[cell "|" $at["kernel"]] = $at["time_us"]; names[$at["kernel"]] = 1; next }
            how = $at["precision"]
            hows[how] = 1; count[how]++; logs[how] += log($at["speedup"]); slow[how] += $at["speedup"] < 0.98; fast[how] += $at["speedup"] >= 1.2
            dense[how] += $at["is_dense"]
            if (!(how in least) || $at["speedup"] < least[how]) { least[how] = $at["speedup"]; where[how] = cell " " $at["kernel"] }
            mine[cell "|" how] = $at["time_us"]
        }
        END {
            for (how in hows) {
                printf "%s: %d cells, %.2fx of dense in geomean, least %.2fx (%s), %d under 0.98x, %.1f%% at 1.2x or more, %d run dense\n",
                    how, count[how], exp(logs[how] / count[how]), least[how], where[how], slow[how], 100 * fast[how] / count[how], dense[how]
                for (name in names) {
                    n = 0; sum = 0; worst = 1e9; behind = 0
                    for (key in peer) {
                        split(key, part, "|")
                        if (part[2] != name || !((part[1] "|" how) in mine)) continue
                        ratio = peer[key] / mine[part[1] "|" how]
                        n++; sum += log(ratio); behind += ratio < 0.97
                        if (ratio < worst) { worst = ratio; at_worst = part[1] }
                    }
                    if (n) printf "%s against %s: %d cells, %.3fx in geomean, worst %.3fx (%s), %d cells behind by more than 3%%\n", how, name, n, exp(sum / n), worst, at_worst, behind
                }
            }
        }' "$out"
    exit
fi

# The shapes in order of size. Convolutions have no columns m, n and k; they stay as they are.
ordered=$folder/${set_name}_shapes.csv
if [ "$file" = shflbw_conv_resnet50 ]; then
    cp "$here/shapes/$file.csv" "$ordered"
else
    direction=${LARGEST_FIRST:+r}
    awk -F, -v direction="$direction" '
        BEGIN { sorted = "sort -k1,1n" direction " -k2,2n" direction " -k3,3n" direction " -k4,4n" direction " | cut -d\" \" -f5-" }
        /^#/ { next }
        /^name/ { print; fflush(); next }
        { printf "%d %d %d %d %s\n", $3 * $4, $3, $4, $2, $0 | sorted }' "$here/shapes/$file.csv" >"$ordered"
fi

if [ "$seconds" = list ]; then
    awk -F, -v patterns="$patterns" -v rest="$dtype $layout" -v precisions="$precision" -v max_m="$max_m" '
        /^#/ || NF < 4 { next }
        /^name/ { conv = /batch/; next }
        {
            m = conv ? $2 * $3 * $4 : $2; n = conv ? $6 : $3; k = conv ? $5 * $7 * $8 : $4
            if (max_m > 0 && m > max_m) m = max_m
            count = split(patterns, p, ","); ways = split(precisions, q, ",")
            for (i = 1; i <= count; i++) for (j = 1; j <= ways; j++) print m "," n "," k, p[i], rest, q[j]
        }' "$ordered"
    exit
fi

for peer in "$@"; do set -- "$@" --peer "$peer" && shift; done
# One process's share: SHAPES CSV
time_shapes() {
    shapes=$1 csv=$2
    shift 2
    "$lacuna" bench --shapes "$shapes" --max-m "$max_m" --device cuda:0 --pattern "$patterns" --dtype "$dtype" --layout "$layout" \
        --precision "$precision" --extended --stages --quick-check --progress never --min-time "${MIN_TIME:-0.003}" \
        --max-seconds "$seconds" --csv "$csv" --resume --turns "$folder/$set_name.turns" "$@" </dev/null
}

processes=${PROCESSES:-1}
status=0
if [ "$processes" = 1 ]; then
    time_shapes "$ordered" "$out" "$@" >>"$folder/$set_name.txt" 2>>"$folder/$set_name.log" || status=$?
else
    # Layers go round: those of one n and k stay together. A part begins with the rows that there are, so that it passes over them.
    awk -F, -v processes="$processes" -v part="$out.part" '
        /^#/ { next }
        /^name/ { for (i = 0; i < processes; i++) print >(part i ".shapes"); next }
        { key = $3 "," $4; if (!(key in whose)) whose[key] = layers++ % processes; print >(part whose[key] ".shapes") }' "$ordered"
    known=0
    if [ -e "$out" ]; then known=$(wc -l <"$out"); fi
    i=0
    while [ "$i" -lt "$processes" ]; do
        if [ "$(wc -l <"$out.part$i.shapes")" -lt 2 ]; then break; fi # fewer layers than processes
        if [ "$known" -gt 0 ]; then cp "$out" "$out.part$i"; fi
        (time_shapes "$out.part$i.shapes" "$out.part$i" "$@" >"$out.part$i.txt" 2>"$out.part$i.log" || echo $? >"$out.part$i.status") &
        i=$((i + 1))
    done
    wait
    processes=$i
    i=0
    while [ "$i" -lt "$processes" ]; do
        if [ -e "$out.part$i" ]; then
            if [ -e "$out" ]; then tail -n +$((known > 0 ? known + 1 : 2)) "$out.part$i" >>"$out"; else cp "$out.part$i" "$out"; fi
        fi
        cat "$out.part$i.txt" >>"$folder/$set_name.txt"
        cat "$out.part$i.log" >>"$folder/$set_name.log"
        if [ -e "$out.part$i.status" ] && [ "$(cat "$out.part$i.status")" -gt "$status" ]; then status=$(cat "$out.part$i.status"); fi
        i=$((i + 1))
    done
    rm -f "$out".part*
fi
if [ "$status" -gt 1 ]; then
    tail -3 "$folder/$set_name.log" >&2
    exit "$status"
fi
tail -n 3 "$folder/$set_name.txt" | grep '^Seconds' || true
grep -h 'WRONG' "$folder/$set_name.log" || true
tail -n 1 "$folder/$set_name.log" | grep 'left out' || true
exit "$status"
