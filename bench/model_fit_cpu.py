#!/usr/bin/env python3
"""model_fit_cpu.py - fits the few constants of the CPU's performance model on the cells of one shape file, and tells the errors on the others.

    bench/model_fit_cpu.py [--fit decode] [--as-measured] RESULTS.csv ...

RESULTS come from bench/sweep.sh or `lacuna bench --extended`; the column `levels` holds what each level of a row takes. A cell belongs to
the shape files (bench/shapes) that hold its m, n, k, scaled as sweep.sh scales them; cells of the file to fit on are held out of no
other. Fitted, by the least sum of |log(predicted / measured)|: the reach of each dataflow, the share of the overlap that is lost, and
what packing takes (src/model/cpu.c, src/cpu/kernels.c). Told: median and 90th percentile of |predicted / measured - 1|, of the
predictions as stored and of the fitted ones; and where cells were timed on several kernels (--kernel all), how much slower the
kernel with the least fitted prediction is than the best, as a geometric mean.

Every process measures the machine's rates anew. One that was disturbed while it did so is wrong about all of its cells, by up to a factor of
two before `together` was measured by the longest member (docs/model.md). So the core's levels of rows of one machine are brought to the
highest FMA rate that a process saw there, unless --as-measured is given. Python's standard library is enough.
"""

import csv
import glob
import math
import os
import sys

CORE = ["l2", "loads", "fma", "packing"]
LANES = {"avx512": 16, "avx2": 8, "neon": 4, "scalar": 1}
START = {False: 0.5, True: 5.5}  # microseconds; with several threads


def scaled(m, n, k):
    m = min(m, 512)
    while n > 4096 or k > 4096:
        n, k = (n + 1) // 2, (k + 1) // 2
    return m, n, k


def shapes_of(path):
    found = set()
    with open(path, newline="") as file:
        for row in csv.DictReader(line for line in file if not line.startswith("#")):
            if "m" in row:
                m, n, k = (int(row[name]) for name in "mnk")
            else:
                m, n, k = int(row["batch"]) * int(row["h"]) * int(row["w"]), int(row["c_out"]), int(row["c_in"]) * int(row["r"]) * int(row["s"])
            found.add(scaled(m, n, k))
    return found


def machine_of(row):
    info = dict(pair.split("=", 1) for pair in row["device_info"].split("; ") if "=" in pair)
    return info.get("model"), info.get("cores"), row["threads"]


def read(path):
    rows = []
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            if row["device"] != "cpu" or not row.get("levels"):
                continue
            levels = {name: float(value) for name, value in (pair.split("=") for pair in row["levels"].split())}
            unit, dataflow = row["kernel"].split("_")[1], row["kernel"].split("_")[-1]
            shape = tuple(int(row[name]) for name in "mnk")
            # FMAs a second that the process's rates allow for, by a kernel that counts neither padding nor waiting much.
            rate = shape[0] * shape[1] * shape[2] * float(row["density"]) / LANES[unit] / levels["fma"] if levels["fma"] else 0.0
            rows.append({"levels": levels, "measured": float(row["time_us"]), "stored": float(row["predicted_us"]), "shape": shape,
                         "dataflow": dataflow, "unit": unit, "kernel": row["kernel"], "threads": int(row["threads"]),
                         "cell": (path, row["dtype"], row["pattern"], row["layout"], row["threads"]) + shape,
                         "process": (path, row["device_info"]), "machine": machine_of(row) + (unit,),
                         "rate": rate if dataflow == "stream" and shape[0] >= 32 else 0.0})
    return rows


def bring_to_one_rate(rows):
    """Scales the levels of the core by how much slower a process took the machine to be than the quickest one of its machine."""
    process, machine = {}, {}
    for row in rows:
        process[row["process"], row["unit"]] = max(process.get((row["process"], row["unit"]), 0.0), row["rate"])
        machine[row["machine"]] = max(machine.get(row["machine"], 0.0), row["rate"])
    kept = []
    for row in rows:
        own = process[row["process"], row["unit"]]
        if own > 0.0:
            scale = own / machine[row["machine"]]
            row["levels"] = {name: value * (scale if name in CORE else 1.0) for name, value in row["levels"].items()}
            kept.append(row)
    return kept


def predict(row, constants):
    """The formula of src/model/cpu.c, from the stored levels, in microseconds."""
    levels = row["levels"]
    feed = levels["memory"] + levels["l3"]
    busy = max(levels["l2"], levels["loads"], levels["fma"]) / constants["reach"].get(row["dataflow"], 0.9)
    lost = 0.05 if row["dataflow"] == "permute" else constants["lost"]
    return max(feed, busy) + lost * min(feed, busy) + constants["packing"] * levels["packing"] + START[row["threads"] > 1]


