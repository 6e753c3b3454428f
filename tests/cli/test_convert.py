"""test_convert.py - lacuna convert and lacuna multiply: every pair of formats, and products computed here as well."""

import math
import os
import subprocess
import sys
import unittest

from support import (
    LACUNA,
    Case,
    f32,
    gaussian,
    prune_2_4,
    read_npy,
    read_safetensors,
    small_integers,
    write_npy,
    write_safetensors,
)


class Convert(Case):
    def test_npy_to_safetensors_and_back(self):
        for descr, kind in [("<f4", "F32"), ("<f2", "F16"), ("<f8", "F64")]:
            values = [v / 4 for v in small_integers(3, 5, 1, 100)]
            write_npy(self.path("w.npy"), [3, 5], values, descr)
            self.run_lacuna("convert", "w.npy", "w.safetensors", "--name", "layer.w", "-f")
            self.assertEqual(read_safetensors(self.path("w.safetensors")), {"layer.w": (kind, [3, 5], values)})
            self.run_lacuna("convert", "w.safetensors", "back.npy", "-f")
            self.assertEqual(read_npy(self.path("back.npy")), (descr, (3, 5), values))
        self.run_lacuna("convert", "w.npy", "v.safetensors")
        self.assertEqual(list(read_safetensors(self.path("v.safetensors"))), ["array"])

    def test_container_to_dense(self):
        self.make_checkpoint()
        for pattern in ["2:4", "vw4:2:8", "bw2x2:25%", "4:2:8", "shfl4:25%"]:
            self.run_lacuna("prune", "model.safetensors", "dense.safetensors", "-p", pattern, "--dense", "-f")
            self.run_lacuna("prune", "model.safetensors", "packed.safetensors", "-p", pattern, "-f")
            self.run_lacuna("convert", "packed.safetensors", "back.safetensors", "--dense", "-f")
            want = read_safetensors(self.path("dense.safetensors"))
            self.assertEqual(read_safetensors(self.path("back.safetensors")).keys() - want.keys(), set())
            for name, tensor in want.items():
                self.assertEqual(read_safetensors(self.path("back.safetensors"))[name], tensor, (pattern, name))
            self.run_lacuna("convert", "packed.safetensors", "a.npy", "--name", "a.weight", "-f")
            self.assertEqual(read_npy(self.path("a.npy"))[2], want["a.weight"][2])

    def test_dense_to_container(self):
        self.make_checkpoint()
        for pattern in ["2:4", "25%", "vw4:2:8", "vw4:25%", "bw2x2:1:4", "4:2:8"]:
            self.run_lacuna("prune", "model.safetensors", "dense.safetensors", "-p", pattern, "--dense", "-f")
            self.run_lacuna("prune", "model.safetensors", "packed.safetensors", "-p", pattern, "-f")
            out = self.run_json("convert", "dense.safetensors", "made.safetensors", "-p", pattern, "-f")
            self.assertEqual((out["compressed"], out["copied"]), (4, 2))
            self.run_lacuna("verify", "made.safetensors", "--against", "model.safetensors")
            made, want = self.run_json("info", "made.safetensors"), self.run_json("info", "packed.safetensors")
            self.assertEqual([w["bytes"] for w in made["weights"]], [w["bytes"] for w in want["weights"]])
            self.assertEqual(made["metadata"]["made"], "by a test")

    def test_selection_of_what_is_compressed(self):
        self.make_checkpoint()
        self.run_lacuna("prune", "model.safetensors", "dense.safetensors", "-p", "2:4", "--dense", "-x", "embed")
        _, error = self.run_lacuna("convert", "dense.safetensors", "o.safetensors", "-p", "2:4", status=1)
        for word in ["dense.safetensors", "embed"]:
            self.assertIn(word, error)
        self.assertNotIn("o.safetensors", self.files())
        self.run_lacuna("convert", "dense.safetensors", "o.safetensors", "-p", "2:4", "-i", "*.weight", "-x", "b*")
        document = self.run_json("info", "o.safetensors")
        self.assertEqual(sorted(w["name"] for w in document["weights"]), ["a.weight", "c.weight"])
        self.assertEqual(len(document["tensors"]), 4)

    def test_a_violation_is_named(self):
        values = [0.0] * 32
        values[17], values[18], values[19] = 1.0, 2.0, 3.0
        write_npy(self.path("w.npy"), [4, 8], values)
        _, error = self.run_lacuna("convert", "w.npy", "o.safetensors", "-p", "2:4", "-n", "my.w", status=1)
        for word in ["w.npy", "my.w", "2:4"]:
            self.assertIn(word, error)
        self.assertRegex(error, r"row 2|\(2, 3\)|\[2\]\[3\]|\[2, 3\]")
        self.assertEqual(self.files(), ["w.npy"])

    def test_other_encoding(self):
        self.make_checkpoint()
        self.run_lacuna("prune", "model.safetensors", "packed.safetensors", "-p", "2:4")
        self.run_lacuna("convert", "packed.safetensors", "bits.safetensors", "--encoding", "bitmask")
        document = self.run_json("info", "bits.safetensors")
        self.assertEqual({w["encoding"] for w in document["weights"]}, {"bitmask"})
        self.run_lacuna("verify", "bits.safetensors", "--against", "model.safetensors")
        self.run_lacuna("convert", "bits.safetensors", "again.safetensors", "--encoding", "packed")
        with open(self.path("packed.safetensors"), "rb") as one, open(self.path("again.safetensors"), "rb") as two:
            first, second = one.read(), two.read()
        self.assertEqual(len(first), len(second))
        self.run_lacuna("prune", "model.safetensors", "shfl.safetensors", "-p", "shfl4:25%")
        _, error = self.run_lacuna("convert", "shfl.safetensors", "o.safetensors", "--encoding", "packed", status=3)
        self.assertIn("permuted", error)

    def test_other_dtype(self):
        self.make_checkpoint()
        for pattern in ["2:4", "shfl4:25%", "4:2:8"]:
            self.run_lacuna("prune", "model.safetensors", "wide.safetensors", "-p", pattern, "-f")
            self.run_lacuna("convert", "wide.safetensors", "narrow.safetensors", "--dtype", "bf16", "-f")
            document = self.run_json("info", "narrow.safetensors")
            self.assertEqual({w["dtype"] for w in document["weights"]}, {"bf16"})
            self.assertEqual({t["name"]: t["type"] for t in document["tensors"]}, {"norm": "BF16", "ids": "I64"})
            self.run_lacuna("verify", "narrow.safetensors", "--against", "model.safetensors", "-i", "*.weight")
        _, error = self.run_lacuna("convert", "wide.safetensors", "o.safetensors", "--dtype", "f64", status=2)
        self.assertIn("f64", error)
        self.run_lacuna("convert", "wide.safetensors", "o.safetensors", "--dtype", "f64", "--dense")
        self.assertEqual(read_safetensors(self.path("o.safetensors"))["a.weight"][0], "F64")

    def test_rounding_is_to_nearest_even(self):
        values = [1 + 2.0**-11, 1 + 3 * 2.0**-11, -(1 + 2.0**-11 + 2.0**-20), 2.0**-25, 3 * 2.0**-25, 65519.0, 1 / 3, -0.0]
        write_npy(self.path("w.npy"), [2, 4], values)
        self.run_lacuna("convert", "w.npy", "h.npy", "--dtype", "f16")
        want = [1.0, 1 + 2.0**-9, -(1 + 2.0**-10), 0.0, 2.0**-23, 65504.0, 0.333251953125, -0.0]
        got = read_npy(self.path("h.npy"))[2]
        self.assertEqual(got, want)
        self.assertEqual([math.copysign(1, v) for v in got], [math.copysign(1, v) for v in want])

    def test_values_too_large(self):
        write_npy(self.path("w.npy"), [2, 2], [1.0, 2.0, -70000.0, math.inf])
        _, error = self.run_lacuna("convert", "w.npy", "h.npy", "--dtype", "f16", status=3)
        for word in ["w.npy", "(1, 0)", "-70000", "f16", "--saturate"]:
            self.assertIn(word, error)
        self.run_lacuna("convert", "w.npy", "h.npy", "--dtype", "f16", "--saturate")
        self.assertEqual(read_npy(self.path("h.npy"))[2], [1.0, 2.0, -65504.0, math.inf])

    def test_masks(self):
        with open(self.path("m.smtx"), "w") as file:
            file.write("2, 4, 3\n0 2 3\n0 3 1\n")
        mask = [1.0, 0.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0]
        self.run_lacuna("convert", "m.smtx", "m.npy")
        self.assertEqual(read_npy(self.path("m.npy")), ("<f4", (2, 4), mask))
        self.run_lacuna("convert", "m.smtx", "m.safetensors", "--dtype", "f16")
        self.assertEqual(read_safetensors(self.path("m.safetensors")), {"mask": ("F16", [2, 4], mask)})
        values = [float(i + 1) for i in range(8)]
        write_npy(self.path("w.npy"), [2, 4], values)
        self.run_lacuna("convert", "m.smtx", "kept.npy", "--against", "w.npy")
        kept = [v * k for v, k in zip(values, mask)]
        self.assertEqual(read_npy(self.path("kept.npy"))[2], kept)
        self.run_lacuna("convert", "m.smtx", "c.safetensors", "--against", "w.npy", "--pattern", "2:4", "--name", "w")
        self.run_lacuna("convert", "c.safetensors", "c.npy", "--name", "w")
        self.assertEqual(read_npy(self.path("c.npy"))[2], kept)
        self.run_lacuna("convert", "kept.npy", "back.smtx")
        with open(self.path("back.smtx")) as file:
            self.assertEqual(file.read().split(), ["2,", "4,", "3", "0", "2", "3", "0", "3", "1"])
        write_npy(self.path("small.npy"), [1, 4], [1.0] * 4)
        _, error = self.run_lacuna("convert", "m.smtx", "x.npy", "--against", "small.npy", status=3)
        self.assertIn("small.npy", error)

    def test_nonsense(self):
        self.make_checkpoint()
        self.run_lacuna("prune", "model.safetensors", "c.safetensors", "-p", "2:4")
        write_npy(self.path("w.npy"), [2, 4], [1.0] * 8)
        with open(self.path("m.smtx"), "w") as file:
            file.write("2, 4, 3\n0 2 3\n0 3 1\n")
        before = self.files()
        for arguments, word in [
            (["w.npy", "o.txt"], "o.txt"),
            (["w.npy", "o.npy", "--pattern", "2:4"], "--pattern"),
            (["w.npy", "o.npy", "--encoding", "packed"], "--encoding"),
            (["w.npy", "o.npy", "--dtype", "bf16"], "bf16"),
            (["w.npy", "o.smtx", "--dtype", "f16"], "--dtype"),
            (["w.npy", "o.safetensors", "--dense"], "--dense"),
            (["w.npy", "o.safetensors", "--encoding", "packed"], "--encoding"),
            (["w.npy", "o.npy", "--against", "w.npy"], "--against"),
            (["w.npy", "o.safetensors", "--include", "x"], "--include"),
            (["c.safetensors", "o.safetensors", "--dense", "--pattern", "2:4"], "--dense"),
            (["c.safetensors", "o.safetensors", "--dense", "--encoding", "packed"], "--dense"),
            (["m.smtx", "o.smtx"], "m.smtx"),
            (["m.smtx", "o.safetensors", "--pattern", "2:4"], "--against"),
        ]:
            self.assertIn(word, self.run_lacuna("convert", *arguments, status=2)[1])
        for arguments, word in [
            (["model.safetensors", "o.npy"], "--name"),
            (["model.safetensors", "o.npy", "--name", "nothing"], "nothing"),
            (["model.safetensors", "o.npy", "--name", "ids"], "I64"),
            (["model.safetensors", "o.safetensors", "--name", "nothing"], "nothing"),
            (["w.npy", "w.npy"], "exists"),
            (["missing.npy", "o.safetensors"], "missing.npy"),
            (["w.npy", "no/such/o.npy"], "no/such"),
        ]:
            self.assertIn(word, self.run_lacuna("convert", *arguments, status=3)[1])
        self.assertEqual(self.files(), before)

    def test_one_tensor_is_taken_out(self):
        tensors = self.make_checkpoint()
        self.run_lacuna("convert", "model.safetensors", "one.safetensors", "--name", "embed")
        self.assertEqual(read_safetensors(self.path("one.safetensors")), {"embed": tensors["embed"]})
        self.run_lacuna("convert", "model.safetensors", "vector.npy", "--name", "norm")
        self.assertEqual(read_npy(self.path("vector.npy"))[2], [1.0, 2.0, 3.0, 4.0, 5.0])


