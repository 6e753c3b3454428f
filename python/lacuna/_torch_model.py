"""sparsify() and calibrate(): whole models, in place."""

import fnmatch
import sys
from collections.abc import Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field

import torch
from torch import nn

from . import _core, errors
from . import _torch_layers as layers
from . import _torch_op as op


def _table(head, rows):
    """Rows of texts as lines, the first column to the left."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    lines = []
    for row in [head, *rows]:
        cells = [row[0].ljust(widths[0])] + [cell.rjust(width) for cell, width in zip(row[1:], widths[1:])]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


@dataclass
class LayerReport:
    name: str
    pruned: bool
    reason: str = ""  # why not; "" when pruned
    pattern: str = ""
    n: int = 0
    k: int = 0
    energy_kept: float = 1.0  # share of the weights' sum of squares; of those that the method has corrected, what is left of it
    output_error: float | None = None  # share of the outputs' energy lost over the calibration; None without one
    dense_bytes: int = 0
    stored_bytes: int = 0
    mask: object = field(default=None, repr=False)  # the lacuna.Mask, with keep_dense


class Report(list):
    """A LayerReport for each layer that was looked at; as text a table."""

    @property
    def pruned(self):
        return [layer for layer in self if layer.pruned]

    def __str__(self):
        rows = []
        for layer in self:
            if layer.pruned:
                error = "" if layer.output_error is None else f"{layer.output_error:.2%}"
                stored = f"{layer.stored_bytes / max(layer.dense_bytes, 1):.1%}"
                rows.append((layer.name, f"{layer.n} x {layer.k}", layer.pattern, f"{layer.energy_kept:.2%}", error, stored))
            else:
                rows.append((layer.name, f"{layer.n} x {layer.k}" if layer.n else "", "-", "", "", f"dense: {layer.reason}"))
        return _table(("layer", "n x k", "pattern", "energy kept", "output error", "stored"), rows)


def _globs(value, name):
    if value is None:
        return ()
    if isinstance(value, str):
        return (value,)
    globs = tuple(value) if hasattr(value, "__iter__") else (value,)
    if name == "include" and not globs:
        raise errors.InvalidArgument("include is empty; it must be globs such as '*.mlp.*', or None for every layer")
    for glob in globs:
        if not isinstance(glob, str):
            raise TypeError(f"{name} has {glob!r}; it must be globs such as '*.mlp.*'")
    return globs


def _matches(name, globs):
    """By the layer's own name or by that of its weight, as `lacuna prune` has it."""
    return any(fnmatch.fnmatchcase(name, glob) or fnmatch.fnmatchcase(name + ".weight", glob) for glob in globs)


HOOKS = (
    "_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called", "_forward_pre_hooks", "_forward_pre_hooks_with_kwargs",
    "_backward_hooks", "_backward_pre_hooks",
)  # fmt: skip


def reason_against(name, module, parents, owners):
    """Why a linear layer or a convolution cannot be replaced; '' when it can."""
    if isinstance(module, layers._Compressed):
        return "is compressed already"
    if any(isinstance(parent, nn.MultiheadAttention) for parent in parents):
        return "nn.MultiheadAttention reads its weight past the layer"
    if type(module) not in (nn.Linear, nn.Conv2d):
        return f"is a {type(module).__name__}, not an nn.{'Conv2d' if isinstance(module, nn.Conv2d) else 'Linear'}"
    if any(getattr(module, part, None) is not None and module._parameters.get(part) is None for part in ("weight", "bias")):
        return "computes its weight or bias, as torch.nn.utils.prune and weight_norm have it: take these off it first"
    if "forward" in vars(module):
        return "has a forward() of its own, which somebody has set"
    if module.weight.dtype not in op.LACUNA_DTYPE:
        return f"is of dtype {module.weight.dtype}"
    if module.weight.is_meta:
        return "has no values: it is on the device 'meta', until to_empty() and loading give it some"
    if isinstance(module, nn.Conv2d) and layers.conv_reason(module):
        return layers.conv_reason(module)
    others = [other for other in owners.get(id(module.weight), ()) if other != name]
    return f"shares its weight with {others[0]}" if others else ""


def owners_of(model):
    """{id of a parameter: the modules that have it as their own}"""
    owners = {}
    for name, module in model.named_modules():
        for parameter in module._parameters.values():
            if parameter is not None:
                owners.setdefault(id(parameter), []).append(name)
    return owners


