"""torch_case.py - what the tests of lacuna.torch share: devices, random tensors that are the same every time, and how far a result may be.

    PYTHONPATH=build/python build/torch-venv/bin/python -B -m unittest discover -s tests/python -p 'test_torch_*.py'

Everything runs on the CPU, and on the GPU as well where torch.cuda.is_available().
"""

import os
import unittest
import warnings

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # threads that wait give their core to others
import torch  # noqa: E402
from torch import nn  # noqa: E402

import lacuna.torch  # noqa: E402

warnings.filterwarnings("ignore", message=".*triton not found.*")
DEVICES = ["cpu"] + (["cuda"] if torch.cuda.is_available() else [])
PATTERNS = {"cpu": ("2:4", "vw4:3:7", "bw2x2:1:2", "8:2:8", "shfl8:40%"), "cuda": ("2:4", "vw64:8:32", "64:2:8")}
# Half the distance from 1 to the next number of each dtype.
ROUNDING = {torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}
SMALLEST = {torch.float32: 2.0**-149, torch.float16: 2.0**-24, torch.bfloat16: 2.0**-133}


def gaussian(*shape, seed=1, dtype=torch.float32, device="cpu"):
    generator = torch.Generator().manual_seed(seed * 1000003 + sum((i + 1) * size for i, size in enumerate(shape)))
    return torch.randn(shape, generator=generator).to(dtype).to(device)


def linear(n, k, bias=True, dtype=torch.float32, device="cpu", seed=1):
    """An nn.Linear whose numbers do not depend on what ran before."""
    layer = nn.Linear(k, n, bias=bias)
    with torch.no_grad():
        layer.weight.copy_(gaussian(n, k, seed=seed))
        if bias:
            layer.bias.copy_(gaussian(n, seed=seed + 1))
    return layer.to(device, dtype)


class Case(unittest.TestCase):
    def setUp(self):
        self.addCleanup(lacuna.plan_limits, **lacuna.plan_limits())

    def near(self, y, x, w, bias=None, activation="none", extra=0.0):
        """y [..., n] is activation(x W^T + bias) for x [..., k] and the dense w [n, k], as double gives it, within what rounding explains:
        every product and sum in fp32 (k + 2 roundings of a sum of |x||w|), then the result in y's dtype. No activation is steeper than
        1.13; what computing it errs is a few roundings more. `extra` is a share of |x||w| that the inputs were rounded by before."""
        x, w = x.detach().cpu().double(), w.detach().cpu().double()
        b = torch.zeros(w.shape[0], dtype=torch.double) if bias is None else bias.detach().cpu().double()
        z = x @ w.t() + b  # [..., n]
        size = x.abs() @ w.abs().t() + b.abs()
        expected = ACTIVATE[activation](z)
        unit = ROUNDING[y.dtype]
        far = 1.13 * ((w.shape[1] + 2) * 2.0**-24 + extra) * size + 32 * 2.0**-24 * z.abs()
        far = far + unit * (expected.abs() + far) + SMALLEST[y.dtype]
        self.assertEqual(tuple(y.shape), tuple(expected.shape))
        error = (y.detach().cpu().double() - expected).abs()
        self.assertTrue(bool((error <= far).all()), f"off by {(error / far).max().item():.2f} times what rounding explains")
        self.assertGreater(expected.abs().sum().item(), 0)


ACTIVATE = {
    "none": lambda z: z,
    "relu": torch.relu,
    "gelu": nn.functional.gelu,
    "gelu_tanh": lambda z: nn.functional.gelu(z, approximate="tanh"),
    "silu": nn.functional.silu,
}


class Net(nn.Module):
    """Two blocks, an embedding that shares its weight with the head, and a layer of a kind of its own."""

    class Own(nn.Linear):
        pass

    def __init__(self, width=64, hidden=96, words=50):
        super().__init__()
        torch.manual_seed(1)
        self.embed = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(
            nn.ModuleDict({"up": nn.Linear(width, hidden), "down": nn.Linear(hidden, width, bias=False)}) for _ in range(2)
        )
        self.own = Net.Own(width, width)
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, words):
        x = self.embed(words)
        for block in self.blocks:
            x = x + block["down"](torch.relu(block["up"](x)))
        return self.head(self.own(x))
