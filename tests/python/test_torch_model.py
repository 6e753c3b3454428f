"""test_torch_model.py - whole models: sparsify, calibrate, containers, benchmark."""

import copy
import os
import subprocess
import tempfile
import unittest

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch_case import DEVICES, Case, Net, gaussian

import lacuna
import lacuna.torch
from lacuna import _torch_bench, errors
from lacuna.torch import SparseConv2d, SparseLinear, calibrate, load_sparse, save_sparse, sparsify

BLOCKS = ["blocks.0.up", "blocks.0.down", "blocks.1.up", "blocks.1.down"]


def words(*shape, seed=1, device="cpu"):
    return torch.randint(0, 50, shape, generator=torch.Generator().manual_seed(seed)).to(device)


def densified(model):
    """A copy with dense layers of the same weights, in double."""
    copied = copy.deepcopy(model)
    for parent in list(copied.modules()):
        for name, child in list(parent._modules.items()):
            if isinstance(child, SparseLinear):
                parent._modules[name] = child.to_linear()
            elif isinstance(child, SparseConv2d):
                parent._modules[name] = child.to_conv()
    return copied.cpu().double()


class ModelCase(Case):
    def as_dense(self, model, *inputs):
        """The model is as near to itself in double, dense, as ten times what dense layers in its own dtype are."""
        dense = densified(model)
        own = copy.deepcopy(dense).to(next(model.parameters()).dtype)
        with torch.no_grad():
            y = model(*inputs).cpu().double()
            inputs = [x.cpu().double() if x.is_floating_point() else x.cpu() for x in inputs]
            wanted = dense(*inputs)
            errs = (
                (own(*[x.to(next(own.parameters()).dtype) if x.is_floating_point() else x for x in inputs]).double() - wanted).abs().max()
            )
        self.assertGreater(wanted.abs().max().item(), 0)
        self.assertLessEqual((y - wanted).abs().max().item(), 10 * errs.item())


