"""test_torch_cuda.py - what only a GPU shows of lacuna.torch: streams, graphs, memory. Without one all of it is skipped."""

import time
import unittest

import torch
from torch_case import Case, gaussian, linear

import lacuna
import lacuna.torch
from lacuna import _plans, errors
from lacuna.torch import SparseLinear


def layer_of(n=256, k=512, pattern="2:4", **given):
    return SparseLinear.from_linear(linear(n, k, dtype=torch.float16, device="cuda"), pattern, **given)


@unittest.skipUnless(torch.cuda.is_available(), "no GPU")
class Streams(Case):
    def test_current_stream(self):
        """The product waits for what is before it on its stream, and for nothing else: x is filled behind a long wait."""
        layer = layer_of()
        stream = torch.cuda.Stream()
        x, value = torch.zeros(16, 512, dtype=torch.float16, device="cuda"), gaussian(16, 512, dtype=torch.float16, device="cuda")
        with torch.no_grad():
            expected = layer(value)
            torch.cuda.synchronize()
            with torch.cuda.stream(stream):
                torch.cuda._sleep(200_000_000)
                x.copy_(value)
                begin = time.perf_counter()
                y = layer(x)
                host = time.perf_counter() - begin
            self.assertFalse(stream.query(), "the call has waited for its stream")
            self.assertLess(host, 0.05)
            stream.synchronize()
        self.assertTrue(torch.equal(y, expected))

    def test_graph(self):
        """Captured once a plan is there, replayed with other inputs, also after many other sizes have pushed plans out."""
        for pattern, activation in (("2:4", "none"), ("vw64:8:32", "gelu")):
            layer = layer_of(pattern=pattern, activation=activation)
            x = gaussian(16, 512, dtype=torch.float16, device="cuda")
            with torch.no_grad():
                layer(x)
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    y = layer(x)
                _plans.plans_of(layer.packed).plans.clear()  # what is not pinned goes
                scratch = [torch.full((1 << 24,), 255, dtype=torch.uint8, device="cuda") for _ in range(8)]
                for seed in (2, 3):
                    x.copy_(gaussian(16, 512, seed=seed, dtype=torch.float16, device="cuda"))
                    graph.replay()
                    self.near(y, x, layer.dense_weight(), layer.bias, activation)
                del scratch

    def test_graph_without_a_plan(self):
        layer, x = layer_of(), gaussian(16, 512, dtype=torch.float16, device="cuda")
        with torch.no_grad(), self.assertRaisesRegex(errors.Unsupported, "no plan for 16 tokens yet"):
            with torch.cuda.graph(torch.cuda.CUDAGraph()):
                layer(x)
        torch.cuda.synchronize()
        with torch.no_grad():
            self.near(layer(x), x, layer.dense_weight(), layer.bias)

    def test_scratch_memory_of_many_streams(self):
        """Calls on several streams at once do not share what they must not."""
        layer = layer_of(512, 1024)
        inputs = [gaussian(200, 1024, seed=seed, dtype=torch.float16, device="cuda") for seed in range(4)]
        with torch.no_grad():
            expected = [layer(x) for x in inputs]
            torch.cuda.synchronize()
            streams = [torch.cuda.Stream() for _ in inputs]
            found = []
            for _ in range(10):
                for x, stream in zip(inputs, streams):
                    with torch.cuda.stream(stream):
                        found.append(layer(x))
            torch.cuda.synchronize()
        for i, y in enumerate(found):
            self.assertTrue(torch.equal(y, expected[i % 4]))


@unittest.skipUnless(torch.cuda.is_available(), "no GPU")
class Arrays(Case):
    def test_matmul(self):
        """lacuna.matmul() takes PyTorch's tensors where they lie, on the current stream."""
        weight = lacuna.compress(gaussian(128, 256, dtype=torch.float16), "2:4")
        w = torch.empty(128, 256, dtype=torch.float16)
        weight.dense(out=w)
        bias, residual = gaussian(128, dtype=torch.float16, device="cuda"), gaussian(2, 3, 128, seed=2, dtype=torch.float16, device="cuda")
        x = gaussian(2, 3, 256, dtype=torch.float16, device="cuda")
        y = lacuna.matmul(x, weight, bias=bias, activation="relu")
        self.assertEqual((y.device, y.dtype), (x.device, x.dtype))
        self.near(y, x, w, bias, "relu")
        out = torch.empty(2, 3, 128, dtype=torch.float16, device="cuda")
        with torch.cuda.stream(torch.cuda.Stream()):
            torch.cuda.current_stream().wait_stream(torch.cuda.default_stream())
            self.assertIs(lacuna.matmul(x, weight, residual=residual, beta=0.0, out=out), out)
            torch.cuda.current_stream().synchronize()
        self.near(out, x, w)
        with self.assertRaisesRegex(ValueError, "device is 'cpu', but x is in the memory of 'cuda:0'"):
            lacuna.matmul(x, weight, device="cpu")

    def test_fp32_is_as_accurate_as_fp32(self):
        layer = SparseLinear.from_linear(linear(128, 256, device="cuda"), "vw64:8:32")
        x = gaussian(64, 256, device="cuda")
        with torch.no_grad():
            self.near(layer(x), x, layer.dense_weight(), layer.bias, extra=2.0**-21)


if __name__ == "__main__":
    unittest.main()
