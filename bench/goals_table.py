#!/usr/bin/env python3
"""goals_table.py - how stored results on a GPU stand against the goals, as Markdown tables for the documents.

    bench/goals_table.py FP32.csv F16.csv [LLAMA.csv] [SWEEP.csv ...]

FP32.csv and F16.csv come from bench/goals_gpu.sh, the others from bench/sweep_gpu.sh. A goal is a ratio to the quickest dense product of
the same run; a peer's ratio is its time over ours. Python's standard library is enough.
"""

import csv
import math
import sys

CUBE = ("4096", "4096", "4096")
FP32 = {"vw32:16:32": (1.90, 4.5, 1.5), "vw32:12:32": (2.5, 5.5, 1.9), "vw32:8:32": (3.75, 7.5, 2.6), "vw32:4:32": (7, 11, 4)}
F16 = {"2:4": 1.6, "vw128:16:32": 1.65, "vw128:8:32": 3.0, "vw128:4:32": 5.2, "shfl128:50%": 1.65, "shfl128:25%": 3.0,
       "shfl128:12.5%": 5.2, "vw64:16:32": 1.3, "vw64:8:32": 2.1, "vw64:4:32": 3.6, "shfl64:50%": 1.3, "shfl64:25%": 2.1,
       "shfl64:12.5%": 3.6, "vw32:16:32": 1.2, "vw32:8:32": 1.9, "vw32:4:32": 3.0, "bw64x64:1:2": 1.3, "bw64x64:1:4": 2.1,
       "bw64x64:1:8": 3.6, "128:2:8": 1.85, "128:2:16": 3.6, "128:2:32": 6.5, "256:2:8": 2.4, "256:2:16": 4.5, "64:2:8": 1.1,
       "64:2:16": 2.0, "4:8": 0.95, "8:16": 0.95, "16:32": 0.95, "4:16": 0.95, "8:32": 0.95}
HEADLINE = {"128:2:40": 6.0, "128:2:100": 10.0}
FEW = [((1, 1), {"2:4": 1.7, "8:32": 3.0, "4:32": 4.5}), ((2, 16), {"2:4": 1.5, "8:32": 2.5, "vw32:8:32": 2.5, "64:2:8": 2.5}),
       ((32, 128), {"2:4": 1.3, "8:32": 1.8, "vw64:8:32": 1.8, "64:2:8": 1.8})]
SMALL_LAYER = {"2:4": 1.4, "8:32": 2.2, "4:32": 2.8}
FEW_FP32 = {"16:32": 1.7, "8:32": 3.2, "4:32": 5.5}


def read(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def is_peer(row):
    return row["kernel"].startswith("peer:")


def size(row):
    return row["m"], row["n"], row["k"]


def peers_of(rows, row):
    """Their times on this problem, and ours as a ratio."""
    found = []
    for other in rows:
        if is_peer(other) and size(other) == size(row) and all(other[name] == row[name] for name in ("pattern", "dtype")):
            found.append("%s %.2fx" % (other["kernel"][5:], float(other["time_us"]) / float(row["time_us"])))
    return ", ".join(sorted(set(found)))


def line(rows, row, goal):
    ratio = float(row["speedup"])
    stands = "-" if goal is None else "reached" if ratio >= goal else "%.0f%% of it" % (100 * ratio / goal)
    print("| %s | %s %s %s | %s | %.1f us | %.2fx | %s | %s | %s |" % (
        ",".join(size(row)), row["pattern"], row["dtype"] if row["dtype"] != "f32" else row["precision"], row["layout"], row["kernel"],
        float(row["time_us"]), ratio, "-" if goal is None else "%gx" % goal, stands, peers_of(rows, row)))


def head(title):
    print("\n%s\n\n| m,n,k | problem | kernel | time | of dense | goal | stands | of peers |\n|---|---|---|---|---|---|---|---|" % title)


def fp32_goal(row):
    if size(row) == CUBE and row["pattern"] in FP32:
        return FP32[row["pattern"]][["strict", "fast", "tf32"].index(row["precision"])]
    return FEW_FP32.get(row["pattern"]) if row["m"] == "1" else None


def f16_goal(row):
    m = int(row["m"])
    if size(row) == CUBE:
        return F16.get(row["pattern"]) if row["layout"] == "feature" else None
    if size(row) == ("4096", "1024", "12288"):
        return HEADLINE.get(row["pattern"])
    for (low, high), goals in FEW:
        if low <= m <= high:
            return (SMALL_LAYER if row["n"] == "4096" and row["k"] == "4096" and m == 1 else goals).get(row["pattern"])
    return None


def geomean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def sweep(path, rows):
    """The plan's picks over a whole shape file."""
    own = [row for row in rows if not is_peer(row) and row["speedup"]]
    for how in sorted({(row["dtype"], row["precision"]) for row in own}):
        cells = [row for row in own if (row["dtype"], row["precision"]) == how]
        ratios = [float(row["speedup"]) for row in cells]
        worst = min(cells, key=lambda row: float(row["speedup"]))
        print("\n%s, %s %s: %d cells, geomean %.2fx, least %.2fx (%s %s, %s), %d under 0.98x, %.1f%% at 1.2x or more, %d dense" % (
            path, how[0], how[1], len(cells), geomean(ratios), min(ratios), ",".join(size(worst)), worst["pattern"], worst["kernel"],
            sum(ratio < 0.98 for ratio in ratios), 100 * sum(ratio >= 1.2 for ratio in ratios) / len(ratios),
            sum(row["is_dense"] == "1" for row in cells)))
        many = [row for row in cells if float(row["density"]) <= 0.25 and int(row["m"]) >= 128]
        if many:
            print("  at 75%% or more, m >= 128: %d cells, %d under 1.0x, least %.2fx" % (
                len(many), sum(float(row["speedup"]) < 1 for row in many), min(float(row["speedup"]) for row in many)))
        for name in sorted({row["kernel"] for row in rows if is_peer(row)}):
            times = {(size(row), row["pattern"], row["dtype"]): float(row["time_us"]) for row in rows if row["kernel"] == name}
            pairs = [(times[key] / float(row["time_us"]), row) for row in cells
                     for key in [(size(row), row["pattern"], row["dtype"])] if key in times]
            if pairs:
                least = min(pairs, key=lambda pair: pair[0])
                print("  against %s: %d cells, geomean %.3fx, least %.3fx (%s %s), %d under 1.2x, %d under 0.97x" % (
                    name, len(pairs), geomean([pair[0] for pair in pairs]), least[0], ",".join(size(least[1])), least[1]["pattern"],
                    sum(pair[0] < 1.2 for pair in pairs), sum(pair[0] < 0.97 for pair in pairs)))


def main():
    if len(sys.argv) < 3 or sys.argv[1].startswith("-"):
        print(__doc__)
        return 2
    for path, goal in ((sys.argv[1], fp32_goal), (sys.argv[2], f16_goal)):
        rows = read(path)
        head(path)
        for row in rows:
            if not is_peer(row) and row["speedup"]:
                line(rows, row, goal(row))
    for path in sys.argv[3:]:
        sweep(path, read(path))
    return 0


if __name__ == "__main__":
    sys.exit(main())
