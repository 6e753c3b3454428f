"""test_torch_layers.py - SparseLinear, SparseConv2d and the operator beneath them, against dense PyTorch in double."""

import copy
import gc
import io
import pickle
import unittest
import weakref

import torch
from torch import nn
from torch_case import ACTIVATE, DEVICES, PATTERNS, Case, gaussian, linear

import lacuna
import lacuna.torch
from lacuna import _plans, errors
from lacuna import _torch_op as op
from lacuna.torch import SparseConv2d, SparseLinear

DTYPES = (torch.float32, torch.float16, torch.bfloat16)


class Linear(Case):
    def test_patterns_dtypes_devices(self):
        for device in DEVICES:
            for pattern in PATTERNS[device]:
                for dtype in DTYPES if device == "cpu" else (torch.float16,):
                    with self.subTest(device=device, pattern=pattern, dtype=dtype), torch.no_grad():
                        dense = linear(80, 112, dtype=dtype, device=device)
                        layer = SparseLinear.from_linear(dense, pattern)
                        lacuna.Pattern(pattern).check(layer.dense_weight().cpu())
                        self.assertLess(layer.dense_weight().count_nonzero().item(), 80 * 112 * 0.7)
                        x = gaussian(6, 112, dtype=dtype, device=device)
                        y = layer(x)
                        self.assertEqual((y.dtype, y.device), (dtype, x.device))
                        self.near(y, x, layer.dense_weight(), layer.bias)

    def test_what_stays_is_the_layers(self):
        """Weights that stay are the layer's own, and they are the largest."""
        dense = linear(16, 32)
        kept = SparseLinear.from_linear(dense, "2:4").dense_weight()
        stays = kept != 0
        self.assertTrue(torch.equal(kept[stays], dense.weight[stays]))
        self.assertTrue(bool((stays.view(16, 8, 4).sum(-1) == 2).all()))
        groups, marks = dense.weight.detach().abs().view(16, 8, 4), stays.view(16, 8, 4)
        self.assertTrue(bool((groups.masked_fill(~marks, torch.inf).amin(-1) >= groups.masked_fill(marks, 0).amax(-1)).all()))

    def test_shapes(self):
        for device in DEVICES:
            dtype = torch.float32 if device == "cpu" else torch.float16
            layer = SparseLinear.from_linear(linear(48, 64, dtype=dtype, device=device), "2:4")
            w = layer.dense_weight()
            wide = gaussian(6, 256, dtype=dtype, device=device)
            inputs = [gaussian(*shape, 64, dtype=dtype, device=device) for shape in ((), (1,), (2, 3), (2, 1, 3, 2))]
            inputs += [wide[:, ::4], wide[::2, :64], wide[:, :64].flip(0), gaussian(64, 6, dtype=dtype, device=device).t()]
            inputs += [
                gaussian(3, 64, 2, dtype=dtype, device=device).transpose(1, 2),
                gaussian(64, dtype=dtype, device=device).expand(6, 64),
            ]
            if device == "cuda":  # each size costs a GPU some seconds of compiling
                inputs = [x for x in inputs if x.numel() == 6 * 64]
            for x in inputs:
                with self.subTest(shape=tuple(x.shape), strides=x.stride(), device=device), torch.no_grad():
                    self.near(layer(x), x, w, layer.bias)
            with torch.no_grad():
                self.assertEqual(layer(gaussian(0, 64, dtype=dtype, device=device)).shape, (0, 48))
                self.assertEqual(layer(gaussian(2, 0, 64, dtype=dtype, device=device)).shape, (2, 0, 48))

    def test_changing_batches(self):
        """Sizes beyond the first four are rounded up: right all the same, and there are never more than eight plans."""
        for device in DEVICES:
            dtype = torch.float32 if device == "cpu" else torch.float16
            layer = SparseLinear.from_linear(linear(48, 64, dtype=dtype, device=device), "2:4")
            w = layer.dense_weight()
            sizes = set()
            with torch.no_grad():
                for m in (1, 9, 17, 33, 18, 19, 21, 35, 39, 63, 65, 100, 127) if device == "cpu" else (1, 9, 17, 33, 18, 19):
                    x = gaussian(m, 64, dtype=dtype, device=device)
                    y = layer(x)
                    self.assertTrue(y.is_contiguous())
                    self.near(y, x, w, layer.bias)
                    turned = gaussian(64, m, dtype=dtype, device=device).t()
                    if device == "cpu":
                        self.near(layer(turned), turned, w, layer.bias)
                    kept = [plan.m for plan in lacuna.cached_plans(layer.packed)]
                    self.assertLessEqual(len(kept), 8)
                    sizes.update(kept)
            self.assertEqual(sizes, {1, 9, 17, 18, 33, 20, 24, 40, 64, 80, 112, 128} if device == "cpu" else {1, 9, 17, 33, 20})

    def test_activations(self):
        for device in DEVICES:
            dtype = torch.float32 if device == "cpu" else torch.float16
            for activation in ACTIVATE if device == "cpu" else ("gelu",):
                layer = SparseLinear.from_linear(linear(48, 64, dtype=dtype, device=device), "2:4", activation=activation)
                x = gaussian(5, 64, dtype=dtype, device=device)
                with torch.no_grad():
                    self.near(layer(x), x, layer.dense_weight(), layer.bias, activation)
                if device == "cpu":  # with gradients it is PyTorch's own
                    self.near(layer(x), x, layer.dense_weight(), layer.bias, activation)
            self.assertEqual(
                {plan.activation for plan in lacuna.cached_plans(layer.packed)}, {"silu", "none"} if device == "cpu" else {"gelu"}
            )

    def test_from_what(self):
        dense = linear(16, 32)
        mask = lacuna.prune(dense.weight.detach(), "2:4")
        weight = lacuna.compress(dense.weight.detach(), mask)
        by_pattern = SparseLinear.from_linear(dense, "2:4")
        for layer in (SparseLinear.from_linear(dense, mask), SparseLinear.from_linear(dense, weight), SparseLinear(weight, dense.bias)):
            self.assertTrue(torch.equal(layer.dense_weight(), by_pattern.dense_weight()))
            self.assertTrue(torch.equal(layer.bias, dense.bias))
        pruned = by_pattern.to_linear()
        again = SparseLinear.from_linear(pruned, "2:4", method="as_is")
        self.assertTrue(torch.equal(again.dense_weight(), pruned.weight))
        with self.assertRaises(errors.PatternViolated):
            SparseLinear.from_linear(dense, "2:4", method="as_is")

    def test_module(self):
        """What it shows of itself to those who know nn.Linear."""
        layer = SparseLinear.from_linear(linear(16, 32).eval(), "2:4", activation="relu")
        self.assertFalse(layer.training)
        self.assertEqual((layer.in_features, layer.out_features, str(layer.pattern)), (32, 16, "2:4"))
        self.assertEqual((layer.weight.shape, layer.weight.dtype, layer.weight.device.type), ((16, 32), torch.float32, "cpu"))
        self.assertEqual([name for name, _ in layer.named_parameters()], ["bias"])
        self.assertEqual(repr(layer), "SparseLinear(in_features=32, out_features=16, bias=True, pattern=2:4, activation=relu)")
        with self.assertRaisesRegex(TypeError, "cannot take a compressed weight"):
            torch.add(layer.weight, 1)

    def test_refusals(self):
        dense = linear(16, 32)
        layer = SparseLinear.from_linear(dense, "2:4")
        refused = [
            (ValueError, r"x has the shape \(3, 31\); its last dimension must be 32", lambda: layer(gaussian(3, 31))),
            (ValueError, "x is of dtype torch.float16, the weight of torch.float32", lambda: layer(gaussian(3, 32).half())),
            (ValueError, "x is of dtype torch.float64", lambda: layer(gaussian(3, 32).double())),
            (TypeError, "linear is of type Conv2d", lambda: SparseLinear.from_linear(nn.Conv2d(4, 4, 1), "2:4")),
            (ValueError, "the weight is of dtype torch.float64", lambda: SparseLinear.from_linear(linear(16, 32).double(), "2:4")),
            (
                ValueError,
                r"the weight is \(16, 32\); the layer's is \(8, 32\)",
                lambda: SparseLinear.from_linear(linear(8, 32), layer.packed),
            ),
            (ValueError, r"bias has the shape \(15,\); it must be \(16,\)", lambda: SparseLinear(layer.packed, gaussian(15))),
            (ValueError, "activation is 'tanh'; it must be one of 'none'", lambda: SparseLinear(layer.packed, activation="tanh")),
            (ValueError, "the mask is a tensor", lambda: SparseLinear.from_linear(dense, dense.weight != 0)),
            (errors.Unsupported, "cannot be of dtype torch.float64", layer.double),
            (TypeError, "weight is of type Parameter", lambda: lacuna.torch.linear(gaussian(3, 32), dense.weight)),
            (errors.NotFound, "no weight of number 0", lambda: torch.ops.lacuna.linear(gaussian(3, 32), None, 0, 16, "none")),
            (
                ValueError,
                r"bias has the shape \(15,\)",
                lambda: torch.ops.lacuna.linear(gaussian(3, 32), gaussian(15), layer._number, 16, "none"),
            ),
        ]
        for kind, text, call in refused:
            with self.subTest(text=text), self.assertRaisesRegex(kind, text):
                call()
        self.assertEqual((layer.bias.dtype, layer.packed.dtype), (torch.float32, "f32"))  # double() has changed nothing


