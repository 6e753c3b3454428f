"""SparseLinear and SparseConv2d: PyTorch's modules with a compressed weight.

The weight does not change: its gradient is not computed and optimisers do not see it. To train further, train the dense layers under their
masks (sparsify(keep_dense=True)) and compress them when that is done. A bias is a parameter like any other.
"""

import json

import torch
from torch import nn

from . import _core, errors
from . import _torch_op as op

PART_DTYPES = {"counts": torch.int32, "columns": torch.int32, "row_perm": torch.int32, "col_perm": torch.int32}  # u32 in the format


READ_BY_THE_MODEL = "its dense() is a tensor. A layer whose weight the model reads itself must stay dense: sparsify(exclude=...)"


class WeightView:
    """What `layer.weight` is: the shape, dtype and device of W, which dense() makes. nn.functional.linear() multiplies by it; PyTorch's
    other functions refuse it, and its fast paths, which would read W itself, leave such a layer alone."""

    is_nested = False
    requires_grad = False
    grad = None

    def __init__(self, layer):
        self.layer = layer

    shape = property(lambda self: torch.Size(self.layer.packed.shape))
    dtype = property(lambda self: self.layer.state_of.dtype)
    device = property(lambda self: self.layer.state_of.device)
    ndim = 2

    def size(self, dim=None):
        return self.shape if dim is None else self.shape[dim]

    def dim(self):
        return 2

    def numel(self):
        return self.shape.numel()

    def dense(self):
        return self.layer.dense_weight()

    def __repr__(self):
        return f"<compressed weight {tuple(self.shape)}, {self.layer.packed.pattern}, {self.dtype} on {self.device}>"

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        weight = args[1] if len(args) > 1 else kwargs.get("weight")
        if function is nn.functional.linear and isinstance(weight, cls):
            return _linear(*args, **kwargs)
        raise TypeError(f"{getattr(function, '__name__', function)}() cannot take a compressed weight; {READ_BY_THE_MODEL}")

    def __getattr__(self, name):
        raise AttributeError(f"a compressed weight has no {name!r}; {READ_BY_THE_MODEL}")


def _linear(input, weight, bias=None):
    """nn.functional.linear() with a layer's weight, as models have it that call no layer."""
    layer = weight.layer
    return op.linear_by(layer._number, layer._n, layer._k, layer._dtype, input, bias, "none")


def check_dtype(tensor):
    if tensor.dtype not in op.LACUNA_DTYPE:
        raise errors.InvalidArgument(f"the weight is of dtype {tensor.dtype}; it must be torch.float32, torch.float16 or torch.bfloat16")


def dense_matrix(tensor):
    """A parameter [n, k] as Lacuna prunes it: detached, in the host's memory, in one of its dtypes."""
    check_dtype(tensor)
    return tensor.detach().to("cpu").contiguous()


def compress_as(tensor, what, method="magnitude", **options):
    """A Weight of a parameter [n, k]. `what` is a Weight already, so that the parameter's values do not matter, a Mask, or a pattern."""
    n, k = tensor.shape
    check_dtype(tensor)
    if isinstance(what, _core.Weight):
        if tuple(what.shape) != (n, k):
            raise errors.InvalidArgument(f"the weight is {tuple(what.shape)}; the layer's is ({n}, {k})")
        return what
    if isinstance(what, torch.Tensor):
        raise errors.InvalidArgument("the mask is a tensor; say under which pattern: lacuna.Mask.from_matrix(mask.float(), pattern)")
    dense = dense_matrix(tensor)
    if isinstance(what, _core.Mask):
        if method != "magnitude" or options:
            raise errors.InvalidArgument(f"method is {method!r}, but a mask says already what stays")
        return _core.compress(dense, what)
    return prune_as(dense, what, method, **options)[0]


def prune_as(dense, pattern, method, **options):
    """(Weight, Mask, W as it is with its zeros or as the method has corrected it)."""
    if method == "as_is":
        if options:
            raise errors.InvalidArgument(f"method is 'as_is', which takes no {next(iter(options))}")
        mask = _core.Mask.from_matrix(dense, pattern)
        corrected = dense
    else:
        mask, corrected = _core.prune_and_correct(dense, pattern, method=method, **options)
    return _core.compress(corrected, mask), mask, corrected


