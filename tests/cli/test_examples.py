"""test_examples.py - the programs of examples/ do what they say, on files that `lacuna prune` made.

The environment names their folder: LACUNA=build/lacuna EXAMPLES=build python3 tests/cli/test_examples.py
FAKE_CUDA, a driver made for the tests, stands in for a GPU on a machine that has no compiler for its kernels."""

import os
import subprocess
import unittest

from support import Case, gaussian, write_safetensors

EXAMPLES = os.environ["EXAMPLES"]


class Examples(Case):
    def run_example(self, name, *arguments, status=0, environment=None):
        result = subprocess.run(
            [os.path.join(EXAMPLES, "example_" + name), *arguments],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(os.environ, **(environment or {})),
            timeout=600,
        )
        out, error = result.stdout.decode(), result.stderr.decode()
        self.assertEqual(result.returncode, status, "%s\n--- stdout\n%s\n--- stderr\n%s" % (name, out, error))
        return out, error

    def test_linear_layer(self):
        tensors = {
            "up.weight": ("F32", [67, 100], gaussian(67, 100, 1)),
            "up.bias": ("F16", [67], [i / 8 - 4 for i in range(67)]),
            "down.weight": ("F16", [40, 67], [round(v * 64) / 64 for v in gaussian(40, 67, 2)]),
        }
        write_safetensors(self.path("model.safetensors"), tensors)
        for pattern in ["2:4", "vw32:8:32", "bw4x4:2:8", "64:2:8", "shfl32:25%"]:
            self.run_lacuna("prune", "model.safetensors", "sparse.safetensors", "--pattern", pattern, "--force")
            lines = self.run_example("linear_layer", "sparse.safetensors", "up")[0].splitlines()
            self.assertEqual(len(lines), 3, lines)
            for line, tokens in zip(lines, [1, 16, 100]):
                self.assertRegex(line, r"^ *%d tokens x 100 inputs -> 67 outputs with bias by \w+.*: right$" % tokens)
            out, _ = self.run_example("linear_layer", "sparse.safetensors", "down")
            self.assertEqual(out.count("x 67 inputs -> 40 outputs by "), 3, out)

    def test_linear_layer_says_what_is_wrong(self):
        self.run_example("linear_layer", status=2)
        _, error = self.run_example("linear_layer", "nowhere.safetensors", "up", status=1)
        self.assertIn("nowhere.safetensors", error)
        self.make_checkpoint()
        self.run_lacuna("prune", "model.safetensors", "sparse.safetensors", "--pattern", "2:4")
        _, error = self.run_example("linear_layer", "sparse.safetensors", "up", status=1)
        self.assertIn("up.weight", error)
        self.run_example("linear_layer", "sparse.safetensors", "b")

    def test_gpu_or_cpu(self):
        out, error = self.run_example("gpu_or_cpu", "cpu")
        self.assertRegex(out, r"^cpu \(.+\), by cpu_\w+\n$")
        self.assertEqual(error, "")
        out, error = self.run_example("gpu_or_cpu", "cuda:99")
        self.assertRegex(out, r"^cpu ")
        self.assertRegex(error, r"^cuda:99: not found: .*\nthe CPU does it instead\n$")

    def test_gpu_without_a_compiler(self):
        """The GPU is the fastest device, and there; its kernels cannot be compiled, nor is there a dense library. So the CPU does it."""
        none = self.path("none")
        missing = {"LAC_CUDA_LIBRARY": os.environ["FAKE_CUDA"], "LAC_NVRTC_LIBRARY": none, "LAC_CUBLASLT_LIBRARY": none, "LAC_CACHE_DIR": none}
        out, error = self.run_example("gpu_or_cpu", environment=missing)
        self.assertRegex(out, r"^cpu ")
        self.assertRegex(error, r"^auto: unsupported: .*\nthe CPU does it instead\n$")


if __name__ == "__main__":
    unittest.main()