class Gradients(Case):
    def test_gradients(self):
        """By x and by the bias, against autograd in double through the dense layer."""
        for device in DEVICES:
            for activation in ACTIVATE if device == "cpu" else ("gelu",):
                layer = SparseLinear.from_linear(linear(24, 40, device=device), "2:4", activation=activation)
                x = gaussian(2, 3, 40, device=device).requires_grad_()
                grad = gaussian(2, 3, 24, seed=3, device=device)
                layer(x).backward(grad)
                wide = [t.detach().cpu().double().requires_grad_() for t in (x, layer.bias)]
                w = layer.dense_weight().cpu().double()
                ACTIVATE[activation](wide[0] @ w.t() + wide[1]).backward(grad.cpu().double())
                # 24 products for x and 6 sums for the bias, each of a factor that 42 roundings have made
                size_x, size_b = (grad.cpu().double().abs() @ w.abs()), grad.cpu().double().abs().sum((0, 1))
                for ours, theirs, size in ((x.grad, wide[0].grad, size_x), (layer.bias.grad, wide[1].grad, size_b)):
                    scale = size * 2.0**-24 * 128 * (1 + layer.dense_weight().abs().sum(1).max().item())
                    self.assertTrue(bool(((ours.cpu().double() - theirs).abs() <= scale).all()), (device, activation))
                    self.assertGreater(theirs.abs().max().item(), 0.1)

    def test_second_order(self):
        layer = SparseLinear.from_linear(linear(24, 40, bias=False), "2:4")
        w = layer.dense_weight()
        found = []
        for forward in (layer, lambda x: x @ w.t()):
            x = gaussian(3, 40).requires_grad_()
            (first,) = torch.autograd.grad(forward(x).pow(3).sum(), x, create_graph=True)
            found.append(torch.autograd.grad(first.square().sum(), x)[0])
        self.assertTrue(torch.allclose(found[0], found[1], rtol=1e-4, atol=1e-2 * found[1].abs().max().item()))
        self.assertFalse(torch.equal(found[1], torch.zeros_like(found[1])))

    def test_operator_is_sound(self):
        """PyTorch's own checks of an operator: schema, fake kernel, autograd, tracing with changing sizes."""
        layer = SparseLinear.from_linear(linear(24, 40), "2:4")
        x = gaussian(6, 40).requires_grad_()
        torch.library.opcheck(torch.ops.lacuna.linear.default, (x, layer.bias, layer._number, 24, "none"))
        torch.library.opcheck(torch.ops.lacuna.linear.default, (gaussian(2, 3, 40), None, layer._number, 24, "relu"))
        torch.library.opcheck(torch.ops.lacuna.linear_grad.default, (gaussian(6, 24).requires_grad_(), layer._number, 40))

    def test_dense_weight_is_let_go(self):
        layer = SparseLinear.from_linear(linear(24, 40), "2:4")
        layer(gaussian(2, 40).requires_grad_()).sum().backward()
        self.assertEqual(len(op._known[layer.packed].dense), 1)
        layer.forget_dense()
        self.assertEqual(len(op._known[layer.packed].dense), 0)

    def test_training_moves_the_bias_alone(self):
        layer = SparseLinear.from_linear(linear(24, 40), "2:4")
        before, bias = layer.dense_weight(), layer.bias.detach().clone()
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        layer(gaussian(6, 40)).square().sum().backward()
        optimizer.step()
        self.assertTrue(torch.equal(layer.dense_weight(), before))
        self.assertFalse(torch.equal(layer.bias, bias))