class Sparsify(ModelCase):
    def test_in_place(self):
        for device in DEVICES:
            model = Net().to(device)
            report = sparsify(model, "2:4")
            self.assertEqual([layer.name for layer in report.pruned], BLOCKS)
            self.assertEqual({layer.name: layer.reason for layer in report if not layer.pruned},
                             {"own": "is a Own, not an nn.Linear", "head": "shares its weight with embed"})  # fmt: skip
            self.assertTrue(all(isinstance(model.get_submodule(name), SparseLinear) for name in BLOCKS))
            self.assertIs(model.head.weight, model.embed.weight)
            self.as_dense(model, words(3, 5, device=device))
            first = report.pruned[0]
            self.assertEqual((first.pattern, first.n, first.k, first.dense_bytes), ("2:4", 96, 64, 96 * 64 * 4))
            self.assertTrue(0.75 < first.energy_kept < 0.85 and first.stored_bytes == model.blocks[0]["up"].packed.nbytes)
            self.assertIn("blocks.0.up    96 x 64      2:4", str(report))
            self.assertEqual([layer.reason for layer in sparsify(model, "2:4") if layer.name in BLOCKS], ["is compressed already"] * 4)

    def test_choice(self):
        model = Net()
        report = sparsify(model, {"*.up": "vw8:2:8", "blocks.1.*": None, "*": "2:4"}, exclude="head")
        self.assertEqual([(layer.name, layer.pattern) for layer in report.pruned],
                         [("blocks.0.up", "vw8:2:8"), ("blocks.0.down", "2:4"), ("blocks.1.up", "vw8:2:8")])  # fmt: skip
        self.assertIs(type(model.blocks[1]["down"]), nn.Linear)
        report = sparsify(model, "1:4", include=["*.down.weight"])
        self.assertEqual([layer.name for layer in report.pruned], ["blocks.1.down"])

    def test_modules_that_stand_twice(self):
        shared = nn.Linear(32, 32)
        model = nn.Sequential(shared, nn.ReLU(), shared, nn.Sequential(shared))
        self.assertEqual(len(sparsify(model, "2:4")), 1)
        self.assertIsInstance(model[0], SparseLinear)
        self.assertIs(model[2], model[0])
        self.assertIs(model[3][0], model[0])

    def test_transformer(self):
        """PyTorch's own encoder layer, whose fast path would read the weights itself."""
        torch.manual_seed(2)
        model = nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), 2, enable_nested_tensor=False).eval()
        report = sparsify(model, "2:4")
        self.assertEqual(len(report.pruned), 4)
        self.assertIn("nn.MultiheadAttention reads its weight past the layer", {layer.reason for layer in report})
        self.as_dense(model, gaussian(2, 7, 64))

    def test_all_or_nothing(self):
        model = Net()
        with torch.no_grad():
            model.blocks[1]["down"].weight[0, 0] = torch.nan
        calibration = calibrate(Net(), [words(2, 5)])
        before = [type(module) for module in model.modules()]
        with self.assertRaisesRegex(errors.Error, "the layer 'blocks.1.down': .*finite"):
            sparsify(model, "2:4", method="obs", calibration=calibration)
        self.assertEqual([type(module) for module in model.modules()], before)

    def test_train_on(self):
        """Dense under masks, trained on, then compressed as it is."""
        model = Net()
        report = sparsify(model, "2:4", keep_dense=True)
        masks = {layer.name: torch.from_numpy(layer.mask.numpy()) for layer in report.pruned}
        self.assertEqual(list(masks), BLOCKS)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        start = model.blocks[0]["up"].weight.detach().clone()
        for step in range(3):
            model(words(4, 6, seed=step)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            with torch.no_grad():
                for name, mask in masks.items():
                    model.get_submodule(name).weight.mul_(mask)
        trained = model.blocks[0]["up"].weight.detach().clone()
        self.assertFalse(torch.equal(start, trained))
        self.assertEqual(len(sparsify(model, "2:4", method="as_is").pruned), 4)
        self.assertTrue(torch.equal(model.blocks[0]["up"].dense_weight(), trained))
        with self.assertRaisesRegex(errors.PatternViolated, "the layer 'blocks.0.up'"):
            sparsify(Net(), "2:4", method="as_is")

    def test_convolutions(self):
        torch.manual_seed(4)
        model = nn.Sequential(nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 1), nn.Flatten(), nn.Linear(16 * 36, 8))
        report = sparsify(copy.deepcopy(model), "2:4")
        self.assertEqual([layer.name for layer in report], ["4"])
        calibration = calibrate(model, [gaussian(3, 8, 6, 6)], conv=True)
        self.assertEqual({name: (c.k, c.samples) for name, c in calibration.items()}, {"0": (72, 108), "2": (16, 108), "4": (576, 3)})
        report = sparsify(model, "2:4", conv=True, method="wanda", calibration=calibration)
        self.assertEqual([layer.name for layer in report.pruned], ["0", "2", "4"])
        self.assertIsInstance(model[0], SparseConv2d)
        self.as_dense(model, gaussian(2, 8, 6, 6))

    def test_refusals(self):
        model = Net()
        calls = [
            (ValueError, "method is 'obs', but calibration is None", lambda: sparsify(model, "2:4", method="obs")),
            (
                ValueError,
                "calibration has nothing for the layer 'blocks.0.up'",
                lambda: sparsify(model, "2:4", method="obs", calibration={}),
            ),
            (ValueError, "include is .'no.such',.; no linear layer of the model", lambda: sparsify(model, "2:4", include="no.such")),
            (ValueError, "2:5x", lambda: sparsify(model, "2:5x")),
            (ValueError, "method is 'best'", lambda: sparsify(model, "2:4", method="best")),
            (TypeError, "flavour", lambda: sparsify(model, "2:4", flavour=1)),
            (TypeError, "model is of type str", lambda: sparsify("model", "2:4")),
            (ValueError, "model is a layer itself", lambda: sparsify(nn.Linear(4, 4), "2:4")),
            (TypeError, "include has 3", lambda: sparsify(model, "2:4", include=[3])),
        ]
        for kind, text, call in calls:
            with self.subTest(text=text), self.assertRaisesRegex(kind, text):
                call()
        self.assertFalse(any(isinstance(module, SparseLinear) for module in model.modules()))


