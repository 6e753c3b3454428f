#!/usr/bin/env python3
"""goals_table.py - how stored results on a GPU stand against the goals, and the model against them, as Markdown.

    bench/goals_table.py --fp32 FP32.csv --f16 F16.csv [--rounds ROUNDS.csv] [--mma MMA.csv] [--sweep SWEEP.csv ...] [--picks PICKS.csv] [--counters COUNTERS.csv]

bench/results/h200.md is made so; `make h200-table` writes it anew. FP32.csv, F16.csv, ROUNDS.csv (f16 again, several times) and MMA.csv come from bench/goals_gpu.sh; of several rounds it tells the mean. The sweeps come
from bench/sweep_gpu.sh, PICKS.csv from `lacuna bench --kernel all`, COUNTERS.csv from bench/counters_gpu.sh. A goal is a ratio to the quickest dense product of the same run; a
peer's number is its time over ours. The factor of each kernel is fitted on
the first sweep that holds enough rows of it (model_errors.py says what is fitted and what is not). Python's standard library is enough.
"""

import argparse
import csv
import math
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import model_errors  # noqa: E402

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
    try:
        with open(path, newline="") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as trouble:
        sys.exit("goals_table.py: %s: cannot be read: %s" % (path, trouble))
    if not rows:
        sys.exit("goals_table.py: %s: holds no rows" % path)
    if "kernel" not in rows[0]:
        sys.exit("goals_table.py: %s: is no CSV of lacuna bench: it has no column 'kernel'" % path)
    return rows


def is_peer(row):
    return row["kernel"].startswith("peer:")


def size(row):
    return row["m"], row["n"], row["k"]


def mean(values):
    return sum(values) / len(values)


def same_problem(row):
    """What rows of several rounds have in common."""
    return size(row), row["pattern"], row["dtype"], row["precision"], row["layout"], row["kernel"], row["commit"]


def peers_of(rows, group):
    """Their times on this problem over ours. A peer that has its own layout counts where it was timed in the same rounds, as all do where
    there are several."""
    found = {}
    for row in group:
        for other in rows:
            same_rounds = other["dense_us"] == row["dense_us"] or (len(group) == 1 and other["layout"] == row["layout"])
            if is_peer(other) and size(other) == size(row) and same_rounds and all(other[name] == row[name] for name in ("pattern", "dtype", "commit")):
                found.setdefault(other["kernel"][5:], []).append(float(other["time_us"]) / float(row["time_us"]))
    return ", ".join("%s %.2fx" % (name, ratio) for name, ratios in sorted(found.items())
                     for ratio in (sorted(set(ratios)) if len(group) == 1 else [mean(ratios)]))


def info(row, key):
    for part in row["device_info"].split(";"):
        name, _, value = part.strip().partition("=")
        if name == key:
            return value
    return ""


def line(rows, group, goal):
    """A problem, by the mean of its rounds. One that another build made than the file's first says so."""
    row, ratios = group[0], [float(row["speedup"]) for row in group]
    ratio, told = mean(ratios), "%.2fx" % mean(ratios)
    if len(group) > 1:
        told += " (%.2f to %.2fx in %d)" % (min(ratios), max(ratios), len(group))
    stands = "-" if goal is None else "reached" if ratio >= goal else "%.0f%% of it" % (100 * ratio / goal)
    if row["m"] == "1" and info(row, "memory_gbytes"):
        rates = [float(row["gbytes_per_s"]) / float(info(row, "memory_gbytes")) for row in group]
        stands += ", %.0f%% of memory's rate" % (100 * mean(rates))
    if row["commit"] != rows[0]["commit"]:
        stands += " (commit %s)" % row["commit"]
    print("| %s | %s %s %s | %s | %.1f us | %s | %s | %s | %s | %s MHz, %s W |" % (
        ",".join(size(row)), row["pattern"], row["dtype"] if row["dtype"] != "f32" else row["precision"], row["layout"], row["kernel"],
        mean([float(row["time_us"]) for row in group]), told, "-" if goal is None else "%gx" % goal, stands, peers_of(rows, group),
        info(row, "sm_clock_mhz"), info(row, "power_w")))


def head(title):
    print("\n%s\n\n| m,n,k | problem | kernel | time | of dense | goal | stands | of peers | clock, power |" % title)
    print("|---|---|---|---|---|---|---|---|---|")


def base(path):
    return "`%s`" % os.path.basename(path)