class State(Case):
    def same(self, layer, other):
        x = gaussian(5, layer.in_features, dtype=layer.weight.dtype)
        with torch.no_grad():
            self.assertTrue(torch.equal(layer(x), other(x)))

    def test_copies(self):
        layer = SparseLinear.from_linear(linear(24, 40), "2:4", activation="relu")
        copied = copy.deepcopy(layer)
        self.assertIs(copied.packed, layer.packed)
        self.same(layer, copied)
        with torch.no_grad():
            copied.bias.add_(1)
        self.assertFalse(torch.equal(copied.bias, layer.bias))
        pickled = pickle.loads(pickle.dumps(layer))
        self.assertIsNot(pickled.packed, layer.packed)
        self.same(layer, pickled)
        file = io.BytesIO()
        torch.save(nn.Sequential(layer), file)
        file.seek(0)
        self.same(layer, torch.load(file, weights_only=False)[0])
        nn.utils.parametrize.register_parametrization(layer, "bias", nn.ReLU())  # modules of such a class are copied by their dicts
        self.same(layer, copy.deepcopy(layer))

    def test_state_dict(self):
        for pattern in PATTERNS["cpu"]:
            for dtype in DTYPES:
                layer = SparseLinear.from_linear(linear(24, 40, dtype=dtype), pattern)
                file = io.BytesIO()
                torch.save(layer.state_dict(), file)
                file.seek(0)
                state = torch.load(file, weights_only=True)
                self.assertTrue(all(isinstance(value, torch.Tensor) for value in state.values()))
                other = SparseLinear.from_linear(linear(24, 40, dtype=dtype, seed=7), "1:2")
                other.load_state_dict(state)
                self.assertEqual(str(other.pattern), pattern)
                self.same(layer, other)

    def test_state_dict_that_does_not_fit(self):
        layer = SparseLinear.from_linear(linear(24, 40), "2:4")
        state = layer.state_dict()
        smaller = SparseLinear.from_linear(linear(16, 40), "2:4")
        with self.assertRaisesRegex(RuntimeError, r"it is \(24, 40\); the layer's is \(16, 40\)"):
            smaller.load_state_dict(state)
        with self.assertRaisesRegex(RuntimeError, "weight:values"):
            layer.load_state_dict({"bias": layer.bias})
        with self.assertRaisesRegex(RuntimeError, "weight:info"):
            layer.load_state_dict({key: value for key, value in state.items() if key != "weight:info"})
        damaged = dict(state, **{"weight:index": torch.full_like(state["weight:index"], 255)})
        with self.assertRaisesRegex(RuntimeError, "index"):
            layer.load_state_dict(damaged)
        with self.assertRaisesRegex(RuntimeError, "flavour"):
            layer.load_state_dict(dict(state, flavour=torch.zeros(1)))
        self.assertTrue(torch.equal(layer.dense_weight(), SparseLinear.from_linear(linear(24, 40), "2:4").dense_weight()))

    def test_dtypes_and_devices(self):
        dense = linear(24, 40)
        layer = SparseLinear.from_linear(dense, "vw4:2:4")
        w = layer.dense_weight()
        for dtype in (torch.float16, torch.bfloat16):
            other = copy.deepcopy(layer).to(dtype)
            self.assertEqual((other.weight.dtype, other.bias.dtype, other.packed.dtype), (dtype, dtype, op.LACUNA_DTYPE[dtype]))
            self.assertTrue(torch.equal(other.dense_weight(), w.to(dtype)))
            x = gaussian(5, 40, dtype=dtype)
            with torch.no_grad():
                self.near(other(x), x, w.to(dtype), other.bias)
        self.assertEqual(copy.deepcopy(layer).to("meta")(gaussian(5, 40).to("meta")).device.type, "meta")
        with torch.no_grad():
            dense.weight[3, 5] = 1e6
        with self.assertRaisesRegex(ValueError, "has 1e[+]06 among its values, which does not fit f16"):
            SparseLinear.from_linear(dense, "2:4").half()
        if "cuda" in DEVICES:
            moved = copy.deepcopy(layer).to("cuda")
            self.assertEqual((moved.weight.device.type, moved.bias.device.type), ("cuda", "cuda"))
            with self.assertRaisesRegex(ValueError, "bias is on 'cuda:0', x on 'cpu'"), torch.no_grad():
                moved(gaussian(5, 40))

    def test_plans_go_with_the_layer(self):
        layer = SparseLinear.from_linear(linear(24, 40), "2:4")
        with torch.no_grad():
            layer(gaussian(5, 40)), layer(gaussian(5, 40))
        with torch.autocast("cpu", torch.bfloat16):
            layer(gaussian(5, 40).requires_grad_()).sum().backward()
        gc.collect()  # what other tests have left
        gone, before = weakref.ref(layer.packed), len(_plans._caches)
        del layer
        gc.collect()
        self.assertIsNone(gone())
        self.assertEqual(len(_plans._caches), before - 2)  # f32 and its copy in bf16


