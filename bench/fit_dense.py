#!/usr/bin/env python3
"""fit_dense.py - the constants of src/cuda/dense_cost.c, fitted on the dense times of one result file and judged on others.

    bench/fit_dense.py FIT.csv [MORE.csv ...]

The files come from `lacuna bench` on an H200. Each problem counts once, with the median of its `dense_us` (the vendor's fastest way); rows of
cuda_cublaslt_dense itself count with their `time_us`, as problems of their own. For each arithmetic: the constants as they stand in the
source, their errors on every file, and the constants that fit the first file best with theirs. An error is |predicted / measured - 1|:
median and 90th percentile. Python's standard library is enough.
"""

import csv
import math
import sys

# As src/cuda/device.c has them for an H200, a second.
CLOCKS = 0.895 * 1.98e9 * 132
MEMORY, L2, SHARED, ISSUE, TENSOR = 0.862 * 4.92e12, 35.5 * CLOCKS, 128 * CLOCKS, 4 * CLOCKS, 4096 * CLOCKS
LAUNCH, MULTIPROCESSORS, OVERLAP_LOST = 2.5e-6, 132, 0.1
# As in src/cuda/dense_cost.c: tokens, outputs, for fp32, for tensor cores.
TILES = [(256, 128, False, True), (128, 128, True, True), (64, 128, True, True), (64, 64, True, True), (32, 64, True, False),
         (160, 128, False, True), (192, 128, False, True), (96, 128, False, True), (128, 160, False, True), (128, 192, False, True),
         (128, 256, False, True), (64, 160, False, True), (64, 192, False, True), (64, 256, False, True), (128, 64, False, True),
         (64, 96, False, True), (96, 64, False, True)]
MOST_PARTS, LEAST_INPUTS = 16, 256
REACH = {
    "fp32": {"compute": 0.92, "small": 0.95, "odd": 0.0, "hot": 0.0, "memory": 0.5, "l2": 0.75, "fill": 6e-6, "y": 0.0, "exposed": 0.0},
    "tf32": {"compute": 0.9, "small": 0.6, "odd": 0.0, "hot": 0.0, "memory": 1.0, "l2": 0.5, "fill": 3e-6, "y": 0.0, "exposed": 0.0},
    "16 bits": {"compute": 1.0, "small": 1.0, "odd": 0.98, "hot": 0.15, "memory": 1.08, "l2": 0.25, "fill": 0.75e-6, "y": 0.6,
                "exposed": 0.15},
}
VECTOR = {"compute": 1.0, "small": 1.0, "odd": 0.0, "hot": 0.0, "memory": 1.0, "l2": 0.0, "fill": 1e-6, "y": 0.0, "exposed": 0.0}
HOT_FROM, HOT_TO = 25e-6, 75e-6  # as in src/model/gpu.c
GRID = {
    "compute": [x / 100 for x in range(70, 111, 1)],
    "small": [0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0],
    "hot": [0.0, 0.05, 0.1, 0.15, 0.2, 0.25],
    "memory": [0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 1.0, 1.03, 1.06, 1.09, 1.12],
    "l2": [0.25, 0.5, 0.75, 1.0],
    "fill": [x * 2.5e-7 for x in range(0, 25)],
    "y": [0.0, 0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 1.0],
    "exposed": [0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3],
}


