"""Lacuna for PyTorch: a pruned model that gets faster.

    report = lacuna.torch.sparsify(model, "2:4")       # prunes the linear layers and replaces them, in place
    print(lacuna.torch.benchmark(model, example))      # what that gained, layer by layer

docs/python.md shows the rest. `import lacuna.torch` needs PyTorch; `import lacuna` does not.
"""

from ._torch_bench import Benchmark, Timing, benchmark
from ._torch_files import load_sparse, save_sparse
from ._torch_layers import SparseConv2d, SparseLinear, WeightView
from ._torch_model import LayerReport, Report, calibrate, sparsify
from ._torch_op import linear

__all__ = [
    "Benchmark",
    "LayerReport",
    "Report",
    "SparseConv2d",
    "SparseLinear",
    "Timing",
    "WeightView",
    "benchmark",
    "calibrate",
    "linear",
    "load_sparse",
    "save_sparse",
    "sparsify",
]
