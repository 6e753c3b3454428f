"""Lacuna multiplies dense activations by N:M-sparse weights, faster than dense.

    weight = lacuna.compress(w, "2:4")         # w [n, k]: pruned by magnitude, compressed
    y = lacuna.matmul(x, weight)               # x [m, k] -> y [m, n]

docs/python.md shows the rest.
"""

from . import errors
from ._core import (  # noqa: F401
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
from ._files import save  # noqa: F401
from ._matmul import matmul  # noqa: F401
from ._plans import cached_plans, plan_limits  # noqa: F401
from .errors import Error  # noqa: F401