class Calibrate(ModelCase):
    def test_moments(self):
        """What is collected over batches is the sum over all of them, and no hook stays behind."""
        for device in DEVICES:
            model = Net().to(device).train()
            batches = [words(2, 5, seed=seed, device=device) for seed in range(4)]
            calibration = calibrate(model, batches)
            self.assertEqual(sorted(calibration), sorted(BLOCKS))
            self.assertTrue(all(module.training for module in model.modules()))
            self.assertFalse(any(module._forward_pre_hooks for module in model.modules()))
            x = torch.cat([model.embed(batch).detach().reshape(-1, 64) for batch in batches])
            self.assertEqual((calibration["blocks.0.up"].k, calibration["blocks.0.up"].samples), (64, 40))
            w = gaussian(8, 64).to(device)
            lost, total = calibration["blocks.0.up"].error(w.cpu(), torch.zeros(8, 64))
            wanted = (x.double() @ w.double().t()).square().sum().item()
            self.assertAlmostEqual(total / wanted, 1, places=5)
            self.assertAlmostEqual(lost / wanted, 1, places=5)

    def test_methods_lose_less(self):
        """Second order loses less of the outputs than magnitude, and the report's error is what the layer's outputs show."""
        torch.manual_seed(5)
        mixing = torch.randn(64, 64) / 8

        def inputs(seed):
            return gaussian(256, 64, seed=seed) @ mixing

        errs = {}
        for method in ("magnitude", "wanda", "obs"):
            torch.manual_seed(6)
            model = nn.Sequential(nn.Linear(64, 96))
            original = model[0].weight.detach().clone()
            calibration = calibrate(
                model,
                [inputs(1), (inputs(2),), {"input": inputs(3)}],
                run=lambda m, b: m(b if torch.is_tensor(b) else b[0] if isinstance(b, tuple) else b["input"]),
            )
            report = sparsify(model, "2:4", method=method, calibration=calibration)
            x = torch.cat([inputs(1), inputs(2), inputs(3)]).double()
            w = model[0].dense_weight().double()
            measured = ((x @ (original.double() - w).t()).square().sum() / (x @ original.double().t()).square().sum()).item()
            errs[method] = report[0].output_error
            self.assertAlmostEqual(report[0].output_error / measured, 1, places=4)
        self.assertLess(errs["obs"], 0.6 * errs["magnitude"])
        self.assertLess(errs["wanda"], errs["magnitude"])

    def test_refusals(self):
        model = Net()
        with self.assertRaisesRegex(ValueError, "no batch went through the layer 'blocks.0.up'"):
            calibrate(model, [])
        broken = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
        with self.assertRaisesRegex(ValueError, "the inputs of the layer '0': "):
            calibrate(broken, [torch.full((2, 8), torch.inf)])
        self.assertFalse(any(module._forward_pre_hooks for module in broken.modules()))