def read(path):
    """{(kind, m, n, k, whose): seconds}"""
    found = {}
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            if not row.get("dense_us") or not row["device"].startswith("cuda"):
                continue
            kind = "16 bits" if row["dtype"] != "f32" else "tf32" if row["precision"] == "tf32" else "fp32"
            shape = (kind, int(row["m"]), int(row["n"]), int(row["k"]))
            found.setdefault(shape + (row["dtype"] + row["layout"],), []).append(float(row["dense_us"]) * 1e-6)
            if row["kernel"] == "cuda_cublaslt_dense":
                found.setdefault(shape + (row["dtype"] + row["layout"] + "own",), []).append(float(row["time_us"]) * 1e-6)
    return {key: sorted(times)[len(times) // 2] for key, times in found.items()}


def predict(problem, reach):
    """The formulas of src/cuda/dense_cost.c and src/model/gpu.c."""
    kind, m, n, k = problem[:4]
    size = 2 if kind == "16 bits" else 4
    vector = m == 1 and size == 4
    if vector:
        reach = VECTOR
    tensor = kind != "fp32" and not vector
    best = math.inf
    for tokens, outputs, in_fp32, on_tensor in TILES:
        odd = any(side & (side - 1) for side in (tokens, outputs))
        if not (on_tensor if tensor else in_fp32) or (odd and reach["odd"] <= 0):
            continue
        across, down = math.ceil(n / outputs), math.ceil(m / tokens)
        products = (1 if vector else down * tokens) * across * outputs * k
        parts = 1
        while parts <= MOST_PARTS and (parts == 1 or (k / parts >= LEAST_INPUTS and across * down * parts <= MULTIPROCESSORS)):
            memory = ((m * k + n * k) * size + m * n * size) / (MEMORY * reach["memory"])
            l2_bytes = reach["l2"] * products * size * (1 / tokens + 1 / outputs)
            times = [l2_bytes / L2, 0 if tensor else products / 32 / ISSUE,
                     products * (4 if kind == "tf32" else 2) / TENSOR if tensor else 0]
            longest = max(times)
            own = max((l2_bytes + memory * MEMORY * reach["memory"]) / (0.5 * SHARED), *times[1:])
            waves = across * down * parts / MULTIPROCESSORS
            efficiency = reach["compute"] * (1 if tokens * outputs >= 128 * 128 else reach["small"])
            efficiency *= reach["odd"] if odd else 1
            efficiency /= 1 + reach["hot"] * min(1.0, max(0.0, (times[2] / efficiency - HOT_FROM) / (HOT_TO - HOT_FROM)))
            rest = OVERLAP_LOST * (sum(times) - longest)
            chip = (max(longest, own * math.ceil(waves) / waves) + rest) / efficiency
            read = (m * k + n * k) / (m * k + n * k + m * n)
            busy = max(memory, chip) + reach["exposed"] * read * min(memory, chip)
            best = min(best, busy + reach["fill"] + reach["y"] * m * n * size / (MEMORY * reach["memory"]) + LAUNCH * (1 + (parts > 1)))
            parts *= 2
    return best


def errors(points, reach):
    found = sorted(abs(predict(problem, reach) / seconds - 1) for problem, seconds in points.items())
    return found[len(found) // 2], found[min(len(found) - 1, int(0.9 * len(found)))]


def fit(points, reach):
    def loss(tried):
        return sum(abs(math.log(predict(problem, tried) / seconds)) for problem, seconds in points.items())

    best, changed = dict(reach), True
    least = loss(best)
    while changed:
        changed = False
        for name, values in GRID.items():
            for value in values:
                tried = dict(best, **{name: value})
                found = loss(tried)
                if found < least - 1e-9:
                    best, least, changed = tried, found, True
    return best


def main():
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        print(__doc__)
        return 2
    files = [(path, read(path)) for path in sys.argv[1:]]
    for kind, reach in REACH.items():
        parts = [(path, {p: s for p, s in points.items() if p[0] == kind}) for path, points in files]
        if not parts[0][1]:
            continue
        fitted = fit(parts[0][1], reach)
        for title, constants in [("as they stand", reach), ("fitted on " + files[0][0], fitted)]:
            print("%s, %s: %s" % (kind, title, ", ".join("%s %.3g" % item for item in constants.items())))
            for path, points in parts:
                if points:
                    print("  %-44s %4d problems, error %5.1f%% median, %5.1f%% at 90%%" % (
                        (path, len(points)) + tuple(100 * e for e in errors(points, constants))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
