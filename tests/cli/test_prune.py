"""test_prune.py - lacuna prune and lacuna verify: the optimum, the options, refusals, Ctrl-C, and what verify must find."""

import json
import os
import resource
import signal
import struct
import subprocess
import sys
import time
import unittest

from support import FILES_HAVE_A_LIMIT, LACUNA, Case, gaussian, prune_2_4, read_safetensors, write_npy, write_safetensors

PATTERNS = ["2:4", "8:32", "25%", "vw4:2:8", "vw4:25%", "bw2x2:1:4", "bw2x2:25%", "4:2:8", "shfl4:25%"]
TOTALS = {"pruned", "copied", "resumed", "dense_bytes", "stored_bytes", "of_dense", "seconds"}
LAYER = {"name", "pruned", "pattern", "resumed", "reason", "moved", "n", "k", "dense_bytes", "stored_bytes", "energy_kept", "output_error", "seconds",
         "megabytes_per_second"}


class Prune(Case):
    def test_dense_output_is_the_optimum(self):
        tensors = self.make_checkpoint()
        self.run_lacuna("prune", "model.safetensors", "out.safetensors", "-p", "2:4", "--dense")
        out = read_safetensors(self.path("out.safetensors"))
        for name, (kind, shape, values) in tensors.items():
            want = prune_2_4(values, shape[1]) if len(shape) == 2 and kind != "I64" else values
            self.assertEqual(out[name], (kind, shape, want), name)

    def test_every_family_is_verified(self):
        self.make_checkpoint()
        for i, pattern in enumerate(PATTERNS):
            out = "out%d.safetensors" % i
            self.run_lacuna("prune", "model.safetensors", out, "--pattern", pattern)
            document = self.run_json("verify", out, "--against", "model.safetensors")
            self.assertTrue(document["ok"])
            self.assertEqual({w["pattern"] for w in document["weights"]}, {pattern})
            self.assertEqual(sorted(w["name"] for w in document["weights"]), ["a.weight", "b.weight", "c.weight", "embed"])
            for weight in document["weights"]:
                self.assertLessEqual(weight["product"]["share_of_bound"], 1)
                small = pattern == "8:32" and weight["k"] <= 8  # keeps min(8, k) of its only group: everything
                self.assertEqual(weight["dropped"] == 0, small, weight)
                self.assertEqual(weight["energy_kept"] == 1, small, weight)

    def test_json_and_table(self):
        self.make_checkpoint()
        document = self.run_json("prune", "model.safetensors", "out.safetensors", "-p", "2:4", "-x", "embed")
        self.assertEqual(set(document), {"command", "in", "out", "pattern", "dry_run", "layers", "allocation", "totals"})
        self.assertEqual(set(document["totals"]), TOTALS)
        for layer in document["layers"]:
            self.assertEqual(set(layer), LAYER)
        reasons = {layer["name"]: layer["reason"] for layer in document["layers"] if not layer["pruned"]}
        self.assertEqual(reasons, {"embed": "excluded", "norm": "not a matrix", "ids": "not of a floating type"})
        self.assertEqual((document["totals"]["pruned"], document["totals"]["copied"]), (3, 3))
        out, _ = self.run_lacuna("prune", "model.safetensors", "out.safetensors", "-p", "2:4", "--force", "--all")
        for word in ["a.weight", "16x32", "2:4", "2.00 KiB", "copied: not a matrix", "total", "4 tensors pruned, 2 copied"]:
            self.assertIn(word, out)

    def test_methods(self):
        """Over the same inputs second order loses less than Wanda, and Wanda less than the plain weights would."""
        n, k, samples = 16, 32, 200
        weights = gaussian(n, k, 1)
        scales = [0.2 + (c % 7) for c in range(k)]
        factors, noise = gaussian(samples, 1, 2), gaussian(samples, k, 3)
        inputs = [(factors[i // k] + 0.5 * noise[i]) * scales[i % k] for i in range(samples * k)]
        write_safetensors(self.path("model.safetensors"), {"a.weight": ("F32", [n, k], weights)})
        write_safetensors(self.path("inputs.safetensors"), {"a.input": ("F32", [samples // 10, 10, k], inputs)})
        errors = {}
        for method in ["wanda", "obs"]:
            document = self.run_json("prune", "model.safetensors", method, "-p", "2:4", "-m", method, "-c", "inputs.safetensors")
            errors[method] = document["layers"][0]["output_error"]
            self.run_lacuna("verify", method)
        self.assertLess(0, errors["obs"])
        self.assertLess(errors["obs"], errors["wanda"])
        gradients = gaussian(5 * n, k, 4)
        write_safetensors(self.path("gradients.safetensors"), {"a.gradient": ("F32", [5, n, k], gradients)})
        document = self.run_json("prune", "model.safetensors", "f", "-p", "2:4", "-m", "fisher", "-c", "gradients.safetensors")
        self.assertIsNone(document["layers"][0]["output_error"])
        self.run_lacuna("verify", "f")
        document = self.run_json("prune", "model.safetensors", "plain", "-p", "2:4")
        self.assertIsNone(document["layers"][0]["output_error"])

    def test_permute(self):
        """What a permutation keeps is never less, and the container verifies and multiplies."""
        self.make_checkpoint()
        for pattern, what in [("2:4", "columns"), ("vw4:2:8", "rows"), ("vw4:2:8", "both"), ("4:2:8", "both")]:
            arguments = ["-p", pattern, "-i", "a.weight", "--force"]
            plain = self.run_json("prune", "model.safetensors", "plain", *arguments)["layers"][0]
            moved = self.run_json("prune", "model.safetensors", "moved", *arguments, "--permute", what)["layers"][0]
            self.assertGreaterEqual(moved["energy_kept"], plain["energy_kept"])
            self.assertGreater(moved["stored_bytes"], plain["stored_bytes"])
            document = self.run_json("verify", "moved", "--against", "model.safetensors")
            self.assertTrue(document["ok"])
            dry = self.run_json("prune", "model.safetensors", "x", *arguments, "--permute", what, "-n")["layers"][0]
            self.assertEqual(dry["stored_bytes"], moved["stored_bytes"])
        _, error = self.run_lacuna("prune", "model.safetensors", "x", "-p", "2:4", "--permute", "rows", status=3)
        self.assertIn("permute asks for rows", error)

    def test_producer(self):
        """y = down relu(up x + bias): with --producer the same as with the order stored, and none is stored."""
        inner, width = 32, 12
        tensors = {}
        for i in range(2):
            tensors["b.%d.up.weight" % i] = ("F32", [inner, width], gaussian(inner, width, 3 * i))
            tensors["b.%d.up.bias" % i] = ("F32", [inner], gaussian(1, inner, 3 * i + 1))
            tensors["b.%d.down.weight" % i] = ("F32", [8, inner], gaussian(8, inner, 3 * i + 2))
        write_safetensors(self.path("net.safetensors"), tensors)
        link = "b.*.down.weight=b.*.up.weight"
        arguments = ("prune", "net.safetensors", "-p", "2:4", "-i", "*.down.weight")
        run = lambda out, *more: self.run_json(*arguments[:2], out, *arguments[2:], "--force", *more)
        plain, moved = run("plain", "--dense"), run("moved", "--producer", link)
        run("dense", "--producer", link, "--dense")
        stored = run("stored", "--permute", "columns")
        layer = lambda result, name: next(l for l in result["layers"] if l["name"] == name)
        for i in range(2):
            down = layer(moved, "b.%d.down.weight" % i)
            self.assertEqual(down["moved"], "columns")
            self.assertEqual(layer(moved, "b.%d.up.weight" % i)["moved"], "rows")
            self.assertEqual(layer(moved, "b.%d.up.bias" % i)["moved"], "rows")
            self.assertGreater(down["energy_kept"], layer(plain, down["name"])["energy_kept"])
            self.assertAlmostEqual(down["energy_kept"], layer(stored, down["name"])["energy_kept"], places=9)
            self.assertEqual(down["stored_bytes"] + 4 * inner, layer(stored, down["name"])["stored_bytes"])
            dry = layer(run("x", "--producer", link, "--permute", "columns", "-n"), down["name"])
            self.assertEqual(dry["stored_bytes"], down["stored_bytes"])

            def compute(file, x):
                read = read_safetensors(self.path(file))
                value = lambda name: read["b.%d.%s" % (i, name)][2]
                up, bias, down = value("up.weight"), value("up.bias"), value("down.weight")
                h = [max(0, bias[r] + sum(up[r * width + c] * x[c] for c in range(width))) for r in range(inner)]
                return [sum(down[r * inner + c] * h[c] for c in range(inner)) for r in range(8)]

            run("back", "--permute", "columns", "--dense")  # in the order of the input
            x = gaussian(1, width, 9)
            for a, b in zip(compute("dense", x), compute("back", x)):
                self.assertAlmostEqual(a, b, places=5)
        table, _ = self.run_lacuna("prune", "net.safetensors", "t", *arguments[2:], "--producer", link)
        self.assertIn("moved rows", table)
        _, error = self.run_lacuna("prune", "net.safetensors", "t", *arguments[2:], "--producer", "b.*.down.weight=b.*.none", "--force", status=3)
        self.assertIn("'b.0.none'", error)

    def test_transposable(self):
        n, k = 16, 32
        write_safetensors(self.path("model.safetensors"), {"a": ("F32", [n, k], gaussian(n, k, 1))})
        self.run_lacuna("prune", "model.safetensors", "out.safetensors", "-p", "2:4", "--transposable", "--dense")
        values = read_safetensors(self.path("out.safetensors"))["a"][2]
        for column in range(k):
            for row in range(0, n, 4):
                self.assertEqual(sum(values[(row + i) * k + column] != 0 for i in range(4)), 2)
        for start in range(0, n * k, 4):
            self.assertEqual(sum(value != 0 for value in values[start : start + 4]), 2)

    def test_schedule(self):
        """Steps end at the last pattern; by magnitude within nested groups, where one step ends too."""
        self.make_checkpoint()
        self.run_lacuna("prune", "model.safetensors", "steps", "--schedule", "3:4,2:4,1:4")
        self.run_lacuna("prune", "model.safetensors", "once", "-p", "1:4")
        with open(self.path("steps"), "rb") as steps, open(self.path("once"), "rb") as once:
            self.assertEqual(steps.read(), once.read())
        document = self.run_json("prune", "model.safetensors", "o", "--schedule", "50%,25%", "-n")
        self.assertEqual(document["pattern"], "25%")
        for arguments, words in [
            (["-p", "2:4", "--schedule", "2:4"], "does not go with --pattern"),
            ([], "none of --pattern, --schedule and --budget is given"),
            (["--schedule", "2:4,,1:4"], "--schedule '2:4,,1:4'"),
            (["--schedule", "2:4,5:4"], "--schedule '2:4,5:4'"),
            (["--schedule", ",".join(["2:4"] * 65)], "too many patterns"),
        ]:
            self.assertIn(words, self.run_lacuna("prune", "model.safetensors", "o", *arguments, status=2)[1])

    def test_budget(self):
        """Each layer its own pattern: the table, the document and the file agree, and the budget holds."""
        values = gaussian(64, 128, 11)
        write_safetensors(self.path("m.safetensors"), {"l%d.weight" % i: ("F32", [64, 128], [v * (i + 1) for v in values]) for i in range(4)})
        command = ["prune", "m.safetensors", "o.safetensors", "--patterns", "2:4,1:4,vw16:8:32"]
        error = self.run_lacuna(*command, "--budget", "density=0.55", "--table", "nowhere/t.json", status=3)[1]
        self.assertIn("nowhere/t.json: cannot write the table: No such file or directory", error)
        document = self.run_json(*command, "--budget", "density=0.55", "--table", "t.json", "--target", "cuda:h200", "--batch", "16")
        with open(self.path("t.json")) as file:
            table = json.load(file)
        self.assertEqual(table, document["allocation"])
        self.assertEqual((table["budget"], table["amount"], table["device"], table["m"]), ("density", 0.55, "h200", 16))
        self.assertLessEqual(table["density"], 0.55)
        chosen = {layer["name"]: layer["pattern"] for layer in table["layers"]}
        stored = {w["name"]: w["pattern"] for w in self.run_json("verify", "o.safetensors", "-a", "m.safetensors")["weights"]}
        self.assertEqual(stored, {name: pattern for name, pattern in chosen.items() if pattern != "dense"})
        self.assertGreater(len(stored), 0)
        for layer in table["layers"]:
            self.assertEqual([o["pattern"] for o in layer["options"]], ["dense", "2:4", "1:4", "vw16:8:32"])
            self.assertIn({k: layer[k] for k in ["pattern", "loss", "density", "predicted_seconds"]}, layer["options"])
        before = self.text("t.json")
        self.assertGreater(len(before), 2048)  # clang's OpenMP has a file of 1024 bytes of its own
        os.symlink("t.json", self.path("link.json"))
        if FILES_HAVE_A_LIMIT:
            _, error = self.run_lacuna(*command, "--budget", "density=0.7", "--table", "link.json", "--dry-run", status=3, most_bytes=2048)
            self.assertIn("link.json: cannot write the table: File too large", error)
            self.assertEqual(self.text("t.json"), before)  # the old one stays whole
        self.run_lacuna(*command, "--budget", "density=0.7", "--table", "link.json", "--dry-run")
        self.assertNotEqual(self.text("t.json"), before)
        self.assertEqual(self.files(), ["link.json", "m.safetensors", "o.safetensors", "t.json"])
        out, _ = self.run_lacuna(*command, "--budget", "speedup=1.1", "--dry-run", "--threads", "1")
        for word in ["layer", "predicted", "dense", "total", "speedup 1.1 on cpu, 1 tokens", "no choice of these patterns loses less"]:
            self.assertIn(word, out)
        _, error = self.run_lacuna(*command, "--budget", "speedup=1000", "-f", status=3)
        self.assertIn("reaches a speedup of 1000; the most is", error)
        for arguments, words in [
            (["--budget", "speed=2"], "--budget 'speed=2'"),
            (["--budget", "density=2"], "--budget 'density=2'"),
            (["--budget", "speedup=2x"], "--budget 'speedup=2x'"),
            (["--budget", "speedup=2", "-p", "2:4"], "does not go with --pattern"),
            (["-p", "2:4"], "--patterns goes with --budget"),
        ]:
            self.assertIn(words, self.run_lacuna(*command, *arguments, status=2)[1])

    def test_moments(self):
        """The sum of x x^T and a count, in place of the samples that they come from."""
        rows, k = 80, 16
        x = gaussian(rows, k, 13)
        sums = [sum(x[s * k + i] * x[s * k + j] for s in range(rows)) for i in range(k) for j in range(k)]
        write_safetensors(self.path("m.safetensors"), {"l.weight": ("F32", [8, k], gaussian(8, k, 12))})
        write_safetensors(self.path("x.safetensors"), {"l.input": ("F32", [rows, k], x)})
        write_safetensors(self.path("s.safetensors"), {"l.moments": ("F64", [k, k], sums), "l.samples": ("F64", [1], [rows])})
        errors = []
        for calibration in ["x.safetensors", "s.safetensors"]:
            document = self.run_json("prune", "m.safetensors", "o", "-p", "2:4", "-m", "obs", "-c", calibration, "-f")
            errors.append(document["layers"][0]["output_error"])
        self.assertAlmostEqual(errors[0], errors[1], delta=1e-4 * errors[0])
        write_safetensors(self.path("s.safetensors"), {"l.moments": ("F64", [k, k], sums)})
        _, error = self.run_lacuna("prune", "m.safetensors", "o", "-p", "2:4", "-m", "obs", "-c", "s.safetensors", "-f", status=3)
        self.assertIn("no tensor l.samples", error)
        write_safetensors(self.path("s.safetensors"), {"l.moments": ("F64", [k, k, k], sums * k), "l.samples": ("F64", [1], [rows])})
        _, error = self.run_lacuna("prune", "m.safetensors", "o", "-p", "2:4", "-m", "obs", "-c", "s.safetensors", "-f", status=3)
        self.assertIn("l.moments has rank 3; [16, 16] is needed", error)

    def test_calibration_refused(self):
        self.make_checkpoint()
        write_safetensors(self.path("inputs.safetensors"), {"a.input": ("F32", [4, 3], gaussian(4, 3, 1))})
        model = ["prune", "model.safetensors", "out", "-p", "2:4"]
        self.assertIn("--calibration FILE", self.run_lacuna(*model, "-m", "obs", status=2)[1])
        self.assertIn("goes with --method", self.run_lacuna(*model, "-c", "inputs.safetensors", status=2)[1])
        self.assertIn("--damping is", self.run_lacuna(*model, "--damping", "0.5", status=2)[1])
        obs = [*model, "-m", "obs", "-c", "inputs.safetensors"]
        self.assertIn("[..., 32] is needed", self.run_lacuna(*obs, "-i", "a.weight", status=3)[1])
        self.assertIn("no tensor b.input", self.run_lacuna(*obs, "-i", "b.weight", status=3)[1])
        fisher = [*model, "-m", "fisher", "-c", "inputs.safetensors", "-i", "a.weight"]
        self.assertIn("no tensor a.gradient", self.run_lacuna(*fisher, status=3)[1])
        write_safetensors(self.path("inputs.safetensors"), {"a.gradient": ("F32", [2, 4, 3], gaussian(8, 3, 1))})
        self.assertIn("has rank 3 and ends in [4, 3]; [samples, 16, 32] is needed", self.run_lacuna(*fisher, status=3)[1])
        self.assertIn("absent", self.run_lacuna(*model, "-m", "wanda", "-c", "absent", status=3)[1])
        self.assertFalse(os.path.exists(self.path("out")))

    def test_include_and_exclude(self):
        self.make_checkpoint()
        arguments = ["-p", "2:4", "-n", "-i", "[ab].weight", "-i", "embed", "-x", "b*"]
        document = self.run_json("prune", "model.safetensors", "x", *arguments)
        self.assertEqual([layer["name"] for layer in document["layers"] if layer["pruned"]], ["a.weight", "embed"])

    def test_nothing_to_prune_is_said(self):
        self.make_checkpoint()
        result = subprocess.run(
            [LACUNA, "prune", "model.safetensors", "out.safetensors", "-p", "2:4", "-i", "nothing"],
            cwd=self.folder,
            capture_output=True,
            text=True,
        )
        self.assertEqual(result.returncode, 0)
        self.assertIn("no tensor was pruned", result.stderr)

    def test_dry_run_is_what_a_run_does(self):
        self.make_checkpoint()
        for pattern in PATTERNS:
            for options in [[], ["--dtype", "bf16"], ["-x", "b*"], ["--dense"]]:
                arguments = ["prune", "model.safetensors", "out.safetensors", "-p", pattern, *options]
                dry = self.run_json(*arguments, "--dry-run")
                self.assertEqual(self.files(), ["model.safetensors"])
                real = self.run_json(*arguments)
                os.remove(self.path("out.safetensors"))
                for key in ["name", "pruned", "reason", "n", "k", "dense_bytes", "stored_bytes"]:
                    self.assertEqual([x[key] for x in dry["layers"]], [x[key] for x in real["layers"]], (pattern, options, key))
        self.assertIn("nothing was written", self.run_lacuna("prune", "model.safetensors", "o", "-p", "2:4", "-n")[0])

    def test_dry_run_of_a_container(self):
        self.make_checkpoint()
        self.run_lacuna("prune", "model.safetensors", "half.safetensors", "-p", "2:4", "-i", "a*")
        dry = self.run_json("prune", "half.safetensors", "out.safetensors", "-p", "1:4", "-n")
        real = self.run_json("prune", "half.safetensors", "out.safetensors", "-p", "1:4")
        for key in ["name", "pruned", "reason", "stored_bytes"]:
            self.assertEqual([x[key] for x in dry["layers"]], [x[key] for x in real["layers"]])
        self.assertIn("compressed already", [x["reason"] for x in real["layers"]])

    def test_encodings_and_dtypes(self):
        self.make_checkpoint()
        for encoding in ["packed", "bitmask"]:
            self.run_lacuna("prune", "model.safetensors", "o.safetensors", "-p", "2:4", "-e", encoding, "-f")
            weights = self.run_json("info", "o.safetensors")["weights"]
            self.assertEqual({w["encoding"] for w in weights}, {encoding})
        self.run_lacuna("prune", "model.safetensors", "o.safetensors", "-p", "2:4", "-d", "float16", "-f")
        self.assertEqual({w["dtype"] for w in self.run_json("info", "o.safetensors")["weights"]}, {"f16"})
        self.run_lacuna("verify", "o.safetensors", "--against", "model.safetensors")
        _, error = self.run_lacuna("prune", "model.safetensors", "p.safetensors", "-p", "2:4", "-e", "implicit", status=3)
        self.assertIn("model.safetensors", error)
        self.assertNotIn("p.safetensors", self.files())

    def test_scores_differ(self):
        # A vector of (3, 0) against one of (2, 2): the sum of magnitudes prefers the second, the energy the first.
        write_safetensors(self.path("s.safetensors"), {"w": ("F32", [2, 2], [3.0, 2.0, 0.0, 2.0])})
        for score, want in [("l2", [3.0, 0.0, 0.0, 0.0]), ("l1", [0.0, 2.0, 0.0, 2.0])]:
            self.run_lacuna("prune", "s.safetensors", "o.safetensors", "-p", "vw2:1:2", "--score", score, "--dense", "-f")
            self.assertEqual(read_safetensors(self.path("o.safetensors"))["w"][2], want)

    def test_values_too_large(self):
        write_safetensors(self.path("big.safetensors"), {"w.big": ("F32", [1, 4], [1e6, -1e6, 0.5, 0.25])})
        _, error = self.run_lacuna("prune", "big.safetensors", "o.safetensors", "-p", "2:4", "-d", "f16", status=3)
        self.assertTrue(error.startswith("lacuna prune: big.safetensors: tensor 'w.big': "), error)
        self.assertIn("f16", error)
        self.assertEqual(self.files(), ["big.safetensors"])
        self.run_lacuna("prune", "big.safetensors", "o.safetensors", "-p", "2:4", "-d", "f16", "--saturate")
        self.run_lacuna("convert", "o.safetensors", "d.safetensors", "--dense")
        self.assertEqual(read_safetensors(self.path("d.safetensors"))["w.big"][2], [65504.0, -65504.0, 0.0, 0.0])
        self.run_lacuna("verify", "o.safetensors", "--against", "big.safetensors", "-m", "0")

    def test_refusals(self):
        self.make_checkpoint()
        with open(self.path("there"), "w") as file:
            file.write("precious")
        _, error = self.run_lacuna("prune", "model.safetensors", "there", "-p", "2:4", status=3)
        self.assertIn("there: exists; --force", error)
        with open(self.path("there")) as file:
            self.assertEqual(file.read(), "precious")
        self.run_lacuna("prune", "model.safetensors", "there", "-p", "2:4", "--force")
        self.run_lacuna("verify", "there")
        os.mkdir(self.path("folder"))
        self.assertIn("folder", self.run_lacuna("prune", "model.safetensors", "folder", "-p", "2:4", "-f", status=3)[1])
        _, error = self.run_lacuna("prune", "model.safetensors", "no/such/out", "-p", "2:4", status=3)
        self.assertIn("no/such/out", error)
        with open(self.path("m.smtx"), "w") as file:
            file.write("1, 2, 1\n0 1\n0\n")
        for options in [[], ["--dry-run"]]:
            self.assertIn("mask", self.run_lacuna("prune", "m.smtx", "o", "-p", "2:4", *options, status=3)[1])

    def test_a_matrix_as_npy(self):
        write_npy(self.path("w.npy"), [4, 8], gaussian(4, 8, 5))
        self.run_lacuna("prune", "w.npy", "o.safetensors", "-p", "2:4")
        self.run_lacuna("verify", "o.safetensors", "--against", "w.npy")

    def test_threads_change_nothing(self):
        self.make_checkpoint()
        for threads in "12":
            self.run_lacuna("prune", "model.safetensors", "o" + threads, "-p", "vw4:2:8", "-t", threads)
        with open(self.path("o1"), "rb") as one, open(self.path("o2"), "rb") as two:
            self.assertEqual(one.read(), two.read())

    def test_ctrl_c_leaves_no_output(self):
        block = gaussian(64, 64, 6) * 64
        write_safetensors(self.path("m.safetensors"), {"w%d" % i: ("F32", [512, 512], block) for i in range(24)})
        for number in [signal.SIGINT, signal.SIGTERM]:
            process = subprocess.Popen(
                [LACUNA, "prune", "m.safetensors", "o.safetensors", "-p", "shfl32:25%", "--progress", "always"],
                cwd=self.folder,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            first = process.stderr.read(1)  # the bar is drawn after the first tensor
            process.send_signal(number)
            out, error = process.communicate(timeout=600)
            self.assertEqual(first, b"\r")
            self.assertEqual(process.returncode, -number, error)
            self.assertIn(b"the same command goes on from there", error)
            self.assertEqual(out, b"")
            self.assertNotIn("o.safetensors", self.files())


class Memory(Case):
    """A checkpoint four times as large as the memory that the process may have."""

    TENSORS, SIDE, LIMIT = 24, 1280, 40 << 20

    @unittest.skipIf(int(os.environ.get("LAC_TEST_SCALE", "1")) > 1, "the sanitizers need more memory than the limit")
    def test_one_tensor_at_a_time(self):
        size = self.SIDE * self.SIDE * 4
        header = {
            "layer.%d" % i: {"dtype": "F32", "shape": [self.SIDE, self.SIDE], "data_offsets": [i * size, (i + 1) * size]}
            for i in range(self.TENSORS)
        }
        text = json.dumps(header).encode()
        with open(self.path("large.safetensors"), "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            for i in range(self.TENSORS):
                file.write(struct.pack("<16f", *[(i + j) % 7 - 3 + j / 16 for j in range(16)]) * (size // 64))
        self.assertGreater(self.TENSORS * size, 3 * self.LIMIT)
        result = subprocess.run(
            [LACUNA, "prune", "large.safetensors", "small.safetensors", "-p", "2:4", "--threads", "1", "--json"],
            cwd=self.folder,
            capture_output=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (self.LIMIT, self.LIMIT)),
            check=False,
        )
        self.assertEqual((result.returncode, result.stderr), (0, b""))
        self.assertEqual(json.loads(result.stdout)["totals"]["pruned"], self.TENSORS)
        self.run_lacuna("verify", "small.safetensors", "--against", "large.safetensors", "--include", "layer.1?")


class Verify(Case):
    def make(self, pattern="2:4", *options):
        self.make_checkpoint()
        self.run_lacuna("prune", "model.safetensors", "out.safetensors", "-p", pattern, *options)

    def damage(self, name, part, offset, data):
        """Overwrites bytes of one part of a weight."""
        with open(self.path(name), "r+b") as file:
            length = struct.unpack("<Q", file.read(8))[0]
            begin = json.loads(file.read(length))[part]["data_offsets"][0]
            file.seek(8 + length + begin + offset)
            file.write(data)

    def test_keys(self):
        self.make()
        document = self.run_json("verify", "out.safetensors")
        keys = {"command", "file", "against", "ok", "checked", "bad", "first_problem", "weights", "tensors"}
        self.assertEqual(set(document), keys)
        self.assertEqual((document["checked"], document["bad"], document["first_problem"]), (4, 0, None))
        weight = document["weights"][0]
        self.assertEqual(
            set(weight), {"name", "n", "k", "pattern", "ok", "problem", "energy_kept", "dropped", "product"}
        )
        self.assertEqual(set(weight["product"]), {"kernel", "m", "seconds", "max_error", "share_of_bound"})
        self.assertEqual(weight["product"]["m"], 4)
        self.assertEqual(self.run_json("verify", "out.safetensors", "-m", "3")["weights"][0]["product"]["m"], 3)
        self.assertIsNone(self.run_json("verify", "out.safetensors", "-m", "0")["weights"][0]["product"])
        self.assertIn("all 4 right", self.run_lacuna("verify", "out.safetensors")[0])

    def test_energy_and_dropped_are_exact(self):
        self.make()
        values = read_safetensors(self.path("model.safetensors"))["a.weight"][2]
        kept = prune_2_4(values, 32)
        weight = self.run_json("verify", "out.safetensors", "-a", "model.safetensors", "-i", "a.weight")["weights"][0]
        self.assertEqual(weight["dropped"], 256)
        want = sum(v * v for v in kept) / sum(v * v for v in values)
        self.assertAlmostEqual(weight["energy_kept"], want, places=10)

    def test_a_changed_value_is_found(self):
        self.make()
        self.damage("out.safetensors", "b.weight:values", 0, struct.pack("<f", 123.0))
        self.run_lacuna("verify", "out.safetensors")  # by itself it is sound
        _, error = self.run_lacuna("verify", "out.safetensors", "--against", "model.safetensors", status=1)
        for word in ["out.safetensors", "tensor 'b.weight'", "element (0, ", "is 123"]:
            self.assertIn(word, error)
        document = self.run_json("verify", "out.safetensors", "--against", "model.safetensors", status=1)
        self.assertFalse(document["ok"])
        self.assertEqual((document["bad"], document["first_problem"]["tensor"]), (1, "b.weight"))

    def test_a_broken_index_is_found(self):
        self.make()
        self.damage("out.safetensors", "a.weight:index", 0, b"\0")  # 0, 0: not ascending
        out, error = self.run_lacuna("verify", "out.safetensors", status=1)
        self.assertIn("a.weight", error)
        self.assertIn("1 of 4 wrong", out)

    def test_a_changed_copy_is_found(self):
        self.make()
        self.damage("out.safetensors", "norm", 4, b"\1")
        _, error = self.run_lacuna("verify", "out.safetensors", "--against", "model.safetensors", status=1)
        self.assertIn("tensor 'norm': its bytes are not the original's", error)

    def test_missing_and_foreign_tensors_are_found(self):
        tensors = self.make_checkpoint()
        self.run_lacuna("prune", "model.safetensors", "out.safetensors", "-p", "2:4")
        more = dict(tensors, extra=("F32", [1], [1.0]))
        write_safetensors(self.path("more.safetensors"), more)
        _, error = self.run_lacuna("verify", "out.safetensors", "--against", "more.safetensors", status=1)
        self.assertIn("tensor 'extra': is in the original but not here", error)
        less = {name: tensor for name, tensor in tensors.items() if name not in ("a.weight", "norm")}
        write_safetensors(self.path("less.safetensors"), less)
        _, error = self.run_lacuna("verify", "out.safetensors", "--against", "less.safetensors", status=1)
        self.assertIn("tensor 'a.weight': less.safetensors has no such tensor", error)
        self.assertIn("tensor 'norm'", error)
        other = dict(tensors)
        other["a.weight"] = ("F32", [32, 16], tensors["a.weight"][2])
        write_safetensors(self.path("other.safetensors"), other)
        _, error = self.run_lacuna("verify", "out.safetensors", "--against", "other.safetensors", status=1)
        self.assertIn("32x16", error)

    def test_a_damaged_file_is_a_no_and_a_missing_one_a_failure(self):
        self.make()
        with open(self.path("out.safetensors"), "r+b") as file:
            file.truncate(200)
        _, error = self.run_lacuna("verify", "out.safetensors", status=1)
        self.assertIn("out.safetensors", error)
        self.assertFalse(self.run_json("verify", "out.safetensors", status=1)["ok"])
        self.run_lacuna("verify", "missing", status=3)
        self.run_lacuna("verify", "model.safetensors", "--against", "missing", status=3)

    def test_dense_tensors_against_a_pattern(self):
        self.make("2:4", "--dense")
        arguments = ["verify", "out.safetensors", "--pattern", "2:4", "--against", "model.safetensors"]
        document = self.run_json(*arguments)
        dropped = {t["name"]: t["dropped"] for t in document["tensors"]}
        self.assertEqual((dropped["a.weight"], dropped["norm"]), (256, 0))
        _, error = self.run_lacuna("verify", "out.safetensors", "--pattern", "1:4", status=1)
        self.assertIn("tensor 'a.weight'", error)
        _, error = self.run_lacuna("verify", "out.safetensors", "--against", "model.safetensors", status=1)
        self.assertIn("tensor 'a.weight': its bytes are not the original's", error)

    def test_masks(self):
        with open(self.path("m.smtx"), "w") as file:
            file.write("2, 4, 3\n0 2 3\n0 1 3\n")
        self.run_lacuna("verify", "m.smtx", "--pattern", "2:4")
        self.assertIn("m.smtx", self.run_lacuna("verify", "m.smtx", "--pattern", "1:4", status=1)[1])

    def test_checking_nothing_is_no_success(self):
        self.make()
        for arguments in [["model.safetensors"], ["out.safetensors", "-i", "nothing"]]:
            self.assertIn("nothing to check", self.run_lacuna("verify", *arguments, status=2)[1])


class Demo(Case):
    @unittest.skipIf(int(os.environ.get("LAC_TEST_SCALE", "1")) > 1, "left out where the tests are scaled down")
    def test_demo(self):
        started = time.monotonic()
        document = self.run_json("demo", "--out", "made here", "--tokens", "4")
        self.assertLess(time.monotonic() - started, 120)
        self.assertTrue(document["ok"])
        self.assertEqual(
            [r["pattern"] for r in document["results"]], ["2:4", "8:32", "vw32:8:32", "bw4x4:2:8", "64:2:8", "shfl32:25%"]
        )
        for result in document["results"]:
            self.assertTrue(result["ok"])
            self.assertLessEqual(result["share_of_bound"], 1)
            self.assertTrue(os.path.exists(self.path(result["file"])))
        best = {r["pattern"]: r["energy_kept"] for r in document["results"]}
        self.assertGreater(best["8:32"], best["vw32:8:32"])
        self.assertGreater(best["64:2:8"], best["bw4x4:2:8"])

    def test_demo_cannot_write(self):
        with open(self.path("file"), "w"):
            pass
        self.assertIn("file", self.run_lacuna("demo", "--out", "file", status=3)[1])
        self.assertIn("no/such", self.run_lacuna("demo", "--out", "no/such", status=3)[1])


class Edges(Case):
    def test_long_patterns_are_read_whole(self):
        self.make_checkpoint()
        text = "vw" + "0" * 56 + "2:2:44"  # 64 characters; its first 63 are another pattern
        document = self.run_json("prune", "model.safetensors", "out.safetensors", "--schedule", text)
        self.assertEqual({l["pattern"] for l in document["layers"] if l["pruned"]} | {document["pattern"]}, {"vw2:2:44"})
        document = self.run_json("prune", "model.safetensors", "out.safetensors", "--budget", "density=0.9", "--patterns", text, "-n")
        self.assertEqual({o["pattern"] for l in document["allocation"]["layers"] for o in l["options"]}, {"dense", "vw2:2:44"})

    def test_a_glob_that_is_not_utf8(self):
        self.make_checkpoint()
        error = self.run_lacuna("prune", "model.safetensors", "out.safetensors", "-p", "2:4", "-x", os.fsdecode(b"\xff*"), status=3)[1]
        self.assertIn("UTF-8", error)

    def test_empty_matrices_need_no_samples(self):
        write_safetensors(self.path("m.safetensors"), {"a.weight": ("F32", [8, 16], gaussian(8, 16, 1)), "e.weight": ("F32", [4, 0], []),
                                                       "f.weight": ("F32", [0, 16], [])})
        write_safetensors(self.path("c.safetensors"), {"a.input": ("F32", [32, 16], gaussian(32, 16, 2))})
        for method in ("wanda", "obs"):
            self.run_lacuna("prune", "m.safetensors", "out.safetensors", "-p", "2:4", "-m", method, "-c", "c.safetensors", "-f", "--restart")

    def test_a_loss_that_overflows_is_not_taken_for_none(self):
        write_safetensors(self.path("m.safetensors"), {"a.weight": ("F64", [8, 16], [v * 1e200 for v in gaussian(8, 16, 1)]),
                                                       "b.weight": ("F64", [8, 16], gaussian(8, 16, 2))})
        document = self.run_json("prune", "m.safetensors", "out.safetensors", "--budget", "density=0.75", "--patterns", "2:4", "--saturate")
        self.assertEqual({l["name"]: l["pattern"] for l in document["allocation"]["layers"]}, {"a.weight": "dense", "b.weight": "2:4"})


if __name__ == "__main__":
    sys.exit(unittest.main())