class Files(ModelCase):
    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "model.safetensors")

    def test_round_trip(self):
        for pattern in ("2:4", "vw8:3:7", "bw4x4:1:2", "8:2:8", "shfl8:40%", "vw8:1:1"):
            model = Net()
            sparsify(model, pattern, permute=("rows",) if pattern == "vw8:3:7" else ())
            save_sparse(model, self.path)
            other = Net()
            for parameter in other.parameters():
                nn.init.ones_(parameter)
            self.assertEqual(load_sparse(other, self.path), ([], []))
            self.assertTrue(torch.equal(other(words(3, 5)), model(words(3, 5))))
            self.assertEqual(load_sparse(other, self.path), ([], []))  # into sparse layers, too
            third = Net()
            load_sparse(third, model.state_dict())
            self.assertTrue(torch.equal(third(words(3, 5)), model(words(3, 5))))

    def test_dtypes(self):
        for dtype, name in ((torch.float16, "f16"), (torch.bfloat16, "bf16")):
            model = Net().to(dtype)
            model.register_buffer("steps", torch.arange(3))
            sparsify(model, "2:4")
            save_sparse(model, self.path)
            wide = Net()
            wide.register_buffer("steps", torch.zeros(3, dtype=torch.int64))
            load_sparse(wide, self.path)  # into the dtype that the model has
            self.assertEqual(wide.blocks[0]["up"].packed.dtype, "f32")
            self.assertTrue(torch.equal(wide.blocks[0]["up"].dense_weight(), model.blocks[0]["up"].dense_weight().float()))
            self.assertTrue(torch.equal(wide.own.weight, model.own.weight.float()))
            self.assertEqual(wide.steps.tolist(), [0, 1, 2])
            self.assertEqual(lacuna.load(self.path, "blocks.0.up.weight").dtype, name)

    def test_convolutions(self):
        model = nn.Sequential(nn.Conv2d(8, 16, 3, padding=1), nn.Conv2d(16, 16, 1))
        sparsify(model, "2:4", conv=True)
        save_sparse(model, self.path)
        other = nn.Sequential(nn.Conv2d(8, 16, 3, padding=1), nn.Conv2d(16, 16, 1))
        load_sparse(other, self.path)
        self.assertTrue(torch.equal(other(gaussian(2, 8, 6, 6)), model(gaussian(2, 8, 6, 6))))

    def test_files_that_do_not_fit(self):
        model = Net()
        sparsify(model, "2:4")
        save_sparse(model, self.path)
        twin = Net()
        sparsify(twin, "1:4", include="*.down")
        dense = {name: tensor for name, tensor in Net().state_dict().items()}
        with self.assertRaisesRegex(ValueError, "'blocks.0.down.weight' is dense in the source, but compressed in the model"):
            load_sparse(twin, dense)
        other = nn.Sequential(nn.Linear(4, 4))
        with self.assertRaisesRegex(ValueError, "missing .'0.bias', '0.weight'., unexpected .'blocks.0.down.weight'"):
            load_sparse(other, self.path)
        missing, unexpected = load_sparse(other, self.path, strict=False)
        self.assertEqual((missing, len(unexpected)), (["0.bias", "0.weight"], 10))
        with self.assertRaisesRegex(ValueError, r"'blocks.0.up.weight' is \(96, 64\); the model's is \(95, 64\)"):
            load_sparse(Net(hidden=95), self.path)
        with open(self.path, "rb") as file:
            whole = file.read()
        for damaged in (b"", whole[:7], whole[:40], b"\xff" * 8 + whole[8:], whole[:8] + b"[" + whole[9:], whole[:-64]):
            with open(self.path, "wb") as file:
                file.write(damaged)
            with self.assertRaises(errors.BadFile):
                load_sparse(Net(), self.path)
        with self.assertRaisesRegex(errors.InputOutput, "No such file"):
            load_sparse(Net(), self.path + ".none")

    def test_replaced_whole_or_not_at_all(self):
        model = Net()
        with self.assertRaisesRegex(ValueError, "model has no sparse layer"):
            save_sparse(model, self.path)
        sparsify(model, "2:4")
        model.register_buffer("odd", torch.zeros(3, dtype=torch.complex64))
        with self.assertRaisesRegex(errors.Unsupported, "'odd' is of dtype torch.complex64"):
            save_sparse(model, self.path)
        self.assertEqual(os.listdir(os.path.dirname(self.path)), [])
        del model.odd
        save_sparse(model, self.path)
        os.chmod(self.path, 0o640)
        save_sparse(model, self.path)
        self.assertEqual(os.stat(self.path).st_mode & 0o777, 0o640)
        self.assertEqual(os.listdir(os.path.dirname(self.path)), ["model.safetensors"])

    @unittest.skipUnless(os.environ.get("LACUNA"), "LACUNA names no program")
    def test_the_command(self):
        """What the command prunes load_sparse() loads, and what save_sparse() writes the command verifies."""
        run = [os.environ["LACUNA"]]
        dense = {name: tensor for name, tensor in Net().state_dict().items()}
        source, pruned = self.path + ".dense", self.path + ".pruned"
        lacuna.save(source, dense)
        subprocess.run([*run, "prune", source, pruned, "--pattern", "2:4", "--include", "blocks.*"], check=True, capture_output=True)
        model, other = Net(), Net()
        load_sparse(model, pruned)
        sparsify(other, "2:4")
        self.assertTrue(torch.equal(model(words(3, 5)), other(words(3, 5))))
        save_sparse(other, self.path)
        said = subprocess.run([*run, "verify", self.path, "--against", source], check=True, capture_output=True, text=True).stdout
        self.assertIn("blocks.1.down.weight", said)


