"""gradients.py - how many gradients `--method fisher` needs: the rise of the loss that gradients it never saw predict, beside magnitude's.

    gradients.py --lacuna PROGRAM [--seed S]

One layer of 32 x 128. A gradient is the mean of 512 products of an error and an input, whose directions differ in size by a factor of 7
(`even`) or lie near a quarter of the dimensions (`narrow`). The rise, 1/2 E (g^T dw)^2, is taken over 4,000 gradients apart from those that
the method saw. No GPU, no PyTorch; half a minute.
"""

import argparse
import json
import os
import struct
import subprocess
import tempfile

import numpy

import cells

N, K, TOKENS = 32, 128, 512
COUNTS = (16, 32, 64, 128, 256, 1024)


def write_safetensors(path, name, array):
    header = json.dumps({name: {"dtype": "F32", "shape": list(array.shape), "data_offsets": [0, array.nbytes]}}).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header + numpy.ascontiguousarray(array, "<f4").tobytes())


def directions(random, size, narrow):
    if narrow:
        return random.normal(size=(size, size // 4)) * numpy.exp(0.7 * random.normal(size=size // 4))
    return random.normal(size=(size, size)) * numpy.exp(-2 * numpy.arange(size) / size)


def gradients(random, inputs, errors, count):
    made = numpy.empty((count, N, K), numpy.float32)
    for one in made:
        x = inputs @ random.normal(size=(inputs.shape[1], TOKENS)) + 0.5 * random.normal(size=(K, TOKENS))
        d = errors @ random.normal(size=(errors.shape[1], TOKENS)) + 0.5 * random.normal(size=(N, TOKENS))
        one[:] = d @ x.T / TOKENS
    return made


def main():
    options = argparse.ArgumentParser(description="How many gradients --method fisher needs.")
    options.add_argument("--lacuna", default="lacuna", metavar="PROGRAM")
    options.add_argument("--seed", type=int, default=3)
    args = options.parse_args()
    random = numpy.random.default_rng(args.seed)
    print("inputs  pattern  " + "".join("%8d" % count for count in COUNTS) + "   gradients; the rise over that of magnitude")
    with tempfile.TemporaryDirectory() as folder:
        path = lambda name: os.path.join(folder, name)
        for narrow in (False, True):
            inputs, errors = directions(random, K, narrow), directions(random, N, narrow)
            weight = 0.1 * random.normal(size=(N, K)).astype(numpy.float32)
            write_safetensors(path("weight"), "a.weight", weight)
            apart, seen = gradients(random, inputs, errors, 4000).reshape(4000, -1), gradients(random, inputs, errors, max(COUNTS))

            def rise(pattern, method):
                error = cells.prune(args.lacuna, path("weight"), path("gradients"), ["*"], path("out"), cells.Cell("", "", pattern, method))
                if error:
                    raise SystemExit(error)
                step = (cells.read_safetensors(path("out"))["a.weight"] - weight).ravel().astype(numpy.float64)
                return float(((apart @ step) ** 2).mean() / 2)

            for pattern in ("2:4", "1:4"):
                base, row = rise(pattern, "magnitude"), []
                for count in COUNTS:
                    write_safetensors(path("gradients"), "a.gradient", seen[:count])
                    row.append(rise(pattern, "fisher") / base)
                print("%-7s %-8s " % ("narrow" if narrow else "even", pattern) + "".join("%8.2f" % value for value in row), flush=True)


if __name__ == "__main__":
    main()
