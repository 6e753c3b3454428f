"""support.py - what the tests of the command line share: run it, and write and read its files with the standard library alone.

The environment names the program: LACUNA=build/lacuna python3 tests/cli/test_prune.py
"""

import ast
import json
import math
import os
import random
import re
import resource
import shutil
import signal
import struct
import subprocess
import tempfile
import unittest

LACUNA = os.environ.get("LACUNA", "lacuna")
# What each process would otherwise measure first, longer than what it is asked for. The planner's answers are then the same on every
# machine of one vector unit.
os.environ["LAC_CPU_RATES"] = "5,5,120,30,12,24"
os.environ["LAC_CPU_CEILINGS"] = "80,12,300"
MEASURED = {"LAC_CPU_RATES": "", "LAC_CPU_CEILINGS": ""}  # for those that are to measure
CODES = {"F32": "f", "F64": "d", "F16": "e", "I64": "q", "U8": "B"}
NPY_CODES = {"<f4": "f", "<f8": "d", "<f2": "e"}


def pack(kind, values):
    if kind == "BF16":  # the upper half of a float; the values given are ones that bf16 has
        return b"".join(struct.pack("<f", v)[2:] for v in values)
    return struct.pack("<%d%s" % (len(values), CODES[kind]), *values)


def unpack(kind, data):
    if kind == "BF16":
        return [struct.unpack("<f", b"\0\0" + data[i : i + 2])[0] for i in range(0, len(data), 2)]
    size = struct.calcsize(CODES[kind])
    return list(struct.unpack("<%d%s" % (len(data) // size, CODES[kind]), data))


def write_safetensors(path, tensors, metadata=None):
    """tensors: {name: (type, shape, values)}"""
    header, blob = {}, b""
    if metadata:
        header["__metadata__"] = metadata
    for name, (kind, shape, values) in tensors.items():
        data = pack(kind, values)
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [len(blob), len(blob) + len(data)]}
        blob += data
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + blob)


def read_safetensors(path):
    with open(path, "rb") as file:
        data = file.read()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        raw = data[8 + length + begin : 8 + length + end]
        if entry["dtype"] in CODES or entry["dtype"] == "BF16":
            tensors[name] = (entry["dtype"], entry["shape"], unpack(entry["dtype"], raw))
    return tensors


def write_npy(path, shape, values, descr="<f4"):
    text = repr({"descr": descr, "fortran_order": False, "shape": tuple(shape)})
    text = text + " " * ((64 - (10 + len(text) + 1) % 64) % 64) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode("latin1"))
        file.write(struct.pack("<%d%s" % (len(values), NPY_CODES[descr]), *values))


def read_npy(path):
    with open(path, "rb") as file:
        data = file.read()
    assert data[:6] == b"\x93NUMPY", path
    length = struct.unpack("<H", data[8:10])[0]
    header = ast.literal_eval(data[10 : 10 + length].decode("latin1").strip())
    assert not header["fortran_order"]
    code = NPY_CODES[header["descr"]]
    body = data[10 + length :]
    return header["descr"], header["shape"], list(struct.unpack("<%d%s" % (len(body) // struct.calcsize(code), code), body))


def f32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def gaussian(rows, cols, seed):
    source = random.Random(seed)
    return [f32(source.gauss(0, 1)) for _ in range(rows * cols)]


def small_integers(rows, cols, seed, largest=4):
    source = random.Random(seed)
    return [float(source.randint(-largest, largest)) for _ in range(rows * cols)]


def prune_2_4(values, cols):
    """The optimum of 2:4 for rows of `cols` columns: the two largest of each four, the lower index on a tie."""
    out = [0.0] * len(values)
    for row in range(0, len(values), cols):
        for first in range(0, cols, 4):
            group = range(row + first, row + min(first + 4, cols))
            for i in sorted(group, key=lambda at: (-abs(values[at]), at))[:2]:
                out[i] = values[i]
    return out


FILES_HAVE_A_LIMIT = "TSAN_OPTIONS" not in os.environ  # the thread sanitizer needs larger ones for itself where threads are begun


def disk_of(most_bytes):
    """For Popen's preexec_fn: no file grows beyond so many bytes, as if the disk were full. None: it is not."""

    def limit():
        if most_bytes is not None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))

    return limit


class Case(unittest.TestCase):
    """Each test has a folder of its own, in which the program runs."""

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="lacuna cli ")

    def tearDown(self):
        shutil.rmtree(self.folder, ignore_errors=True)

    def path(self, name):
        return os.path.join(self.folder, name)

    def run_lacuna(self, *arguments, status=0, environment=None, most_bytes=None):
        """Runs the program and checks its exit status; returns what it printed on both outputs."""
        result = subprocess.run(
            [LACUNA, *arguments],
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(os.environ, **(environment or {})),
            timeout=600,
            preexec_fn=disk_of(most_bytes),
        )
        out, error = result.stdout.decode(), result.stderr.decode(errors="replace")
        command = "lacuna " + " ".join(arguments)
        self.assertEqual(result.returncode, status, "%s\n--- stdout\n%s\n--- stderr\n%s" % (command, out, error))
        if status == 0 and "--progress" not in arguments:
            self.assertEqual(error, "", command)
        if status > 1:
            self.assertEqual(out, "", command)
        if status:
            name = " " + arguments[0] if arguments and not arguments[0].startswith("-") else ""
            if status != 2 or name.strip() in COMMANDS:
                self.assertTrue(error.startswith("lacuna%s: " % name), error)
        return out, error

    def run_json(self, *arguments, status=0, environment=None):
        out, _ = self.run_lacuna(*arguments, "--json", status=status, environment=environment)
        return json.loads(out)

    def text(self, name):
        with open(self.path(name)) as file:
            return file.read()

    def files(self):
        return sorted(os.listdir(self.folder))

    def make_checkpoint(self, name="model.safetensors"):
        """Matrices, ragged ones among them, a vector and integers."""
        tensors = {
            "a.weight": ("F32", [16, 32], gaussian(16, 32, 1)),
            "b.weight": ("F32", [7, 13], gaussian(7, 13, 2)),
            "c.weight": ("F16", [8, 12], [v / 8 for v in small_integers(8, 12, 3, 100)]),
            "embed": ("F32", [10, 8], gaussian(10, 8, 4)),
            "norm": ("F32", [5], [1.0, 2.0, 3.0, 4.0, 5.0]),
            "ids": ("I64", [2, 3], [0, 1, 2, 3, 4, 5]),
        }
        write_safetensors(self.path(name), tensors, {"made": "by a test"})
        return tensors

    def assertClose(self, got, want, tolerance):
        self.assertEqual(len(got), len(want))
        for i, (g, w) in enumerate(zip(got, want)):
            self.assertTrue(math.isclose(g, w, rel_tol=0, abs_tol=tolerance), "%d: %r is not %r" % (i, g, w))


def list_commands():
    """The commands that the program itself lists."""
    text = subprocess.run([LACUNA, "--help"], stdout=subprocess.PIPE, check=True).stdout.decode()
    return re.findall(r"(?m)^  ([a-z]+) ", text[text.index("Commands:") : text.index("Options:")])


COMMANDS = list_commands()