def product(x, w, m, n, k):
    return [sum(x[i * k + t] * w[j * k + t] for t in range(k)) for i in range(m) for j in range(n)]


def transpose(values, rows, cols):
    return [values[i * cols + j] for j in range(cols) for i in range(rows)]


class Multiply(Case):
    M, N, K = 3, 7, 13

    def make(self, pattern="2:4", kind="F32"):
        w = small_integers(self.N, self.K, 1)
        write_safetensors(self.path("d.safetensors"), {"w": (kind, [self.N, self.K], w)})
        self.run_lacuna("prune", "d.safetensors", "w.safetensors", "-p", pattern)
        self.run_lacuna("convert", "w.safetensors", "dense.npy")
        self.w = read_npy(self.path("dense.npy"))[2]
        self.x = small_integers(self.M, self.K, 2)
        write_npy(self.path("x.npy"), [self.M, self.K], self.x)
        self.y = product(self.x, self.w, self.M, self.N, self.K)

    def test_small_integers_are_exact(self):
        for pattern in ["2:4", "25%", "vw4:2:8", "bw2x2:1:4", "4:2:8", "shfl4:25%"]:
            self.make(pattern)
            if pattern == "2:4":
                self.assertEqual(self.w, prune_2_4(small_integers(self.N, self.K, 1), self.K))
            document = self.run_json("multiply", "w.safetensors", "x.npy", "y.npy", "--check")
            self.assertEqual(read_npy(self.path("y.npy")), ("<f4", (self.M, self.N), self.y), pattern)
            self.assertEqual(document["check"]["max_error"], 0)
            for name in ["w.safetensors", "d.safetensors", "dense.npy", "y.npy"]:
                os.remove(self.path(name))

    def test_keys_and_words(self):
        self.make()
        document = self.run_json("multiply", "w.safetensors", "x.npy", "y.npy")
        keys = {"command", "weights", "x", "out", "pattern", "dtype", "m", "n", "k", "kernel", "is_dense", "bound_by", "seconds"}
        keys |= {"predicted_seconds", "gflops", "dense_equivalent_gflops", "check"}
        self.assertEqual(set(document), keys)
        self.assertEqual((document["m"], document["n"], document["k"]), (self.M, self.N, self.K))
        # By name: on so small a problem two runs may measure rates by which different kernels are quickest.
        out, _ = self.run_lacuna("multiply", "w.safetensors", "x.npy", "y.npy", "--force", "--check", "--kernel", document["kernel"])
        for word in [document["kernel"], "GFLOP/s", "max error", "ok", "y.npy written"]:
            self.assertIn(word, out)

    def test_every_kernel_gives_the_same(self):
        self.make()
        kernels = self.run_json("devices", "--kernels")["kernels"]
        tried = 0
        for kernel in kernels:
            if kernel["device"] != "cpu":
                continue
            arguments = ["multiply", "w.safetensors", "x.npy", "y.npy", "-f", "--check", "--json", "--kernel", kernel["name"]]
            result = subprocess.run([LACUNA, *arguments], cwd=self.folder, capture_output=True, text=True)
            if result.returncode == 3 and kernel["name"] in result.stderr:
                continue  # a vector unit that this machine lacks
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn('"kernel": "%s"' % kernel["name"], result.stdout)
            self.assertEqual(read_npy(self.path("y.npy"))[2], self.y)
            tried += 1
        self.assertGreaterEqual(tried, 2)

    def test_layouts(self):
        self.make()
        write_npy(self.path("xt.npy"), [self.K, self.M], transpose(self.x, self.M, self.K))
        self.run_lacuna("multiply", "w.safetensors", "xt.npy", "yt.npy", "--layout", "feature", "--check")
        want = transpose(self.y, self.M, self.N)
        self.assertEqual(read_npy(self.path("yt.npy")), ("<f4", (self.N, self.M), want))

    def test_epilogue(self):
        self.make()
        bias = small_integers(1, self.N, 3)
        c = small_integers(self.M, self.N, 4)
        write_npy(self.path("b.npy"), [self.N], bias)
        write_npy(self.path("c.npy"), [self.M, self.N], c)
        arguments = ["--bias", "b.npy", "--residual", "c.npy", "--alpha", "-2", "--beta=0.5", "--activation", "relu", "--check"]
        self.run_lacuna("multiply", "w.safetensors", "x.npy", "y.npy", *arguments)
        want = [max(0.0, -2 * y + bias[i % self.N]) + 0.5 * c[i] for i, y in enumerate(self.y)]
        self.assertEqual(read_npy(self.path("y.npy"))[2], want)
        self.run_lacuna("multiply", "w.safetensors", "x.npy", "y.npy", "-f", "--residual", "c.npy", "--check")
        self.assertEqual(read_npy(self.path("y.npy"))[2], [y + v for y, v in zip(self.y, c)])
        for name, function in [
            ("gelu", lambda v: 0.5 * v * (1 + math.erf(v / math.sqrt(2)))),
            ("gelu-tanh", lambda v: 0.5 * v * (1 + math.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3)))),
            ("silu", lambda v: v / (1 + math.exp(-v))),
        ]:
            options = ["-f", "--activation", name, "--alpha", "0.125", "--check"]
            self.run_lacuna("multiply", "w.safetensors", "x.npy", "y.npy", *options)
            self.assertClose(read_npy(self.path("y.npy"))[2], [function(0.125 * y) for y in self.y], 1e-5)

    def test_dtypes(self):
        for kind in ["F32", "F16", "BF16"]:
            self.make(kind=kind)
            for dtype, descr in [("f32", "<f4"), ("f16", "<f2"), ("bf16", "<f4")]:
                self.run_lacuna("multiply", "w.safetensors", "x.npy", "y.npy", "-f", "--dtype", dtype, "--check")
                self.assertEqual(read_npy(self.path("y.npy")), (descr, (self.M, self.N), self.y), (kind, dtype))
            for name in ["w.safetensors", "dense.npy"]:
                os.remove(self.path(name))
        self.make()
        write_npy(self.path("x8.npy"), [self.M, self.K], self.x, "<f8")
        self.run_lacuna("multiply", "w.safetensors", "x8.npy", "y.safetensors")
        self.assertEqual(read_safetensors(self.path("y.safetensors")), {"y": ("F32", [self.M, self.N], self.y)})

    def test_names(self):
        tensors = {"u": ("F32", [4, 8], gaussian(4, 8, 1)), "v": ("F32", [4, 8], gaussian(4, 8, 2))}
        write_safetensors(self.path("d.safetensors"), tensors)
        self.run_lacuna("prune", "d.safetensors", "w.safetensors", "-p", "2:4")
        x = [f32(v) for v in gaussian(1, 8, 3)]
        write_npy(self.path("x.npy"), [8], x)  # a vector is one token
        self.run_lacuna("multiply", "w.safetensors", "x.npy", "y.npy", "--name", "v", "--check")
        self.assertClose(read_npy(self.path("y.npy"))[2], product(x, prune_2_4(tensors["v"][2], 8), 1, 4, 8), 1e-5)
        os.remove(self.path("y.npy"))
        self.run_lacuna("multiply", "w.safetensors", "x.npy", "y.npy", status=3)
        _, error = self.run_lacuna("multiply", "w.safetensors", "x.npy", "y.npy", "--name", "nothing", status=3)
        self.assertIn("nothing", error)
        self.assertIn("w.safetensors", error)

    def test_failures(self):
        self.make()
        write_npy(self.path("bad.npy"), [self.M, self.K + 1], [0.0] * (self.M * (self.K + 1)))
        before = self.files()
        for arguments, words in [
            (["w.safetensors", "bad.npy", "y.npy"], ["bad.npy", "3x14", "k = 13"]),
            (["w.safetensors", "x.npy", "y.npy", "--bias", "bad.npy"], ["bad.npy", "1x7"]),
            (["w.safetensors", "x.npy", "y.npy", "--residual", "bad.npy"], ["bad.npy", "3x7"]),
            (["w.safetensors", "x.npy", "y.npy", "--kernel", "no_such_kernel"], ["no_such_kernel"]),
            (["w.safetensors", "x.npy", "y.npy", "--device", "tpu:0"], ["tpu:0"]),
            (["w.safetensors", "x.npy", "x.npy"], ["x.npy", "--force"]),
            (["w.safetensors", "missing.npy", "y.npy"], ["missing.npy"]),
            (["missing.safetensors", "x.npy", "y.npy"], ["missing.safetensors"]),
            (["d.safetensors", "x.npy", "y.npy"], ["d.safetensors"]),
        ]:
            _, error = self.run_lacuna("multiply", *arguments, status=3)
            for word in words:
                self.assertIn(word, error)
        self.assertEqual(self.files(), before)


if __name__ == "__main__":
    sys.exit(unittest.main())