class _Compressed(nn.Module):
    """What both layers share: the weight, a bias, and how they are saved, moved, copied and converted."""

    def __init__(self, weight, bias, device, activation):
        super().__init__()
        self.activation = op.check_activation(activation)
        # What to() moves and converts: the dtype and the device of W, which itself stays in the host's memory.
        self.register_buffer("state_of", torch.empty(0, dtype=op.TORCH_DTYPE[weight.dtype], device=device), persistent=False)
        self._take(weight)
        self.bias = None if bias is None else nn.Parameter(bias.detach().clone().to(device), requires_grad=bias.requires_grad)

    def _take(self, weight):
        self.packed = weight  # the lacuna.Weight, [n, k]
        self._known, self._dtype = op.known_of(weight), op.TORCH_DTYPE[weight.dtype]
        self._number = self._known.number
        self._n, self._k = weight.shape

    @property
    def weight(self):
        return WeightView(self)

    @property
    def pattern(self):
        return self.packed.pattern

    def dense_weight(self):
        """W with its zeros: a new tensor [n, k] in the layer's dtype and on its device."""
        return op.dense_of(self.packed, self.state_of.dtype, self.state_of.device)

    def _product(self, x):
        """[..., k] -> [..., n]"""
        bias = self.bias
        if not torch.compiler.is_compiling():
            y = op.run_again(self._known, x, bias, self.activation)
            if y is not None:
                return y
        return op.linear_by(self._number, self._n, self._k, self._dtype, x, bias, self.activation)

    # ---- to(), half(), cuda()

    def _apply(self, fn, recurse=True):
        wanted = fn(self.state_of).dtype
        if wanted not in op.LACUNA_DTYPE:
            raise errors.Unsupported(
                f"a compressed weight cannot be of dtype {wanted}; it is torch.float32, torch.float16 or torch.bfloat16"
            )
        weight = op.convert(self.packed, op.LACUNA_DTYPE[wanted])
        super()._apply(fn, recurse)
        if weight is not self.packed:
            self._take(weight)
        return self

    # ---- deepcopy and pickle: numbers are this process's

    def __getstate__(self):
        state = self.__dict__.copy()
        del state["_number"], state["_known"]
        return state

    def __setstate__(self, state):
        super().__setstate__(state)
        self._take(self.packed)

    # ---- state_dict: the parts of the weight as tensors, named as in Lacuna's files

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        super()._save_to_state_dict(destination, prefix, keep_vars)
        for name, tensor in weight_tensors(self.packed).items():
            destination[f"{prefix}weight:{name}"] = tensor

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs):
        unexpected = []
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, missing_keys, unexpected, error_msgs)
        head = prefix + "weight:"
        unexpected_keys += [key for key in unexpected if not key.startswith(head)]
        parts = {key[len(head) :]: value for key, value in state_dict.items() if key.startswith(head)}
        if not parts:
            missing_keys.append(head + "values")
            return
        try:
            weight = weight_from_tensors(parts)
            if tuple(weight.shape) != (self._n, self._k):
                raise errors.InvalidArgument(f"it is {tuple(weight.shape)}; the layer's is ({self._n}, {self._k})")
            self._take(op.convert(weight, op.LACUNA_DTYPE[self.state_of.dtype]))
            if self.state_of.is_meta and local_metadata.get("assign_to_params_buffers"):  # load_state_dict(assign=True)
                self.state_of = torch.empty(0, dtype=self.state_of.dtype, device=parts["values"].device)
        except (errors.Error, KeyError, TypeError, ValueError) as error:
            error_msgs.append(f"the compressed weight {prefix}weight: {error}")


def weight_tensors(weight):
    """{part: tensor}: what docs/format.md specifies, and as 'info' its record, a JSON text."""
    n, k = weight.shape
    record = {"pattern": str(weight.pattern), "n": weight.n, "k": weight.k, "n_out": n, "k_in": k}
    record.update(dtype=weight.dtype, encoding=weight.encoding)
    tensors = {"info": op.tensor_of(json.dumps(record).encode(), torch.uint8)}
    for name, view in weight.parts.items():
        dtype = op.TORCH_DTYPE[weight.dtype] if name == "values" else PART_DTYPES.get(name, torch.uint8)
        tensors[name] = op.tensor_of(view, dtype)
    return tensors


def weight_from_tensors(tensors):
    if "info" not in tensors:
        raise errors.InvalidArgument("its record is missing, weight:info")
    record = json.loads(bytes(tensors["info"].cpu().to(torch.uint8).numpy()))
    values, parts = tensors.get("values"), {}
    if values is not None and values.dtype not in op.LACUNA_DTYPE:
        raise errors.InvalidArgument(f"its values are of dtype {values.dtype}; they must be torch.float32, torch.float16 or torch.bfloat16")
    for name, tensor in tensors.items():
        if name != "info":
            tensor = tensor.detach().cpu().contiguous()
            if name == "values" and tensor.dtype != op.TORCH_DTYPE[record["dtype"]]:  # a state_dict that was converted as a whole
                record["dtype"] = op.LACUNA_DTYPE[tensor.dtype]
            parts[name] = tensor.view(torch.uint8).numpy() if tensor.numel() else b""
    return _core.weight_from_parts(
        record["pattern"], record["n"], record["k"], record["dtype"], parts, record["encoding"], record["n_out"], record["k_in"]
    )


