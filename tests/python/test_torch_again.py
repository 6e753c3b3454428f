"""test_torch_again.py - calls like an earlier one take a shorter way. They have its result bit for bit, and whatever else must be thought of
still is: each test here warms the way first."""

import copy
import os
import pickle
import signal
import threading
import unittest
from unittest import mock

import torch
from torch import nn
from torch_case import PATTERNS, Case, gaussian, linear

import lacuna
import lacuna.torch
from lacuna import _torch_op as op
from lacuna import errors
from lacuna.torch import SparseConv2d, SparseLinear


def layer_of(n=24, k=40, pattern="2:4", bias=True, dtype=torch.float32, **options):
    return SparseLinear.from_linear(linear(n, k, bias=bias, dtype=dtype), pattern, **options)


def warm(layer, x):
    """layer(x) by the long way, which the next call need not go."""
    layer._known.ways.clear()
    with torch.no_grad():
        y = layer(x)
    return y


class Again(Case):
    def again(self, layer, x):
        """layer(x) by the short way: run() is out of reach."""
        with torch.no_grad(), mock.patch.object(op, "run", side_effect=AssertionError("the long way")):
            return layer(x)

    def at_length(self, layer, x):
        """layer(x), which must not take the short way though it is there."""
        self.assertEqual(len(layer._known.ways), 1)
        with mock.patch.object(op, "run", side_effect=op.run) as run:
            y = layer(x)
        self.assertEqual(run.call_count, 1)
        return y

    def test_the_same_bits(self):
        wide = gaussian(6, 80)
        views = [gaussian(40), gaussian(5, 40), gaussian(2, 3, 40), wide[:, :40], wide[::2, 40:], gaussian(40, 5).t(), gaussian(1, 1, 40)]
        for pattern in PATTERNS["cpu"]:
            for bias in (True, False):
                layer = layer_of(pattern=pattern, bias=bias, activation="gelu")
                for x in views:
                    with self.subTest(pattern=pattern, bias=bias, shape=tuple(x.shape), strides=x.stride()):
                        first = warm(layer, x)
                        other = -x  # elsewhere in memory, and other numbers
                        if x.stride() != other.stride():
                            other = torch.empty_strided(x.shape, x.stride()).copy_(other)
                        self.assertEqual(first.stride(), self.again(layer, x).stride())
                        self.assertTrue(torch.equal(first, self.again(layer, x)))
                        self.near(self.again(layer, other), other, layer.dense_weight(), layer.bias, "gelu")

    def test_dtypes(self):
        for dtype in (torch.float32, torch.float16, torch.bfloat16):
            layer, x = layer_of(dtype=dtype), gaussian(5, 40, dtype=dtype)
            first = warm(layer, x)
            self.assertTrue(torch.equal(first, self.again(layer, x)))

    def test_convolutions(self):
        layer = SparseConv2d.from_conv(nn.Conv2d(16, 24, 1), "2:4")
        x = gaussian(2, 16, 5, 5).to(memory_format=torch.channels_last)
        first = warm(layer, x)
        self.assertTrue(torch.equal(first, self.again(layer, x)))

    def test_what_is_copied_is_not_remembered(self):
        """Nor what is rounded up to a plan for more tokens."""
        layer = layer_of()
        for x in (gaussian(5, 80)[:, ::2], gaussian(40).expand(5, 40)[:, torch.arange(39, -1, -1)].t().contiguous().t()[::2]):
            warm(layer, x)
            self.near(layer(x), x, layer.dense_weight(), layer.bias)
        warm(layer, gaussian(5, 80)[:, ::2])
        self.assertEqual(len(layer._known.ways), 0)
        lacuna.plan_limits(exact=0)
        x = gaussian(9, 40)
        warm(layer, x)
        self.assertEqual(len(layer._known.ways), 0)
        self.near(layer(x), x, layer.dense_weight(), layer.bias)

    def test_gradients(self):
        layer, x = layer_of(), gaussian(5, 40)
        warm(layer, x)
        layer(x).sum().backward()  # by the bias
        self.assertTrue(torch.equal(layer.bias.grad, torch.full((24,), 5.0)))
        layer.requires_grad_(False)
        x.requires_grad_()
        layer(x).sum().backward()
        self.near(x.grad, torch.ones(5, 24), layer.dense_weight().t())
        with torch.inference_mode():
            self.assertTrue(torch.equal(layer(x), self.again(layer, x)))

    def test_autocast(self):
        layer, x = layer_of(), gaussian(5, 40)
        warm(layer, x)
        with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
            self.assertEqual(self.at_length(layer, x).dtype, torch.bfloat16)

    def test_what_autocast_ran_is_refused_outside_of_it(self):
        layer, x = layer_of(bias=False), gaussian(5, 40, dtype=torch.bfloat16)
        with torch.autocast("cpu", torch.bfloat16):
            warm(layer, x)
        with self.assertRaisesRegex(ValueError, "x is of dtype torch.bfloat16, the weight of torch.float32"):
            layer(x)

    def test_watchers(self):
        class Watch(torch.utils._python_dispatch.TorchDispatchMode):
            seen = []

            def __torch_dispatch__(self, function, types, args=(), kwargs=None):
                self.seen.append(str(function))
                return function(*args, **(kwargs or {}))

        layer, x = layer_of().requires_grad_(False), gaussian(5, 40)
        y = warm(layer, x)
        with Watch():
            layer(x)
        self.assertIn("lacuna.linear.default", Watch.seen)
        traced = torch.jit.trace(layer, x)
        self.assertIn("lacuna::linear", str(traced.inlined_graph))
        self.assertTrue(torch.equal(traced(x), y))
        with torch._subclasses.fake_tensor.FakeTensorMode(allow_non_fake_inputs=True):
            self.assertEqual(type(layer(torch.empty(5, 40))).__name__, "FakeTensor")
        compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
        self.assertTrue(torch.equal(compiled(x), y))
        torch._dynamo.reset()

    def test_transforms_are_refused(self):
        layer, x = layer_of().requires_grad_(False), gaussian(5, 40)
        warm(layer, x)
        with self.assertRaises(RuntimeError):
            torch.vmap(layer)(gaussian(3, 5, 40))
        with self.assertRaisesRegex(errors.Unsupported, "forward mode"):
            torch.func.jvp(layer, (x,), (x,))

    def test_tensors_of_other_kinds(self):
        class Own(torch.Tensor):
            pass

        layer, x = layer_of().requires_grad_(False), gaussian(5, 40)
        y = warm(layer, x)
        self.assertIs(type(layer(x.as_subclass(Own))), Own)
        self.assertTrue(torch.equal(self.at_length(layer, torch._neg_view(-x)), y))
        self.assertEqual(layer(x.to("meta")).device.type, "meta")
        for layout in (torch.jagged, torch.strided):
            self.assertTrue(layer(torch.nested.nested_tensor([x, x], layout=layout)).is_nested)
        for wrong in (x.to_sparse(), x.numpy()):
            with self.assertRaises((ValueError, TypeError)):
                layer(wrong)

    def test_what_changes_between_calls(self):
        layer, x = layer_of(), gaussian(5, 40)
        y = warm(layer, x)
        with torch.no_grad():
            layer.bias.add_(1)  # read where it lies
            self.near(self.again(layer, x), x, layer.dense_weight(), layer.bias)
            layer.bias = nn.Parameter(gaussian(24, seed=9), requires_grad=False)
            self.near(self.again(layer, x), x, layer.dense_weight(), layer.bias)
            layer.bias = nn.Parameter(gaussian(48, seed=9)[::2], requires_grad=False)  # not contiguous
            self.near(self.at_length(layer, x), x, layer.dense_weight(), layer.bias)
            self.near(layer(x), x, layer.dense_weight(), layer.bias)
            layer.bias = nn.Parameter(gaussian(23), requires_grad=False)
            with self.assertRaisesRegex(ValueError, r"bias has the shape \(23,\)"):
                layer(x)
            layer.bias = None
            self.near(layer(x), x, layer.dense_weight())
            layer.activation = "relu"
            self.near(layer(x), x, layer.dense_weight(), None, "relu")
            self.assertFalse(torch.equal(layer(x), y))

    def test_biases_of_other_kinds(self):
        class Own(nn.Parameter):
            pass

        layer, x = layer_of(), gaussian(5, 40)
        with torch.no_grad():
            for bias in (torch._neg_view(gaussian(24)), gaussian(24).half(), Own(gaussian(24), requires_grad=False)):
                layer.bias = nn.Parameter(gaussian(24), requires_grad=False)
                warm(layer, x)
                layer.bias = bias if isinstance(bias, Own) else nn.Parameter(bias, requires_grad=False)
                self.near(self.at_length(layer, x), x, layer.dense_weight(), bias)
                self.near(layer(x), x, layer.dense_weight(), bias)

    def test_lines_elsewhere(self):
        """The same shape with other strides."""
        layer, x, wide = layer_of(), gaussian(5, 40), gaussian(5, 80)
        warm(layer, x)
        with torch.no_grad():
            self.near(self.at_length(layer, wide[:, :40]), wide[:, :40], layer.dense_weight(), layer.bias)
            self.assertEqual(len(layer._known.ways), 2)
            for other in (x, wide[:, 40:], gaussian(40, 5).t(), gaussian(40, 9)[:, 2:7].t(), wide[:, ::2]):
                self.near(layer(other), other, layer.dense_weight(), layer.bias)

    def test_another_weight(self):
        layer, other, x = layer_of(), layer_of(pattern="1:4"), gaussian(5, 40)
        warm(layer, x)
        layer.load_state_dict(other.state_dict())
        with torch.no_grad():
            self.assertTrue(torch.equal(layer(x), other(x)))
            layer.half()
            self.assertEqual(layer(x.half()).dtype, torch.float16)
            with self.assertRaisesRegex(ValueError, "x is of dtype torch.float32"):
                layer(x)
        for copied in (copy.deepcopy(other), pickle.loads(pickle.dumps(other))):
            with torch.no_grad():
                self.assertTrue(torch.equal(copied(x), other(x)))

    def test_plans_that_went(self):
        """A way does not keep a plan: limits hold, and what went is made anew."""
        layer, x = layer_of(), gaussian(5, 40)
        y = warm(layer, x)
        lacuna.plan_limits(per_weight=1, exact=1)
        with torch.no_grad():
            layer(gaussian(6, 40))
            self.assertEqual([plan.m for plan in lacuna.cached_plans(layer.packed)], [6])
            self.assertTrue(torch.equal(layer(x), y))
        self.assertEqual(len(lacuna.cached_plans(layer.packed)), 1)

    def test_a_way_makes_its_plan_the_last_used(self):
        layer, x = layer_of(), gaussian(5, 40)
        warm(layer, x)
        lacuna.plan_limits(per_weight=2, exact=2)
        with torch.no_grad():
            layer(gaussian(6, 40))
            self.again(layer, x)
            lacuna.plan_limits(exact=9)
            layer(gaussian(7, 40))
        self.assertEqual(sorted(plan.m for plan in lacuna.cached_plans(layer.packed)), [5, 7])

    def test_ways_are_few(self):
        layer = layer_of(8, 16)
        lacuna.plan_limits(per_weight=1000, exact=1000)
        with torch.no_grad():
            for m in range(1, 3 * op.MOST_WAYS):
                x = gaussian(m, 16)
                self.near(layer(x), x, layer.dense_weight(), layer.bias)
                self.assertLessEqual(len(layer._known.ways), op.MOST_WAYS)

    def test_threads(self):
        """Some of them, whose plans push each other out."""
        layer = layer_of().requires_grad_(False)
        lacuna.plan_limits(per_weight=2, exact=1000)
        inputs = [gaussian(m, 40) for m in (1, 2, 3, 4)]
        results, wrong = [layer(x) for x in inputs], []

        def work(first):
            try:
                for i in range(300):
                    which = (first + i) % len(inputs)
                    if not torch.equal(layer(inputs[which]), results[which]):
                        wrong.append(which)
            except Exception as error:
                wrong.append(error)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def test_a_child_of_fork(self):
        """Its parent's plans are for threads that it does not have."""
        layer, x = layer_of(512, 512), gaussian(64, 512)
        y = warm(layer, x)
        child = os.fork()
        if child == 0:
            signal.alarm(60)
            try:
                with torch.no_grad():
                    os._exit(0 if (layer(x) - y).abs().max().item() < 1e-3 and (layer(x) - y).abs().max().item() < 1e-3 else 1)
            finally:
                os._exit(2)
        self.assertEqual(os.waitpid(child, 0)[1], 0)


if __name__ == "__main__":
    unittest.main()
