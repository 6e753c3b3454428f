"""test_torch_users.py - what people do with models beside sparsifying them, and what they get wrong."""

import copy
import gc
import os
import signal
import subprocess
import sys
import tempfile
import unittest
from collections import UserDict

import torch
from torch import nn
from torch.nn.utils import prune as torch_prune
from torch_case import Case, Net, gaussian, linear

import lacuna
import lacuna.torch
from lacuna import _plans, _torch_files, _torch_op, errors
from lacuna.torch import SparseConv2d, SparseLinear, calibrate, load_sparse, save_sparse, sparsify


def layer_of(n=16, k=32, pattern="2:4"):
    return SparseLinear.from_linear(linear(n, k), pattern)


class Twice(nn.Module):
    """One layer under two names."""

    def __init__(self):
        super().__init__()
        self.a = linear(32, 32)
        self.b = self.a

    def forward(self, x):
        return self.b(self.a(x))


class Calls(Case):
    def test_input_by_name(self):
        """nn.Linear's callers and nn.Conv2d's may write input=."""
        layer, x = layer_of(), gaussian(3, 32)
        self.assertTrue(torch.equal(layer(input=x), layer(x)))
        conv, x = SparseConv2d.from_conv(nn.Conv2d(8, 8, 3), "2:4"), gaussian(1, 8, 5, 5)
        self.assertTrue(torch.equal(conv(input=x), conv(x)))

        class Named(nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = layer_of()

            def forward(self, x):
                return self.inner(input=x)

        timed = lacuna.torch.benchmark(Named(), gaussian(4, 32), seconds=0.01)
        self.assertEqual([(t.name, t.m) for t in timed.layers], [("inner", 4)])

    def test_not_what_a_product_takes(self):
        layer = layer_of()
        refused = [
            (TypeError, "x is of type ndarray; it must be a torch.Tensor", gaussian(2, 32).numpy()),
            (ValueError, "x has the layout torch.sparse_coo", gaussian(2, 32).to_sparse()),
        ]
        for kind, text, x in refused:
            with self.subTest(text=text), torch.no_grad(), self.assertRaisesRegex(kind, text):
                layer(x)

    def test_nested(self):
        layer, parts = layer_of(), [gaussian(2, 32), gaussian(3, 32)]
        for layout in (torch.strided, torch.jagged):
            x = torch.nested.nested_tensor(parts, layout=layout, requires_grad=True)
            y = layer(x)
            self.assertIs(y.layout, layout)
            self.assertEqual(len(y.unbind()), 2)
            for part, of_y in zip(parts, y.unbind()):
                self.near(of_y, part, layer.dense_weight(), layer.bias)
            sum(part.sum() for part in y.unbind()).backward()
            self.near(x.grad.unbind()[1], torch.ones(3, 16), layer.dense_weight().t())

    def test_padded_batches_of_an_encoder(self):
        """It makes them nested where its first layer is dense."""
        torch.manual_seed(3)
        model = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), 2).eval()
        x, padding = gaussian(2, 5, 32), torch.tensor([[False] * 3 + [True] * 2, [False] * 5])
        calibration = calibrate(model, [{"src": x, "src_key_padding_mask": padding}])
        self.assertEqual({one.samples for one in calibration.values()}, {8})
        sparsify(model, "2:4", include="layers.1.*")
        with torch.no_grad():
            y = model(x, src_key_padding_mask=padding)
            alone = model(x[:1, :3])
        self.assertLess((y[0, :3] - alone[0]).abs().max().item(), 1e-5)

    def test_a_sign_beside_the_numbers(self):
        """PyTorch negates such a tensor when it is read; its memory holds the others."""
        layer, x = layer_of(), torch._neg_view(gaussian(5, 32))
        self.assertTrue(x.is_neg())
        y = gaussian(5, 16)
        with torch.no_grad():
            self.near(layer(x), x, layer.dense_weight(), layer.bias)
            self.near(lacuna.matmul(x, layer.packed), x, layer.dense_weight())
            with self.assertRaisesRegex(ValueError, "out is a tensor whose sign"):
                lacuna.matmul(x, layer.packed, out=torch._neg_view(y))

    def test_forward_mode_is_refused(self):
        """It would be a derivative of zero, without a word."""
        layer, x = layer_of(), gaussian(3, 32)
        with self.assertRaisesRegex(errors.Unsupported, "forward mode"):
            torch.func.jvp(layer, (x,), (x,))
        with torch.autograd.forward_ad.dual_level(), torch.no_grad():
            self.assertTrue(torch.equal(layer(x), layer(x)))  # a level alone is no reason
            with self.assertRaisesRegex(errors.Unsupported, "forward mode"):
                layer(torch.autograd.forward_ad.make_dual(x, x))

    def test_the_weight_goes_before_its_gradient(self):
        x = gaussian(3, 32).requires_grad_()
        layer = layer_of()
        dense = layer.dense_weight()
        y = layer(x)
        del layer
        gc.collect()
        y.sum().backward()
        self.near(x.grad, torch.ones(3, 16), dense.t())
        layer = layer_of()
        y = layer(x)
        layer.half()  # the layer has another weight now
        x.grad = None
        y.sum().backward()
        self.near(x.grad, torch.ones(3, 16), dense.t())

    def test_outputs_are_changed_in_place(self):
        """As ReLU(inplace=True) does behind a convolution; autograd forbids it for views that an operator gives."""
        layer, w = layer_of(), layer_of().dense_weight()
        for m in range(1, 12):  # later sizes are rounded up
            for shape in ((32,), (m, 32), (2, m, 32)):
                x = gaussian(*shape).requires_grad_()
                y = torch.relu_(layer(x))
                y.sum().backward()
                self.near(y, x, w, layer.bias, "relu")
                self.near(x.grad, (y > 0).float(), w.t())
        x = gaussian(2, 3, 32).requires_grad_()
        (grad,) = torch.autograd.grad(layer(x).square().sum(), x, create_graph=True)
        self.assertTrue(torch.equal(grad.detach() * 2, grad.mul_(2)))
        torch.manual_seed(3)
        model = nn.Sequential(nn.Conv2d(8, 8, 3), nn.ReLU(inplace=True), nn.Conv2d(8, 4, 1), nn.ReLU(inplace=True))
        found, x = [], gaussian(2, 8, 6, 6).requires_grad_()
        sparsify(model, "2:4", conv=True)
        for in_place in (True, False):
            model[1].inplace = model[3].inplace = in_place
            found.append((model(x), *torch.autograd.grad(model(x).sum(), x)))
        for ours, theirs in zip(*found):
            self.assertTrue(torch.equal(ours, theirs))

    def test_weights_that_are_read_past_the_layer(self):
        """As torchvision's Swin has it: nn.functional.linear() with the layer's own weight is the product; other functions are refused."""

        class Reads(nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = linear(16, 32)

            def forward(self, x):
                return nn.functional.linear(x, self.inner.weight, bias=self.inner.bias)

        model, x = Reads(), gaussian(3, 32).requires_grad_()
        sparsify(model, "2:4")
        for called in (model, torch.compile(model, backend="aot_eager", fullgraph=True)):
            x.grad = None
            y = called(x)
            y.sum().backward()
            self.near(y, x, model.inner.dense_weight(), model.inner.bias)
            self.near(x.grad, torch.ones(3, 16), model.inner.dense_weight().t())
            with torch.no_grad():
                self.assertTrue(torch.equal(called(x), y))
        self.near(nn.functional.linear(input=x, weight=model.inner.weight), x, model.inner.dense_weight())
        refused = [
            (r"linear\(\) cannot take a compressed weight; its dense", lambda: nn.functional.linear(model.inner.weight, x)),
            ("x is of type WeightView", lambda: nn.functional.linear(model.inner.weight, model.inner.weight)),
            (r"norm\(\) cannot take a compressed weight; its dense", lambda: torch.norm(model.inner.weight)),
        ]
        for text, call in refused:
            with self.subTest(text=text), self.assertRaisesRegex(TypeError, text):
                call()
        with self.assertRaisesRegex(AttributeError, r"a compressed weight has no 'mul_'; .* sparsify\(exclude=\.\.\.\)"):
            model.inner.weight.mul_(2)
        self.assertFalse(hasattr(model.inner.weight, "data"))

    def test_another_default_device(self):
        """What lies in the host's memory does so whatever torch.set_default_device() says."""
        model = nn.Sequential(linear(16, 32), linear(0, 16), linear(4, 0))
        sparsify(model, "2:4")
        dense, x = model[0].dense_weight(), gaussian(2, 32).half()
        with tempfile.TemporaryDirectory() as folder, torch.device("meta"):
            self.assertTrue(torch.equal(model[0].dense_weight(), dense))
            self.assertTrue(torch.equal(model[0].to_linear().weight, dense))
            path = os.path.join(folder, "model.safetensors")
            save_sparse(model, path)
            for source in (path, model.state_dict()):
                load_sparse(model, source)
            model.half()
            lacuna.torch.benchmark(model[0], x, seconds=0.01)
        self.assertTrue(torch.equal(model[0].dense_weight(), dense.half()))

    def test_threads_are_as_many_as_pytorchs(self):
        """Plans for as many as torch.set_num_threads() says, of operands that were met before too; a benchmark would be unfair otherwise."""
        self.addCleanup(torch.set_num_threads, torch.get_num_threads())
        layer, x = layer_of(), gaussian(3, 32)
        for threads in (1, 2, 1, 3):
            torch.set_num_threads(threads)
            with torch.no_grad():
                for _ in range(2):
                    self.near(layer(x), x, layer.dense_weight(), layer.bias)
            (_, options) = list(_plans.plans_of(layer.packed).plans)[-1][1]  # of the plan that was used last
            self.assertEqual(dict(options)["threads"], threads)
            self.assertNotEqual(lacuna.torch.benchmark(layer, x, seconds=0.01).layers[0].kernel, "")
        self.assertEqual(len(lacuna.cached_plans(layer.packed)), 3)

    def test_no_outputs(self):
        layer, x = layer_of(0, 8, "2:4"), gaussian(3, 8).requires_grad_()
        y = layer(x)
        y.sum().backward()
        self.assertEqual((tuple(y.shape), x.grad.abs().max().item()), ((3, 0), 0.0))

    def test_fork_beside_a_thread_that_holds_a_lock(self):
        """A child of fork() has none of its parent's threads, and must not wait for them."""
        layer, x = layer_of(), gaussian(3, 32)
        for lock in (_torch_op._lock, _torch_op._known[layer.packed].lock):
            with lock:
                child = os.fork()
                if child == 0:
                    signal.alarm(20)
                    try:
                        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
                            os._exit(0 if layer(x).isfinite().all() and layer_of()(x).isfinite().all() else 1)
                    finally:
                        os._exit(2)
                self.assertEqual(os.waitpid(child, 0)[1], 0)

    def test_a_program_of_another_process(self):
        """Its numbers mean no other weight here; where the same one is made, it is found."""
        script = """
import sys, torch, lacuna.torch
torch.manual_seed(int(sys.argv[1]))
model = torch.nn.Sequential(torch.nn.Linear(16, 8)).requires_grad_(False)
lacuna.torch.sparsify(model, "2:4")
x = torch.ones(2, 16)
if sys.argv[2] == "save":
    torch.export.save(torch.export.export(model, (x,)), sys.argv[3])
else:
    assert torch.equal(torch.export.load(sys.argv[3]).module()(x), model(x))
"""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "program.pt2")

            def run(seed, what):
                return subprocess.run([sys.executable, "-W", "ignore", "-c", script, seed, what, path], capture_output=True, text=True)

            self.assertEqual(run("1", "save").returncode, 0)
            self.assertIn("there is no weight of number", run("2", "load").stderr)
            self.assertEqual(run("1", "load").returncode, 0)


