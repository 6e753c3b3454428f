#!/bin/sh
# sweep.sh LACUNA FOLDER [SECONDS [THREADS [MIN_TIME]]] - never slower than dense: every shape of bench/shapes, every family, at 50, 75
# and 87.5%, the planner's pick against the dense library. It runs in slices of one (n, k) and up to three m each, and a slice that is done is
# not run again: call it until it says that nothing is left (after a kill, remove FOLDER/*.lock). Several calls may share a
# folder, each on cores of its own. SECONDS (80 unless said) is how long one call may go on.
#
# The rule that scales shapes to a CPU: m is cut to 512; n and k are halved while either exceeds 4096; equal shapes run once.
# The smallest slices come first. A slice times briefly first (--min-time 0.03 unless said); cells under 1.05x, and those under
# 1.25x whose spread is over 15%, are timed again five times as long, and those results stand.
# `sweep.sh LACUNA FOLDER gather` joins the slices into FOLDER/never_slower.csv and .html and says what is below 0.98x, what runs
# dense, and how large its share is.
set -eu
lacuna=$1
folder=$2
seconds=${3:-80}
threads=${4:-0}
min_time=${5:-0.03}
here=$(dirname "$0")
patterns=2:4,8:32,4:32,vw32:16:32,vw32:8:32,vw32:4:32,bw4x4:4:8,bw4x4:2:8,bw4x4:1:8,64:2:4,64:2:8,64:2:16,shfl64:50%,shfl64:25%,shfl64:12.5%
mkdir -p "$folder"

# n,k,m+m+m of every slice: the shapes of all files, scaled, each once.
slices() {
    for file in "$here"/shapes/*.csv; do
        awk -F, '
            /^#/ { next }
            !seen++ { for (i = 1; i <= NF; i++) at[$i] = i; next }
            {
                if ("m" in at) { m = $at["m"]; n = $at["n"]; k = $at["k"] }
                else { m = $at["batch"] * $at["h"] * $at["w"]; n = $at["c_out"]; k = $at["c_in"] * $at["r"] * $at["s"] }
                if (m > 512) m = 512
                while (n > 4096 || k > 4096) { n = int((n + 1) / 2); k = int((k + 1) / 2) }
                print n "," k "," m
            }' "$file"
    done | sort -t, -k1,1n -k2,2n -k3,3n -u | awk -F, '
        { key = $1 "," $2; if (key != last || count == 3) { if (last) print last "," all; last = key; all = $3; count = 1 }
          else { all = all "+" $3; count++ } }
        END { if (last) print last "," all }' | awk -F, '{ print $1 * $2 * (gsub(/\+/, "+", $3) + 1), $1 "," $2 "," $3 }' | sort -n | cut -d' ' -f2
}

gather() {
    out=$folder/never_slower.csv
    rm -f "$out"
    for file in "$folder"/slice_*.csv; do
        if [ -e "$out" ]; then tail -n +2 "$file" >>"$out"; else cp "$file" "$out"; fi
    done
    "$lacuna" bench --from "$out" --report "$folder/never_slower.html" >/dev/null
    awk -F, '
        NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
        {
            cells++
            speedup = $at["speedup"]; dense = $at["is_dense"]; density = $at["density"]; m = $at["m"]
            if (speedup < 0.98) { slow++; print "under 0.98x:", speedup, $at["pattern"], m, $at["n"], $at["k"], $at["kernel"], "spread", $at["spread"] }
            if (dense) { run_dense++; if (density <= 0.25 && m >= 16) { forbidden++; print "dense:", $at["pattern"], m, $at["n"], $at["k"] } }
            if (speedup >= 1.2) fast++
        }
        END {
            printf "%d cells: %d under 0.98x of dense (%.1f%%), %d run dense (%.1f%%), of these %d at 75%% or more with 16 tokens or more; %.1f%% over 1.2x\n",
                cells, slow, 100 * slow / cells, run_dense, 100 * run_dense / cells, forbidden, 100 * fast / cells
        }' "$out"
}

if [ "$seconds" = gather ]; then
    gather
    exit
fi

# MIN_TIME FILE PATTERNS SHAPE...
time_cells() {
    time=$1 file=$2 list=$3
    shift 3
    "$lacuna" bench "$@" --device cpu --threads "$threads" --pattern "$list" --extended --progress never --min-time "$time" \
        --csv "$file" </dev/null >/dev/null
}

begin=$(date +%s)
left=0
slices >"$folder/slices.txt"
while IFS=, read -r n k all; do
    slice=$folder/slice_${n}_${k}_${all%%+*}.csv
    if [ -e "$slice" ]; then continue; fi
    mkdir "$slice.lock" 2>/dev/null || continue # another call, on other cores, has it
    if [ $(($(date +%s) - begin)) -ge "$seconds" ]; then
        rmdir "$slice.lock"
        left=$((left + 1))
        continue
    fi
    shapes=$(echo "$all" | tr + '\n' | sed "s/\$/,$n,$k/")
    time_cells "$min_time" "$slice.part" "$patterns" $shapes
    # Tokens and patterns of the cells to be timed again, a line for each number of tokens.
    awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
             $at["speedup"] < 1.05 || ($at["spread"] > 0.15 && $at["speedup"] < 1.25) {
                 m = $at["m"]; list[m] = list[m] (list[m] ? "," : "") $at["pattern"] }
             END { for (m in list) print m, list[m] }' "$slice.part" >"$slice.again"
    while read -r m doubtful; do
        time_cells "$(awk "BEGIN { print 5 * $min_time }")" "$slice.longer" "$doubtful" "$m,$n,$k"
        awk -F, 'NR == 1 && NR == FNR { for (i = 1; i <= NF; i++) at[$i] = i }
                 NR == FNR { key = $at["m"] "," $at["pattern"]; if (FNR > 1) longer[key] = $0; next }
                 { key = $at["m"] "," $at["pattern"]; print (key in longer) ? longer[key] : $0 }' "$slice.longer" "$slice.part" >"$slice.merged"
        mv "$slice.merged" "$slice.part"
    done <"$slice.again"
    rm -f "$slice.again" "$slice.longer"
    mv "$slice.part" "$slice"
    rmdir "$slice.lock"
done <"$folder/slices.txt"
echo "$left slices left of $(wc -l <"$folder/slices.txt")"
