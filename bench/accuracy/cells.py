"""cells.py - what the accuracy tables compare: patterns x methods, each pruned by the `lacuna` command in a process of its own."""

import concurrent.futures
import csv
import json
import os
import struct
import subprocess

import numpy

ZEROS = ("50%", "75%", "90%")
# One row a family: a pattern for each share of zeros. Where 90% is no multiple of the group, the nearest N:M that keeps a tenth.
FAMILIES = (
    ("EW M=4", ("2:4", "1:4", None)),
    ("EW M=8", ("4:8", "2:8", None)),
    ("EW M=10", (None, None, "1:10")),
    ("EW M=16", ("8:16", "4:16", None)),
    ("EW M=20", (None, None, "2:20")),
    ("EW M=32", ("16:32", "8:32", None)),
    ("EW M=40", (None, None, "4:40")),
    ("EW free", ("50%", "25%", "10%")),
    ("VW4", ("vw4:16:32", "vw4:8:32", "vw4:4:40")),
    ("VW4 free", ("vw4:50%", "vw4:25%", "vw4:10%")),
    ("VW32", ("vw32:16:32", "vw32:8:32", "vw32:4:40")),
    ("VW32 free", ("vw32:50%", "vw32:25%", "vw32:10%")),
    ("VW64", ("vw64:16:32", "vw64:8:32", "vw64:4:40")),
    ("VW64 free", ("vw64:50%", "vw64:25%", "vw64:10%")),
    ("BW4x4", ("bw4x4:16:32", "bw4x4:8:32", "bw4x4:4:40")),
    ("BW4x4 free", ("bw4x4:50%", "bw4x4:25%", "bw4x4:10%")),
    ("V:N:M", ("64:2:4", "64:2:8", "64:2:20")),
    ("Shfl-BW 32", ("shfl32:50%", "shfl32:25%", "shfl32:10%")),
    ("Shfl-BW 64", ("shfl64:50%", "shfl64:25%", "shfl64:10%")),
)
METHODS = ("magnitude", "wanda", "obs", "fisher")
PERMUTED = {"EW M=4": "columns", "EW M=8": "columns", "VW32": "rows", "VW64": "rows", "V:N:M": "rows"}


class Cell:
    """One line of the table."""

    def __init__(self, family, zeros, pattern, method, permute=""):
        self.family, self.zeros, self.pattern, self.method, self.permute = family, zeros, pattern, method, permute

    def __str__(self):
        return "%s %s%s" % (self.pattern, self.method, " permute " + self.permute if self.permute else "")


def all_cells(methods=METHODS):
    cells = []
    for family, patterns in FAMILIES:
        for zeros, pattern in zip(ZEROS, patterns):
            if not pattern:
                continue
            cells += [Cell(family, zeros, pattern, method) for method in methods]
            if family in PERMUTED:
                cells += [Cell(family, zeros, pattern, m, PERMUTED[family]) for m in ("magnitude", "obs") if m in methods]
    return cells


def in_turn(cells):
    """The cells in an order in which those that take long (fisher) begin early, each beside three quick ones."""
    slow = [cell for cell in cells if cell.method == "fisher"]
    quick = [cell for cell in cells if cell.method != "fisher"]
    mixed = []
    while slow or quick:
        mixed += slow[:1] + quick[:3]
        slow, quick = slow[1:], quick[3:]
    return mixed


def finished(path, needed):
    """The rows of an earlier table (the header apart) that have all of the columns `needed`, and what they are of."""
    if not os.path.exists(path):
        return [], set()
    with open(path, newline="") as file:
        rows = [row for row in csv.DictReader(file) if all(row[column] for column in needed)]
    return [list(row.values()) for row in rows], {(row["pattern"], row["method"], row["permute"]) for row in rows}


def prune(lacuna, model, calibration, include, out, cell):
    """Prunes the file `model` into the dense file `out`; the error that the command gave, or ''."""
    command = [lacuna, "prune", model, out, "--dense", "--force", "--threads", "1", "-p", cell.pattern, "-m", cell.method]
    for glob in include:
        command += ["-i", glob]
    if cell.method != "magnitude":
        command += ["-c", calibration]
    if cell.permute:
        command += ["--permute", cell.permute]
    environment = dict(os.environ, OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1")
    result = subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    return (result.stderr.strip() or "status %d" % result.returncode) if result.returncode else ""


def pruned(lacuna, model, calibration, include, folder, cells, workers):
    """Yields (cell, file, error) as they are done; the caller removes the file."""
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        jobs = {}
        for i, cell in enumerate(cells):
            out = os.path.join(folder, "cell%d.safetensors" % i)
            jobs[pool.submit(prune, lacuna, model, calibration, include, out, cell)] = (cell, out)
        for job in concurrent.futures.as_completed(jobs):
            cell, out = jobs[job]
            yield cell, out, job.result()


def read_safetensors(path):
    """{name: array} of the floating tensors of a safetensors file, as float32."""
    kinds = {"F32": "<f4", "F16": "<f2", "F64": "<f8"}
    with open(path, "rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(size))
        data = numpy.fromfile(file, dtype=numpy.uint8)
    arrays = {}
    for name, entry in header.items():
        if name != "__metadata__" and entry["dtype"] in kinds:
            begin, end = entry["data_offsets"]
            arrays[name] = data[begin:end].view(kinds[entry["dtype"]]).astype(numpy.float32).reshape(entry["shape"])
    return arrays
