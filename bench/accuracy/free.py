"""free.py - what `obs` loses under a free distribution, by what shares it out among the columns: rows of bench/results/prune_free.csv.

    free.py --model IN.safetensors --calibration INPUTS.safetensors --name NAME --csv OUT.csv [--include GLOB] [--way WAY ...] [PATTERN ...]

Builds the command `lacuna` for each way below `build/free`, prunes the model's matrices to each pattern, and appends the mean of their
output errors. `language.py calibrate` and `sentences.py --calibration` write INPUTS. Patterns of groups, which share nothing out,
are run once; even shares know no shuffled rows.
"""

import argparse
import csv
import json
import os
import subprocess
import tempfile

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
WAYS = {"effect": 1, "cost": 2, "even": 4, "best of three": 7}  # bits of LAC_OBS_SHARES_TRIED, src/prune/obs.h
PATTERNS = ("16:32 50% 8:32 25% vw4:8:32 vw4:25% vw32:16:32 vw32:50% vw32:8:32 vw32:25% vw64:16:32 vw64:50% vw64:8:32 vw64:25% "
            "bw4x4:16:32 bw4x4:50% bw4x4:8:32 bw4x4:25% shfl32:50% shfl32:25% shfl64:50% shfl64:25%").split()  # fmt: skip


def program(way):
    """The command, built to try this way alone."""
    folder = os.path.join(ROOT, "build", "free", way.replace(" ", "-"))
    for command in (["-S", ROOT, "-B", folder, "-DCMAKE_C_FLAGS=-DLAC_OBS_SHARES_TRIED=%d" % WAYS[way]], ["--build", folder, "--target", "lacuna_cli", "-j2"]):
        subprocess.run(["cmake"] + command, check=True, stdout=subprocess.DEVNULL)
    return os.path.join(folder, "lacuna")


def errors(lacuna, args, pattern):
    """The output error of every matrix that was pruned."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "pruned.safetensors")
        command = [lacuna, "prune", args.model, out, "-p", pattern, "-m", "obs", "-c", args.calibration, "-i", args.include, "--json"]
        answer = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return [layer["output_error"] for layer in answer["layers"] if layer["pruned"]]


def main():
    options = argparse.ArgumentParser(description="What obs loses under a free distribution, by what shares it out.")
    options.add_argument("patterns", nargs="*", metavar="PATTERN")
    options.add_argument("--model", required=True, metavar="FILE.safetensors")
    options.add_argument("--calibration", required=True, metavar="FILE.safetensors")
    options.add_argument("--name", required=True, help="of the model, for the rows")
    options.add_argument("--include", default="*", metavar="GLOB", help="matrices to prune")
    options.add_argument("--way", action="append", choices=list(WAYS))
    options.add_argument("--csv", required=True, metavar="FILE")
    args = options.parse_args()
    patterns = args.patterns or PATTERNS
    runs = [("N:M", pattern) for pattern in patterns if "%" not in pattern]
    for way in args.way or WAYS:
        runs += [(way, pattern) for pattern in patterns if "%" in pattern and not (way == "even" and pattern.startswith("shfl"))]
    programs = {way: program("best of three" if way == "N:M" else way) for way, _ in runs}
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    fresh = not os.path.exists(args.csv)
    with open(args.csv, "a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if fresh:
            writer.writerow("model,matrices,pattern,shared_out_by,mean_output_error,commit".split(","))
        for way, pattern in runs:
            found = errors(programs[way], args, pattern)
            writer.writerow([args.name, len(found), pattern, way, "%.4f" % (sum(found) / len(found)), commit])
            file.flush()


if __name__ == "__main__":
    main()
