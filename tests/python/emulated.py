"""emulated.py - the module on a GPU made of the CPU (docs/emulator.md): DeviceArray, plans, streams and scratch memory there.

scripts/emulate.sh starts it; ctest runs it as emulated_python.
"""

import ctypes
import gc
import os
import threading
import time

import numpy as np
from core_case import FAMILIES, Case, Lender, attempt, compressed, main

import lacuna

GPU = "cuda:0"


def stream():
    """A CUstream of the driver's own."""
    cuda = ctypes.CDLL(os.environ["LAC_CUDA_LIBRARY"])
    context, made = ctypes.c_void_p(), ctypes.c_void_p()
    for status in [
        cuda.cuInit(0),
        cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0),
        cuda.cuCtxSetCurrent(context),
        cuda.cuStreamCreate(ctypes.byref(made), 1),
    ]:
        assert status == 0, status
    return made.value


class Emulated(Case):
    def lend(self, array, dtype):
        return lacuna.DeviceArray(array.shape, dtype, GPU).copy_from(array)

    def test_the_device(self):
        device = lacuna.Device(GPU)
        self.assertEqual((device.kind, device.name, device.available), ("cuda", GPU, True))
        device.synchronize()
        self.assertEqual(lacuna.Device("auto").kind, "cuda")
        self.assertEqual(lacuna.Device("cuda").name, GPU)

    def test_arrays(self):
        a = self.normal(5, 7)
        d = self.lend(a, "f32")
        np.testing.assert_array_equal(d.numpy(), a)
        np.testing.assert_array_equal(d.T.numpy(), a.T)
        self.assertEqual(d.__dlpack_device__(), (2, 0))
        self.assertIn("dltensor", repr(d.__dlpack__(stream=1)))
        self.assertIn("dltensor", repr(d.__dlpack__(stream=-1, max_version=(1, 0))))
        self.refuses(BufferError, "dl_device", d.__dlpack__, dl_device=(1, 0))
        self.refuses(ValueError, ["array", "GPU 0"], d.copy_from, d)
        self.refuses(ValueError, ["w", "GPU 0"], lacuna.prune, d, "2:4")

    def test_a_copy_that_fails(self):
        """It says why, also where the array that was looked at fails at something else when it is given back."""

        class Failing(Lender):
            taken_back = property(lambda self: 0, lambda self, count: attempt(lacuna.Pattern, "9:4"))

        gone = lacuna.DeviceArray((5,), "f32", GPU)
        cuda = ctypes.CDLL(os.environ["LAC_CUDA_LIBRARY"])
        self.assertTrue(stream())  # the context is this thread's now
        self.assertEqual(cuda.cuMemFree_v2(ctypes.c_uint64(gone.pointer)), 0)
        a = self.normal(5)
        for array in [a, Lender(a), Failing(a)]:
            self.refuses(lacuna.errors.DeviceFailure, "upload", gone.copy_from, array)

    def check(self, pattern, dtype, m, n, k, x_layout="token", y_layout="token", **options):
        kind = {"f32": np.float32, "f16": np.float16}[dtype]
        weight, _ = compressed(self.normal(n, k), pattern, dtype)
        plan = lacuna.Plan(weight, m, GPU, x_layout=x_layout, y_layout=y_layout, no_timing=True, **options)
        oracle = lacuna.Plan(weight, m, "cpu", x_layout=x_layout, y_layout=y_layout, precision=plan_precision(dtype), **options)
        x = self.normal(m, k).astype(kind)
        x = np.asfortranarray(x) if x_layout == "feature" else x
        lent = self.lend(np.ascontiguousarray(x.T), dtype).T if x_layout == "feature" else self.lend(x, dtype)
        terms = {}
        if options.get("bias"):
            terms["bias"] = self.normal(n).astype(kind)
        if options.get("residual"):
            terms["c"] = np.array(self.normal(m, n).astype(kind), order="F" if y_layout == "feature" else "C")
        there = {name: self.lend(a, dtype) if a.flags.c_contiguous else self.lend(a.T, dtype).T for name, a in terms.items()}
        y = plan(lent, **there)
        self.assertIsInstance(y, lacuna.DeviceArray)
        want, bound = oracle.reference(x, **terms)
        self.within(y.numpy(), want, bound, (pattern, dtype, m, n, k, x_layout, y_layout, options, plan.kernel))
        return plan, lent, y

    def test_products(self):
        for pattern in FAMILIES.values():
            self.check(pattern, "f16", 4, 64, 128)
        self.check("2:4", "f32", 3, 33, 64, bias=True, activation="relu", residual=True)
        self.check("2:4", "f16", 8, 64, 64, "feature", "feature", bias=True)

    def test_vectors_and_outputs(self):
        plan, x, y = self.check("2:4", "f16", 1, 64, 128)
        flat = self.lend(x.numpy()[0], "f16")
        self.assertEqual(plan(flat).shape, (64,))
        np.testing.assert_array_equal(plan(flat).numpy(), y.numpy()[0])
        out = lacuna.DeviceArray((1, 64), "f16", GPU)
        self.assertIs(plan(x, out), out)
        np.testing.assert_array_equal(out.numpy(), y.numpy())

    def test_where_operands_lie(self):
        plan, x, y = self.check("2:4", "f16", 4, 64, 128)
        host = x.numpy()
        self.refuses(ValueError, ["x", "host", GPU], plan, host)
        self.refuses(ValueError, ["out", "host", GPU], plan, x, np.empty((4, 64), np.float16))
        self.refuses(ValueError, ["x", "GPU 1"], plan, Lender(host, device_type=2, device_number=1))
        self.refuses(ValueError, ["x", "host"], plan, lacuna.DeviceArray((4, 128), "f16", "cpu"))
        self.refuses(ValueError, "oracle", plan.reference, host)
        self.refuses(
            ValueError, ["out", "shares memory with x"], plan, x, Lender(np.zeros((4, 64), np.float16), device_type=2, data=x.pointer)
        )

    def test_capsules_of_others(self):
        """Another library's array: it is asked for by the stream on which the plan runs, 1 being the default one."""
        plan, x, y = self.check("2:4", "f16", 4, 64, 128)
        other = stream()
        for given, asked in [(None, 1), (0, 1), (other, other)]:
            lender = Lender(x.numpy(), device_type=2, data=x.pointer)
            got = plan(lender, stream=given)
            self.assertEqual(lender.asked["stream"], asked)
            self.assertIsInstance(got, lacuna.DeviceArray)
            np.testing.assert_array_equal(got.numpy(), y.numpy())
            gc.collect()
            self.assertEqual(lender.given, lender.taken_back)

    def test_streams(self):
        plan, x, y = self.check("2:4", "f16", 4, 64, 128)
        want, streams = y.numpy(), [stream() for _ in range(20)]  # more than a plan keeps scratch memory for
        for _ in range(2):
            for number in streams:
                out = plan(x, stream=number)
                out.__dlpack__(stream=number)
                out.__dlpack__(stream=streams[0])
                np.testing.assert_array_equal(out.numpy(), want)

        class Stream:
            cuda_stream = streams[0]

        np.testing.assert_array_equal(plan(x, stream=Stream()).numpy(), want)
        Stream.cuda_stream = "s"
        self.refuses(TypeError, ["stream", "'s'"], plan, x, stream=Stream())

    def test_threads(self):
        plan, x, y = self.check("2:4", "f16", 4, 64, 128)
        want, wrong = y.numpy(), []

        def work():
            for _ in range(5):
                if not (plan(x).numpy() == want).all():
                    wrong.append(1)

        threads = [threading.Thread(target=work) for _ in range(4)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        self.assertEqual(wrong, [])

    def test_scratch_memory_is_had_without_the_interpreters_lock(self):
        """Another thread goes on meanwhile: the emulator fills 128 MiB, and the call is refused behind that."""
        weight, _ = compressed(self.normal(256, 512), "2:4", "f16")
        plan = lacuna.Plan(weight, 1 << 16, GPU, kernel="cuda_f32_strict", no_timing=True)
        self.assertGreaterEqual(plan.workspace_bytes, 1 << 27)
        ticks, done = [], threading.Event()

        def tick():
            while not done.is_set():
                ticks.append(time.monotonic())
                time.sleep(0.001)

        thread = threading.Thread(target=tick)
        thread.start()
        try:
            begin = time.monotonic()
            self.refuses(ValueError, "args->x is NULL", plan.execute_pointers, *[0] * 10)
            end = time.monotonic()
        finally:
            done.set()
            thread.join()
        middle = [t for t in ticks if begin + 0.25 * (end - begin) < t < begin + 0.75 * (end - begin)]
        self.assertGreater(len(middle), 2)

    def test_whatever_goes_first(self):
        plan, x, y = self.check("2:4", "f16", 4, 64, 128)
        want, view = y.numpy(), y.T
        del plan, y
        gc.collect()
        np.testing.assert_array_equal(view.numpy(), want.T)
        device = lacuna.Device(GPU)
        array = lacuna.DeviceArray((3,), "f32", device)
        del device
        gc.collect()
        array.copy_from(np.arange(3, dtype=np.float32))
        np.testing.assert_array_equal(array.numpy(), range(3))


def plan_precision(dtype):
    """The oracle's bound of a CPU is that of strict sums, in which f16's are as a GPU's; f32's are wider there."""
    return "fast" if dtype == "f32" else "default"


if __name__ == "__main__":
    main()
