"""test_core_arrays.py - whose arrays are taken, and how: buffers, DLPack's capsules of every odd kind, what is refused."""

import array
import ctypes
import gc
import importlib.util
import sys
import unittest

import numpy as np
from core_case import Case, Lender, compressed, lend_bf16, main, to_bf16, without_ml_dtypes

import lacuna


class Inputs(Case):
    def setUp(self):
        super().setUp()
        self.weight, self.dense = compressed(self.normal(16, 24), "2:4")
        self.plan = lacuna.Plan(self.weight, 4)
        self.x = self.normal(4, 24)
        self.want, self.bound = self.plan.reference(self.x)

    def takes(self, x):
        self.within(self.plan(x), self.want, self.bound)

    def test_buffers(self):
        self.takes(self.x)
        self.takes(memoryview(self.x))
        self.takes(self.x.view(np.matrix))  # a subclass
        self.takes(memoryview(array.array("f", self.x.ravel())).cast("B").cast("f", (4, 24)))
        made = ((ctypes.c_float * 24) * 4).from_buffer(bytearray(self.x))  # a buffer without strides
        self.takes(made)
        out = ((ctypes.c_float * 16) * 4)()
        self.assertIs(self.plan(self.x, out), out)
        self.within(np.ctypeslib.as_array(out), self.want, self.bound)
        one = lacuna.Plan(self.weight, 1)
        self.within(one(made[2]), self.want[2:3].ravel(), self.bound[2:3].ravel())
        self.refuses(ValueError, ["x", "(4, 0)"], self.plan, ((ctypes.c_float * 0) * 4)())
        self.refuses(ValueError, ["x", "()"], self.plan, ctypes.c_float(3))
        frozen = self.x.copy()
        frozen.flags.writeable = False
        self.takes(frozen)
        self.takes(self.x.view(self.x.dtype.newbyteorder("=")))

    def test_strides(self):
        wide = np.full((4, 30), np.nan, np.float32)
        wide[:, 3:27] = self.x
        self.takes(wide[:, 3:27])
        every_other = np.full((8, 24), np.nan, np.float32)
        every_other[::2] = self.x
        self.takes(every_other[::2])
        for odd in [
            self.x[::-1],
            self.x[:, ::-1],
            np.asfortranarray(self.x),
            np.broadcast_to(self.x[:1], (4, 24)),
            np.repeat(self.x, 2, 1)[:, ::2],
        ]:
            error = self.refuses(ValueError, ["x", "strides", "token-major"], self.plan, odd)
            self.assertIn(str(odd.strides[0] // 4), str(error))
        bytes_apart = np.zeros(4 * 98, np.uint8)
        askew = np.lib.stride_tricks.as_strided(bytes_apart.view(np.float32), (4, 24), (98, 4))
        self.refuses(ValueError, ["x", "98 bytes"], self.plan, askew)
        unaligned = np.zeros(4 * 24 * 4 + 1, np.uint8)[1:].view(np.float32).reshape(4, 24)
        self.refuses(lacuna.errors.InvalidArgument, ["x", "aligned"], self.plan, unaligned)

    def test_wrong_elements(self):
        self.refuses(TypeError, ["x", "'>f'"], self.plan, self.x.astype(">f4"))
        self.refuses(TypeError, ["x", "'l'"], self.plan, self.x.astype(np.int64))
        self.refuses(TypeError, ["x", "f16", "f32"], self.plan, self.x.astype(np.float16))
        self.refuses(TypeError, ["x", "list"], self.plan, self.x.tolist())
        self.refuses(TypeError, ["x", "NoneType"], self.plan, None)
        self.refuses(TypeError, ["x", "masked"], self.plan, np.ma.masked_array(self.x, self.x > 0))
        self.refuses(TypeError, ["x", "'Zf'"], self.plan, self.x.astype(np.complex64))
        self.refuses(TypeError, ["x", "'B'"], self.plan, self.x.tobytes())

    def test_wrong_shapes(self):
        for odd in [self.x[:3], self.x[:, :-1], self.x[None], self.x.reshape(-1), np.float32(3), np.zeros((0, 24), np.float32)]:
            shape = "(" + ", ".join(map(str, np.shape(odd)))
            self.refuses(ValueError, ["x", shape, "(4, 24)"], self.plan, odd)
        nine = np.zeros((1,) * 9, np.float32)
        self.refuses(ValueError, ["x", "9 dimensions"], self.plan, nine)

    def test_outputs(self):
        frozen = np.empty((4, 16), np.float32)
        frozen.flags.writeable = False
        self.refuses(ValueError, ["out", "read-only"], self.plan, self.x, frozen)
        self.refuses(ValueError, ["out", "read-only"], self.plan, self.x, frozen.tobytes())
        self.refuses(ValueError, ["out", "(4, 15)", "(4, 16)"], self.plan, self.x, np.empty((4, 15), np.float32))
        self.refuses(ValueError, ["out", "strides"], self.plan, self.x, np.empty((16, 4), np.float32).T)
        self.refuses(TypeError, ["out", "f64", "f32"], self.plan, self.x, np.empty((4, 16)))
        self.refuses(TypeError, ["out", "int"], self.plan, self.x, 5)

    def test_overlaps(self):
        whole = np.zeros((4, 64), np.float32)
        x = whole[:, :24]
        x[:] = self.x
        y = whole[:, 24:40]  # beside it, line by line
        self.within(self.plan(x, y), self.want, self.bound)
        self.refuses(ValueError, ["out", "shares memory with x"], self.plan, x, whole[:, 23:39])
        self.refuses(ValueError, ["out", "shares memory with x"], self.plan, x, whole.reshape(-1)[: 4 * 16].reshape(4, 16))
        self.within(self.plan(x, y), self.want, self.bound)
        plan = lacuna.Plan(self.weight, 4, bias=True, residual=True)
        out = np.zeros((5, 16), np.float32)
        self.refuses(ValueError, ["shares memory with bias"], plan, self.x, out[:4], bias=out[3], c=self.normal(4, 16))
        self.refuses(ValueError, ["shares memory with c"], plan, self.x, out[:4], bias=self.normal(16), c=out[1:])

    def test_bias_and_scalars(self):
        plan = lacuna.Plan(self.weight, 4, bias=True, residual=True)
        b, c = self.normal(16), self.normal(4, 16)
        self.refuses(ValueError, ["bias", "(15,)", "(16,)"], plan, self.x, bias=b[:15], c=c)
        self.refuses(ValueError, ["bias", "(16,)"], plan, self.x, bias=np.repeat(b, 2)[::2], c=c)
        self.refuses(TypeError, ["bias", "f64"], plan, self.x, bias=b.astype(np.float64), c=c)
        self.refuses(lacuna.errors.InvalidArgument, "bias is NULL", plan, self.x, c=c)
        self.refuses(lacuna.errors.InvalidArgument, "c is NULL", plan, self.x, bias=b)
        self.refuses(lacuna.errors.InvalidArgument, "no bias", self.plan, self.x, bias=b)
        self.refuses(lacuna.errors.InvalidArgument, "no residual", self.plan, self.x, c=c)
        self.refuses(lacuna.errors.InvalidArgument, "beta is 2", self.plan, self.x, beta=2)
        self.refuses(TypeError, ["alpha", "'two'"], self.plan, self.x, alpha="two")
        self.refuses(lacuna.errors.InvalidArgument, "a CPU has no streams", self.plan, self.x, stream=7)
        self.refuses(TypeError, ["stream", "'s'"], self.plan, self.x, stream="s")
        self.refuses(ValueError, ["stream", "-1"], self.plan, self.x, stream=-1)


class Capsules(Case):
    def setUp(self):
        super().setUp()
        self.weight, _ = compressed(self.normal(16, 24), "2:4")
        self.plan = lacuna.Plan(self.weight, 4)
        self.x = self.normal(4, 24)
        self.want, self.bound = self.plan.reference(self.x)

    def returned(self, lender):
        gc.collect()
        self.assertEqual(lender.taken_back, lender.given)
        self.assertGreater(lender.given, 0)

    def test_both_forms(self):
        for lender in [
            Lender(self.x),
            Lender(self.x, version=(1, 0)),
            Lender(self.x, version=(1, 3), flags=1),
            Lender(self.x, knows_version=False),
        ]:
            self.within(self.plan(lender), self.want, self.bound)
            self.assertNotIn("stream", lender.asked)  # it is a CPU's
            self.returned(lender)

    def test_no_strides_and_offset(self):
        whole = np.vstack([np.full((1, 24), np.nan, np.float32), self.x])
        for lender in [Lender(self.x, strides=None), Lender(whole, shape=(4, 24), strides=None, byte_offset=96)]:
            self.within(self.plan(lender), self.want, self.bound)
            self.returned(lender)

    def test_outputs(self):
        for version in [None, (1, 0)]:
            y = np.zeros((4, 16), np.float32)
            lender = Lender(y, version=version)
            self.assertIs(self.plan(self.x, lender), lender)
            self.within(y, self.want, self.bound)
        y = np.zeros((4, 16), np.float32)
        self.refuses(ValueError, ["out", "read-only"], self.plan, self.x, Lender(y, version=(1, 0), flags=1))
        self.refuses(ValueError, ["out", "a copy"], self.plan, self.x, Lender(y, version=(1, 1), flags=2))
        self.refuses(ValueError, ["w", "a copy"], lacuna.prune(y, "2:4").apply, Lender(y, version=(1, 1), flags=2))
        self.assertFalse(y.any())
        self.within(self.plan(Lender(self.x, version=(1, 1), flags=2)), self.want, self.bound)

    def test_odd_ones(self):
        odd = [
            (TypeError, "type 0 with 32 bits", dict(code=0)),
            (TypeError, "type 2 with 8 bits", dict(bits=8)),
            (TypeError, "2 lanes", dict(lanes=2)),
            (TypeError, "type 4 with 32 bits", dict(code=4)),
            (ValueError, "kind 10", dict(device_type=10)),
            (ValueError, "GPU 3", dict(device_type=2, device_number=3)),
            (ValueError, "GPU 0", dict(device_type=13)),
            (ValueError, "-1 dimensions", dict(dimensions=-1)),
            (ValueError, "9 dimensions", dict(dimensions=9)),
            (ValueError, "dimension 0 is -4", dict(shape=(-4, 24))),
            (ValueError, "dimension 1 is -1", dict(shape=None)),
            (ValueError, "more elements", dict(shape=(1 << 62, 24), strides=None)),
            (ValueError, "strides (-24, 1)", dict(strides=(-24, 1))),
            (ValueError, "strides (0, 1)", dict(strides=(0, 1))),
            (ValueError, "strides (24, 2)", dict(strides=(24, 2))),
            (ValueError, "reach past all memory", dict(strides=(1 << 61, 1))),
            (ValueError, "reach past all memory", dict(strides=((1 << 63) - 1, 1))),
            (BufferError, "version 2.0", dict(version=(2, 0))),
            (TypeError, "dltensor", dict(name=b"used_dltensor")),
            (TypeError, "dltensor", dict(name=b"something")),
            (lacuna.errors.InvalidArgument, "aligned", dict(byte_offset=2, shape=(4, 24))),
            (lacuna.errors.InvalidArgument, "NULL", dict(data=None)),
        ]
        for kind, says, fields in odd:
            lender = Lender(self.x, **fields)
            self.refuses(kind, ["x", says], self.plan, lender)
            self.returned(lender)
        one = lacuna.Plan(self.weight, 1)  # of one line the stride says nothing
        self.within(one(Lender(self.x[:1], strides=((1 << 63) - 1, 1))), self.want[:1], self.bound[:1])
        out = np.zeros((1, 16), np.float32)
        one(self.x[:1], Lender(out, strides=((1 << 63) - 1, 1)))
        self.within(out, self.want[:1], self.bound[:1])
        pinned = Lender(self.x, device_type=3)  # CUDA's pinned memory is the host's
        self.within(self.plan(pinned), self.want, self.bound)

    def test_a_gpus_array_is_asked_for_by_stream(self):
        lender = Lender(self.x, device_type=2)
        with self.assertRaises(ValueError):
            self.plan(lender)
        self.assertEqual(lender.asked["stream"], 1)

    def test_methods_that_raise(self):
        class Bad:
            def __dlpack_device__(self):
                return (1, 0)

            def __dlpack__(self, **keywords):
                raise ZeroDivisionError("mine")

        self.refuses(ZeroDivisionError, "mine", self.plan, Bad())
        Bad.__dlpack__ = lambda self, **keywords: 5
        self.refuses(TypeError, ["x", "5", "capsule"], self.plan, Bad())
        for device in [(), None, "cpu", ("cpu", 0)]:
            Bad.__dlpack_device__ = lambda self, device=device: device
            with self.assertRaises((TypeError, ValueError, IndexError)):
                self.plan(Bad())

    def test_signals_in_methods(self):
        """Ctrl-C and want of memory come out of whatever method of an argument they meet; they are no refusal of it."""

        def stop(self, *args):
            raise kind

        for kind in [KeyboardInterrupt, SystemExit, MemoryError]:
            odd = {name: type("Odd", (), {name: stop})() for name in ["__index__", "__float__"]}
            odd.update({name: type("Odd", (), {name: property(stop)})() for name in ["__dlpack__", "cuda_stream", "ptr", "name", "index"]})
            masked = np.ones((4, 24), np.float32).view(type("Odd", (np.ndarray,), {"mask": property(stop)}))
            for call, given in [
                (self.plan, {"x": odd["__dlpack__"]}),
                (self.plan, {"x": masked}),
                (self.plan, {"x": self.x, "alpha": odd["__float__"]}),
                (self.plan, {"x": self.x, "stream": odd["__index__"]}),
                (self.plan, {"x": self.x, "stream": odd["cuda_stream"]}),
                (self.plan, {"x": self.x, "stream": odd["ptr"]}),
                (self.weight.dense, {"dtype": odd["name"]}),
                (lacuna.Device, {"name": odd["index"]}),
                (lacuna.Plan, {"weight": self.weight, "m": odd["__index__"]}),
                (lacuna.prune, {"w": self.x, "pattern": "2:4", "damping": odd["__float__"]}),
            ]:
                with self.subTest(kind=kind, given=list(given)), self.assertRaises(kind):
                    call(**given)

    def test_bfloat16(self):
        bits = to_bf16(self.normal(16, 24))
        mask = lacuna.prune(lend_bf16(bits), "2:4")
        weight = lacuna.compress(lend_bf16(bits), mask)
        self.assertEqual(weight.dtype, "bf16")
        dense = np.zeros((16, 24), np.uint16)
        weight.dense(out=lend_bf16(dense))
        np.testing.assert_array_equal(dense, np.where(mask.numpy(), bits, 0))
        with without_ml_dtypes():
            self.refuses(TypeError, "ml_dtypes", weight.dense)
            self.refuses(TypeError, "ml_dtypes", lacuna.Plan(weight, 1), lend_bf16(bits[:1]))

    @unittest.skipIf(importlib.util.find_spec("ml_dtypes") is None, "no ml_dtypes")
    def test_bfloat16_of_numpys(self):
        import ml_dtypes

        w, x = (self.normal(rows, 24).astype(ml_dtypes.bfloat16) for rows in (16, 4))
        weight = lacuna.compress(w, "2:4")
        plan = lacuna.Plan(weight, 4)
        want, bound = plan.reference(x)
        y = plan(x)
        self.assertEqual((weight.dense().dtype, y.dtype), (w.dtype, w.dtype))
        self.within(y, want, bound)
        out = np.zeros((4, 16), w.dtype)
        self.assertIs(plan(x, out), out)
        np.testing.assert_array_equal(out, y)
        out.flags.writeable = False
        self.refuses(ValueError, ["out", "read-only"], plan, x, out)
        self.refuses(TypeError, ["x", "f32", "bf16"], plan, x.astype(np.float32))
        lacuna.save(self.path("b"), {"w": w})
        with lacuna.File(self.path("b")) as file:
            np.testing.assert_array_equal(file.tensor("w"), w)
            self.assertEqual(file.read("w").dtype, w.dtype)


class Device(Case):
    """DeviceArray, on the CPU: what it is on a GPU, emulated.py shows."""

    def test_round_trip(self):
        for dtype, kind in [("f32", np.float32), ("f16", np.float16), ("f64", np.float64)]:
            for shape in [(), (3,), (3, 5), (2, 3, 4), (0, 5)]:
                a = self.random.standard_normal(shape).astype(kind)
                d = lacuna.DeviceArray(shape, dtype, "cpu")
                self.assertIs(d.copy_from(a), d)
                np.testing.assert_array_equal(d.numpy(), a)
                self.assertEqual((d.shape, d.dtype, d.nbytes, d.device.name), (shape, dtype, a.nbytes, "cpu"))

    def test_products(self):
        weight, _ = compressed(self.normal(16, 24), "2:4")
        x = self.normal(4, 24)
        lent = lacuna.DeviceArray((4, 24), "f32", "cpu").copy_from(x)
        want, bound = lacuna.Plan(weight, 4).reference(x)
        y = lacuna.Plan(weight, 4)(lent)
        self.assertIsInstance(y, lacuna.DeviceArray)
        self.within(y.numpy(), want, bound)
        turned = lacuna.DeviceArray((24, 4), "f32", "cpu").copy_from(np.ascontiguousarray(x.T))
        self.assertEqual((turned.T.shape, turned.T.pointer), ((4, 24), turned.pointer))
        np.testing.assert_array_equal(turned.T.numpy(), x)
        y = lacuna.Plan(weight, 4, x_layout="feature", y_layout="feature")(turned.T)
        self.within(y.numpy(), want, bound)
        self.assertEqual(y.numpy().strides, (4, 16))
        y.copy_from(np.asfortranarray(np.ones((4, 16), np.float32)))
        self.assertTrue((y.numpy() == 1).all())
        self.refuses(ValueError, ["array", "order"], y.copy_from, np.ones((4, 16), np.float32))

    def test_lends_itself(self):
        d = lacuna.DeviceArray((3, 5), "f32", "cpu").copy_from(self.normal(3, 5))
        value = d.numpy()
        for lent in [np.from_dlpack(d), np.from_dlpack(d.T).T]:
            np.testing.assert_array_equal(lent, value)
            self.assertEqual(lent.ctypes.data, d.pointer)
        self.assertIn("dltensor_versioned", repr(d.__dlpack__(max_version=(1, 0))))
        self.assertNotIn("versioned", repr(d.__dlpack__()))
        count = sys.getrefcount(d)
        capsules = [d.__dlpack__(), d.__dlpack__(max_version=(1, 2), stream=None)]
        self.assertEqual(sys.getrefcount(d), count + 2)
        del capsules
        self.assertEqual(sys.getrefcount(d), count)
        kept = np.from_dlpack(lacuna.DeviceArray((4,), "f32", "cpu").copy_from(np.arange(4, dtype=np.float32)))
        np.testing.assert_array_equal(kept, range(4))  # the memory lives as long as the view
        view = lacuna.DeviceArray((2, 3), "f32", "cpu").copy_from(np.arange(6, dtype=np.float32).reshape(2, 3)).T
        np.testing.assert_array_equal(view.numpy(), [[0, 3], [1, 4], [2, 5]])
        self.refuses(BufferError, "copy", d.__dlpack__, copy=True)
        self.refuses(BufferError, ["dl_device", "(2, 0)"], d.__dlpack__, dl_device=(2, 0))
        self.refuses(TypeError, "'foo'", d.__dlpack__, foo=1)

    def test_refusals(self):
        make = lacuna.DeviceArray
        self.refuses(ValueError, ["shape", "-1"], make, (2, -1), "f32", "cpu")
        self.refuses(ValueError, ["shape", "more elements"], make, (1 << 40, 1 << 40), "f32", "cpu")
        self.refuses(ValueError, ["shape", "more elements"], make, (0, 1 << 40, 1 << 40), "f32", "cpu")
        self.refuses(ValueError, ["9 dimensions"], make, (1,) * 9, "f32", "cpu")
        self.refuses(TypeError, ["shape", "2.5"], make, (2.5,), "f32", "cpu")
        self.refuses(TypeError, ["shape", "None"], make, None, "f32", "cpu")
        for dtype in ["i8", "e4m3", "none", "x"]:
            self.refuses(ValueError, ["dtype", repr(dtype)], make, (2,), dtype, "cpu")
        self.refuses(TypeError, ["dtype", "int32"], make, (2,), np.dtype("int32"), "cpu")
        self.refuses(lacuna.errors.NotFound, ["cuda:99"], make, (2,), "f32", "cuda:99") if not gpu() else None
        self.refuses(TypeError, ["device", "5"], make, (2,), "f32", 5)
        self.refuses(ValueError, ["device", "null"], make, (2,), "f32", "cpu\0")
        d = make((2, 3), "f32", "cpu")
        self.refuses(ValueError, ["array", "(3, 2)"], d.copy_from, np.zeros((3, 2), np.float32))
        self.refuses(TypeError, ["array", "f64", "f32"], d.copy_from, np.zeros((2, 3)))
        self.refuses(ValueError, ["array", "gaps"], d.copy_from, np.zeros((2, 6), np.float32)[:, ::2])
        self.refuses(ValueError, "3 dimensions", lambda: make((1, 2, 3), "f32", "cpu").T)
        self.refuses(lacuna.errors.OutOfMemory, "", make, (1 << 46,), "f32", "cpu")

    def test_dtypes_as_others_write_them(self):
        for dtype in [
            "f32",
            "F32",
            "float32",
            np.float32,
            np.dtype("float32"),
            type("torchs", (), {"__str__": lambda self: "torch.float32"})(),
        ]:
            self.assertEqual(lacuna.DeviceArray((1,), dtype, "cpu").dtype, "f32")


def gpu():
    return any(device.kind == "cuda" and device.available for device in lacuna.devices())


if __name__ == "__main__":
    main()
