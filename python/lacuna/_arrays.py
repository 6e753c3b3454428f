"""Arrays as _core wants them: what has no buffer and no DLPack, and new ones of the kind of those that came in."""

import sys

import numpy

_NUMPY = {"f32": "float32", "f16": "float16", "f64": "float64", "u32": "uint32", "bool": "bool"}


def adapt(array):
    """(something with a buffer, its dtype) for an array that gives neither a buffer nor DLPack; None where that is not known how.

    numpy keeps bfloat16 as a dtype of the package ml_dtypes, and gives no buffer of it.
    """
    if isinstance(array, numpy.ndarray) and array.dtype.name == "bfloat16":
        return array.view(numpy.uint16), "bf16"
    return None


def empty(like, shape, dtype, is_feature_major):
    """A new array, not cleared, of the kind and on the device of `like`; numpy's where that is None.

    Feature-major, a matrix of this shape is the transpose of a contiguous one.
    """
    if is_feature_major and len(shape) == 2:
        return empty(like, shape[::-1], dtype, False).T
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(like, torch.Tensor):
        types = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "f64": torch.float64}
        return torch.empty(shape, dtype=types[dtype], device=like.device)
    from . import _core

    if isinstance(like, _core.DeviceArray):
        return _core.DeviceArray(shape, dtype, like.device)
    if dtype != "bf16":
        return numpy.empty(shape, _NUMPY[dtype])
    try:
        import ml_dtypes
    except ImportError:
        raise TypeError("numpy has no bfloat16 of its own: pip install ml_dtypes, ask for another dtype, or use PyTorch's tensors") from None
    return numpy.empty(shape, ml_dtypes.bfloat16)
