#!/bin/sh
# prune_disk.sh LACUNA FOLDER LAYERS CSV [WHAT...] - is pruning a large checkpoint by magnitude as fast as the disk? Makes a checkpoint of LAYERS f16 matrices of
# 4096 x 11008 in FOLDER (90 MB each; kept when it is there), and times, each from a cold cache: dd that reads it, dd that writes as much as pruning does,
# dd that copies it, and `lacuna prune` to two patterns; or only WHAT is named: read, write, copy, a pattern, or none, to make the checkpoint alone. Output is flushed to the disk in all of them.
# Appends rows to CSV.
set -eu
lacuna=$1
folder=$2
layers=$3
csv=$4
shift 4
[ $# -gt 0 ] || set -- read write copy 2:4 vw32:8:32
model=$folder/prune_disk_$layers.safetensors
out=$folder/prune_disk_out.safetensors
commit=${LAC_COMMIT:-$(git -C "$(dirname "$0")" rev-parse --short=12 HEAD)}
machine="$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1); $(nproc) cores; $(df --output=source,fstype "$folder" | tail -1 | tr -s ' ')"

[ -e "$model" ] || python3 - "$model" "$layers" <<'P'
import array, json, os, struct, sys
path, layers, n, k = sys.argv[1], int(sys.argv[2]), 4096, 11008
size = 2 * n * k
bits = array.array("H", os.urandom(1 << 21))  # finite numbers of four binades and both signs
piece = array.array("H", [b & 0x83FF | 0x2000 | b >> 2 & 0x0C00 for b in bits]).tobytes()
whole = (piece * (size // len(piece) + 2))
header = {"layers.%d.weight" % i: {"dtype": "F16", "shape": [n, k], "data_offsets": [i * size, (i + 1) * size]} for i in range(layers)}
text = json.dumps(header).encode()
with open(path, "wb") as file:
    file.write(struct.pack("<Q", len(text)) + text)
    for i in range(layers):
        file.write(whole[2000 * i : 2000 * i + size])
P

[ -e "$csv" ] || echo "what,bytes_read,bytes_written,seconds,input_mb_per_s,disk_mb_per_s,commit,device_info" >"$csv"
total=$(stat -c %s "$model")

# measure WHAT READ COMMAND...: READ bytes come in, what lies in $out afterwards has gone out.
measure() {
    what=$1
    read=$2
    shift 2
    rm -f "$out"
    sync
    dd if="$model" iflag=nocache count=0 2>/dev/null # out of the cache
    start=$(date +%s.%N)
    "$@" >/dev/null 2>&1
    end=$(date +%s.%N)
    written=0
    [ ! -e "$out" ] || written=$(stat -c %s "$out")
    awk -v w="$what" -v r="$read" -v o="$written" -v s="$start" -v e="$end" -v c="$commit" -v m="$machine" -v t="$total" \
        'BEGIN { d = e - s; printf "%s,%.0f,%.0f,%.2f,%.0f,%.0f,%s,\"%s\"\n", w, r, o, d, t / d / 1e6, (r + o) / d / 1e6, c, m }' | tee -a "$csv"
}

for wanted in "$@"; do
    case $wanted in
    none) ;;
    read) measure "dd read" "$total" dd if="$model" of=/dev/null bs=4M ;;
    write) measure "dd write" 0 dd if=/dev/zero of="$out" bs=4M count=$((total / 4194304 * 9 / 16)) conv=fsync ;;
    copy) measure "dd copy" "$total" dd if="$model" of="$out" bs=4M conv=fsync ;;
    *) measure "lacuna prune $wanted" "$total" "$lacuna" prune "$model" "$out" -p "$wanted" --restart ;;
    esac
done
rm -f "$out"
