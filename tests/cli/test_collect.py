"""test_collect.py - scripts/collect_calibration.py on a small model, and lacuna prune on what it wrote. Needs a Python with PyTorch; skips without."""

import os
import subprocess
import sys
import unittest

from support import Case, read_safetensors

SCRIPT = os.path.join(os.path.dirname(__file__), "..", "..", "scripts", "collect_calibration.py")
SOURCE = """
import torch

def calibration():
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(16, 24), torch.nn.ReLU(), torch.nn.Linear(24, 8))
    batches = [torch.randn(10, 4, 16) for _ in range(7)]
    torch.save({"weights": model.state_dict(), "batches": batches}, "known.pt")
    return model, batches, lambda model, x: model(x).square().mean()
"""
# What the script must have written, computed without hooks.
CHECK = """
import struct, sys, torch
sys.path.insert(0, sys.argv[1])
import collect_calibration as collect
known = torch.load("known.pt")
w = known["weights"]
x = torch.cat([b.reshape(-1, 16) for b in known["batches"]])
hidden = torch.relu(x @ w["0.weight"].T + w["0.bias"])
tensors = {"0.weight": w["0.weight"], "2.weight": w["2.weight"], "x": x, "hidden": hidden}
first = known["batches"][0].reshape(-1, 16)
h = torch.relu(first @ w["0.weight"].T + w["0.bias"])
y = h @ w["2.weight"].T + w["2.bias"]
tensors["gradient"] = (2 * y / y.numel()).T @ h
collect.write_safetensors("model.safetensors", tensors)
"""


def python_with_torch():
    for python in (sys.executable, "/usr/bin/python3"):
        try:
            if subprocess.run([python, "-c", "import torch"], capture_output=True, timeout=120).returncode == 0:
                return python
        except (OSError, subprocess.TimeoutExpired):
            pass
    return None


PYTHON = python_with_torch()


@unittest.skipIf(PYTHON is None, "no Python with PyTorch here")
class Collect(Case):
    def collect(self, *options, ok=True):
        with open(self.path("source.py"), "w") as file:
            file.write(SOURCE)
        result = subprocess.run([PYTHON, SCRIPT, "source.py", "calibration.safetensors", *options], cwd=self.path(""), text=True, capture_output=True)
        self.assertEqual(result.returncode == 0, ok, result.stderr)
        if ok:
            subprocess.run([PYTHON, "-c", CHECK, os.path.dirname(SCRIPT)], cwd=self.path(""), check=True)
        return result

    def rows(self, tensor):
        _, (count, k), values = tensor
        return [tuple(round(v, 4) for v in values[i * k : i * k + k]) for i in range(count)]

    def test_inputs_are_rows_of_the_stream(self):
        self.collect("--inputs", "100")
        got, known = read_safetensors(self.path("calibration.safetensors")), read_safetensors(self.path("model.safetensors"))
        for name, stream in (("0.input", "x"), ("2.input", "hidden")):
            rows, all_rows = self.rows(got[name]), self.rows(known[stream])
            self.assertEqual(len(set(rows)), 100)
            self.assertLessEqual(set(rows), set(all_rows))
            self.assertNotEqual(set(rows), set(all_rows[:100]))  # drawn from all of it, not its beginning

    def test_fewer_inputs_than_asked_are_all_kept(self):
        self.collect()
        got, known = read_safetensors(self.path("calibration.safetensors")), read_safetensors(self.path("model.safetensors"))
        self.assertEqual(self.rows(got["0.input"]), self.rows(known["x"]))

    def test_gradients_are_those_of_the_loss(self):
        self.collect("--gradients", "5", "--include", "2.*")
        got, known = read_safetensors(self.path("calibration.safetensors")), read_safetensors(self.path("model.safetensors"))
        self.assertEqual(set(got), {"2.input", "2.gradient"})
        self.assertEqual(got["2.gradient"][1], [5, 8, 24])
        for a, b in zip(got["2.gradient"][2], known["gradient"][2]):
            self.assertAlmostEqual(a, b, delta=1e-6)

    def test_prune_takes_it(self):
        self.collect("--gradients", "6")
        for method in ("wanda", "obs", "fisher"):
            self.run_lacuna("prune", "model.safetensors", method + ".safetensors", "-p", "2:4", "-i", "*.weight", "-m", method,
                            "-c", "calibration.safetensors")  # fmt: skip

    def test_moments_are_the_sum_over_all_inputs(self):
        for at_once in ("1", "2"):
            self.collect("--moments", "--at-once", at_once, "--gradients", "2")
            got, known = read_safetensors(self.path("calibration.safetensors")), read_safetensors(self.path("model.safetensors"))
            self.assertEqual(set(got), {"0.moments", "0.samples", "0.gradient", "2.moments", "2.samples", "2.gradient"})
            for name, stream in (("0", "x"), ("2", "hidden")):
                _, (rows, k), x = known[stream]
                self.assertEqual((got[name + ".moments"][1], got[name + ".samples"]), ([k, k], ("F64", [1], [rows])))
                for i, value in enumerate(got[name + ".moments"][2]):
                    want = sum(x[s * k + i // k] * x[s * k + i % k] for s in range(rows))
                    self.assertAlmostEqual(value, want, delta=1e-4 * rows)
            self.run_lacuna("prune", "model.safetensors", "o" + at_once, "-p", "2:4", "-i", "*.weight", "-m", "obs", "-c", "calibration.safetensors")

    def test_refusals_name_the_matter(self):
        self.assertIn("linear layer", self.collect("--include", "nothing*", ok=False).stderr)
        self.assertIn("--inputs 0", self.collect("--inputs", "0", ok=False).stderr)
        self.assertFalse(os.path.exists(self.path("calibration.safetensors")))


if __name__ == "__main__":
    unittest.main()