class SparseLinear(_Compressed):
    """y = activation(x W^T + bias), [..., k] -> [..., n], like nn.Linear with W [n, k] compressed.

    from_linear() makes one of an nn.Linear. The bias and the activation ('none', 'relu', 'gelu', 'gelu_tanh', 'silu') are computed with the
    product; where gradients are wanted, the activation is PyTorch's own. Gradients with respect to x go through W with its zeros, which is
    then kept on the device: forget_dense() lets it go. W itself is frozen.
    """

    def __init__(self, weight, bias=None, *, device=None, activation="none"):
        n, k = weight.shape
        if bias is not None and tuple(bias.shape) != (n,):
            raise errors.InvalidArgument(f"bias has the shape {tuple(bias.shape)}; it must be ({n},)")
        super().__init__(weight, bias, device, activation)
        self.in_features, self.out_features = k, n

    @classmethod
    def from_linear(cls, linear, what, *, method="magnitude", activation="none", **options):
        """`what` is a pattern to prune to, a lacuna.Mask, or the compressed lacuna.Weight itself. method and options are those of
        lacuna.prune(); method='as_is' takes a layer whose weight obeys the pattern already, and refuses any other."""
        if not isinstance(linear, nn.Linear):
            raise TypeError(f"linear is of type {type(linear).__name__}; it must be a torch.nn.Linear")
        weight = compress_as(linear.weight, what, method, **options)
        dtype = op.LACUNA_DTYPE[linear.weight.dtype]
        layer = cls(op.convert(weight, dtype), linear.bias, device=linear.weight.device, activation=activation)
        return layer.train(linear.training)

    def to_linear(self):
        """The nn.Linear that computes the same; without the activation."""
        dense = self.dense_weight()
        linear = nn.Linear(self.in_features, self.out_features, self.bias is not None, device="meta", dtype=dense.dtype)
        linear.weight = nn.Parameter(dense)
        if self.bias is not None:
            linear.bias = nn.Parameter(self.bias.detach().clone(), requires_grad=self.bias.requires_grad)
        return linear.train(self.training)

    def forget_dense(self):
        """Lets go of the dense W that gradients have needed."""
        op.forget_dense(self.packed)

    def forward(self, input):  # by the name that nn.Linear's callers know
        return self._product(input)

    def extra_repr(self):
        text = f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}, pattern={self.pattern}"
        return text + (f", activation={self.activation}" if self.activation != "none" else "")


