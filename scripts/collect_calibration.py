"""collect_calibration.py - samples of every linear layer's inputs, and gradients, from any PyTorch model.

    collect_calibration.py FILE.py OUT.safetensors [--inputs N] [--gradients N] [--include GLOB ...] [--exclude GLOB ...] [--seed S]

FILE.py defines `calibration()`, which returns the model, an iterable of batches and a function `loss(model, batch)`; its
value is only needed for gradients. OUT gets, for every matrix `a.b.weight` of a torch.nn.Linear that a glob takes,

    a.b.input     [N, k]       N inputs of the layer, drawn evenly from all that the batches gave (--inputs, 2048 unless said)
    a.b.gradient  [N, n, k]    the gradient of the loss of each of the first N batches (--gradients, none unless said)

as float32: what `lacuna prune --calibration OUT` takes for wanda and obs, and for fisher. Memory: the samples of all layers,
never all activations. The functions may be called from other scripts as well.
"""

import argparse
import fnmatch
import importlib.util
import json
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


def write_safetensors(path, tensors):
    """Writes float32 tensors; the file appears whole or not at all."""
    header, offset = {}, 0
    for name, tensor in tensors.items():
        size = 4 * tensor.numel()
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    folder = os.path.dirname(os.path.abspath(path))
    handle, temporary = tempfile.mkstemp(dir=folder, prefix=".collect-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            for tensor in tensors.values():
                file.write(memoryview(tensor.detach().float().cpu().contiguous().numpy()).cast("B"))
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
    options.add_argument("--gradients", type=int, default=0, metavar="N", help="gradients of each layer; 0: none")
    options.add_argument("--include", action="append", default=[], metavar="GLOB")
    options.add_argument("--exclude", action="append", default=[], metavar="GLOB")
    options.add_argument("--seed", type=int, default=1)
    args = options.parse_args()
    if args.inputs < 0 or args.gradients < 0 or args.inputs + args.gradients == 0:
        options.error("--inputs %d and --gradients %d ask for nothing" % (args.inputs, args.gradients))

    model, batches, loss = load_source(args.source)
    batches = list(batches)
    layers = linear_layers(model, args.include, args.exclude)
    if not layers:
        raise SystemExit("collect_calibration: the model has no linear layer that these globs take")
    model.eval()
    tensors = {}
    if args.inputs:
        tensors.update(collect_inputs(model, batches, loss, layers, args.inputs, args.seed))
    if args.gradients:
        tensors.update(collect_gradients(model, batches, loss, layers, args.gradients))
    write_safetensors(args.out, tensors)
    print("%s: %d layers, %d batches" % (args.out, len(layers), len(batches)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