def fit(rows):
    """A grid: the sum is neither smooth nor convex. A dataflow with fewer than 20 cells keeps 0.9."""
    best = None
    for lost in (0.0, 0.25, 0.5, 0.7, 0.85, 1.0):
        for packing in (1.0, 1.5, 2.0, 3.0, 4.0):
            constants = {"lost": lost, "packing": packing, "reach": {}}
            total = 0.0
            for dataflow in sorted({row["dataflow"] for row in rows}):
                own = [row for row in rows if row["dataflow"] == dataflow]
                losses = []
                for step in range(40, 101) if len(own) >= 20 else [90]:
                    constants["reach"][dataflow] = step / 100
                    losses.append((sum(abs(math.log(predict(row, constants) / row["measured"])) for row in own), step / 100))
                loss, constants["reach"][dataflow] = min(losses)
                total += loss
            if best is None or total < best[0]:
                best = (total, constants)
    return best[1]


def quantile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))] if values else math.nan


def tell(title, rows, constants):
    stored = [abs(row["stored"] / row["measured"] - 1) for row in rows]
    fitted = [abs(predict(row, constants) / row["measured"] - 1) for row in rows]
    print("%-34s %6d %8.1f%% %6.1f%%   %8.1f%% %6.1f%%" % (title, len(rows), 100 * quantile(stored, 0.5), 100 * quantile(stored, 0.9),
                                                       100 * quantile(fitted, 0.5), 100 * quantile(fitted, 0.9)))


def tell_picks(rows, constants):
    for title, time in (("stored", lambda row: row["stored"]), ("fitted", lambda row: predict(row, constants))):
        cells = {}
        for row in rows:
            cells.setdefault(row["cell"], []).append((time(row), row["measured"], row["kernel"]))
        ratios = [(min(cell)[1] / min(timed for _, timed, _ in cell), name, min(cell)[2]) for name, cell in cells.items() if len(cell) > 1]
        if ratios:
            mean = math.exp(sum(math.log(ratio) for ratio, _, _ in ratios) / len(ratios)) - 1
            print("picks by the %s predictions: %d problems, %.1f%% slower than the best kernel in geomean, at worst %.2fx (%s, %s)" % (
                (title, len(ratios), 100 * mean, max(ratios)[0]) + (" ".join(map(str, max(ratios)[1][1:])), max(ratios)[2])))


def main():
    arguments, fit_name, as_measured = sys.argv[1:], "decode", False
    while arguments and arguments[0].startswith("--"):
        option = arguments.pop(0)
        if option == "--fit" and arguments:
            fit_name = arguments.pop(0)
        elif option == "--as-measured":
            as_measured = True
        else:
            arguments = []
    if not arguments:
        print(__doc__)
        return 2
    here = os.path.dirname(os.path.abspath(__file__))
    shapes = {os.path.basename(path)[:-4]: shapes_of(path) for path in sorted(glob.glob(here + "/shapes/*.csv"))}
    rows = [row for path in arguments for row in read(path)]
    if not as_measured:
        rows = bring_to_one_rate(rows)
    own = [row for row in rows if row["shape"] in shapes[fit_name]]
    if not own:
        print("no cell of %s.csv in these results" % fit_name, file=sys.stderr)
        return 1
    constants = fit(own)
    print("fitted on %s.csv: %.2f of the overlap lost, packing x %.1f, reach %s" % (
        fit_name, constants["lost"], constants["packing"], ", ".join("%s %.2f" % item for item in sorted(constants["reach"].items()))))
    print("%-34s %6s %9s %7s   %9s %7s" % ("|predicted / measured - 1|", "cells", "stored", "90%", "fitted", "90%"))
    tell(fit_name + ", fitted", own, constants)
    held_out = [row for row in rows if row["shape"] not in shapes[fit_name]]
    for name, members in shapes.items():
        found = [row for row in held_out if row["shape"] in members]
        if found:
            tell(name + ", held out", found, constants)
    tell("all that is held out", held_out, constants)
    for dataflow in sorted({row["dataflow"] for row in held_out}):
        tell("  " + dataflow, [row for row in held_out if row["dataflow"] == dataflow], constants)
    tell_picks(rows, constants)
    return 0


if __name__ == "__main__":
    sys.exit(main())
