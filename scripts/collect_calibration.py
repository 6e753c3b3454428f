"""collect_calibration.py - samples of every linear layer's inputs, and gradients, from any PyTorch model.

    collect_calibration.py FILE.py OUT.safetensors [--inputs N | --moments [--at-once N]] [--gradients N] [--include GLOB ...] [--exclude GLOB ...] [--seed S]

FILE.py defines `calibration()`, which returns the model, an iterable of batches and a function `loss(model, batch)`; its
value is only needed for gradients. OUT gets, for every matrix `a.b.weight` of a torch.nn.Linear that a glob takes,

    a.b.input     [N, k]       N inputs of the layer, drawn evenly from all that the batches gave (--inputs, 2048 unless said)
    a.b.gradient  [N, n, k]    the gradient of the loss of each of the first N batches (--gradients, none unless said)

    a.b.moments   [k, k]       with --moments, in place of samples: the sum of x x^T over all inputs that the batches gave, and
    a.b.samples   [1]          how many these were (float64)

as float32: what `lacuna prune --calibration OUT` takes for wanda and obs, and for fisher. Memory: the samples of all layers,
never all activations; with --moments the moments of N layers at a time (--at-once, 1 unless said), for which the batches go
through the model once for every N layers. The functions may be called from other scripts as well.
"""

import argparse
import fnmatch
import importlib.util
import json
import math
import os
import struct
import sys
import tempfile

import torch


def linear_layers(model, include=(), exclude=()):
    """{name: module} of the linear layers whose weight's name a glob of `include` takes (all, when there is none)."""
    layers = {}
    for name, module in model.named_modules():
        weight = name + ".weight"
        if not isinstance(module, torch.nn.Linear):
            continue
        if include and not any(fnmatch.fnmatchcase(weight, glob) for glob in include):
            continue
        if not any(fnmatch.fnmatchcase(weight, glob) for glob in exclude):
            layers[name] = module
    return layers


class Reservoir:
    """Rows drawn evenly from a stream of unknown length: each row of the stream is equally likely to be among those kept."""

    def __init__(self, rows, seed):
        self.rows = rows
        self.seen = 0
        self.kept = None
        self.random = torch.Generator().manual_seed(seed)

    def add(self, x):
        x = x.detach().reshape(-1, x.shape[-1]).float().cpu()
        if self.kept is None:
            self.kept = torch.empty(self.rows, x.shape[1])
        first = min(len(x), max(0, self.rows - self.seen))
        self.kept[self.seen : self.seen + first] = x[:first]
        later = torch.arange(self.seen + first, self.seen + len(x))
        if len(later):
            place = (torch.rand(len(later), generator=self.random, dtype=torch.float64) * (later + 1)).long()
            for i in torch.nonzero(place < self.rows).flatten().tolist():  # in the stream's order: a later row may replace an earlier one
                self.kept[place[i]] = x[first + i]
        self.seen += len(x)

    def taken(self):
        return self.kept[: min(self.seen, self.rows)]


def collect_inputs(model, batches, loss, layers, rows=2048, seed=1):
    """{name.input: [rows, k]}: runs the batches through the model without gradients."""
    samples = {name: Reservoir(rows, seed + i) for i, name in enumerate(layers)}
    hooks = [
        module.register_forward_pre_hook(lambda module, inputs, name=name: samples[name].add(inputs[0])) for name, module in layers.items()
    ]
    try:
        with torch.no_grad():
            for batch in batches:
                loss(model, batch)
    finally:
        for hook in hooks:
            hook.remove()
    for name, reservoir in samples.items():
        if reservoir.seen == 0:
            raise SystemExit("collect_calibration: no batch went through the layer '%s'" % name)
    return {name + ".input": reservoir.taken() for name, reservoir in samples.items()}


def collect_gradients(model, batches, loss, layers, count):
    """{name.gradient: [count, n, k]}: one gradient a batch, of the first `count` batches."""
    kept = {name: [] for name in layers}
    for i, batch in enumerate(batches):
        if i == count:
            break
        model.zero_grad(set_to_none=True)
        loss(model, batch).backward()
        for name, module in layers.items():
            if module.weight.grad is None:
                raise SystemExit("collect_calibration: the loss does not depend on the layer '%s'" % name)
            kept[name].append(module.weight.grad.detach().float().cpu().clone())
    model.zero_grad(set_to_none=True)
    if not all(kept.values()):
        raise SystemExit("collect_calibration: there was no batch to take gradients from")
    return {name + ".gradient": torch.stack(gradients) for name, gradients in kept.items()}