def fp32_goal(row):
    if size(row) == CUBE and row["pattern"] in FP32:
        return FP32[row["pattern"]][["strict", "fast", "tf32"].index(row["precision"])]
    return FEW_FP32.get(row["pattern"]) if row["m"] == "1" else None


def f16_goal(row):
    m = int(row["m"])
    if size(row) == CUBE:
        # Goals are of kernels that keep W compressed: a copy of W as a dense matrix counts for none.
        return F16.get(row["pattern"]) if row["layout"] == "feature" and row["is_dense"] != "1" else None
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
        print("- %s (commits %s), %s %s: %d cells, geomean %.2fx, least %.2fx (%s %s, %s), %d under 0.98x, %.1f%% at 1.2x or more, %d dense" % (
            base(path), ", ".join(sorted({row["commit"] for row in cells})), how[0], how[1], len(cells), geomean(ratios), min(ratios), ",".join(size(worst)), worst["pattern"], worst["kernel"],
            sum(ratio < 0.98 for ratio in ratios), 100 * sum(ratio >= 1.2 for ratio in ratios) / len(ratios),
            sum(row["is_dense"] == "1" for row in cells)))
        many = [row for row in cells if float(row["density"]) <= 0.25 and int(row["m"]) >= 128]
        if many:
            print("  - at 75%% or more, m >= 128: %d cells, %d under 1.0x, least %.2fx" % (
                len(many), sum(float(row["speedup"]) < 1 for row in many), min(float(row["speedup"]) for row in many)))
        for name in sorted({row["kernel"] for row in rows if is_peer(row)}):
            times = {(size(row), row["pattern"], row["dtype"]): float(row["time_us"]) for row in rows if row["kernel"] == name}
            pairs = [(times[key] / float(row["time_us"]), row) for row in cells
                     for key in [(size(row), row["pattern"], row["dtype"])] if key in times]
            if pairs:
                least = min(pairs, key=lambda pair: pair[0])
                print("  - against %s: %d cells, geomean %.3fx, least %.3fx (%s %s), %d under 1.2x, %d under 0.97x" % (
                    name, len(pairs), geomean([pair[0] for pair in pairs]), least[0], ",".join(size(least[1])), least[1]["pattern"],
                    sum(pair[0] < 1.2 for pair in pairs), sum(pair[0] < 0.97 for pair in pairs)))


ENOUGH = 8  # rows of a kernel, to fit its factor on


def model(sweeps, paths):
    """Errors of the stored predictions, and of a factor for each kernel that one file gave (model_errors.py tells what else is fitted)."""
    files = {path: model_errors.read(path) for path in paths}
    order = [path for path in sweeps if path in files] or paths
    constants = model_errors.fit(files[order[0]])
    fitted_on = dict.fromkeys(constants["factor"], order[0])
    for path in order[1:]:
        for kernel in sorted({row["kernel"] for row in files[path]} - set(fitted_on)):
            own = [row for row in files[path] if row["kernel"] == kernel]
            if len(own) >= ENOUGH:
                model_errors.fit_kernel(own, kernel, constants)
                fitted_on[kernel] = path

    def predicted(row):
        return model_errors.predict(row, constants) if row["kernel"] in fitted_on else row["stored"]

    print("\n## The performance model\n\n\\|predicted / measured - 1\\|, median and 90th percentile: as stored, and fitted on one file: the share of "
          "the chip's other levels (%.2f) and a factor on launches (%.2f) on %s; for each kernel one factor on the chip's time, on the first file that "
          "holds %d rows of it, marked *; a kernel without such a file stays as it is. The rate that the model gives a row's own tile is kept: the "
          "kernels' authors set it on runs at 4096^3 and a few other shapes.\n" % (
              constants["overlap"], constants["launch"], base(order[0]), ENOUGH))
    print("| file | kernel | rows | as stored | fitted |\n|---|---|---|---|---|")
    for path, rows in files.items():
        for kernel in [None] + sorted({row["kernel"] for row in rows}):
            own = [row for row in rows if kernel in (None, row["kernel"])]
            told = []
            for how in (lambda row: row["stored"], predicted):
                found = model_errors.errors(own, [how(row) for row in own])
                told.append("%.1f%%, %.1f%%" % (100 * model_errors.quantile(found, 0.5), 100 * model_errors.quantile(found, 0.9)))
            mark = "*" if fitted_on.get(kernel) == path else ""
            print("| %s | %s%s | %d | %s |" % (base(path), kernel or "all", mark, len(own), " | ".join(told)))
    held = [row for path, rows in files.items() for row in rows if fitted_on.get(row["kernel"], path) != path]
    if held:
        found = model_errors.errors(held, [predicted(row) for row in held])
        print("\nHeld out, rows of files that their kernel's factor was not fitted on: %d, median %.1f%%, 90th percentile %.1f%%." % (
            len(held), 100 * model_errors.quantile(found, 0.5), 100 * model_errors.quantile(found, 0.9)))