class Benchmark(ModelCase):
    def test_table(self):
        for device in DEVICES:
            torch.manual_seed(7)
            model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 256)).to(device)
            sparsify(model, "2:4" if device == "cuda" else "vw8:2:8")
            model.train()
            result = lacuna.torch.benchmark(model, gaussian(3, 4, 256, device=device), seconds=0.02)
            self.assertTrue(model.training)
            self.assertFalse(any("forward" in vars(module) for module in model.modules()))
            self.assertEqual([(t.name, t.m, t.n, t.k) for t in result.layers], [("0", 12, 512, 256), ("2", 12, 256, 512)])
            for timing in result.layers:
                self.assertTrue(timing.kernel.startswith("cpu_" if device == "cpu" else "cuda_"), timing.kernel)
                self.assertTrue(timing.dense_seconds > 0 and timing.sparse_seconds > 0)
            self.assertEqual([t.name for t in result.slower], [t.name for t in result.layers if t.speedup <= 1])
            text = str(result)
            self.assertIn("the model", text)
            self.assertIn("Not faster: " if result.slower else "Every layer got faster", text)
            alone = lacuna.torch.benchmark(model[0], gaussian(12, 256, device=device), seconds=0.02)
            self.assertEqual((alone.dense_seconds, len(alone.layers)), (None, 1))

    def test_it_sees_what_is_slow(self):
        """A layer that sleeps is reported as not faster; its dense self is not the one that sleeps."""
        import time

        class Slow(SparseLinear):
            def forward(self, x):
                time.sleep(0.02)
                return super().forward(x)

        layer = SparseLinear.from_linear(nn.Linear(64, 64), "2:4")
        model = nn.Sequential(Slow(layer.packed))
        result = lacuna.torch.benchmark(model, gaussian(4, 64), seconds=0.02)
        self.assertEqual([t.name for t in result.slower], ["0"])
        self.assertGreater(result.layers[0].sparse_seconds, 0.02)
        self.assertLess(result.layers[0].dense_seconds, 0.02)
        self.assertLess(result.speedup, 1)
        self.assertIn("Not faster: 0. Leave", str(result))

    def test_nested(self):
        """nn.TransformerEncoder makes padded batches nested where its first layer is dense."""
        model = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), 2).eval()
        sparsify(model, "2:4", include="layers.1.*")
        batch = {"src": gaussian(2, 5, 32), "src_key_padding_mask": torch.tensor([[False] * 3 + [True] * 2, [False] * 5])}
        result = lacuna.torch.benchmark(model, batch, seconds=0.01)
        self.assertEqual([(t.m, t.n, t.k, t.kernel != "") for t in result.layers], [(8, 64, 32, True), (8, 32, 64, True)])

    def test_autocast(self):
        """nn.Linear's weight is cast once, and so is that of the layer that stands for it; the kernel is the one of autocast's dtype."""
        layer = SparseLinear.from_linear(nn.Linear(64, 32), "2:4")
        dense, casts = _torch_bench.dense_forward(layer), []

        class Casts(TorchDispatchMode):
            def __torch_dispatch__(self, function, types, args=(), kwargs=None):
                if function is torch.ops.aten._to_copy.default and tuple(args[0].shape) == (32, 64):
                    casts.append(function)
                return function(*args, **(kwargs or {}))

        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            with Casts():
                self.assertTrue(torch.equal(dense(gaussian(4, 64)), dense(gaussian(4, 64))))
            self.assertNotEqual(lacuna.torch.benchmark(layer, gaussian(4, 64), seconds=0.01).layers[0].kernel, "")
        self.assertEqual(len(casts), 1)

    def test_refusals(self):
        with self.assertRaisesRegex(ValueError, "model has no sparse layer"):
            lacuna.torch.benchmark(Net(), words(2, 3))


if __name__ == "__main__":
    unittest.main()