def collect_moments(model, batches, loss, layers, at_once=1):
    """Yields (name, moments [k, k], count) layer by layer; only `at_once` of them are in memory."""
    names = list(layers)
    for first in range(0, len(names), at_once):
        sums = {name: [torch.zeros(layers[name].in_features, layers[name].in_features), 0] for name in names[first : first + at_once]}

        def add(name, x):
            x = x.detach().reshape(-1, x.shape[-1]).float().cpu()
            sums[name][0].addmm_(x.T, x)
            sums[name][1] += len(x)

        hooks = [layers[name].register_forward_pre_hook(lambda module, inputs, name=name: add(name, inputs[0])) for name in sums]
        try:
            with torch.no_grad():
                for batch in batches:
                    loss(model, batch)
        finally:
            for hook in hooks:
                hook.remove()
        for name in list(sums):
            moments, count = sums.pop(name)
            if count == 0:
                raise SystemExit("collect_calibration: no batch went through the layer '%s'" % name)
            yield name, moments, count


def write_moments(path, model, batches, loss, layers, at_once, others):
    """Writes the moments of each layer as soon as they are known, and then the tensors of `others`."""
    shapes = {}
    for name, module in layers.items():
        shapes[name + ".moments"] = ("F32", [module.in_features, module.in_features])
        shapes[name + ".samples"] = ("F64", [1])
    shapes.update({name: ("F32", list(tensor.shape)) for name, tensor in others.items()})

    def pieces():
        for _, moments, count in collect_moments(model, batches, loss, layers, at_once):
            yield moments
            yield torch.tensor([count], dtype=torch.float64)
        yield from others.values()

    write_pieces(path, shapes, pieces())


def write_safetensors(path, tensors):
    """Writes float32 tensors; the file appears whole or not at all."""
    write_pieces(path, {name: ("F32", list(tensor.shape)) for name, tensor in tensors.items()}, tensors.values())


def write_pieces(path, shapes, pieces):
    """shapes: {name: (type, shape)}; the pieces come in their order."""
    header, offset = {}, 0
    for name, (kind, shape) in shapes.items():
        size = {"F32": 4, "F64": 8}[kind] * math.prod(shape)
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    folder = os.path.dirname(os.path.abspath(path))
    handle, temporary = tempfile.mkstemp(dir=folder, prefix=".collect-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            for (kind, _), piece in zip(shapes.values(), pieces):
                piece = piece.detach().to(torch.float64 if kind == "F64" else torch.float32).cpu().contiguous()
                file.write(memoryview(piece.numpy()).cast("B"))
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def load_source(path):
    spec = importlib.util.spec_from_file_location("calibration_source", path)
    if spec is None:
        raise SystemExit("collect_calibration: '%s' is not a Python file" % path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not hasattr(module, "calibration"):
        raise SystemExit("collect_calibration: '%s' defines no function calibration()" % path)
    return module.calibration()


def main():
    options = argparse.ArgumentParser(description="Samples of every linear layer's inputs, and gradients, from any PyTorch model.")
    options.add_argument("source", metavar="FILE.py")
    options.add_argument("out", metavar="OUT.safetensors")
    options.add_argument("--inputs", type=int, default=2048, metavar="N", help="inputs of each layer; 0: none")
    options.add_argument("--moments", action="store_true", help="the sum of x x^T of all inputs instead of samples")
    options.add_argument("--at-once", type=int, default=1, metavar="N", help="with --moments: layers for each pass over the batches")
    options.add_argument("--gradients", type=int, default=0, metavar="N", help="gradients of each layer; 0: none")
    options.add_argument("--include", action="append", default=[], metavar="GLOB")
    options.add_argument("--exclude", action="append", default=[], metavar="GLOB")
    options.add_argument("--seed", type=int, default=1)
    args = options.parse_args()
    if args.inputs < 0 or args.gradients < 0 or args.inputs + args.gradients == 0:
        options.error("--inputs %d and --gradients %d ask for nothing" % (args.inputs, args.gradients))

    if args.at_once < 1:
        options.error("--at-once is %d; it must be 1 or more" % args.at_once)

    model, batches, loss = load_source(args.source)
    batches = list(batches)
    layers = linear_layers(model, args.include, args.exclude)
    if not layers:
        raise SystemExit("collect_calibration: the model has no linear layer that these globs take")
    model.eval()
    tensors = {}
    if args.inputs and not args.moments:
        tensors.update(collect_inputs(model, batches, loss, layers, args.inputs, args.seed))
    if args.gradients:
        tensors.update(collect_gradients(model, batches, loss, layers, args.gradients))
    if args.moments:
        write_moments(args.out, model, batches, loss, layers, args.at_once, tensors)
    else:
        write_safetensors(args.out, tensors)
    print("%s: %d layers, %d batches" % (args.out, len(layers), len(batches)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
