"""The product as an operator of PyTorch's: lacuna::linear, and lacuna::linear_grad for its gradient.

The operator takes a weight by its number, a plain int, so that torch.compile sees tensors and constants alone. Where nobody has to see an
operator (no gradients, no tracing) linear() leaves it out, and with it most of a small product's overhead.
"""

import functools
import hashlib
import itertools
import os
import threading
import weakref

import torch
from torch.autograd import forward_ad

from . import _plans, errors
from ._core import weight_from_parts

LACUNA_DTYPE = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}
TORCH_DTYPE = {name: dtype for dtype, name in LACUNA_DTYPE.items()}
ACTIVATIONS = {
    "none": lambda y: y,
    "relu": torch.nn.functional.relu,
    "gelu": torch.nn.functional.gelu,
    "gelu_tanh": functools.partial(torch.nn.functional.gelu, approximate="tanh"),
    "silu": torch.nn.functional.silu,
}


def check_activation(activation):
    if activation not in ACTIVATIONS:
        names = ", ".join(repr(name) for name in ACTIVATIONS)
        raise errors.InvalidArgument(f"activation is {activation!r}; it must be one of {names}")
    return activation


# ---- weights by number


class Known:
    """What is kept of a weight for PyTorch: its number, itself in other dtypes, and dense for gradients. It does not hold the weight."""

    def __init__(self, number):
        self.number = number
        self.lock = threading.Lock()
        self.converted = {}  # dtype's name -> Weight
        self.dense = {}  # (dtype, device) -> W [n, k]
        self.ways = {}  # what operands are like -> how run() went about them: see run_again()

    def __deepcopy__(self, memo):
        return self  # as of the weight itself: parametrizations copy modules by their dicts


_known = weakref.WeakKeyDictionary()  # Weight -> Known
_weights = weakref.WeakValueDictionary()  # number -> Weight
_numbers = itertools.count(1)
_lock = threading.Lock()


def _after_fork():
    """A lock may have been held by a thread of the parent's, which the child does not have."""
    global _lock
    _lock = threading.Lock()
    for known in _known.values():
        known.lock = threading.Lock()
        known.ways.clear()  # they lead to the parent's plans


os.register_at_fork(after_in_child=_after_fork)