def picks(path):
    cells = {}
    for row in model_errors.read(path):
        cells.setdefault(row["cell"], []).append((row["stored"], row["measured"], row["kernel"]))
    cells = {cell: found for cell, found in cells.items() if len(found) > 1}
    losses = {cell: min(found)[1] / min(time for _, time, _ in found) for cell, found in cells.items()}
    if not losses:
        return
    print("\nPicks (%s, every kernel that applies): over %d problems the model's pick takes %.3fx of the quickest kernel's time in geomean." % (
        base(path), len(losses), geomean(list(losses.values()))))
    for cell, loss in sorted(losses.items(), key=lambda item: -item[1]):
        if loss > 1.05:
            best = min(cells[cell], key=lambda found: found[1])
            print("- %s: %s picked, %s is %.2fx as fast" % (" ".join(cell), min(cells[cell])[2], best[2], loss))


def counters(path):
    """What bounds the kernels, as counters_gpu.sh counted."""
    print("\n## What the kernels keep busy\n\n%s, one launch each, counted by Nsight Compute (`bench/counters_gpu.sh`, whose head tells what each "
          "share is of); the two longest waits of warps for each instruction issued.\n" % base(path))
    print("| m,n,k | problem | kernel | time | tensor cores | shared memory | L2 | device memory | issue | waits |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for row in read(path):
        shares = " | ".join("%.0f%%" % (100 * float(row[name])) for name in ("tensor", "shared", "l2", "memory", "issue"))
        print("| %s | %s %s %s | %s %s | %.1f us | %s | %s |" % (
            ",".join(size(row)), row["pattern"], row["dtype"], row["layout"], row["kernel"], row["entry"], float(row["time_us"]), shares,
            ", ".join(row["stalls"].split()[:2])))


def main():
    parser = argparse.ArgumentParser()
    for name in ("--fp32", "--f16", "--rounds", "--mma", "--picks", "--counters"):
        parser.add_argument(name)
    parser.add_argument("--sweep", nargs="*", default=[])
    given = parser.parse_args()
    paths = [path for path in [given.fp32, given.f16, given.mma] + given.sweep if path]
    if not paths:
        parser.error("no file")
    for path in (given.picks, given.counters):
        if path:
            read(path)  # what is wrong with it is told before anything is written
    all_rows = [row for path in paths + [given.rounds] * bool(given.rounds) for row in read(path)]
    print("# Results on an %s\n\nMade by `bench/goals_table.py` of the CSV files beside it. Driver %s, power limit %s W, cold L2, random data, "
          "medians; commits %s. `of dense` is against the quickest of cuBLAS and cuBLASLt in the same rounds, `of peers` is the peer's time over "
          "ours; clock and power are those of the moments in which the problem was timed." % (
              info(all_rows[0], "model"), info(all_rows[0], "driver"), info(all_rows[0], "power_limit_w"),
              ", ".join(sorted({row["commit"] for row in all_rows}))))
    for path, goal in ((given.fp32, fp32_goal), (given.f16, f16_goal), (given.rounds, f16_goal), (given.mma, lambda row: None)):
        if not path:
            continue
        rows = read(path)
        head("## " + base(path))
        groups = {}
        for row in rows:
            if not is_peer(row) and row["speedup"]:
                groups.setdefault(same_problem(row), []).append(row)
        for group in groups.values():
            line(rows, group, goal(group[0]))
    if given.sweep:
        print("\n## Whole shape files\n")
    for path in given.sweep:
        sweep(path, read(path))
    levelled = [path for path in paths if any("launch" in row["levels"] for row in model_errors.read(path))]
    if levelled:
        model(given.sweep, levelled)
    if given.picks:
        picks(given.picks)
    if given.counters:
        counters(given.counters)
    return 0


if __name__ == "__main__":
    sys.exit(main())
