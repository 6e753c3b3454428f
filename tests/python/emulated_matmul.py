"""emulated_matmul.py - lacuna.matmul() and the calls that lacuna.torch makes, on a GPU: a real one, or one made of the CPU.

    scripts/emulate.sh build sm_90 tests/python/module.sh build/venv/bin/python build tests/python/emulated_matmul.py
"""

import unittest

import numpy

import lacuna
from lacuna import _plans


def integers(*shape, dtype="f2"):
    """Small ones, of which products and sums are exact."""
    return numpy.random.default_rng([7, *shape]).integers(-2, 3, shape).astype(dtype)


def on_gpu(array):
    return lacuna.DeviceArray(array.shape, array.dtype, "cuda:0").copy_from(array)


class Gpu(unittest.TestCase):
    def setUp(self):
        self.w, self.x, self.bias = integers(48, 64), integers(5, 64), integers(48)
        self.mask = lacuna.prune(self.w, "2:4")
        self.weight = lacuna.compress(self.w, self.mask)
        self.y = (self.x.astype("f8") @ (self.w * self.mask.numpy()).T.astype("f8") + self.bias).astype("f2")

    def test_matmul(self):
        for _ in range(2):
            y = lacuna.matmul(on_gpu(self.x), self.weight, bias=on_gpu(self.bias), activation="relu")
            self.assertEqual((type(y), y.device.name), (lacuna.DeviceArray, "cuda:0"))
            numpy.testing.assert_array_equal(y.numpy(), numpy.maximum(self.y, 0))
        self.assertEqual([(plan.m, plan.kernel[:5]) for plan in lacuna.cached_plans(self.weight)], [(5, "cuda_")])
        out = on_gpu(numpy.full((5, 48), numpy.nan, "f2"))
        self.assertIs(lacuna.matmul(on_gpu(self.x), self.weight, bias=on_gpu(self.bias), out=out, device="cuda"), out)
        numpy.testing.assert_array_equal(out.numpy(), self.y)

    def test_vector(self):
        y = lacuna.matmul(on_gpu(self.x[2]), self.weight, bias=on_gpu(self.bias))
        self.assertEqual(y.shape, (48,))
        numpy.testing.assert_array_equal(y.numpy(), self.y[2])

    def test_by_addresses(self):
        """As lacuna.torch calls: a plan for more tokens, rows of zeros behind x, scratch memory of the caller's."""
        options = (("activation", "none"), ("bias", True), ("bias_dtype", "f16"), ("x_dtype", "f16"), ("x_layout", "token"))
        plan = _plans.plan_for(self.weight, 6, "cuda:0", options)
        padded = numpy.zeros((6, 64), "f2")
        padded[:5] = self.x
        x, bias, y = on_gpu(padded), on_gpu(self.bias), on_gpu(numpy.full((6, 48), numpy.nan, "f2"))
        scratch = lacuna.DeviceArray((plan.workspace_bytes + 3) // 4 or 1, "f32", "cuda:0")
        plan.execute_pointers(x.pointer, 0, y.pointer, 0, bias.pointer, 0, 0, 0, scratch.pointer, plan.workspace_bytes)
        numpy.testing.assert_array_equal(y.numpy()[:5], self.y)
        numpy.testing.assert_array_equal(y.numpy()[5], self.bias)

    def test_where_arrays_lie(self):
        with self.assertRaisesRegex(ValueError, "device is 'cpu', but x is in the memory of 'cuda:0'"):
            lacuna.matmul(on_gpu(self.x), self.weight, device="cpu")
        with self.assertRaisesRegex(ValueError, "bias is in the host's memory"):
            lacuna.matmul(on_gpu(self.x), self.weight, bias=self.bias)


if __name__ == "__main__":
    unittest.main()
