"""benchmark(): dense against sparse, layer by layer, on this machine and with these inputs."""

import statistics
import time
from dataclasses import dataclass

import torch
from torch import nn

from . import _torch_layers as layers
from . import _torch_op as op
from . import errors
from ._torch_model import _table, call, evaluating, input_of

FLUSH_BYTES = 256 << 20  # more than the last cache of any GPU so far


@dataclass
class Timing:
    name: str
    m: int  # tokens
    n: int
    k: int
    pattern: str
    kernel: str  # which Lacuna ran
    dense_seconds: float  # PyTorch's dense layer
    sparse_seconds: float

    @property
    def speedup(self):
        return self.dense_seconds / self.sparse_seconds


class Benchmark:
    """What was timed: `layers`, a Timing each, and the seconds of the whole model, dense and sparse (None for a single layer)."""

    def __init__(self, timings, dense_seconds, sparse_seconds, how):
        self.layers, self.dense_seconds, self.sparse_seconds, self.how = timings, dense_seconds, sparse_seconds, how

    @property
    def slower(self):
        """The layers that did not get faster."""
        return [timing for timing in self.layers if timing.speedup <= 1]

    @property
    def speedup(self):
        """Of the whole model; of the layer, where there is but one."""
        if self.dense_seconds is None:
            return self.layers[0].speedup
        return self.dense_seconds / self.sparse_seconds

    def __str__(self):
        rows = [
            (
                t.name or "(layer)",
                f"{t.m}, {t.n}, {t.k}",
                t.pattern,
                _time(t.dense_seconds),
                _time(t.sparse_seconds),
                f"{t.speedup:.2f}x",
                t.kernel,
            )
            for t in self.layers
        ]
        if self.dense_seconds is not None:
            rows.append(("the model", "", "", _time(self.dense_seconds), _time(self.sparse_seconds), f"{self.speedup:.2f}x", ""))
        text = _table(("layer", "m, n, k", "pattern", "dense", "sparse", "speedup", "kernel"), rows) + f"\nTimed {self.how}."
        names = ", ".join(t.name or "(layer)" for t in self.slower)
        return text + (f"\nNot faster: {names}. Leave them dense, or try a coarser pattern." if names else "\nEvery layer got faster.")


def _time(seconds):
    return f"{seconds * 1e6:.1f} us" if seconds < 1e-3 else f"{seconds * 1e3:.2f} ms"


# ---- clocks


def _host_times(functions, seconds):
    """Medians of calls that return when they are done, in turns."""
    times = [[] for _ in functions]
    for function in functions:  # plans, caches, threads
        function(), function()
    end = time.perf_counter() + seconds * len(functions)
    while len(times[0]) < 5 or (time.perf_counter() < end and len(times[0]) < 1000):
        for function, found in zip(functions, times):
            begin = time.perf_counter()
            function()
            found.append(time.perf_counter() - begin)
    return [statistics.median(found) for found in times]


def _graph_of(function, flush, calls):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            if flush is not None:
                flush.zero_()
            if function is not None:
                function()
    return graph


def _replay_seconds(graph):
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    graph.replay()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e-3


def _device_times(functions, seconds):
    """The same of calls on a GPU: a graph of several, each after its caches were swept, less the sweeps alone. None of the host's time
    is in it."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for function in functions:  # plans are made before the capture
            function(), function()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")
    calls = 10
    graphs = [_graph_of(function, flush, calls) for function in (None, *functions)]
    for graph in graphs:
        graph.replay()
    times = [[] for _ in graphs]
    end = time.perf_counter() + seconds * len(functions)
    while len(times[0]) < 5 or (time.perf_counter() < end and len(times[0]) < 200):
        for graph, found in zip(graphs, times):
            found.append(_replay_seconds(graph))
    sweep, *rest = [statistics.median(found) for found in times]
    return [max(found - sweep, 1e-9) / calls for found in rest]


def times_of(functions, device, seconds):
    if device.type == "cuda":
        with torch.cuda.device(device):
            return _device_times(functions, seconds)
    return _host_times(functions, seconds)


# ---- what is timed


def dense_forward(layer):
    """forward() of the dense layer whose weight is `layer`'s with its zeros."""
    activation, bias = op.ACTIVATIONS[layer.activation], layer.bias
    if isinstance(layer, layers.SparseLinear):
        weight = nn.Parameter(layer.dense_weight())  # autocast keeps what it has cast of parameters alone
        return lambda input: activation(nn.functional.linear(input, weight, bias))
    kernel, padding = nn.Parameter(layer.dense_kernel()), layer.padding
    left, right, top, bottom = padding
    alike = left == right and top == bottom

    def forward(input):
        x = input if alike else nn.functional.pad(input, padding)
        return activation(nn.functional.conv2d(x, kernel, bias, layer.stride, (top, left) if alike else 0, layer.dilation))

    return forward