class Tracing(Case):
    def test_compile(self):
        for device in DEVICES:
            layer = SparseLinear.from_linear(linear(24, 40, device=device), "2:4", activation="gelu")
            other = SparseLinear.from_linear(linear(40, 24, device=device, seed=5), "2:4")
            model = nn.Sequential(layer, other)
            compiled = torch.compile(model, backend="aot_eager", fullgraph=True, dynamic=True)
            for shape in ((6, 40), (2, 3, 40), (9, 40)) if device == "cpu" else ((6, 40), (2, 3, 40)):
                x = gaussian(*shape, device=device).requires_grad_()
                y = compiled(x)
                self.assertTrue(torch.equal(y, model(x)))
                y.sum().backward()
                wanted = gaussian(*shape, device=device).requires_grad_()
                model(wanted).sum().backward()
                self.assertTrue(torch.allclose(x.grad, wanted.grad, rtol=1e-5, atol=1e-4))
                with torch.no_grad():
                    self.assertTrue(torch.allclose(compiled(x), model(x), rtol=1e-5, atol=1e-4))
                with torch.autocast(device, torch.bfloat16), torch.no_grad():
                    self.assertEqual(compiled(x).dtype, torch.bfloat16)
            torch._dynamo.reset()

    def test_export_and_trace(self):
        layer = SparseLinear.from_linear(linear(24, 40), "2:4").requires_grad_(False)
        x, other = gaussian(6, 40), gaussian(6, 40, seed=2)
        program = torch.export.export(nn.Sequential(layer), (x,))
        self.assertIn("lacuna.linear", str(program.graph))
        self.assertTrue(torch.equal(program.module()(other), layer(other)))
        traced = torch.jit.trace(layer, x)
        self.assertTrue(torch.equal(traced(other), layer(other)))

    def test_fake_tensors(self):
        layer = SparseLinear.from_linear(linear(24, 40), "2:4").requires_grad_(False)
        with torch._subclasses.fake_tensor.FakeTensorMode(allow_non_fake_inputs=True):
            y = layer(torch.empty(6, 40))
        self.assertEqual((type(y).__name__, y.shape), ("FakeTensor", (6, 24)))

    def test_modes_see_the_operator(self):
        """Who watches operators (flop counters, profilers of memory) sees this one; nobody else pays for it."""

        class Watch(torch.utils._python_dispatch.TorchDispatchMode):
            seen = []

            def __torch_dispatch__(self, function, types, args=(), kwargs=None):
                self.seen.append(str(function))
                return function(*args, **(kwargs or {}))

        layer = SparseLinear.from_linear(linear(24, 40), "2:4").requires_grad_(False)
        with Watch():
            layer(gaussian(6, 40))
        self.assertIn("lacuna.linear.default", Watch.seen)

    def test_vmap_is_refused(self):
        layer = SparseLinear.from_linear(linear(24, 40), "2:4").requires_grad_(False)
        with self.assertRaises(RuntimeError):
            torch.vmap(layer)(gaussian(3, 6, 40))

    def test_autocast(self):
        for device in DEVICES:
            layer = SparseLinear.from_linear(linear(24, 40, device=device), "2:4")
            for dtype in (torch.bfloat16, torch.float16) if device == "cpu" else (torch.bfloat16,):
                x = gaussian(6, 40, device=device).requires_grad_()
                with torch.autocast(device, dtype):
                    y = layer(x)
                    with torch.no_grad():
                        direct = layer(x)
                self.assertEqual(y.dtype, dtype)
                self.assertTrue(torch.equal(y, direct))
                self.near(y, x.to(dtype), layer.dense_weight().to(dtype), layer.bias.to(dtype))
                y.float().sum().backward()
                self.assertEqual((x.grad.dtype, layer.bias.grad.dtype), (torch.float32, torch.float32))
            self.assertEqual(layer.weight.dtype, torch.float32)