def find_layers(model, include=None, exclude=None, conv=False):
    """[(name, module, reason)] of the linear layers, with conv=True of the convolutions too, that the globs take: why each cannot be
    replaced, or ''."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"model is of type {type(model).__name__}; it must be a torch.nn.Module")
    if isinstance(model, (nn.Linear, nn.Conv2d)):
        raise errors.InvalidArgument(
            "model is a layer itself, which cannot be replaced in place: SparseLinear.from_linear() gives a new one"
        )
    include, exclude = _globs(include, "include"), _globs(exclude, "exclude")
    kinds = (nn.Linear, layers.SparseLinear) + ((nn.Conv2d, layers.SparseConv2d) if conv else ())
    modules, owners, found, is_included = names_of(model), owners_of(model), [], False
    for module, names in modules.items():
        if not isinstance(module, kinds) or (include and not any(_matches(name, include) for name in names)):
            continue
        is_included = True
        if not any(_matches(name, exclude) for name in names):
            found.append((names[0], module, reason_against(names[0], module, parents_of(model, names), owners)))
    if include and not is_included:
        raise errors.InvalidArgument(
            f"include is {include}; no linear layer{' or convolution' if conv else ''} of the model has such a name"
        )
    return found


def names_of(model):
    """{module: the names that it has}: a module may stand in several places."""
    names = {}
    for name, module in model.named_modules(remove_duplicate=False):
        names.setdefault(module, []).append(name)
    return names


def parents_of(model, names):
    return [model.get_submodule(name.rpartition(".")[0]) for name in names]


def _pattern_for(names, pattern):
    """pattern, or what a dict of globs has for a layer of these names; None: it stays dense."""
    if not isinstance(pattern, dict):
        return pattern
    return next((value for glob, value in pattern.items() if any(_matches(name, (glob,)) for name in names)), None)


def replace(model, old, new):
    """Puts `new` wherever the model has `old`, with the very bias that optimisers and other modules may have, and with its hooks."""
    new.bias = old.bias
    for hooks in HOOKS:
        setattr(new, hooks, getattr(old, hooks))  # the dicts themselves: handles go on taking hooks out of them
    new._is_full_backward_hook = old._is_full_backward_hook
    for parent in list(model.modules()):
        for name, child in parent._modules.items():
            if child is old:
                parent._modules[name] = new


def sparsify(model, pattern, *, include=None, exclude=None, method="magnitude", calibration=None, keep_dense=False, conv=False, **options):
    """Prunes the linear layers of a model and replaces them, in place, by SparseLinear; returns a Report.

    pattern: such as '2:4' or 'vw32:8:32' (lacuna.Pattern), or {glob: pattern}, of which the first that takes a layer's name counts; layers
    that none takes stay dense. include, exclude: globs on the layers' names.
    method: 'magnitude'; 'wanda' and 'obs', for which calibration is what calibrate() returns; 'as_is' for layers that obey the pattern
    already, others are refused. options go to lacuna.prune(): permute='rows', damping=...
    keep_dense: the layers stay as they are, with zeros in their weights, and the report has the masks: to train on before compressing.
    conv: convolutions too, by SparseConv2d.
    """
    if isinstance(pattern, dict):
        checked = {glob: None if value is None else _core.Pattern(value) for glob, value in pattern.items()}
    else:
        checked = _core.Pattern(pattern)
    needs = method in ("wanda", "obs")
    if (needs or calibration is not None) and not isinstance(calibration, dict):
        raise errors.InvalidArgument(f"method is {method!r}, but calibration is {calibration!r:.60}; calibrate() makes it")
    found = find_layers(model, include, exclude, conv)
    report, made, names = Report(), [], names_of(model)
    for name, module, reason in found:
        chosen = _pattern_for(names[module], checked)
        if not reason and chosen is None:
            reason = "no pattern"
        if not reason and needs and name not in calibration:
            raise errors.InvalidArgument(f"calibration has nothing for the layer {name!r}")
        if reason:
            report.append(LayerReport(name, False, reason))
            continue
        given = dict(options)
        if needs:
            given["calibration"] = calibration[name]
        line, weight, corrected = _prune_layer(name, module, chosen, method, given, (calibration or {}).get(name), keep_dense)
        made.append((module, weight, corrected))
        report.append(line)
    for module, weight, corrected in made:  # all of them, or none
        if keep_dense:
            _write_back(module, corrected)
        elif isinstance(module, nn.Conv2d):
            replace(model, module, layers.SparseConv2d.from_conv(module, weight))
        else:
            replace(model, module, layers.SparseLinear.from_linear(module, weight))
    return report


def _prune_layer(name, module, pattern, method, options, calibration, keep_dense):
    """(LayerReport, Weight, W with its zeros and corrections)"""
    dense = layers.dense_matrix(layers.conv_matrix(module) if isinstance(module, nn.Conv2d) else module.weight)
    try:
        weight, mask, corrected = layers.prune_as(dense, pattern, method, **options)
    except errors.Error as error:
        raise type(error)(f"the layer {name!r}: {error}") from error
    before, after = dense.double().square().sum().item(), corrected.double().square().sum().item()
    line = LayerReport(name, True, "", str(weight.pattern), *dense.shape)
    line.energy_kept = after / before if before else 1.0
    line.dense_bytes, line.stored_bytes = dense.nbytes, dense.nbytes if keep_dense else weight.nbytes
    if calibration is not None:
        if calibration.k != dense.shape[1]:
            raise errors.InvalidArgument(f"the layer {name!r}: calibration is for {calibration.k} inputs; the layer has {dense.shape[1]}")
        lost, total = calibration.error(dense.float(), corrected.float())
        line.output_error = lost / total if total else 0.0
    line.mask = mask if keep_dense else None
    return line, weight, corrected if keep_dense else None


def _write_back(module, dense):
    with torch.no_grad():
        if isinstance(module, nn.Conv2d):
            dense = dense.reshape(module.out_channels, *module.kernel_size, module.in_channels).permute(0, 3, 1, 2)
        module.weight.copy_(dense)


# ---- calibration


class _Collector:
    """Adds a layer's inputs to its Calibration as they come: k x k numbers, however many there are. On a GPU the sum is formed there."""

    def __init__(self, name, k):
        self.name, self.calibration = name, _core.Calibration(k)
        self.moments, self.samples = None, 0

    def add(self, x):
        x = op.rows_of_nested(x) if x.is_nested else x.reshape(-1, x.shape[-1])
        x = x.detach().float()  # [samples, k]
        if x.shape[0] == 0:
            return
        try:
            if x.device.type == "cpu":
                self.calibration.add(x.contiguous())
                return
        except errors.Error as error:
            raise type(error)(f"the inputs of the layer {self.name!r}: {error}") from error
        if self.moments is None:
            self.moments = torch.zeros(x.shape[1], x.shape[1], dtype=torch.float32, device=x.device)  # [k, k]
        self.moments.addmm_(x.t(), x)
        self.samples += x.shape[0]

    def finish(self):
        if self.moments is not None:
            moments, self.moments = self.moments.cpu(), None
            if not moments.isfinite().all():
                raise errors.InvalidArgument(
                    f"the inputs of the layer {self.name!r}: one of them is not finite, or too large to be squared"
                )
            self.calibration.add_moments((moments + moments.t()) / 2, self.samples)
        if self.calibration.samples == 0:
            raise errors.InvalidArgument(f"no batch went through the layer {self.name!r}")
        return self.calibration


