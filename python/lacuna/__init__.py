"""Lacuna multiplies dense activations by N:M-sparse weights, faster than dense.

    weight = lacuna.compress(w, "2:4")         # w [n, k]: pruned by magnitude, compressed
    y = lacuna.matmul(x, weight)               # x [m, k] -> y [m, n]

docs/python.md shows the rest.
"""

from . import errors
from ._core import (  # noqa: F401
    Calibration,
    Device,
    DeviceArray,
    Mask,
    Pattern,
    Plan,
    Weight,
    __version__,
    components,
    compress,
    devices,
    kernels,
    load,
    prune,
    prune_and_correct,
    set_log_level,
    weight_from_parts,
)
from .errors import Error  # noqa: F401
