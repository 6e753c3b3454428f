"""matmul(): one product, for those who keep arrays and weights and nothing else."""

import sys

import numpy

from . import _plans, errors
from ._arrays import empty
from ._core import DeviceArray

_DTYPES = {"float32": "f32", "fp32": "f32", "float16": "f16", "fp16": "f16", "bfloat16": "bf16"}
_DLPACK_CUDA = (2, 13)  # kDLCUDA, kDLCUDAManaged


def _name_of(dtype):
    """'f16' of all that means it: 'float16', numpy.float16, torch.float16."""
    text = dtype if isinstance(dtype, str) else getattr(dtype, "name", None) or getattr(dtype, "__name__", None)
    text = text or str(dtype).rpartition(".")[2]
    return _DTYPES.get(text.lower(), text.lower())


def _dtype_of(array, name):
    """'f32', 'f16' or 'bf16'."""
    text = _name_of(array.dtype)
    if text not in ("f32", "f16", "bf16"):
        raise errors.InvalidArgument(f"{name} is of dtype {array.dtype}; it must be float32, float16 or bfloat16")
    return text


def _torch_of(array):
    torch = sys.modules.get("torch")
    return torch if torch is not None and isinstance(array, torch.Tensor) else None


def _check_array(array, name):
    if not hasattr(array, "shape") or not hasattr(array, "dtype"):
        raise TypeError(f"{name} is of type {type(array).__name__}; it must be an array: numpy's, PyTorch's, or any with __dlpack__")
    if isinstance(array, numpy.ndarray) and type(array) is not numpy.ndarray and hasattr(array, "mask"):  # copies would not have it
        raise TypeError(f"{name} is a masked array, whose mask Lacuna does not know; pass its data, or filled()")
    torch = _torch_of(array)
    if torch is not None and array.requires_grad and torch.is_grad_enabled():
        raise errors.InvalidArgument(
            f"{name} requires gradients, which matmul() does not give: use lacuna.torch.linear() or a SparseLinear, or torch.no_grad()"
        )


def _device_of(x):
    """The name of the device in whose memory x lies."""
    if isinstance(x, numpy.ndarray):
        return "cpu"
    if isinstance(x, DeviceArray):
        return _plans.device_name(x.device)
    if not hasattr(x, "__dlpack_device__"):
        raise TypeError(f"x is of type {type(x).__name__}; it must be an array: numpy's, PyTorch's, or any with __dlpack__")
    kind, number = x.__dlpack_device__()
    return f"cuda:{number}" if int(kind) in _DLPACK_CUDA else "cpu"


def _as_matrix(array, columns, name, writable=False):
    """[..., columns] as [rows, columns]; never a copy when it is to be written to."""
    shape = tuple(array.shape)
    if not shape or shape[-1] != columns:
        raise errors.InvalidArgument(f"{name} has the shape {shape}; its last dimension must be {columns}")
    if len(shape) == 2:
        return array
    if isinstance(array, DeviceArray):
        if len(shape) == 1:
            return array
        raise errors.InvalidArgument(f"{name} has the shape {shape}; a DeviceArray must have one or two dimensions here")
    rows = 1
    for size in shape[:-1]:
        rows *= size
    if not writable:
        return array.reshape((rows, columns))
    try:
        if _torch_of(array) is not None:
            return array.view(rows, columns)
        if isinstance(array, numpy.ndarray):
            view = array.reshape((rows, columns))
            if view.size and not numpy.may_share_memory(view, array):  # a copy, which lies elsewhere
                raise AttributeError
            return view
        view = array.view()
        view.shape = (rows, columns)
        return view
    except (AttributeError, RuntimeError, TypeError):
        raise errors.InvalidArgument(f"{name} of shape {shape} cannot be seen as ({rows}, {columns}) without a copy") from None