class Replacing(Case):
    def test_under_two_names(self):
        """Every name counts for include, exclude and files."""
        model = Twice()
        self.assertEqual(len(sparsify(model, "2:4", exclude="b")), 0)
        self.assertIs(type(model.a), nn.Linear)
        self.assertEqual([layer.name for layer in sparsify(model, {"b": "2:4"}, include="b").pruned], ["a"])
        self.assertIs(model.a, model.b)
        x = gaussian(3, 32)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.safetensors")
            save_sparse(model, path)
            with lacuna.File(path) as file:
                self.assertEqual((sorted(file.weights), sorted(file.tensors)), (["a.weight", "b.weight"], ["a.bias", "b.bias"]))
            for source in (path, model.state_dict()):
                for other in (Twice(), model):
                    load_sparse(other, source)
                    self.assertIs(other.a, other.b)
                    self.assertTrue(torch.equal(other(x), model(x)))

    def test_hooks_stay(self):
        model, seen = nn.Sequential(linear(16, 16)), []
        model[0].register_forward_pre_hook(lambda module, args: seen.append("before"))
        handle = model[0].register_forward_hook(lambda module, args, y: seen.append("after"))
        model[0].register_full_backward_hook(lambda module, of_x, of_y: seen.append("back"))
        sparsify(model, "2:4")
        model(gaussian(2, 16).requires_grad_()).sum().backward()
        self.assertEqual(seen, ["before", "after", "back"])
        handle.remove()
        model(gaussian(2, 16))
        self.assertEqual(seen[3:], ["before"])

    def test_layers_that_are_more_than_their_weight(self):
        masked = nn.Sequential(linear(16, 16))
        torch_prune.l1_unstructured(masked[0], "weight", 0.5)
        biased = nn.Sequential(linear(16, 16))
        torch_prune.l1_unstructured(biased[0], "bias", 0.5)
        patched = nn.Sequential(linear(16, 16))
        patched[0].forward = lambda x: x * 2
        for model, reason in ((masked, "computes its weight"), (biased, "computes its weight or bias"), (patched, "has a forward")):
            report = sparsify(model, "2:4")
            self.assertEqual(report.pruned, [])
            self.assertIn(reason, report[0].reason)
            self.assertIs(type(model[0]), nn.Linear)

        class Same(nn.Conv2d):
            pass

        report = sparsify(nn.Sequential(Same(8, 8, 1)), "2:4", conv=True)
        self.assertEqual(report[0].reason, "is a Same, not an nn.Conv2d")
        torch_prune.remove(masked[0], "weight")
        self.assertEqual(len(sparsify(masked, "2:4").pruned), 1)

    def test_the_bias_is_the_same(self):
        """An optimiser that was made before goes on moving it."""
        model = nn.Sequential(linear(16, 16))
        bias, optimizer = model[0].bias, torch.optim.SGD(model.parameters(), lr=1.0)
        sparsify(model, "2:4")
        self.assertIs(model[0].bias, bias)
        before = bias.detach().clone()
        model(gaussian(2, 16)).sum().backward()
        optimizer.step()
        self.assertTrue(torch.equal(model[0].bias, before - 2))

    def test_globs_and_calibrations(self):
        model = nn.Sequential(linear(16, 16))
        with self.assertRaisesRegex(TypeError, "exclude has 5"):
            sparsify(model, "2:4", exclude=5)
        with self.assertRaisesRegex(ValueError, "include is empty"):
            sparsify(model, "2:4", include=[])
        self.assertEqual(sparsify(model, "2:4", include="0", exclude="*"), [])
        with self.assertRaisesRegex(ValueError, "method is 'magnitude', but calibration is <lacuna.Calibration of 16"):
            sparsify(model, "2:4", calibration=lacuna.Calibration(16))
        with self.assertRaisesRegex(ValueError, "the layer '0': calibration is for 8 inputs; the layer has 16"):
            sparsify(model, "2:4", calibration={"0": lacuna.Calibration(8)})
        self.assertIs(type(model[0]), nn.Linear)
        x = gaussian(4, 16)
        self.assertEqual(calibrate(model, [UserDict(input=x)])["0"].samples, 4)  # what tokenizers give is no dict
        for batches in (x, {"input": x}):
            with self.assertRaisesRegex(TypeError, f"batches is of type {type(batches).__name__}, which is one batch"):
                calibrate(model, batches)
        with self.assertRaisesRegex(ValueError, r"the layer '0': x has the shape \(4, 15\)"):
            calibrate(model, [gaussian(4, 15)])

    def test_models_that_are_compiled(self):
        """What was compiled before sees no hooks, nor the dense layers that a benchmark puts in."""
        torch._dynamo.reset()
        self.addCleanup(torch._dynamo.reset)
        for in_place in (False, True):
            model, x = nn.Sequential(linear(32, 32), nn.ReLU(), linear(8, 32)), gaussian(4, 32)
            compiled = torch.compile(model, backend="aot_eager")
            if in_place:
                model.compile(backend="aot_eager")
                compiled = model
            with torch.no_grad():
                compiled(x)
            self.assertEqual([one.samples for one in calibrate(compiled, [x, x]).values()], [8, 8])
            sparsify(compiled, "2:4")
            with torch.no_grad():
                compiled(x)
            result = lacuna.torch.benchmark(compiled, x, seconds=0.01)
            self.assertEqual([t.k for t in result.layers], [32, 32])
            with torch.no_grad():
                self.assertTrue(torch.equal(compiled(x), model[2](model[1](model[0](x)))))

    def test_benchmark_leaves_the_modes(self):
        model = nn.Sequential(linear(16, 16), nn.BatchNorm1d(16)).train()
        model[1].eval()
        sparsify(model, "2:4")
        lacuna.torch.benchmark(model, gaussian(4, 16), seconds=0.01)
        self.assertEqual([module.training for module in model.modules()], [True, True, False])