def _inputs(model, sparse, example):
    """{layer: the first x that came to it}"""
    found, hooks = {}, []

    def note(layer, args, kwargs):
        if layer not in found:
            found[layer] = input_of(args, kwargs).detach().clone()

    for layer in sparse:
        hooks.append(layer.register_forward_pre_hook(note, with_kwargs=True))
    try:
        call(model, example)
    finally:
        for hook in hooks:
            hook.remove()
    return found


def _kernel(layer, x):
    if x.is_nested:
        x = op.rows_of_nested(x)
    if isinstance(layer, layers.SparseConv2d):
        x = layers.patches_of(x if x.dim() == 4 else x.unsqueeze(0), layer.kernel_size, layer.stride, layer.padding, layer.dilation)
    operands = op.autocast(x, layer.bias) if op.is_autocast(x) else (x, layer.bias)
    plan = op.plan_of(layer.packed, *operands, layer.activation)
    return x.numel() // x.shape[-1] if x.shape[-1] else 0, "" if plan is None else plan.kernel


def benchmark(model, example, *, seconds=0.2):
    """Times the model's sparse layers against the dense ones of the same weights, as PyTorch computes them, with the inputs that `example`
    (a tensor, a tuple of arguments or a dict) brings them; then the whole model both ways. `seconds` for each layer and each way.

    On a GPU layers are timed in CUDA graphs with cold caches, so that neither the host's time nor a weight that fits the cache flatters
    anyone; the whole model as it is called. Nothing runs as torch.compile has compiled it. str() of the result is a table.
    """
    names = {layer: name for name, layer in model.named_modules() if isinstance(layer, layers._Compressed)}
    if not names:
        raise errors.InvalidArgument("model has no sparse layer: sparsify() or load_sparse() makes them")
    with evaluating(model):
        return _benchmark(model, names, example, seconds)


def _benchmark(model, names, example, seconds):
    timings, found = [], _inputs(model, names, example)
    device = next(iter(names)).state_of.device
    for layer, x in found.items():
        dense = dense_forward(layer)
        dense_seconds, sparse_seconds = times_of([lambda: dense(x), lambda: layer(x)], device, seconds)
        tokens, kernel = _kernel(layer, x)
        n, k = layer.packed.shape
        timings.append(Timing(names[layer], tokens, n, k, str(layer.pattern), kernel, dense_seconds, sparse_seconds))
    if not timings:
        raise errors.InvalidArgument("example did not go through any sparse layer")
    how = "on the GPU in CUDA graphs, with cold caches" if device.type == "cuda" else f"on the CPU with {torch.get_num_threads()} threads"
    if isinstance(model, layers._Compressed):
        return Benchmark(timings, None, None, how)
    if device.type == "cuda":
        how += "; the model as it is called"
    return Benchmark(timings, *_whole(model, names, example, device, seconds), how)


def _whole(model, names, example, device, seconds):
    """The whole model's seconds, dense and sparse."""
    denses = {layer: dense_forward(layer) for layer in names}

    def done():
        call(model, example)
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    def dense():
        for layer, forward in denses.items():
            layer.forward = forward
        try:
            done()
        finally:
            for layer in denses:
                del layer.forward

    return _host_times([dense, done], seconds)
