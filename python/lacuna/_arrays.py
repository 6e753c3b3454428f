"""Arrays as _core wants them: what has no buffer and no DLPack, and new ones of the kind of those that came in."""

import sys

import numpy
from numpy import ndarray  # noqa: F401

_NUMPY = {"f32": "float32", "f16": "float16", "f64": "float64", "u32": "uint32", "bool": "bool"}
_FILES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1", "BOOL": "?", "C64": "<c8",
}  # fmt: skip


def _bfloat16():
    try:
        import ml_dtypes
    except ImportError:
        raise TypeError(
            "numpy has no bfloat16 of its own: pip install ml_dtypes, ask for another dtype, or use PyTorch's tensors"
        ) from None
    return ml_dtypes.bfloat16


def adapt(array):
    """(something with a buffer, its dtype) for an array that gives neither a buffer nor DLPack; None where that is not known how.

    numpy keeps bfloat16 as a dtype of the package ml_dtypes, and gives no buffer of it.
    """
    if isinstance(array, ndarray) and array.dtype.name == "bfloat16" and array.dtype.isnative:
        return array.view(numpy.uint16), "bf16"
    return None


def empty(like, shape, dtype, is_feature_major=False, device=None):
    """A new array, not cleared: on `device`, a Device, where that is a GPU, else in the host's memory.

    It is a PyTorch tensor where `like` is one, otherwise numpy's or, on a GPU, a DeviceArray. Feature-major, a matrix of this shape is
    the transpose of a contiguous one.
    """
    if is_feature_major and len(shape) == 2:
        return empty(like, shape[::-1], dtype, False, device).T
    on_gpu = device is not None and device.kind == "cuda"
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(like, torch.Tensor):
        types = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "f64": torch.float64}
        return torch.empty(shape, dtype=types[dtype], device=device.name if on_gpu else "cpu")
    from . import _core

    if on_gpu or isinstance(like, _core.DeviceArray):
        return _core.DeviceArray(shape, dtype, device if device is not None else like.device)
    return numpy.empty(shape, _bfloat16() if dtype == "bf16" else _NUMPY[dtype])


def current_stream(x):
    """The stream on which PyTorch, when x is a tensor of its, goes on after the call; 0, the default stream, for all others."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(x, torch.Tensor) and x.is_cuda:
        return torch.cuda.current_stream(x.device).cuda_stream
    return 0


def from_bytes(view, kind, shape):
    """A tensor of a file as an array that shares its bytes, or, where they lie askew, a copy; `kind` is the file's name for its type."""
    if kind == "BF16":
        dtype = numpy.dtype(_bfloat16())
    elif kind in _FILES:
        dtype = numpy.dtype(_FILES[kind])
    else:
        raise TypeError(f"numpy has no type for {kind}; view() gives the bytes")
    array = numpy.frombuffer(view, numpy.uint8).view(dtype).reshape(shape)
    return array if array.flags.aligned else array.copy()
