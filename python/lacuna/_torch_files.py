"""load_sparse() and save_sparse(): a model's tensors in a Lacuna container, as `lacuna prune` writes it (docs/format.md)."""

import json
import math
import mmap
import os
import struct
import tempfile

import torch
from torch import nn

from . import _core, errors
from . import _torch_layers as layers
from . import _torch_op as op
from ._torch_model import _replace

TYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64, "I32": torch.int32,
    "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool,
}  # fmt: skip
NAMES = {dtype: name for name, dtype in TYPES.items()}
ALIGNMENT = 64
MOST_HEADER = 100_000_000


# ---- reading


class Container:
    """The header of one safetensors file, and its plain tensors; weights are read by the library, which validates them."""

    def __init__(self, path):
        self.path = os.fspath(path)
        with open(self.path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            head = file.read(8)
            length = struct.unpack("<Q", head)[0] if len(head) == 8 else MOST_HEADER + 1
            if length > min(MOST_HEADER, size - 8):
                raise errors.BadFile(f"'{self.path}' is not a safetensors file: its header does not end within it")
            text = file.read(length)
            self.data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.begin = 8 + length
        try:
            self.header = json.loads(text)
            metadata = self.header.pop("__metadata__", None) or {}
            record = json.loads(metadata["lacuna"]) if "lacuna" in metadata else {"weights": {}}
            self.weights = list(record["weights"])
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise errors.BadFile(f"'{self.path}' is not a Lacuna container: {error}") from error
        parts = tuple(name + ":" for name in self.weights) + ("lacuna:pad:",)
        self.tensors = [name for name in self.header if not name.startswith(parts)]

    def weight(self, name):
        return _core.load(self.path, name)

    def tensor(self, name):
        """A copy."""
        try:
            entry = self.header[name]
            dtype, shape, (begin, end) = entry["dtype"], [int(size) for size in entry["shape"]], entry["data_offsets"]
            if dtype not in TYPES:
                raise ValueError(f"its dtype is {dtype!r}")
            count, step = math.prod(shape), torch.empty(0, dtype=TYPES[dtype]).element_size()
            if min([0, *shape]) < 0 or not 0 <= begin <= end <= len(self.data) - self.begin or end - begin != count * step:
                raise ValueError(f"its shape {shape} and its bytes {begin} to {end} do not agree")
        except (KeyError, TypeError, ValueError) as error:
            raise errors.BadFile(f"the tensor {name!r} of '{self.path}': {error}") from error
        if not count:
            return torch.empty(shape, dtype=TYPES[dtype])
        data = bytearray(memoryview(self.data)[self.begin + begin : self.begin + end])
        return torch.frombuffer(data, dtype=TYPES[dtype]).reshape(shape)


def _from_state(state):
    """(weights, tensors) of a state_dict: a Weight for each name whose parts are in it, and the rest."""
    parts, tensors = {}, {}
    for key, value in state.items():
        name, colon, part = key.rpartition(":")
        if colon and name.endswith("weight"):
            parts.setdefault(name, {})[part] = value
        else:
            tensors[key] = value
    return {name: layers.weight_from_tensors(found) for name, found in parts.items()}, tensors


def load_sparse(model, source, *, strict=True):
    """Loads a container that `lacuna prune` or save_sparse() wrote, or a state_dict of a sparsified model, into a model whose layers are dense
    or sparse: layers whose weight is compressed there become sparse ones, in place, in the dtype and on the device that they have; all other
    tensors are copied. strict: names that are missing on either side are an error, and nothing is changed. Returns (missing, unexpected).
    """
    if isinstance(source, dict):
        weights, tensors = _from_state(source)
    else:
        container = Container(source)
        weights = {name: container.weight(name) for name in container.weights}
        tensors = {name: container.tensor(name) for name in container.tensors}
    modules = dict(model.named_modules())
    if isinstance(model, (nn.Linear, nn.Conv2d)):
        raise errors.InvalidArgument("model is a layer itself, which cannot be replaced in place: SparseLinear(weight, bias) is one")
    expected = {name for name in model.state_dict() if ":" not in name}
    expected |= {name + ".weight" for name, module in modules.items() if isinstance(module, layers._Compressed)}
    given = set(weights) | set(tensors)
    missing, unexpected = sorted(expected - given), sorted(given - expected)
    if strict and (missing or unexpected):
        raise errors.InvalidArgument(f"the model and the source do not agree: missing {missing}, unexpected {unexpected}")

    made = []
    for name, weight in weights.items():
        if name in unexpected:
            continue
        module = modules[name.rpartition(".")[0]] if name.endswith(".weight") else None
        made.append((module, _layer_like(module, name, weight)))
    for module, layer in made:
        if layer is not module:
            _replace(model, module, layer)
    model.load_state_dict({name: tensor for name, tensor in tensors.items() if name in expected}, strict=False)
    return missing, unexpected


def _layer_like(module, name, weight):
    """A sparse layer with this weight that stands in for `module`."""
    if isinstance(module, layers._Compressed):
        shape = tuple(module.packed.shape)
    elif isinstance(module, nn.Conv2d):
        shape = (module.out_channels, layers.conv_matrix(module).shape[1])
    elif isinstance(module, nn.Linear):
        shape = (module.out_features, module.in_features)
    else:
        kind = "no module" if module is None else f"a {type(module).__name__}"
        raise errors.InvalidArgument(f"the weight {name!r} is compressed, but there is {kind} of the model in its place")
    if tuple(weight.shape) != shape:
        raise errors.InvalidArgument(f"the weight {name!r} is {tuple(weight.shape)}; the model's is {shape}")
    if isinstance(module, layers._Compressed):
        module._take(op.convert(weight, op.LACUNA_DTYPE[module.state_of.dtype]))
        return module
    maker = layers.SparseConv2d.from_conv if isinstance(module, nn.Conv2d) else layers.SparseLinear.from_linear
    return maker(module, weight)


# ---- writing


def _plan_file(model):
    """([(name, type, shape, bytes)], the record) of a model's tensors and compressed weights."""
    weights = {name + ".weight" if name else "weight": module.packed for name, module in model.named_modules() if isinstance(module, layers._Compressed)}
    entries, record = [], {}
    for name, weight in weights.items():
        record[name] = {"pattern": str(weight.pattern), "n": weight.n, "k": weight.k, "dtype": weight.dtype.upper(), "encoding": weight.encoding}
        for part, view in weight.parts.items():
            kind = weight.dtype.upper() if part == "values" else "U32" if part in layers.PART_DTYPES else "U8"
            size = {"F32": 4, "F16": 2, "BF16": 2, "U32": 4, "U8": 1}[kind]
            entries.append((f"{name}:{part}", kind, [view.nbytes // size], view))
    for name, tensor in model.state_dict().items():
        if any(name.startswith(weight + ":") for weight in weights):
            continue
        if tensor.dtype not in NAMES:
            raise errors.Unsupported(f"the tensor {name!r} is of dtype {tensor.dtype}, which save_sparse() does not write")
        data = tensor.detach().cpu().contiguous()
        view = memoryview(data.flatten().view(torch.uint8).numpy()) if data.numel() else memoryview(b"")
        entries.append((name, NAMES[tensor.dtype], list(tensor.shape), view))
    return entries, record


def save_sparse(model, path):
    """Writes a model's tensors and compressed weights as a Lacuna container, which load_sparse(), the command `lacuna` and lacuna.load()
    read. The file appears whole or not at all."""
    entries, record = _plan_file(model)
    header, offset, padding, laid = {"__metadata__": {"lacuna": json.dumps({"format": 1, "weights": record})}}, 0, 0, []
    if not record:
        raise errors.InvalidArgument("model has no sparse layer: sparsify() makes them")
    for name, kind, shape, view in entries:
        gap = -offset % ALIGNMENT
        if gap:  # safetensors allows no holes, so what fills them is a tensor
            header[f"lacuna:pad:{padding}"] = {"dtype": "U8", "shape": [gap], "data_offsets": [offset, offset + gap]}
            laid.append(bytes(gap))
            offset, padding = offset + gap, padding + 1
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [offset, offset + view.nbytes]}
        laid.append(view)
        offset += view.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-(len(text) + 8) % ALIGNMENT)
    _write(path, [struct.pack("<Q", len(text)), text, *laid])


def _write(path, pieces):
    path = os.path.realpath(path)
    handle, temporary = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".lacuna-")
    try:
        with os.fdopen(handle, "wb") as file:
            for piece in pieces:
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, os.stat(path).st_mode & 0o777 if os.path.exists(path) else 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _umask():
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
