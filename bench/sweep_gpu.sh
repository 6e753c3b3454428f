#!/bin/sh
# sweep_gpu.sh SET LACUNA FOLDER SECONDS [PEER.so...] - a whole shape file on a GPU, in fp32, in as many calls as it takes. A call goes
# on for SECONDS at most and leaves FOLDER/SET_part_N.csv; the next one begins with the shapes that are not done yet. Shapes with
# one n and k are neighbours, since they share their weights. `sweep_gpu.sh SET LACUNA FOLDER gather` joins the parts into
# FOLDER/SET.csv and SET.html and says how Lacuna stands against dense and against the peers.
#
#   llama     NM-SpMM's 100 shapes, vw32 at its four densities, strict and fast
#   nmsparse  nmSPARSE's shapes, its three families at 50, 75 and 90%
#   decode    1 to 16 tokens, element-wise at 50, 75 and 87.5%
#   shflbw    Shfl-BW's products, shfl64 at 50, 25 and 12.5%
#   venom     VENOM's BERT shapes, V:N:M at 50, 75 and 87.5%
#
# MIN_TIME (0.01) seconds of calls are timed for each contender.
set -eu
set_name=$1
lacuna=$2
folder=$3
seconds=$4
shift 4
here=$(dirname "$0")
layout=token
precision=default
case $set_name in
llama) file=nmspmm_llama patterns=vw32:16:32,vw32:12:32,vw32:8:32,vw32:4:32 layout=feature precision=strict,fast ;;
nmsparse) file=nmsparse patterns=16:32,8:32,3:32,vw32:16:32,vw32:8:32,vw32:3:32,bw4x4:4:8,bw4x4:2:8,bw4x4:1:10 ;;
decode) file=decode patterns=16:32,8:32,4:32 ;;
shflbw) file=shflbw_gemm patterns=shfl64:50%,shfl64:25%,shfl64:12.5% ;;
venom) file=venom_bert patterns=64:2:4,64:2:8,64:2:16,128:2:8,128:2:16 ;;
*)
    echo "sweep_gpu.sh: there is no set '$set_name'" >&2
    exit 2
    ;;
esac
mkdir -p "$folder"
parts="$folder/${set_name}_part_"

# Rows of all parts, each problem and kernel once; those that were cut short are left out.
join() {
    awk -F, '
        FNR == 1 { if (NR == 1) { print; for (i = 1; i <= NF; i++) at[$i] = i }; next }
        { key = $at["m"] "," $at["n"] "," $at["k"] "," $at["pattern"] "," $at["precision"] "," $at["kernel"] }
        $at["runs"] >= 3 && !(key in seen) { seen[key] = 1; print }' "$parts"*.csv
}

if [ "$seconds" = gather ]; then
    out=$folder/$set_name.csv
    join >"$out"
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

# What is left, as a shape file: shapes without a row for each of their patterns and each of the precisions.
left=$folder/${set_name}_left.csv
number=1
while [ -e "$parts$number.csv" ]; do number=$((number + 1)); done
{ if [ "$number" -gt 1 ]; then join; fi; } | awk -F, -v patterns="$patterns" -v precision="$precision" '
    BEGIN { wanted = split(patterns, list, ",") * split(precision, how, ",") }
    FILENAME == "-" && FNR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
    FILENAME == "-" { if ($at["kernel"] !~ /^peer:/) done[$at["m"] "," $at["n"] "," $at["k"]]++; next }
    /^#/ { next }
    /^name/ { print; next }
    done[$2 "," $3 "," $4] < wanted { print | "sort -t, -k3,3n -k4,4n -k2,2n" }' - "$here/shapes/$file.csv" >"$left"
count=$(($(wc -l <"$left") - 1))
if [ "$count" -eq 0 ]; then
    echo "nothing is left of $set_name"
    exit
fi
for peer in "$@"; do set -- "$@" --peer "$peer" && shift; done
status=0
"$lacuna" bench --shapes "$left" --device cuda:0 --pattern "$patterns" --layout "$layout" --precision "$precision" --extended --stages \
    --progress never --min-time "${MIN_TIME:-0.01}" --max-seconds "$seconds" --csv "$parts$number.csv" "$@" \
    >"$parts$number.txt" 2>"$parts$number.log" </dev/null || status=$?
if [ "$status" -gt 1 ]; then
    tail -3 "$parts$number.log" >&2
    exit "$status"
fi
grep -h '^Seconds' "$parts$number.txt" || true
grep -h 'WRONG\|left out' "$parts$number.log" || true
echo "$count shapes of $set_name were left"
exit "$status"
