"""Lacuna multiplies dense activations by N:M-sparse weights, faster than dense.

    weight = lacuna.compress(w, "2:4")         # w [n, k]: pruned by magnitude, compressed
    y = lacuna.matmul(x, weight)               # x [m, k] -> y [m, n]

docs/python.md shows the rest.
"""

from . import errors
from ._core import (
    Allocation,
    Calibration,
    Choice,
    CompileReport,
    ComponentInfo,
    Device,
    DeviceArray,
    DeviceInfo,
    File,
    KernelInfo,
    LayerReport,
    Level,
    Mask,
    Pattern,
    Plan,
    TensorInfo,
    Weight,
    WeightInfo,
    Writer,
    __version__,
    allocate,
    compile_kernels,
    components,
    compress,
    devices,
    kernels,
    load,
    measure_weight,
    prune,
    prune_and_correct,
    prune_checkpoint,
    save_npy,
    set_log_level,
    weight_from_parts,
)
from ._files import save
from ._matmul import matmul
from ._plans import cached_plans, plan_limits
from .errors import Error

# What a checker of types takes for ours: of a package that is typed it counts no other import as shown.
__all__ = [
    "Allocation",
    "Calibration",
    "Choice",
    "CompileReport",
    "ComponentInfo",
    "Device",
    "DeviceArray",
    "DeviceInfo",
    "Error",
    "File",
    "KernelInfo",
    "LayerReport",
    "Level",
    "Mask",
    "Pattern",
    "Plan",
    "TensorInfo",
    "Weight",
    "WeightInfo",
    "Writer",
    "__version__",
    "allocate",
    "cached_plans",
    "compile_kernels",
    "components",
    "compress",
    "devices",
    "errors",
    "kernels",
    "load",
    "matmul",
    "measure_weight",
    "plan_limits",
    "prune",
    "prune_and_correct",
    "prune_checkpoint",
    "save",
    "save_npy",
    "set_log_level",
    "weight_from_parts",
]
