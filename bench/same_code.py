#!/usr/bin/env python3
"""same_code.py - are stored results of a GPU still results of this code?

    bench/same_code.py LACUNA FOLDER RESULTS.csv... > SAME.csv

Every problem of a results file is compiled twice, without a GPU: by the commit that its row names, which is checked out and built in FOLDER, and
by LACUNA, the program of this tree. Where the machine code is the same to the last bit, what was measured is what stands here. A line of SAME.csv is a
file, commit and kernel: how many problems there are, how many have the same programs, and which entries are other ones where they are not. The
kernel of the row is asked for by name: whether today's planner would take it is not the question. Dense rows have no program of ours. What a build with
changes that were never committed (`+changes`) ran cannot be made again, and is not the same.

FOLDER keeps the builds and the compiled programs: a second run is quick. NVRTC is found as `lacuna devices` finds it.
"""

import collections
import csv
import json
import os
import re
import struct
import subprocess
import sys

PROBLEM = ("kernel", "pattern", "m", "n", "k", "dtype", "layout", "precision")
HEADER = struct.Struct("<8sIIQQ")  # of a cache entry: magic, version, compiler, bytes of the key, bytes of the image


def built(folder, commit):
    """The command line of a commit."""
    tree = os.path.join(folder, commit)
    lacuna = os.path.join(tree, "build", "lacuna")
    if not os.path.exists(lacuna):
        here = os.path.dirname(os.path.abspath(__file__))
        quiet = {"check": True, "stdout": subprocess.DEVNULL}
        subprocess.run(["git", "clone", "-q", subprocess.check_output(["git", "-C", here, "rev-parse", "--show-toplevel"], text=True).strip(), tree], **quiet)
        subprocess.run(["git", "-C", tree, "-c", "advice.detachedHead=false", "checkout", "-q", commit], **quiet)
        subprocess.run(["cmake", "-S", tree, "-B", os.path.join(tree, "build"), "-G", "Ninja"], **quiet)
        subprocess.run(["cmake", "--build", os.path.join(tree, "build"), "--target", "lacuna_cli"], **quiet)
    return lacuna


def entry_and_image(path):
    with open(path, "rb") as file:
        data = file.read()
    _, _, _, key_bytes, image_bytes = HEADER.unpack_from(data)
    key = data[len(data) - image_bytes - key_bytes:len(data) - image_bytes].decode()
    return re.search(r"^entry (\w+)$", key, re.M).group(1), data[len(data) - image_bytes:]


def programs(lacuna, cache, row):
    """{entry: machine codes} of a problem. The cache does not say which of its files were asked for; their times of access do."""
    os.makedirs(cache, mode=0o700, exist_ok=True)
    for name in os.listdir(cache):
        path = os.path.join(cache, name)
        os.utime(path, (0, os.stat(path).st_mtime))
    command = [lacuna, "compile", "--json", "--arch", "sm_90a", "--out", cache, "--kernel", row["kernel"], "--pattern", row["pattern"],
               "--tokens", row["m"], "--outputs", row["n"], "--inputs", row["k"], "--dtype", row["dtype"],
               "--x-layout", row["layout"], "--y-layout", row["layout"]]
    if row["dtype"] == "f32":
        command += ["--precision", row["precision"]]
    asked = len(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["programs"])
    used = [path for path in (os.path.join(cache, name) for name in os.listdir(cache)) if os.stat(path).st_atime > 0]
    if len(used) != asked:
        sys.exit(f"same_code.py: {asked} programs were asked for and {len(used)} files of {cache} read: are times of access kept there?")
    found = collections.defaultdict(set)
    for path in used:
        entry, image = entry_and_image(path)
        found[entry].add(image)
    return found


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    lacuna, folder, files = sys.argv[1], sys.argv[2], sys.argv[3:]
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(("file", "commit", "kernel", "problems", "same", "other_entries"))
    for path in files:
        with open(path, newline="") as file:
            rows = {(re.sub(r"^(\w{7})\w*", r"\1", row["commit"]),) + tuple(row[name] for name in PROBLEM): row for row in csv.DictReader(file)}
        found = collections.defaultdict(list)
        for (commit, kernel, *_), row in rows.items():
            if not kernel.startswith("cuda_") or kernel == "cuda_cublaslt_dense":
                continue
            if "+" in commit:
                found[commit, kernel].append({"uncommitted"})
                continue
            then = programs(built(folder, commit), os.path.join(folder, commit + ".cache"), row)
            now = programs(lacuna, os.path.join(folder, "now.cache"), row)
            found[commit, kernel].append({entry for entry in {**then, **now} if then.get(entry) != now.get(entry)})
        for (commit, kernel), others in sorted(found.items()):
            writer.writerow((os.path.basename(path), commit, kernel, len(others), sum(not other for other in others),
                             " ".join(sorted(set().union(*others)))))
        sys.stdout.flush()


main()
