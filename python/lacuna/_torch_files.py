"""load_sparse() and save_sparse(): a model's tensors in a Lacuna container, as `lacuna prune` writes it (docs/format.md)."""

import torch
from torch import nn

from . import _core, errors
from . import _torch_layers as layers
from . import _torch_op as op
from ._files import save
from ._torch_model import names_of, owners_of, parents_of, reason_against, replace

TYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64, "I32": torch.int32,
    "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool,
}  # fmt: skip


# ---- reading


def _tensor(file, info):
    """A copy."""
    if info.type not in TYPES:
        raise errors.Unsupported(f"the tensor {info.name!r} is of type {info.type}, which load_sparse() does not read")
    data = bytearray(file.view(info.name))
    if not data:
        return torch.empty(info.shape, dtype=TYPES[info.type], device="cpu")
    return torch.frombuffer(data, dtype=TYPES[info.type]).reshape(info.shape)


def _from_file(path):
    """({name: Weight}, {name: tensor})"""
    with _core.File(path) as file:
        weights = {name: file.load(name) for name in file.weights}
        parts, tensors = _from_state({name: _tensor(file, info) for name, info in file.tensors.items()})  # of a state_dict in such a file
        return {**weights, **parts}, tensors


def _from_state(state):
    """The same of a state_dict in which the parts of weights stand as tensors."""
    parts, tensors = {}, {}
    for key, value in state.items():
        name, colon, part = key.rpartition(":")
        if colon and name.endswith("weight"):
            parts.setdefault(name, {})[part] = value
        else:
            tensors[key] = value
    weights = {}
    for name, found in parts.items():
        try:
            weights[name] = layers.weight_from_tensors(found)
        except (errors.Error, KeyError, TypeError, ValueError) as error:
            raise errors.InvalidArgument(f"the weight {name!r}: {error}") from error
    return weights, tensors


def load_sparse(model, source, *, strict=True):
    """Loads a container that `lacuna prune` or save_sparse() wrote, or a state_dict of a sparsified model, itself or in a safetensors file,
    into a model whose layers are dense or sparse. Layers whose weight is compressed there become sparse ones, in place, in the dtype and on
    the device that they have; all other tensors are copied. strict: names that are missing on either side are an error; of the names that
    one tensor has in the model (tied embeddings) one is enough. After an error nothing is changed. Returns (missing, unexpected).
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model is of type {type(model).__name__}; it must be a torch.nn.Module")
    if isinstance(model, (nn.Linear, nn.Conv2d)):
        raise errors.InvalidArgument("model is a layer itself, which cannot be replaced in place: SparseLinear(weight, bias) is one")
    weights, tensors = _from_state(source) if isinstance(source, dict) else _from_file(source)
    modules = dict(model.named_modules(remove_duplicate=False))
    own = _plain_state(model)
    expected = set(own) | set(_compressed(model))
    given = set(weights) | set(tensors)
    ids = _ids(model)
    found = {ids[name] for name in given if name in ids}
    missing, unexpected = sorted(name for name in expected - given if ids.get(name) not in found), sorted(given - expected)
    if strict and (missing or unexpected):
        raise errors.InvalidArgument(f"the model and the source do not agree: missing {missing}, unexpected {unexpected}")
    dense = sorted(set(tensors) & set(_compressed(model)))
    if dense:
        raise errors.InvalidArgument(
            f"{dense[0]!r} is dense in the source, but compressed in the model: load into a dense model, and sparsify that"
        )

    tensors = {name: tensor for name, tensor in tensors.items() if name in expected}
    made, names, owners = {}, names_of(model), owners_of(model)
    for name, weight in weights.items():
        if name not in unexpected:
            module = modules[name.rpartition(".")[0]] if name == "weight" or name.endswith(".weight") else None
            if isinstance(module, (nn.Linear, nn.Conv2d)) and (
                reason := reason_against(names[module][0], module, parents_of(model, names[module]), owners)
            ):
                raise errors.InvalidArgument(f"the weight {name!r} is compressed, but the model's layer cannot be: {reason}")
            made[module] = _layer_like(module, name, weight)
    for name, tensor in tensors.items():
        _check_tensor(name, own[name], tensor)
    for module, layer in made.items():
        if isinstance(module, layers._Compressed):
            module._take(layer.packed)
        else:
            replace(model, module, layer)
    model.load_state_dict(tensors, strict=False)
    return missing, unexpected


def _check_tensor(name, own, tensor):
    """What load_state_dict() would find when it is too late, or not at all."""
    if not isinstance(own, torch.Tensor):
        return
    if not isinstance(tensor, torch.Tensor):
        raise errors.InvalidArgument(f"{name!r} of the source is of type {type(tensor).__name__}; it must be a tensor")
    if tensor.is_meta or tensor.layout is not torch.strided:
        lacks = "is on the device 'meta'" if tensor.is_meta else f"has the layout {tensor.layout}"
        raise errors.InvalidArgument(f"the tensor {name!r} of the source {lacks}; it must have its values as they lie, torch.strided")
    if own.is_meta:
        raise errors.InvalidArgument(f"the model's {name!r} is on the device 'meta': model.to_empty(device='cpu') gives it memory")
    if tuple(own.shape) != tuple(tensor.shape):
        raise errors.InvalidArgument(f"the tensor {name!r} is {tuple(tensor.shape)}; the model's is {tuple(own.shape)}")


def _compressed(model):
    """{name of its weight: layer}, for each of the names that a layer has."""
    found = {name: module for name, module in model.named_modules(remove_duplicate=False) if isinstance(module, layers._Compressed)}
    return {f"{name}.weight" if name else "weight": module for name, module in found.items()}


def _ids(model):
    """{name: id}, the same for all names of one tensor or one compressed weight."""
    ids = {name: id(tensor) for name, tensor in model.named_parameters(remove_duplicate=False)}
    ids.update((name, id(tensor)) for name, tensor in model.named_buffers(remove_duplicate=False))
    ids.update((name, id(layer)) for name, layer in _compressed(model).items())
    return ids


def _plain_state(model):
    """The model's state_dict without the parts of its compressed weights."""
    parts = tuple(name + ":" for name in _compressed(model))
    return {name: value for name, value in model.state_dict().items() if not name.startswith(parts)}


def _layer_like(module, name, weight):
    """A sparse layer with this weight that could stand for `module`."""
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
        return layers.SparseLinear(op.convert(weight, op.LACUNA_DTYPE[module.state_of.dtype]))
    return (layers.SparseConv2d.from_conv if isinstance(module, nn.Conv2d) else layers.SparseLinear.from_linear)(module, weight)


# ---- writing


def save_sparse(model, path):
    """Writes a model's tensors and compressed weights as a Lacuna container, which load_sparse(), the command `lacuna` and lacuna.load()
    read. The file appears whole or not at all."""
    items = {name: layer.packed for name, layer in _compressed(model).items()}
    if not items:
        raise errors.InvalidArgument("model has no sparse layer: sparsify() makes them")
    for name, tensor in _plain_state(model).items():
        if not isinstance(tensor, torch.Tensor):
            raise errors.Unsupported(f"{name!r} of the model's state is of type {type(tensor).__name__}; it must be a tensor")
        if tensor.dtype not in TYPES.values():
            raise errors.Unsupported(f"the tensor {name!r} is of dtype {tensor.dtype}, which save_sparse() does not write")
        items[name] = tensor.detach().cpu().contiguous()
    save(path, items)