class SparseConv2d(_Compressed):
    """A convolution as one product: W [out, in, kh, kw] is compressed as [out, kh * kw * in], so that N:M groups lie along the input
    channels of one tap (where these are a multiple of M), and patches of the input are its tokens.

    1 x 1 convolutions of channels-last inputs copy nothing; others copy their patches. Outputs are channels-last. groups must be 1 and
    padding_mode 'zeros'; there are no transposed convolutions.
    """

    def __init__(self, weight, bias, kernel_size, *, stride=1, padding=0, dilation=1, device=None, activation="none"):
        n, k = weight.shape
        if bias is not None and tuple(bias.shape) != (n,):
            raise errors.InvalidArgument(f"bias has the shape {tuple(bias.shape)}; it must be ({n},)")
        kh, kw = _pair(kernel_size, "kernel_size", 1)
        if k % (kh * kw):
            raise errors.InvalidArgument(f"kernel_size is {kernel_size}; the weight's {k} inputs are no multiple of it")
        super().__init__(weight, bias, device, activation)
        self.kernel_size, self.stride, self.dilation = (kh, kw), _pair(stride, "stride", 1), _pair(dilation, "dilation", 1)
        if isinstance(padding, (tuple, list)) and len(padding) == 4:
            self.padding = tuple(padding)  # left, right, top, bottom
        else:
            self.padding = (*_pair(padding, "padding", 0)[1:] * 2, *_pair(padding, "padding", 0)[:1] * 2)
        self.in_channels, self.out_channels = k // (kh * kw), n

    @classmethod
    def from_conv(cls, conv, what, *, method="magnitude", activation="none", **options):
        """Like SparseLinear.from_linear(), for an nn.Conv2d."""
        if not isinstance(conv, nn.Conv2d):
            raise TypeError(f"conv is of type {type(conv).__name__}; it must be a torch.nn.Conv2d")
        reason = conv_reason(conv)
        if reason:
            raise errors.Unsupported(f"conv {reason}")
        weight = op.convert(compress_as(conv_matrix(conv), what, method, **options), op.LACUNA_DTYPE[conv.weight.dtype])
        same = {"stride": conv.stride, "padding": conv._reversed_padding_repeated_twice, "dilation": conv.dilation}
        return cls(weight, conv.bias, conv.kernel_size, **same, device=conv.weight.device, activation=activation).train(conv.training)

    def to_conv(self):
        """The nn.Conv2d that computes the same; without the activation. Its padding must be the same on both sides."""
        left, right, top, bottom = self.padding
        if left != right or top != bottom:
            raise errors.Unsupported(f"padding is {self.padding} on the left, right, top and bottom; an nn.Conv2d pads both sides alike")
        same = {"stride": self.stride, "padding": (top, left), "dilation": self.dilation, "bias": self.bias is not None}
        conv = nn.Conv2d(self.in_channels, self.out_channels, self.kernel_size, **same, device="meta", dtype=self.state_of.dtype)
        conv.weight = nn.Parameter(self.dense_kernel())
        if self.bias is not None:
            conv.bias = nn.Parameter(self.bias.detach().clone(), requires_grad=self.bias.requires_grad)
        return conv.train(self.training)

    def dense_kernel(self):
        """W with its zeros as a convolution's, [out, in, kh, kw]: a new tensor."""
        return self.dense_weight().reshape(self.out_channels, *self.kernel_size, self.in_channels).permute(0, 3, 1, 2).contiguous()

    def forward(self, input):
        x = input
        if x.dim() not in (3, 4) or x.shape[-3] != self.in_channels:
            raise errors.InvalidArgument(f"x has the shape {tuple(x.shape)}; it must be ([b,] {self.in_channels}, h, w)")
        whole = x if x.dim() == 4 else x.unsqueeze(0)
        patches = patches_of(whole, self.kernel_size, self.stride, self.padding, self.dilation)
        y = self._product(patches).permute(0, 3, 1, 2)  # [b, oh, ow, out] as [b, out, oh, ow]
        return y if x.dim() == 4 else y.squeeze(0)

    def extra_repr(self):
        return f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}, pattern={self.pattern}"


def patches_of(x, kernel_size, stride, padding, dilation):
    """x [b, in, h, w] -> [b, oh, ow, kh * kw * in], a view where the kernel is 1 x 1 and nothing is padded.

    padding: left, right, top, bottom.
    """
    (kh, kw), (sh, sw), (dh, dw) = kernel_size, stride, dilation
    if any(padding):
        x = nn.functional.pad(x, tuple(padding))
    x = x.permute(0, 2, 3, 1)  # [b, h, w, in]
    if (kh, kw) == (1, 1):
        return x[:, ::sh, ::sw] if (sh, sw) != (1, 1) else x
    oh, ow = (x.shape[1] - dh * (kh - 1) - 1) // sh + 1, (x.shape[2] - dw * (kw - 1) - 1) // sw + 1
    if oh < 1 or ow < 1:
        raise errors.InvalidArgument(f"x is {x.shape[1]} x {x.shape[2]} with its padding, too small for a kernel of {kh} x {kw}")
    down, across = sh * (oh - 1) + 1, sw * (ow - 1) + 1
    taps = [x[:, i * dh : i * dh + down : sh, j * dw : j * dw + across : sw] for i in range(kh) for j in range(kw)]
    return torch.cat(taps, -1)


def conv_matrix(conv):
    """W [out, in, kh, kw] as the matrix of the product, [out, kh * kw * in]."""
    return conv.weight.detach().permute(0, 2, 3, 1).reshape(conv.out_channels, -1)


def conv_reason(conv):
    """Why an nn.Conv2d cannot become a SparseConv2d; '' when it can."""
    if conv.groups != 1:
        return f"has {conv.groups} groups; it must have 1"
    if conv.padding_mode != "zeros":
        return f"pads with {conv.padding_mode!r}; it must be 'zeros'"
    return ""


def _pair(value, name, least):
    pair = (value, value) if isinstance(value, int) else tuple(value)
    if len(pair) != 2 or not all(isinstance(item, int) and item >= least for item in pair):
        raise errors.InvalidArgument(f"{name} is {value!r}; it must be a whole number from {least} on, or two")
    return pair