def input_of(args, kwargs):
    return args[0] if args else kwargs["input"]


def _inputs_of(module, args, kwargs):
    x = input_of(args, kwargs)
    if not isinstance(module, nn.Conv2d):
        return x
    x = x if x.dim() == 4 else x.unsqueeze(0)
    return layers.patches_of(x, module.kernel_size, module.stride, module._reversed_padding_repeated_twice, module.dilation)


def call(model, batch):
    """A batch is what the model takes: a tensor, a tuple or list of arguments, or a dict of named ones."""
    if isinstance(batch, Mapping):
        return model(**batch)
    return model(*batch) if isinstance(batch, (tuple, list)) else model(batch)


@contextmanager
def evaluating(model):
    """Without gradients, and as eval() has it; after that each module is in the mode that it was in. Programs that torch.compile has made
    are left aside: they see neither hooks nor a forward() that is put in a layer's place."""
    modes = [(module, module.training) for module in model.modules()]
    is_compiled = "torch._dynamo" in sys.modules  # if not, nothing is; and importing it takes seconds
    try:
        model.eval()
        with torch.no_grad(), torch.compiler.set_stance("force_eager") if is_compiled else nullcontext():
            yield
    finally:
        for module, training in modes:
            module.training = training


def calibrate(model, batches, *, include=None, exclude=None, conv=False, run=None):
    """{layer's name: lacuna.Calibration}: what each layer's inputs are like while the batches go through the model, for sparsify().

    A batch is what the model takes: a tensor, a tuple of arguments or a dict of named ones; or run(model, batch) says how. Nothing of the
    activations is stored, only the sum of x x^T of each layer: with many wide layers, calibrate and sparsify some of them at a time.
    """
    if isinstance(batches, (torch.Tensor, Mapping)):
        raise TypeError(f"batches is of type {type(batches).__name__}, which is one batch; it must be a list of them, or alike")
    collectors, hooks = {}, []
    for name, module, reason in find_layers(model, include, exclude, conv):
        if reason:
            continue
        k = module.in_features if isinstance(module, nn.Linear) else layers.conv_matrix(module).shape[1]
        collector = collectors[name] = _Collector(name, k)

        def hook(module, args, kwargs, collector=collector):
            collector.add(_inputs_of(module, args, kwargs))

        hooks.append(module.register_forward_pre_hook(hook, with_kwargs=True))
    try:
        with evaluating(model):
            for batch in batches:
                (run or call)(model, batch)
    finally:
        for hook in hooks:
            hook.remove()
    return {name: collector.finish() for name, collector in collectors.items()}
