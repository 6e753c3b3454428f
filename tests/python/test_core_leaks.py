"""test_core_leaks.py - every object and every call, done well and done badly, many times over: nothing is left of them."""

import ctypes
import gc
import os
import sys
import tracemalloc

import numpy as np
from core_case import Case, allocated, attempt, main

import lacuna
from lacuna import errors


class Wrapped:
    """A DeviceArray behind DLPack: what allocates nothing of its own. test_core_arrays.py counts the capsules of odder ones."""

    def __init__(self, array, capsule=None):
        self.array, self.capsule = array, capsule

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __dlpack__(self, **keywords):
        return self.capsule or self.array.__dlpack__(**keywords)


class Leaks(Case):
    ROUNDS = 60

    def setUp(self):
        super().setUp()
        self.w, self.x = self.normal(32, 64), self.normal(4, 64)
        self.mask = lacuna.prune(self.w, "2:4")
        self.weight = lacuna.compress(self.w, self.mask)
        self.plan = lacuna.Plan(self.weight, 4, bias=True)
        self.bias, self.out = self.normal(32), np.zeros((4, 32), np.float32)
        self.calibration = lacuna.Calibration(64)
        self.calibration.add(self.x)
        self.pattern = lacuna.Pattern("2:4")
        self.array = lacuna.DeviceArray((4, 64), "f32", "cpu").copy_from(self.x)
        self.device = lacuna.Device("cpu")
        lacuna.save(self.path("c"), {"w": self.weight, "d": self.w})
        self.file = lacuna.File(self.path("c"))
        self.parts = {name: bytes(view) for name, view in self.weight.parts.items()}

    def operations(self):
        """Every object and every call, done well and done badly."""
        w, x, weight, plan, mask, f = self.w, self.x, self.weight, self.plan, self.mask, self.file
        lender, read_only = Wrapped(self.array), np.zeros((4, 32), np.float32)
        read_only.flags.writeable = False

        def stop(report):
            raise ZeroDivisionError

        yield "pattern", lambda: (lacuna.Pattern("2:4").density, hash(self.pattern), repr(self.pattern), attempt(lacuna.Pattern, "9:4"))
        yield "pattern refused", lambda: (attempt(lacuna.Pattern, 3), attempt(lacuna.Pattern), attempt(self.pattern.check, w))
        yield "prune", lambda: lacuna.prune(w, self.pattern, schedule=["3:4"], device=self.device, permute=["columns"], permute_rounds=1)
        yield "prune refused", lambda: [
            attempt(lacuna.prune, *a, **k)
            for a, k in [
                ((w, "9:4"), {}),
                ((w[0], "2:4"), {}),
                ((w, "2:4"), {"nonsense": 1}),
                ((w, "2:4"), {"schedule": ["x"]}),
                ((w, "2:4"), {"schedule": [1]}),
                ((w, "2:4"), {"permute": ["rows", "x"]}),
                ((w, "2:4"), {"calibration": self.calibration, "gradients": x}),
                ((w, "2:4"), {"device": "nowhere"}),
                ((w, "2:4"), {"method": "obs"}),
                ((None, "2:4"), {}),
                ((w.astype(int), "2:4"), {}),
            ]
        ]
        yield "correct", lambda: (
            lacuna.prune_and_correct(w, "2:4"),
            lacuna.prune_and_correct(w, "2:4", method="wanda", calibration=self.calibration),
        )
        yield "correct refused", lambda: [
            attempt(lacuna.prune_and_correct, w, "2:4", **k)
            for k in [{"out": x}, {"out": read_only}, {"nonsense": 1}, {"method": "obs"}, {"out": 3}]
        ]
        yield "mask", lambda: (
            mask.numpy(),
            mask.pattern,
            mask.shape,
            mask.energy(w),
            mask.apply(w.copy()),
            mask.reorder(range(32)),
            mask.row_perm,
        )
        yield "mask refused", lambda: [
            attempt(mask.reorder, [1]),
            attempt(mask.reorder, [99] * 32),
            attempt(mask.energy, x),
            attempt(mask.apply, read_only),
            attempt(mask.with_pattern, "1:4"),
            attempt(lacuna.Mask.from_matrix, w, "2:4"),
            attempt(mask.save_smtx, 4),
        ]
        yield "compress", lambda: lacuna.compress(w, "2:4", dtype="f16")
        yield "compress refused", lambda: [
            attempt(lacuna.compress, *a)
            for a in [
                (
                    w * 1e9,
                    "2:4",
                ),
                (w, 3),
                (x, mask),
                (3, mask),
            ]
        ] + [attempt(lacuna.compress, w * 1e9, "2:4", dtype="f16"), attempt(lacuna.compress, w, "2:4", dtype="f17")]
        yield "weight", lambda: (
            weight.parts,
            weight.dense(),
            weight.shard("k", 0, 32),
            weight.__reduce__(),
            weight.pattern,
            weight.shape,
            repr(weight),
        )
        yield "weight refused", lambda: [
            attempt(weight.dense, "f32", w),
            attempt(weight.dense, out=x),
            attempt(weight.shard, "n", 0, 99),
            attempt(weight.save, self.folder),
            attempt(weight.shard, "q", 0, 1),
        ]
        yield "parts", lambda: lacuna.weight_from_parts("2:4", 32, 64, "f32", self.parts)
        yield "parts refused", lambda: [
            attempt(lacuna.weight_from_parts, "2:4", n, 64, "f32", p)
            for n, p in [(31, self.parts), (32, {"values": 3}), (32, {"v": b""}), ("a", {}), (32, 3)]
        ]
        yield "measure", lambda: (lacuna.measure_weight("2:4", 32, 64, "f32"), attempt(lacuna.measure_weight, "2:4", -1, 64, "f32"))
        yield "calibration", lambda: (
            lacuna.Calibration(8),
            self.calibration.error(w, w),
            self.calibration.samples,
            attempt(self.calibration.add, w[:, :3]),
            attempt(lacuna.Calibration, -1),
            attempt(self.calibration.error, w, x),
        )
        yield "plan", lambda: lacuna.Plan(weight, 3, device="cpu", activation="silu", kernel=plan.kernel)
        yield "plan refused", lambda: [
            attempt(lacuna.Plan, *a, **k)
            for a, k in [
                ((weight, -1), {}),
                ((weight,), {}),
                ((weight, 1, "nowhere"), {}),
                ((w, 1), {}),
                ((weight, 1), {"kernel": "none"}),
                ((weight, 1), {"x": 1}),
                ((weight, 1), {"kernel": 5}),
                ((weight, 1, "cpu"), {"device": "cpu"}),
            ]
        ]
        yield "call", lambda: (
            plan(x, bias=self.bias),
            plan(x, self.out, bias=self.bias, alpha=2),
            plan(lender, bias=self.bias),
            plan(self.array, bias=self.bias),
        )
        yield "call refused", lambda: [
            attempt(plan, *a, **k)
            for a, k in [
                ((x,), {}),
                ((x[:3],), {"bias": self.bias}),
                ((x, read_only), {"bias": self.bias}),
                ((x,), {"bias": x}),
                ((x,), {"bias": self.bias, "c": self.out}),
                ((Wrapped(self.array, 5),), {"bias": self.bias}),
                ((Wrapped(self.array.T),), {"bias": self.bias}),
                ((x,), {"bias": self.bias, "alpha": "a"}),
                ((x.tolist(),), {}),
                ((x, x[:, :32]), {"bias": self.bias}),
                ((x,), {"bias": self.bias, "stream": 3}),
                ((x,), {"bias": self.bias, "stream": "s"}),
                ((np.zeros(3),), {}),
            ]
        ]
        yield "reference", lambda: (
            plan.reference(x, bias=self.bias),
            attempt(plan.reference, x),
            plan.explain(),
            plan.note,
            plan.device,
            plan.weight,
        )
        yield "array", lambda: (
            self.array.T.numpy(),
            self.array.__dlpack__(),
            self.array.__dlpack__(max_version=(1, 0)),
            np.from_dlpack(self.array),
            self.array.shape,
            self.array.copy_from(x),
            repr(self.array),
        )
        yield "array refused", lambda: [
            attempt(lacuna.DeviceArray, *a)
            for a in [
                ((1, -1), "f32"),
                ((1,), "f99"),
                ((1,), "f32", "nowhere"),
                ((1 << 61,), "f32"),
                ((1 << 59,), "f32", "cpu"),
                ("abc", "f32"),
            ]
        ] + [attempt(self.array.copy_from, w), attempt(self.array.__dlpack__, copy=True)]
        yield "lists", lambda: (
            lacuna.devices(),
            lacuna.components(),
            lacuna.kernels(),
            lacuna.Device("cpu").note,
            attempt(lacuna.Device, "nowhere"),
        )
        yield "file", lambda: (
            lacuna.File(self.path("c")).tensors,
            f.weights,
            f.metadata,
            f.view("d"),
            f.tensor("d"),
            f.read("d", "f16"),
            f.load(),
        )
        yield "file refused", lambda: [
            attempt(lacuna.File, "nowhere"),
            attempt(lacuna.File, 3),
            attempt(f.view, "x"),
            attempt(f.read, "d", out=x),
            attempt(f.load, "d"),
            attempt(f.mask),
            attempt(lacuna.load, "nowhere"),
            attempt(f.read, "d", "f99"),
        ]
        yield "writer dropped", lambda: lacuna.Writer(self.path("s")).declare_tensor("t", "F32", (2, 3))
        yield "writer", lambda: lacuna.save(self.path("s"), {"w": weight, "x": x}, {"a": "b"})
        yield "writer refused", lambda: [
            attempt(lacuna.save, self.path("s"), {"w": 3}),
            attempt(lacuna.save, self.path("s"), {"": x}),
            attempt(lacuna.save, self.path("s"), {"x": x}, {"a": 3}),
            attempt(lacuna.Writer, self.folder + "/no/no"),
        ]
        yield "checkpoint", lambda: lacuna.prune_checkpoint(
            self.path("c"), self.path("o"), "2:4", include=["d"], calibration=None, schedule=["3:4"]
        )
        yield "checkpoint refused", lambda: [
            attempt(lacuna.prune_checkpoint, self.path("c"), self.path("o"), *a, **k)
            for a, k in [
                (("2:4",), {"on_layer": stop}),
                (("2:4",), {"include": [3]}),
                (("2:4",), {"nonsense": 3}),
                ((), {}),
                (("2:4",), {"calibration": "nowhere"}),
                (("2:4",), {"on_layer": 3}),
                (("2:4",), {"dtype": "x"}),
                (("2:4",), {"schedule": ["x"]}),
            ]
        ]
        yield "allocate", lambda: [
            c.pattern for c in lacuna.allocate(self.path("c"), ["2:4"], "density", 0.9, include=["d"], plan={"threads": 1})
        ]
        yield "allocate refused", lambda: [
            attempt(lacuna.allocate, self.path("c"), *a, **k)
            for a, k in [
                ((["2:4"], "density", 0.1), {}),
                ((["2:4"], "x", 0.1), {}),
                ((["2:4"], "density", 0.9), {"on_layer": stop}),
                ((["x"], "density", 0.9), {}),
                ((["2:4"], "density", 0.9), {"plan": {"x": 1}}),
                ((["2:4"], "density", 0.9), {"nonsense": 1}),
                ((["2:4"], "density", 0.9), {"device": "x"}),
            ]
        ]
        yield "compile refused", lambda: [
            attempt(lacuna.compile_kernels, *a, **k)
            for a, k in [
                (("sm_1", ["2:4"]), {}),
                (("sm_80", ["2:4"]), {"m": ["x"]}),
                (("sm_80", ["2:4"]), {"nonsense": 1}),
                ((["sm_80", 3], ["2:4"]), {}),
                (("sm_80", ["2:4"]), {"folder": 3}),
                (("sm_80", ["2:4"]), {"plan": {"kernel": 3}}),
            ]
        ]

    def test_nothing_leaks(self):
        guarded = [
            None,
            True,
            self.w,
            self.x,
            self.bias,
            self.out,
            self.weight,
            self.plan,
            self.mask,
            self.pattern,
            self.array,
            self.device,
            self.file,
            self.calibration,
            self.parts,
            lacuna.Pattern,
            lacuna.Weight,
            lacuna.Plan,
            lacuna.Mask,
            lacuna.DeviceArray,
            lacuna.File,
            lacuna.WeightInfo,
            lacuna.Level,
            lacuna.LayerReport,
            errors.InvalidArgument,
            np.ndarray,
        ]
        if sys.version_info >= (3, 12):  # these are immortal: what is compiled for Python 3.11 counts them, and the interpreter does not
            guarded = guarded[2:]
        scale = int(os.environ.get("LAC_TEST_SCALE", "1"))
        rounds = max(40, self.ROUNDS // scale)
        tracemalloc.start()
        self.addCleanup(tracemalloc.stop)
        for name, operation in self.operations():
            with self.subTest(name):
                for _ in range(20):
                    operation()
                grown = [self.growth(operation, rounds, guarded)]
                while len(grown) < 12 and not self.is_little(grown[-1], rounds):
                    grown.append(self.growth(operation, rounds, guarded))
                self.assertTrue(self.is_little(grown[-1], rounds), f"{name}: over {rounds} rounds, each time: {grown}")

    def growth(self, operation, rounds, guarded):
        """How much more there is after so many rounds: bytes of Python's and of malloc's, and the most that a count of references moved."""
        self.clear()
        python, counts, memory = tracemalloc.get_traced_memory()[0], [sys.getrefcount(it) for it in guarded], allocated()
        for _ in range(rounds):
            operation()
        self.clear()
        python = tracemalloc.get_traced_memory()[0] - python
        moved = max(abs(sys.getrefcount(it) - a) for it, a in zip(guarded, counts))
        return python, allocated() - memory, moved

    @staticmethod
    def clear():
        """Garbage, and the interpreter's cache of attributes, which keeps the names that numpy makes anew for each of its looks."""
        gc.collect()
        if sys.version_info < (3, 13):
            sys._clear_type_cache()
        else:
            sys._clear_internal_caches()

    @staticmethod
    def is_little(grown, rounds):
        """What leaks grows every time, by a count or by the 32 bytes of the smallest object a round; caches fill once."""
        python, memory, moved = grown
        return python < 24 * rounds and memory < 24 * rounds and moved < rounds // 4

    def test_the_measure_sees_a_leak(self):
        """A block of malloc's and one of Python's are seen by what test_nothing_leaks looks at."""
        libc = ctypes.CDLL(None)
        libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
        before = allocated()
        if before == 0:
            self.skipTest("malloc is a sanitizer's")
        block = libc.malloc(10000)
        self.assertGreaterEqual(allocated() - before, 10000)
        libc.free(block)


if __name__ == "__main__":
    main()