def _fingerprint(weight):
    """39 bits of a weight's kind and of a sample of its bytes. A program that another process exported has that one's numbers in it, which
    must not mean some other weight here; a counter alone would repeat. The same script has the same numbers each time, as compilers' caches
    want it."""
    digest = hashlib.blake2b(f"{weight.pattern} {weight.shape} {weight.dtype} {weight.encoding}".encode(), digest_size=5)
    for name, part in weight.parts.items():
        view = memoryview(part).cast("B")
        digest.update(name.encode() + view[:: len(view) // 4096 | 1].tobytes())
    return int.from_bytes(digest.digest(), "big") >> 1


def known_of(weight):
    """What is kept of a weight; its number is the one by which the operator knows it, for as long as it lives."""
    _plans.plans_of(weight)  # says what is wrong with a weight that is none
    with _lock:
        known = _known.get(weight)
        if known is None:
            known = _known[weight] = Known((_fingerprint(weight) << 24) + next(_numbers))
            _weights[known.number] = weight
        return known


def weight_by(number):
    weight = _weights.get(number)
    if weight is None:
        raise errors.NotFound(
            f"there is no weight of number {number} in this process: the module that held it is gone, or the program is another process's"
        )
    return weight


def tensor_of(view, dtype):
    """A tensor with a copy of a part's bytes."""
    data = bytearray(view)
    return torch.frombuffer(data, dtype=dtype) if data else torch.empty(0, dtype=dtype, device="cpu")


def convert(weight, dtype):
    """The same weight with its values in another dtype; a finite value that does not fit is an error, as everywhere in Lacuna."""
    if weight.dtype == dtype:
        return weight
    parts = dict(weight.parts)
    values = tensor_of(parts["values"], TORCH_DTYPE[weight.dtype])
    narrow = values.to(TORCH_DTYPE[dtype])
    over = values.isfinite() & ~narrow.isfinite()
    if over.any():
        raise errors.ValueOutOfRange(f"the weight has {values[over][0].item():g} among its values, which does not fit {dtype}")
    parts["values"] = narrow.view(torch.uint8).numpy()
    n, k = weight.shape
    return weight_from_parts(weight.pattern, weight.n, weight.k, dtype, parts, weight.encoding, n, k)


def _in_dtype(weight, dtype):
    if weight.dtype == dtype:
        return weight
    known = _known[weight]
    with known.lock:
        if dtype not in known.converted:
            known.converted[dtype] = convert(weight, dtype)
        return known.converted[dtype]


def dense_of(weight, dtype, device):
    """W [n, k] with its zeros, in that dtype and on that device: a new tensor."""
    dense = torch.empty(weight.shape, dtype=TORCH_DTYPE[weight.dtype], device="cpu")  # whatever the default is
    weight.dense(out=dense)
    return dense.to(device=device, dtype=dtype)


def forget_dense(weight):
    known = _known.get(weight)
    if known is not None:
        known.dense.clear()


# ---- running it


@functools.lru_cache(maxsize=None)
def _options(x_dtype, bias_dtype, activation, x_layout, threads):
    named = {"x_dtype": LACUNA_DTYPE[x_dtype], "activation": activation, "x_layout": x_layout, "bias": bias_dtype is not None}
    if threads:
        named["threads"] = threads
    if bias_dtype is not None:
        named["bias_dtype"] = LACUNA_DTYPE[bias_dtype]
    return tuple(sorted(named.items()))


@functools.lru_cache(maxsize=None)
def _device_name(device):
    if device.type == "cpu":
        return "cpu"
    if device.type == "cuda" and torch.version.hip is None:
        return f"cuda:{device.index}"
    raise errors.Unsupported(f"x is on '{device}'; Lacuna multiplies on CPUs and NVIDIA GPUs")


def _threads(device):
    """What torch.set_num_threads() says is for us too; on a GPU nothing is to be said."""
    return torch.get_num_threads() if device == "cpu" else 0


def _lines(x):
    """(x, its layout, its leading dimension) for x [m, k], which is copied only where no plan could take it as it lies."""
    (m, k), (down, across) = x.shape, x.stride()
    if (across == 1 or k <= 1) and (down >= k or m <= 1):
        return x, "token", down if m > 1 else 0
    if down == 1 and across >= m and m > 1:
        return x, "feature", across
    return x.contiguous(), "token", 0


def _plan(weight, dtype, m, device, options):
    weight = _in_dtype(weight, dtype)
    if device == "cpu" or not torch.cuda.is_current_stream_capturing():
        return _plans.plan_for(weight, m, device, options)
    # The graph will hold the plan's addresses, so the plan must stay; and making one allocates, which a capture forbids.
    plan = _plans.plan_for(weight, m, device, options, make=False, pin=True)
    if plan is None:
        raise errors.Unsupported(f"there is no plan for {m} tokens yet, and none can be made while a graph is captured: run it once before")
    return plan


def plan_of(weight, x, bias, activation):
    """The plan that run() has used for such an x, or None."""
    k = weight.shape[1]
    x2, layout, _ = _lines(x if x.dim() == 2 else x.reshape(x.shape[:-1].numel(), k))
    device = _device_name(x.device)
    options = _options(x.dtype, None if bias is None else bias.dtype, activation, layout, _threads(device))
    return _plans.plan_for(_in_dtype(weight, LACUNA_DTYPE[x.dtype]), x2.shape[0], device, options, make=False)


def run(weight, x, bias, activation, remember=False):
    """x [..., k] -> y [..., n], outside of what PyTorch could record. What it found out may be remembered for run_again()."""
    n, k = weight.shape
    dtype = LACUNA_DTYPE.get(x.dtype)
    if dtype is None:
        raise errors.InvalidArgument(f"x is of dtype {x.dtype}; it must be torch.float32, torch.float16 or torch.bfloat16")
    if x.layout is not torch.strided:
        raise errors.InvalidArgument(f"x has the layout {x.layout}; it must be torch.strided")
    device = _device_name(x.device)
    if x.is_neg():  # the sign is kept beside the numbers
        x = x.resolve_neg()
    if x.dim() == 0 or x.shape[-1] != k:
        raise errors.InvalidArgument(f"x has the shape {tuple(x.shape)}; its last dimension must be {k}")
    if bias is not None:
        if tuple(bias.shape) != (n,):
            raise errors.InvalidArgument(f"bias has the shape {tuple(bias.shape)}; it must be ({n},)")
        if bias.device != x.device:
            raise errors.InvalidArgument(f"bias is on '{bias.device}', x on '{x.device}'")
        if bias.dtype not in LACUNA_DTYPE:
            raise errors.InvalidArgument(f"bias is of dtype {bias.dtype}; it must be torch.float32, torch.float16 or torch.bfloat16")
        bias = bias.resolve_neg().contiguous()
    shape = x.shape[:-1]
    x2, layout, ld = _lines(x if x.dim() == 2 else x.reshape(shape.numel(), k))  # [m, k]
    m = x2.shape[0]
    if m == 0:
        return x.new_empty((*shape, n))

    on_gpu = device != "cpu"
    options = _options(x.dtype, None if bias is None else bias.dtype, activation, layout, _threads(device))
    plan = _plan(weight, dtype, m, device, options)
    if plan.m != m:  # rounded up: rows of zeros behind x, and rows of y that nobody sees
        x2 = torch.nn.functional.pad(x2, (0, 0, 0, plan.m - m))
        ld = 0
        if layout == "feature" and x2.stride(0) != 1:
            x2 = x2.t().contiguous().t()  # pad gave it token-major
    y = x.new_empty((plan.m, n))
    stream = workspace = bytes_of = 0
    if on_gpu:
        stream = torch.cuda.current_stream(x.device).cuda_stream
        bytes_of = plan.workspace_bytes
        if bytes_of:
            scratch = torch.empty(bytes_of, dtype=torch.uint8, device=x.device)  # PyTorch gives it to others behind this call alone
            workspace = scratch.data_ptr()
    plan.execute_pointers(x2.data_ptr(), ld, y.data_ptr(), 0, 0 if bias is None else bias.data_ptr(), 0, 0, stream, workspace, bytes_of)
    if plan.m == m and remember and not on_gpu and dtype == weight.dtype and x2.data_ptr() == x.data_ptr():  # x2 is no copy
        _remember(weight, x, bias, activation, (m, (device, options)), ld, (*shape, n))
    # Not a view: autograd lets nobody change those in place that an operator gives.
    return y if x.dim() == 2 and plan.m == m else y.resize_(*shape, n)


# ---- running it again: of a small product run() would take the larger part

MOST_WAYS = 64  # of a weight; where sizes go on changing, none is met again


def _kind_of(x, bias, activation):
    """All that decides how run() goes about CPU tensors, but for their places in memory."""
    of_bias = None if bias is None else (bias.dtype, bias.shape, bias.stride(), bias.device)
    return x.dtype, x.shape, x.stride(), activation, of_bias, torch.get_num_threads()


def _remember(weight, x, bias, activation, key, ld, shape):
    """key is the plan's, ld the distance of x's lines, shape the result's."""
    known = _known[weight]
    if len(known.ways) >= MOST_WAYS:
        known.ways.clear()
    known.ways[_kind_of(x, bias, activation)] = _plans.plans_of(weight), key, ld, shape


def run_again(known, x, bias, activation):
    """What linear_by() would return for operands like some that run() had before; None where there are none, or more is to be thought of."""
    if type(x) is not torch.Tensor or not x.is_cpu or x.layout is not torch.strided or x.is_nested or x.is_neg():
        return None
    if bias is not None and (bias.is_neg() or type(bias) not in (torch.Tensor, torch.nn.Parameter)):
        return None
    if torch.is_grad_enabled() and (x.requires_grad or (bias is not None and bias.requires_grad)):
        return None
    if torch.is_autocast_enabled("cpu") or forward_ad._current_level >= 0 or _is_watched():
        return None
    way = known.ways.get(_kind_of(x, bias, activation))
    if way is None:
        return None
    plans, key, ld, shape = way
    plan = plans.find_again(key)
    if plan is None:
        return None
    y = x.new_empty(shape)
    plan.execute_pointers(x.data_ptr(), ld, y.data_ptr(), 0, 0 if bias is None else bias.data_ptr(), 0, 0, 0, 0, 0)
    return y


_plans.on_memory.append(lambda: torch.cuda.empty_cache() if torch.cuda.is_initialized() else None)


# ---- the operator


@torch.library.custom_op("lacuna::linear", mutates_args=())
def linear_op(x: torch.Tensor, bias: torch.Tensor | None, number: int, n: int, activation: str) -> torch.Tensor:
    return run(weight_by(number), x, bias, activation)


@linear_op.register_fake
def _(x, bias, number, n, activation):
    return x.new_empty((*x.shape[:-1], n))


@torch.library.custom_op("lacuna::linear_grad", mutates_args=())
def linear_grad_op(grad: torch.Tensor, number: int, k: int) -> torch.Tensor:
    """grad [..., n] -> grad W [..., k], by W with its zeros, which is kept: W's transpose obeys no pattern in general."""
    weight = weight_by(number)
    known, key = _known[weight], (grad.dtype, grad.device)
    with known.lock:
        if key not in known.dense:
            known.dense[key] = dense_of(weight, *key)
        dense = known.dense[key]  # [n, k]
    rows = grad.reshape(grad.shape[:-1].numel(), grad.shape[-1])
    of_x = grad.new_empty((*grad.shape[:-1], k))  # not a view: see run()
    torch.mm(rows, dense, out=of_x.view(rows.shape[0], k))
    return of_x


@linear_grad_op.register_fake
def _(grad, number, k):
    return grad.new_empty((*grad.shape[:-1], k))


def _setup(ctx, inputs, output):
    x, bias, ctx.number, ctx.n, ctx.activation = inputs
    ctx.weight = _weights.get(ctx.number)  # which may have no other holder when the gradient is asked for
    ctx.k, ctx.bias_dtype = x.shape[-1], None if bias is None else bias.dtype


def _backward(ctx, grad):
    if ctx.activation != "none":
        raise errors.Unsupported(
            f"lacuna::linear with activation {ctx.activation!r} has no gradient; SparseLinear leaves it to PyTorch then"
        )
    grad_x = grad_bias = None
    if ctx.needs_input_grad[0]:
        grad_x = linear_grad_op(grad, ctx.number, ctx.k)
    if ctx.needs_input_grad[1]:
        grad_bias = grad.reshape(grad.shape[:-1].numel(), ctx.n).sum(0).to(ctx.bias_dtype)
    return grad_x, grad_bias, None, None, None


linear_op.register_autograd(_backward, setup_context=_setup)


def _setup_grad(ctx, inputs, output):
    grad, ctx.number, _ = inputs
    ctx.weight = _weights.get(ctx.number)
    ctx.n = grad.shape[-1]


def _backward_grad(ctx, grad_of_grad):  # of grad W, [..., k]: the product again
    return linear_op(grad_of_grad, None, ctx.number, ctx.n, "none"), None, None


linear_grad_op.register_autograd(_backward_grad, setup_context=_setup_grad)


def _is_watched():
    """Whether somebody records or replaces operators: tracing, fake tensors, flop counters."""
    return torch._C._len_torch_dispatch_stack() > 0 or torch.jit.is_tracing()


def _refuse_tangents(*tensors):
    if any(tensor is not None and forward_ad.unpack_dual(tensor).tangent is not None for tensor in tensors):
        raise errors.Unsupported("the product has no gradient in forward mode: use reverse mode, or a dense layer, as to_linear() gives")


def is_autocast(x):
    kind = x.device.type
    return kind in ("cpu", "cuda") and torch.is_autocast_enabled(kind) and x.dtype in LACUNA_DTYPE


def autocast(x, bias):
    """x and the bias in autocast's dtype."""
    wanted = torch.get_autocast_dtype(x.device.type)
    return x.to(wanted), None if bias is None else bias.to(wanted)


def linear_by(number, n, k, dtype, x, bias, activation):
    """x [..., k] -> activation(x W^T + bias) [..., n]; dtype is the weight's."""
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"x is of type {type(x).__name__}; it must be a torch.Tensor")
    if x.is_nested:
        return _linear_of_nested(number, n, k, dtype, x, bias, activation)
    if forward_ad._current_level >= 0:
        _refuse_tangents(x, bias)
    if x.dim() == 0 or x.shape[-1] != k:
        raise errors.InvalidArgument(f"x has the shape {tuple(x.shape)}; its last dimension must be {k}")
    kind = x.device.type
    if is_autocast(x):
        x, bias = autocast(x, bias)
    elif x.dtype != dtype:
        raise errors.InvalidArgument(f"x is of dtype {x.dtype}, the weight of {dtype}; they must be the same outside of torch.autocast")
    if torch.is_grad_enabled() and (x.requires_grad or (bias is not None and bias.requires_grad)):
        return ACTIVATIONS[activation](torch.ops.lacuna.linear(x, bias, number, n, "none"))
    if torch.compiler.is_compiling() or type(x) is not torch.Tensor or kind == "meta" or _is_watched():
        return torch.ops.lacuna.linear(x, bias, number, n, activation)
    return run(weight_by(number), x, bias, activation, remember=True)


def rows_of_nested(x):
    """A nested tensor's rows, [rows, k], all of its parts in one."""
    return torch.cat([part.reshape(part.shape[:-1].numel(), part.shape[-1]) for part in x.unbind()])


def _linear_of_nested(number, n, k, dtype, x, bias, activation):
    """As nn.TransformerEncoder passes them on where a batch is padded: one product of all their rows."""
    shapes = [part.shape[:-1] for part in x.unbind()]
    y = linear_by(number, n, k, dtype, rows_of_nested(x), bias, activation)
    parts = y.split([shape.numel() for shape in shapes])
    return torch.nested.as_nested_tensor([part.view(*shape, n) for part, shape in zip(parts, shapes)], layout=x.layout)


def linear(x, weight, bias=None, activation="none"):
    """activation(x W^T + bias), [..., n], for tensors x [..., k] and bias [n] and a lacuna.Weight [n, k]; differentiable by x and bias."""
    check_activation(activation)
    number = known_of(weight).number
    n, k = weight.shape
    if bias is not None and tuple(bias.shape) != (n,):
        raise errors.InvalidArgument(f"bias has the shape {tuple(bias.shape)}; it must be ({n},)")
    return linear_by(number, n, k, TORCH_DTYPE[weight.dtype], x, bias, activation)
