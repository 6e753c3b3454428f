"""test_torch_times.py - a table of dense and sparse layers on a GPU, when it is asked for, as far as it gets in so many seconds:

    LACUNA_TEST_TIMES=60 PYTHONPATH=build/python python3 -B -m unittest discover -s tests/python -p 'test_torch_*.py'

Its name makes it the last of them.
"""

import os
import sys
import time
import unittest

import torch
from torch_case import Case  # noqa: F401, its settings

import lacuna
import lacuna.torch
from lacuna.torch import SparseLinear

TIMED = [(n, pattern, m) for n in (4096, 8192) for pattern in ("2:4", "vw64:8:32", "64:2:8") for m in (1, 16, 256, 4096)]


class Times(unittest.TestCase):
    @unittest.skipUnless(torch.cuda.is_available() and os.environ.get("LACUNA_TEST_TIMES"), "LACUNA_TEST_TIMES is not set, or no GPU")
    def test_times(self):
        end, lines, weights = time.monotonic() + float(os.environ["LACUNA_TEST_TIMES"]), [], {}
        print("\nfp16, cold caches, us: dense by PyTorch, sparse by Lacuna", file=sys.stderr)
        print(f"{'n = k':>6} {'m':>5}  {'pattern':<10} {'dense':>9} {'sparse':>9} {'speedup':>8}  kernel", file=sys.stderr)
        for n, pattern, m in TIMED:
            if time.monotonic() > end:
                print(f"{len(TIMED) - len(lines)} more are left out: no time", file=sys.stderr)
                break
            if (n, pattern) not in weights:
                weights.clear()
                generator = torch.Generator().manual_seed(1)
                dense = torch.randn(n, n, generator=generator).half()
                weights[n, pattern] = SparseLinear(lacuna.compress(dense, pattern), device="cuda")
            layer = weights[n, pattern]
            x = torch.randn(m, n, device="cuda", dtype=torch.float16)
            timing = lacuna.torch.benchmark(layer, x, seconds=0.1).layers[0]
            us = timing.dense_seconds * 1e6, timing.sparse_seconds * 1e6
            lines.append(timing)
            print(
                f"{n:>6} {m:>5}  {pattern:<10} {us[0]:>9.1f} {us[1]:>9.1f} {timing.speedup:>7.2f}x  {timing.kernel}",
                file=sys.stderr,
                flush=True,
            )
        self.assertTrue(lines)


if __name__ == "__main__":
    unittest.main()