class Arrays(Case):
    def test_matmul(self):
        """lacuna.matmul() takes PyTorch's tensors, and gives such; not their gradients."""
        for dtype in DTYPES:
            weight = lacuna.compress(gaussian(24, 40, dtype=dtype), "2:4")
            w = torch.empty(24, 40, dtype=dtype)
            weight.dense(out=w)
            bias = gaussian(24, dtype=dtype)
            for x in (
                gaussian(2, 3, 40, dtype=dtype),
                gaussian(40, dtype=dtype),
                gaussian(40, 5, dtype=dtype).t(),
                gaussian(0, 40, dtype=dtype),
            ):
                y = lacuna.matmul(x, weight, bias=bias, activation="gelu")
                self.assertEqual((type(y), y.dtype, y.shape), (torch.Tensor, dtype, (*x.shape[:-1], 24)))
                if y.numel():
                    self.near(y, x, w, bias, "gelu")
            for m in range(50, 57):  # rounded up
                x, out = gaussian(m, 40, dtype=dtype), torch.full((m, 24), torch.nan, dtype=dtype)
                self.assertIs(lacuna.matmul(x, weight, out=out, residual=torch.zeros(m, 24, dtype=dtype)), out)
                self.near(out, x, w)
            x = gaussian(3, 40, dtype=dtype).requires_grad_()
            with self.assertRaisesRegex(ValueError, "x requires gradients, which matmul.. does not give"):
                lacuna.matmul(x, weight)
            with torch.no_grad():
                self.near(lacuna.matmul(x, weight), x, w)
            self.near(lacuna.torch.linear(x, weight, bias, "relu"), x, w, bias, "relu")