def _strides(x):
    """In elements, of a matrix; None where x does not tell."""
    if isinstance(x, numpy.ndarray):
        return tuple(stride // x.itemsize for stride in x.strides)
    if _torch_of(x) is not None:
        return tuple(x.stride())
    return None


def layout_of(x):
    """'feature' for a matrix whose columns lie together, as the transpose of a contiguous one; else 'token'."""
    strides = _strides(x)
    if strides is None or len(x.shape) != 2:
        return "token"
    (rows, columns), (down, across) = x.shape, strides
    return "feature" if rows > 1 and columns > 1 and down == 1 and across >= rows else "token"


def _lines_are_whole(x):
    """Whether Plan takes the matrix as it lies."""
    strides = _strides(x)
    if strides is None or len(x.shape) != 2:
        return True
    (rows, columns), (down, across) = x.shape, strides
    token = (columns <= 1 or across == 1) and (rows <= 1 or down >= columns)
    return token or layout_of(x) == "feature"


def _contiguous(x):
    return x.contiguous() if _torch_of(x) is not None else numpy.ascontiguousarray(x)


def _is_like(array, x):
    """Whether rows can be added to it and copied between it and x: both are numpy's, or both are PyTorch's."""
    return _strides(array) is not None and (_torch_of(array) is None) == (_torch_of(x) is None)


def _with_rows(x, rows):
    """x [m, k] with zeros behind it, [rows, k]."""
    torch = _torch_of(x)
    if torch is not None:
        return torch.nn.functional.pad(x, (0, 0, 0, rows - x.shape[0]))
    padded = numpy.zeros((rows, x.shape[1]), x.dtype)
    padded[: x.shape[0]] = x
    return padded


def _stream_of(x, device):
    torch = _torch_of(x)
    return torch.cuda.current_stream(x.device).cuda_stream if torch is not None and device != "cpu" else None


def _is_ours(x, device):
    """Whether results for x are DeviceArrays: on a GPU all that are not PyTorch's, for nobody else's can be made here."""
    return isinstance(x, DeviceArray) or (device != "cpu" and _torch_of(x) is None)


def _new(x, shape, dtype, layout, device):
    """A new array of x's kind."""
    return empty(x, shape, dtype, layout == "feature", _plans.device_of(device))


def matmul(x, weight, *, bias=None, activation="none", residual=None, alpha=None, beta=None, out=None, device=None, **options):
    """y = activation(alpha * x W^T + bias) + beta * residual, for x [..., k], weight a Weight [n, k], y and residual [..., n], bias [n].

    x is an array of numpy's, PyTorch's, or any that speaks DLPack; y is of its kind, in its dtype and on its device, unless `out` takes it.
    activation: 'none', 'relu', 'gelu' (erf), 'gelu_tanh' or 'silu'. alpha and beta are 1 unless said. `device`, where x lies in any case,
    may be given as a check. All that Plan knows (y_dtype, y_layout, precision, kernel, threads, no_dense, no_timing, measure) may be
    given too.

    Plans are made when they are first needed and kept with the weight: see plan_limits(). A call on a GPU is put on PyTorch's current
    stream, or on CUDA's default one, and returns before it is done.
    """
    _plans.plans_of(weight)  # says what is wrong with a weight that is none
    for array, name in ((x, "x"), (bias, "bias"), (residual, "residual"), (out, "out")):
        if array is not None or name == "x":
            _check_array(array, name)
    for name in ("has_bias", "has_residual", "x_layout", "x_dtype", "predict_only"):
        if name in options:
            raise TypeError(f"matmul() takes no {name}; it follows from the other arguments")
    n, k = weight.shape
    shape = tuple(x.shape[:-1])
    where = _device_of(x)
    if device is not None and _plans.device_name(device) != where:
        raise errors.InvalidArgument(f"device is {str(device)!r}, but x is in the memory of {where!r}")
    if (y_dtype := options.pop("y_dtype", None)) is not None:
        if _name_of(y_dtype) not in ("f32", "f16", "bf16"):
            raise errors.InvalidArgument(f"y_dtype is {y_dtype!r}; it must be 'f32', 'f16', 'bf16' or a dtype that means one of these")
        y_dtype = _name_of(y_dtype)
        if out is not None and y_dtype != _dtype_of(out, "out"):
            raise errors.InvalidArgument(f"y_dtype is {y_dtype!r}, but out is of dtype {out.dtype}")
    y_dtype = y_dtype or _dtype_of(x if out is None else out, "x" if out is None else "out")
    if isinstance(out, numpy.ndarray) and not out.flags.writeable:
        raise errors.InvalidArgument("out is read-only; it must be writable")
    if _torch_of(out) is not None and out.is_neg():
        raise errors.InvalidArgument("out is a tensor whose sign PyTorch keeps beside its numbers; it must be an ordinary one")
    if beta is not None and residual is None:
        raise errors.InvalidArgument(f"beta is {beta!r}, but there is no residual for it")

    x2 = _as_matrix(x, k, "x")  # [m, k]
    if not _lines_are_whole(x2):
        x2 = _contiguous(x2)
    m = x2.shape[0] if len(x2.shape) == 2 else 1
    c2 = None if residual is None else _as_matrix(residual, n, "residual")  # [m, n]
    y2 = None if out is None else _as_matrix(out, n, "out", writable=True)  # [m, n]
    for array, name in ((residual, "residual"), (out, "out")):
        if array is not None and tuple(array.shape[:-1]) != shape:
            raise errors.InvalidArgument(f"{name} has the shape {tuple(array.shape)}; with this x it must be {(*shape, n)}")
    if out is None and _is_ours(x, where) and len(shape) > 1:
        raise errors.InvalidArgument(f"x has the shape {tuple(x.shape)}; on a GPU and with more than two dimensions, out must be given")
    if m == 0:
        return _new(x, (*shape, n), y_dtype, "token", where) if out is None else out

    y_layout = options.pop("y_layout", None) or ("token" if y2 is None else layout_of(y2))
    if c2 is not None and _strides(c2) is not None and not (layout_of(c2) == y_layout and _lines_are_whole(c2)):
        c2 = _contiguous(c2)
        if y_layout == "feature":
            c2 = _contiguous(c2.T).T
    options.update(x_layout=layout_of(x2), y_layout=y_layout, x_dtype=_dtype_of(x, "x"), y_dtype=y_dtype, activation=activation)
    options.update(bias=bias is not None, residual=residual is not None)
    if bias is not None:
        options["bias_dtype"] = _dtype_of(bias, "bias")
    if residual is not None:
        options["c_dtype"] = _dtype_of(residual, "residual")

    alike = all(array is None or _is_like(array, x2) for array in (x2, c2, y2))
    plan = _plans.plan_for(weight, m, where, tuple(sorted(options.items())), rounded=alike)
    named = {"bias": _detached(bias), "alpha": alpha, "beta": beta, "stream": _stream_of(x, where)}
    if plan.m == m:
        if y2 is None:
            y2 = _new(x, (m, n) if shape else (n,), y_dtype, y_layout, where)
        plan(_detached(x2), _detached(y2), c=_detached(c2), **named)
    else:
        y2 = _run_rounded(plan, x2, c2, y2, m, named)
    if out is not None:
        return out
    return y2 if len(y2.shape) == len(shape) + 1 else y2.reshape((*shape, n))


def _run_rounded(plan, x2, c2, y2, m, named):
    """A call of a plan for more tokens than there are: the rows behind them are zeros, and what becomes of them is left out."""
    x2 = _with_rows(_detached(x2), plan.m)
    if plan.x_layout == "feature" and layout_of(x2) != "feature":
        x2 = _contiguous(x2.T).T
    if c2 is not None:
        c2 = _with_rows(_detached(c2), plan.m)
        if plan.y_layout == "feature" and layout_of(c2) != "feature":
            c2 = _contiguous(c2.T).T
    whole = _new(x2, (plan.m, plan.n), plan.y_dtype, plan.y_layout, plan.device.name)
    plan(x2, whole, c=c2, **named)
    if y2 is None:
        return whole[:m]
    y2[...] = whole[:m]
    return y2


def _detached(array):
    """What hands out its memory as it is: no gradients, and no sign that PyTorch keeps beside the numbers."""
    return array.detach().resolve_neg() if _torch_of(array) is not None else array