class Loading(Case):
    def save(self, items):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = os.path.join(folder.name, "model.safetensors")
        lacuna.save(path, items)
        return path

    def test_layers_that_must_stay_dense(self):
        """A checkpoint that was pruned whole: attention reads its output projection past the layer."""
        model = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
        state = model.state_dict()
        names = ("self_attn.out_proj.weight", "linear1.weight")
        path = self.save({name: lacuna.compress(tensor, "2:4") if name in names else tensor for name, tensor in state.items()})
        with self.assertRaisesRegex(ValueError, "'self_attn.out_proj.weight' is compressed, but .* nn.MultiheadAttention"):
            load_sparse(model, path)
        self.assertIs(type(model.linear1), nn.Linear)

    def test_nothing_is_changed_by_shapes(self):
        model = nn.Sequential(linear(16, 16), nn.LayerNorm(16))
        sparsify(model, "2:4")
        path = self.save({"0.weight": model[0].packed, **{name: t for name, t in model.state_dict().items() if ":" not in name}})
        other = nn.Sequential(linear(16, 16), nn.LayerNorm(8))
        with self.assertRaisesRegex(ValueError, r"the tensor '1.weight' is \(16,\); the model's is \(8,\)"):
            load_sparse(other, path)
        self.assertIs(type(other[0]), nn.Linear)
        with torch.device("meta"):
            empty = nn.Sequential(nn.Linear(16, 16), nn.LayerNorm(16))
        with self.assertRaisesRegex(ValueError, "meta.*to_empty"):
            load_sparse(empty, path)
        load_sparse(empty.to_empty(device="cpu"), path)
        self.assertTrue(torch.equal(empty(gaussian(3, 16)), model(gaussian(3, 16))))

    def test_nothing_is_changed_by_what_is_no_tensor(self):
        model = nn.Sequential(linear(16, 16), nn.LayerNorm(16))
        state = copy.deepcopy(model)
        sparsify(state, "2:4")
        state = state.state_dict()
        bias = torch.zeros(16)
        refused = [
            ("'1.bias' of the source is of type ndarray", bias.numpy()),
            ("'1.bias' of the source is of type float", 1.0),
            ("'1.bias' of the source is on the device 'meta'", bias.to("meta")),
            ("'1.bias' of the source has the layout torch.sparse_coo", bias.to_sparse()),
        ]
        for text, value in refused:
            with self.subTest(text=text), self.assertRaisesRegex(ValueError, text):
                load_sparse(model, {**state, "1.bias": value})
            self.assertIs(type(model[0]), nn.Linear)

    def test_a_weight_needs_no_values_of_the_layers(self):
        """Nothing is copied from a GPU, or read at all, of a layer whose weight is compressed already."""
        packed = layer_of().packed
        layer = SparseLinear.from_linear(nn.Linear(32, 16, device="meta"), packed)
        self.assertIs(layer.packed, packed)
        conv = SparseConv2d.from_conv(nn.Conv2d(8, 16, (2, 2), device="meta"), packed)
        self.assertIs(conv.packed, packed)
        with self.assertRaisesRegex(ValueError, "the weight is of dtype torch.float64"):
            SparseLinear.from_linear(nn.Linear(32, 16).double(), packed)

    def test_names_with_colons(self):
        """Parts of weights are written so; names of modules may be."""
        models = [nn.ModuleDict({"a:b": linear(16, 16, seed=seed), "c": nn.LayerNorm(16)}) for seed in (1, 2)]
        sparsify(models[0], "2:4")
        path = self.save({"a:b.weight": models[0]["a:b"].packed, **{
            name: tensor for name, tensor in models[0].state_dict().items() if "weight:" not in name
        }})  # fmt: skip
        self.assertEqual(load_sparse(models[1], path), ([], []))
        self.assertEqual(load_sparse(models[1], models[0].state_dict()), ([], []))
        self.assertTrue(torch.equal(models[1]["a:b"](gaussian(2, 16)), models[0]["a:b"](gaussian(2, 16))))
        with self.assertRaisesRegex(TypeError, "model is of type str"):
            load_sparse("model", path)

    def test_a_state_dict_in_a_file(self):
        """As safetensors' save_model() and transformers' save_pretrained() write it: the parts are tensors like others."""
        model, other = (nn.Sequential(linear(16, 16, seed=seed), nn.LayerNorm(16)) for seed in (1, 2))
        sparsify(model, "2:4")
        self.assertEqual(load_sparse(other, self.save(model.state_dict())), ([], []))
        self.assertTrue(torch.equal(other(gaussian(2, 16)), model(gaussian(2, 16))))

    def test_names_of_one_tensor(self):
        """Files of others have a tensor once that the model has twice; of a module under two names, the weight."""
        model = Net()
        sparsify(model, "2:4", include="blocks.*")
        tensors = {name: tensor for name, tensor in model.state_dict().items() if "weight:" not in name}
        weights = {name: layer.packed for name, layer in _torch_files._compressed(model).items()}
        words = torch.arange(6).reshape(2, 3)
        for dropped in ("head.weight", "embed.weight"):
            items = {name: item for name, item in {**weights, **tensors}.items() if name != dropped}
            path = self.save(items)
            for other in (Net(), Net().requires_grad_(False)):
                with torch.no_grad():
                    other.embed.weight.zero_()
                    self.assertEqual(load_sparse(other, path), ([], []))
                    self.assertTrue(torch.equal(other(words), model(words)))
        untied = Net()
        untied.embed.weight = nn.Parameter(untied.embed.weight.detach().clone())
        with self.assertRaisesRegex(ValueError, r"missing \['embed.weight'\], unexpected \[\]"):
            load_sparse(untied, path)
        twice = Twice()
        sparsify(twice, "2:4")
        path, x = self.save({"b.weight": twice.a.packed, "a.bias": twice.a.bias.detach()}), gaussian(3, 32)
        for other in (Twice(), copy.deepcopy(twice)):
            with torch.no_grad():
                other.a.bias.zero_()
            self.assertEqual(load_sparse(other, path), ([], []))
            self.assertTrue(torch.equal(other(x), twice(x)))

    def test_states(self):
        layer = layer_of()
        state = layer.state_dict()
        wide = {name: tensor.double() if tensor.is_floating_point() else tensor for name, tensor in state.items()}
        with self.assertRaisesRegex(RuntimeError, "its values are of dtype torch.float64"):
            layer.load_state_dict(wide)
        model = nn.Sequential(linear(16, 32))
        broken = {f"0.{name}": tensor for name, tensor in state.items() if name != "weight:index"}
        with self.assertRaisesRegex(ValueError, "the weight '0.weight': index: is absent"):
            load_sparse(model, broken)
        empty = layer_of().to("meta")
        empty.load_state_dict(state, assign=True)
        self.assertEqual((empty.weight.device.type, empty.bias.device.type), ("cpu", "cpu"))

    def test_state_that_is_no_tensor(self):
        class Extra(nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = linear(16, 16)

            def get_extra_state(self):
                return {"version": 1}

            def set_extra_state(self, state):
                pass

        model = Extra()
        sparsify(model, "2:4")
        with self.assertRaisesRegex(errors.Unsupported, "'_extra_state' of the model's state is of type dict"):
            save_sparse(model, os.path.join(tempfile.gettempdir(), "none.safetensors"))


if __name__ == "__main__":
    unittest.main()