class Convolution(Case):
    def convolutions(self):
        yield nn.Conv2d(32, 24, 1), (2, 32, 7, 5)
        yield nn.Conv2d(32, 24, 1, stride=2, bias=False), (2, 32, 7, 5)
        yield nn.Conv2d(16, 24, 3, padding=1), (2, 16, 7, 5)
        yield nn.Conv2d(16, 24, (3, 2), stride=(2, 1), padding=(0, 2), dilation=(1, 2)), (1, 16, 9, 8)
        yield nn.Conv2d(16, 24, (2, 4), padding="same"), (2, 16, 6, 5)
        yield nn.Conv2d(16, 24, 3, padding="valid"), (16, 6, 5)

    def test_convolutions(self):
        torch.manual_seed(3)
        for device in DEVICES:
            for conv, shape in list(self.convolutions())[:: 1 if device == "cpu" else 3]:
                conv = conv.to(device)
                layer = SparseConv2d.from_conv(conv, "2:4")
                kernel = layer.dense_kernel()
                kept = kernel != 0
                self.assertTrue(torch.equal(kernel[kept], conv.weight.detach()[kept]))
                self.assertEqual(2 * kept.sum().item(), kept.numel())
                dense = copy.deepcopy(conv).cpu().double()
                dense.weight.data = kernel.cpu().double()
                for x in (gaussian(*shape, device=device), gaussian(*shape, seed=2, device=device)):
                    if x.dim() == 4:
                        x = x.to(memory_format=torch.channels_last)
                    x.requires_grad_()
                    wide = x.detach().cpu().double().requires_grad_()
                    expected = dense(wide)
                    size = nn.functional.conv2d(*self.padded(conv, wide.abs()), dense.weight.abs(), None, conv.stride, 0, conv.dilation)
                    size = size + (0 if dense.bias is None else dense.bias.abs()[:, None, None])
                    far = (layer._k + 3) * 2.0**-24 * size
                    for y in (layer(x), layer(x.detach())):
                        self.assertEqual(y.shape, expected.shape)
                        self.assertTrue(bool(((y.cpu().double() - expected).abs() <= far).all()), conv)
                    layer(x).square().sum().backward()
                    expected.square().sum().backward()
                    self.assertTrue(torch.allclose(x.grad.cpu().double(), wide.grad, rtol=1e-4, atol=1e-4 * wide.grad.abs().max().item()))

    def padded(self, conv, x):
        left, right, top, bottom = conv._reversed_padding_repeated_twice
        return (nn.functional.pad(x, (left, right, top, bottom)),)

    def test_one_by_one_copies_nothing(self):
        layer = SparseConv2d.from_conv(nn.Conv2d(32, 24, 1), "2:4")
        x = gaussian(2, 32, 7, 5).to(memory_format=torch.channels_last)
        from lacuna._torch_layers import patches_of

        patches = patches_of(x, layer.kernel_size, layer.stride, layer.padding, layer.dilation)
        self.assertEqual(op._lines(patches.reshape(-1, 32))[0].data_ptr(), x.data_ptr())
        with torch.no_grad():
            self.assertTrue(layer(x).is_contiguous(memory_format=torch.channels_last))
        single = gaussian(1, 32, 7, 5)  # one picture, channels first: feature-major
        patches = patches_of(single, layer.kernel_size, layer.stride, layer.padding, layer.dilation)
        x2, layout, _ = op._lines(patches.reshape(-1, 32))
        self.assertEqual((x2.data_ptr(), layout), (single.data_ptr(), "feature"))

    def test_state_and_back(self):
        conv = nn.Conv2d(16, 24, 3, padding=1, stride=2)
        layer = SparseConv2d.from_conv(conv, "vw8:2:8")
        other = SparseConv2d.from_conv(nn.Conv2d(16, 24, 3, padding=1, stride=2), "2:4")
        other.load_state_dict(layer.state_dict())
        x = gaussian(2, 16, 7, 5)
        with torch.no_grad():
            self.assertTrue(torch.equal(layer(x), other(x)))
            self.assertTrue(torch.allclose(layer.to_conv()(x), layer(x), rtol=1e-4, atol=1e-4))
            self.assertTrue(torch.equal(pickle.loads(pickle.dumps(layer))(x), layer(x)))

    def test_refusals(self):
        layer = SparseConv2d.from_conv(nn.Conv2d(16, 24, 3), "2:4")
        refused = [
            (
                errors.Unsupported,
                "conv has 4 groups; it must have 1",
                lambda: SparseConv2d.from_conv(nn.Conv2d(16, 16, 3, groups=4), "2:4"),
            ),
            (
                errors.Unsupported,
                "pads with 'reflect'",
                lambda: SparseConv2d.from_conv(nn.Conv2d(4, 4, 3, padding=1, padding_mode="reflect"), "2:4"),
            ),
            (TypeError, "conv is of type Linear", lambda: SparseConv2d.from_conv(nn.Linear(4, 4), "2:4")),
            (ValueError, r"x has the shape \(2, 15, 7, 7\); it must be \(\[b,\] 16, h, w\)", lambda: layer(gaussian(2, 15, 7, 7))),
            (ValueError, "too small for a kernel of 3 x 3", lambda: layer(gaussian(2, 16, 2, 7))),
            (ValueError, "kernel_size is 5; the weight's 144 inputs are no multiple", lambda: SparseConv2d(layer.packed, None, 5)),
            (ValueError, r"stride is 0; it must be a whole number from 1 on", lambda: SparseConv2d(layer.packed, None, 3, stride=0)),
        ]
        for kind, text, call in refused:
            with self.subTest(text=text), self.assertRaisesRegex(kind, text):
                call()


if __name__ == "__main__":
    unittest.main()
