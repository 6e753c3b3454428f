#!/usr/bin/env python3
"""model_errors.py - how far the performance model's predictions are from the measured times, and how far a fit on one file carries.

    bench/model_errors.py FIT.csv [MORE.csv ...]

The files come from `lacuna bench --extended`. Told for each file are the errors of the predictions as stored, and of a fit on the first
file alone: median and 90th percentile of |predicted / measured - 1|. Where a problem was timed on several kernels (--kernel all), the last
column tells how much slower the model's pick is than the best of them, as a geometric mean. Python's standard library is enough.

What is fitted: for each kernel one factor on the time of the chip, and for all kernels together the share of the chip's other levels that
shows and a factor on launches. What is not: the tile that the kernel ran with and the rate that the model gives that tile, which are got
back from the stored levels, and the seconds in which pipelines fill. Those constants of the kernels were set by their authors on runs at
4096^3 and a few other shapes, later also with an eye on the shape files themselves (docs/model.md says which). So the held-out error tells how
far a kernel's one factor carries to shapes that it was not fitted on; it does not tell how a kernel that was never timed would be
predicted.
"""

import csv
import math
import sys

CHIP = ["l2", "shared", "issue", "tensor"]
# As in src/model/gpu.c: needed to take the stored levels apart.
OVERLAP, EFFICIENCY = 0.1, 0.95
# Stored numbers have four to six digits: what is nearer to memory's time than this is memory's time.
ROUNDED = 1.005


def take_apart(row):
    """The chip's longest level, the sum of its others, and its time by the model: None where memory took longer and hid it."""
    times = [row["levels"][name] for name in CHIP]
    busy = row["stored"] - row["levels"]["latency"] - row["levels"]["launch"]
    row["longest"], row["others"] = max(times), sum(times) - max(times)
    row["chip"] = busy if busy > ROUNDED * row["levels"]["memory"] else None


def read(path):
    rows = []
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            if not row.get("levels") or row["kernel"].startswith("peer:"):
                continue
            levels = {name: float(value) for name, value in (pair.split("=") for pair in row["levels"].split())}
            rows.append({"levels": levels, "measured": float(row["time_us"]), "stored": float(row["predicted_us"]),
                         "kernel": row["kernel"],
                         "cell": tuple(row[name] for name in ("dtype", "precision", "pattern", "layout", "m", "n", "k"))})
            if "launch" in levels:
                take_apart(rows[-1])
    return rows


def usual_efficiency(own):
    """What these rows of a kernel reach in the median, of those whose chip's time is known."""
    found = sorted((row["longest"] + OVERLAP * row["others"]) / row["chip"] for row in own if row["chip"])
    return quantile(found, 0.5) if found else EFFICIENCY


def predict(row, constants):
    """The formula of src/model/gpu.c, from the stored levels and the efficiency that the row's own tile had."""
    levels, kernel = row["levels"], row["kernel"]
    work = row["longest"] + constants["overlap"] * row["others"]
    if row["chip"]:
        before = row["longest"] + OVERLAP * row["others"]
        chip = row["chip"] * (work / before if before > 0 else 1.0)
    else:
        chip = min(levels["memory"], work / constants["usual"].get(kernel, EFFICIENCY))
    busy = max(levels["memory"], constants["factor"].get(kernel, 1.0) * chip)
    return busy + levels["latency"] + constants["launch"] * levels["launch"]


def errors(rows, predicted):
    return sorted(abs(p / row["measured"] - 1) for row, p in zip(rows, predicted))


def quantile(values, share):
    return values[min(len(values) - 1, int(share * len(values)))] if values else math.nan


def fit_kernel(own, kernel, constants):
    """Sets the kernel's factor to what fits these rows of it best; returns what is left."""
    constants["usual"][kernel] = usual_efficiency(own)
    losses = []
    for step in range(60, 142, 2):
        constants["factor"][kernel] = step / 100
        losses.append((sum(abs(math.log(predict(row, constants) / row["measured"])) for row in own), step / 100))
    loss, constants["factor"][kernel] = min(losses)
    return loss


def fit(rows):
    """A grid: the sum of absolute logarithms is neither smooth nor convex, and there are few constants."""
    kernels = sorted({row["kernel"] for row in rows})
    best = None
    for overlap in [0.0, 0.05, 0.1, 0.15, 0.2, 0.3]:
        for launch in [0.6, 0.8, 1.0, 1.2, 1.4]:
            constants = {"overlap": overlap, "launch": launch, "factor": {}, "usual": {}}
            total = sum(fit_kernel([row for row in rows if row["kernel"] == kernel], kernel, constants) for kernel in kernels)
            if best is None or total < best[0]:
                best = (total, constants)
    return best[1]


def pick_loss(rows, predicted):
    cells = {}
    for row, p in zip(rows, predicted):
        cells.setdefault(row["cell"], []).append((p, row["measured"]))
    ratios = [min(cell)[1] / min(time for _, time in cell) for cell in cells.values() if len(cell) > 1]
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) - 1 if ratios else math.nan


def tell(title, rows, predicted):
    found = errors(rows, predicted)
    print("%-46s %5d %8.1f%% %8.1f%% %8.1f%%" % (title, len(rows), 100 * quantile(found, 0.5), 100 * quantile(found, 0.9),
                                               100 * pick_loss(rows, predicted)))


def tell_kernels(path, rows, predicted):
    tell(path, rows, [predicted(row) for row in rows])
    for kernel in sorted({row["kernel"] for row in rows}):
        own = [row for row in rows if row["kernel"] == kernel]
        tell("  " + kernel, own, [predicted(row) for row in own])


def main():
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        print(__doc__)
        return 2
    files = [(path, read(path)) for path in sys.argv[1:]]
    if not any("launch" in row["levels"] for row in files[0][1]):
        print("%s: no rows of a GPU with levels; run lacuna bench with --extended" % files[0][0], file=sys.stderr)
        return 1
    print("%-46s %5s %9s %9s %9s" % ("", "rows", "median", "90%", "pick"))
    for path, rows in files:
        tell_kernels(path, rows, lambda row: row["stored"])
    constants = fit(files[0][1])
    print("\nfitted on %s: overlap %.2f, launch x %.2f, chip x %s" % (
        files[0][0], constants["overlap"], constants["launch"],
        ", ".join("%s %.2f" % item for item in sorted(constants["factor"].items()))))
    for path, rows in files:
        # A kernel that the first file does not hold keeps its author's constants.
        tell_kernels(path, rows, lambda row: predict(row, constants) if row["kernel"] in constants["factor"] else row["stored"])
    held = [row for _, rows in files[1:] for row in rows if row["kernel"] in constants["factor"]]
    if held:
        tell("held out: those kernels, other files", held, [predict(row, constants) for row in held])
    return 0


if __name__ == "__main__":
    sys.exit(main())
