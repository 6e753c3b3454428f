"""save(): several weights and tensors into one container."""

import numpy

from . import _core
from ._arrays import _FILES

_TYPES = {numpy.dtype(code).name: name for name, code in _FILES.items()} | {"bfloat16": "BF16"}


def _tensor(name, array):
    """(type, shape, something contiguous) of an array of numpy's, PyTorch's or alike."""
    if isinstance(array, _core.DeviceArray):
        array = array.numpy()
    dtype = getattr(array, "dtype", None)
    if dtype is None:
        raise TypeError(f"items[{name!r}] is {array!r}; it must be a Weight or an array")
    if isinstance(array, numpy.ma.MaskedArray):
        raise TypeError(f"items[{name!r}] is a masked array, whose mask a file cannot hold; pass its data, or filled()")
    if isinstance(array, numpy.ndarray):
        array = numpy.asarray(array, None if dtype.isnative else dtype.newbyteorder("="), order="C")
        kind = dtype.name
    else:  # PyTorch's are written "torch.float32"
        array = array.contiguous() if hasattr(array, "contiguous") else array
        kind = str(dtype).rsplit(".", 1)[-1]
        if kind not in ("float16", "float32", "float64", "bfloat16") and hasattr(array, "numpy"):
            array = array.numpy()
    if kind not in _TYPES:
        raise TypeError(f"items[{name!r}] is of dtype {dtype}, which a safetensors file cannot hold")
    return _TYPES[kind], tuple(array.shape), array


def save(path, items, metadata=None):
    """Writes a container of items, {name: Weight or array}, with metadata, {str: str}: whole or not at all."""
    tensors = {name: _tensor(name, item) for name, item in items.items() if not isinstance(item, _core.Weight)}
    with _core.Writer(path) as writer:
        for key, value in (metadata or {}).items():
            writer.set_metadata(key, value)
        for name, item in items.items():
            if name in tensors:
                writer.declare_tensor(name, *tensors[name][:2])
            else:
                writer.declare_weight(name, item)
        for name, item in items.items():
            if name in tensors:
                writer.write_tensor(name, tensors[name][2])
            else:
                writer.write_weight(name, item)
