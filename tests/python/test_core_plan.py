"""test_core_plan.py - products: every family, dtype, layout and epilogue against numpy in float64, by the oracle's bound."""

import itertools
import math
import threading

import numpy as np
from core_case import FAMILIES, PATTERNS, Case, compressed, from_bf16, lend_bf16, main, to_bf16

import lacuna

ACTIVATIONS = {
    "none": lambda v: v,
    "relu": lambda v: np.maximum(v, 0),
    "gelu": lambda v: 0.5 * v * (1 + np.vectorize(math.erf)(v / math.sqrt(2))),
    "gelu_tanh": lambda v: 0.5 * v * (1 + np.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3))),
    "silu": lambda v: v / (1 + np.exp(-v)),
}


class Operand:
    """A random matrix [rows][cols], or a vector, of a dtype, in a layout with gaps: `lent` is what Lacuna is given, `value` float64."""

    def __init__(self, case, rows, cols, dtype, layout, gap=0, vector=False):
        lines, length = (rows, cols) if layout == "token" else (cols, rows)
        whole = case.random.standard_normal((lines, length + gap))
        self.dtype, self.layout, self.gap = dtype, layout, gap
        self.store = to_bf16(whole) if dtype == "bf16" else whole.astype({"f32": np.float32, "f16": np.float16}[dtype])
        self.before = self.store.copy()
        self.view = self.store[:, :length] if layout == "token" else self.store[:, :length].T
        if vector:
            self.view = self.view.reshape(-1)
        self.lent = lend_bf16(self.view) if dtype == "bf16" else self.view

    @property
    def value(self):
        return (from_bf16(self.view) if self.dtype == "bf16" else self.view).astype(np.float64)

    def check_gaps(self, case):
        """What lies between the lines is as it was."""
        length = self.store.shape[1] - self.gap
        case.assertTrue((self.store[:, length:] == self.before[:, length:]).all())


class Products(Case):
    def check(
        self,
        pattern,
        dtype,
        m,
        n,
        k,
        x_layout="token",
        y_layout="token",
        gap=0,
        activation="none",
        bias=False,
        residual=False,
        alpha=None,
        beta=None,
        **options,
    ):
        what = (pattern, dtype, m, n, k, x_layout, y_layout, gap, activation, bias, residual, alpha, beta, options)
        weight, dense = compressed(self.normal(n, k), pattern, dtype)
        plan = lacuna.Plan(
            weight, m, "cpu", x_layout=x_layout, y_layout=y_layout, activation=activation, bias=bias, residual=residual, **options
        )
        x = Operand(self, m, k, plan.x_dtype, x_layout, gap)
        y = Operand(self, m, n, plan.y_dtype, y_layout, gap)
        b = Operand(self, 1, n, plan.bias_dtype, "token", vector=True)
        c = Operand(self, m, n, plan.c_dtype, y_layout, gap)
        terms = {"alpha": alpha, "beta": beta, "bias": b.lent if bias else None, "c": c.lent if residual else None}
        self.assertIs(plan(x.lent, y.lent, **terms), y.lent)
        want, bound = plan.reference(x.lent, **terms)
        self.within(y.value, want, bound, what)
        y.check_gaps(self)
        # The oracle itself, which is a sum of k products in double, one of the epilogue and one of C.
        number = np.float64(np.float32(1 if alpha is None else alpha))
        inner = number * (x.value @ dense.T) + (b.value if bias else 0)
        scale = np.abs(number) * (np.abs(x.value) @ np.abs(dense).T) + (np.abs(b.value) if bias else 0)
        mine = ACTIVATIONS[activation](inner) + (np.float64(np.float32(1 if beta is None else beta)) * c.value if residual else 0)
        # No activation is steeper than 1.13; each of theirs and numpy's may be some units off by itself.
        self.within(want, mine, (k + 64) * 2.0**-52 * (1.2 * scale + np.abs(mine) + 1e-300), what)
        return plan

    def test_families_and_dtypes(self):
        for pattern, dtype in itertools.product(PATTERNS, ["f32", "f16", "bf16"]):
            self.check(pattern, dtype, 5, 48, 80)

    def test_layouts_and_gaps(self):
        for family, dtype in itertools.product(FAMILIES.values(), ["f32", "f16", "bf16"]):
            for x_layout, y_layout, gap in itertools.product(["token", "feature"], ["token", "feature"], [0, 3]):
                self.check(family, dtype, 7, 33, 50, x_layout, y_layout, gap)

    def test_epilogues(self):
        for activation, bias, residual in itertools.product(ACTIVATIONS, [False, True], [False, True]):
            for dtype in ["f32", "f16"]:
                self.check(
                    "2:4",
                    dtype,
                    4,
                    40,
                    64,
                    activation=activation,
                    bias=bias,
                    residual=residual,
                    alpha=0.75,
                    beta=-1.5 if residual else None,
                )
        self.check("25%", "f32", 3, 20, 64, bias=True, residual=True)

    def test_other_dtypes(self):
        self.check("2:4", "f16", 3, 24, 64, y_dtype="f32")
        self.check("2:4", "bf16", 3, 24, 64, y_dtype="f32", bias=True, residual=True, bias_dtype="bf16", c_dtype="f32")

    def test_every_kernel_by_name(self):
        ran = 0
        for kernel in lacuna.kernels():
            if kernel.device != "cpu":
                continue
            for family in kernel.families:
                for dtype in kernel.weight_dtypes:
                    try:
                        plan = self.check(FAMILIES[family], dtype, 3, 32, 64, kernel=kernel.name)
                    except (lacuna.errors.Unsupported, lacuna.errors.NotFound):
                        continue
                    self.assertEqual((plan.kernel, plan.forced, plan.is_dense), (kernel.name, True, kernel.is_dense))
                    ran += 1
        self.assertGreater(ran, 10)

    def test_small_integers_are_exact(self):
        for pattern in PATTERNS:
            w = self.random.integers(-4, 5, (32, 64)).astype(np.float32)
            x = self.random.integers(-4, 5, (6, 64)).astype(np.float32)
            weight, dense = compressed(w, pattern)
            np.testing.assert_array_equal(lacuna.Plan(weight, 6)(x), x.astype(np.float64) @ dense.T)

    def test_vectors(self):
        weight, dense = compressed(self.normal(24, 40), "2:4")
        for x_layout, y_layout in itertools.product(["token", "feature"], repeat=2):
            plan = lacuna.Plan(weight, 1, x_layout=x_layout, y_layout=y_layout)
            x = self.normal(40)
            want, bound = plan.reference(x)
            y = plan(x)
            self.assertEqual(y.shape, (24,))
            self.within(y, want[0], bound[0])
            self.within(plan(x[None, :]), want, bound)
            out = np.full(24, np.nan, np.float32)
            self.assertIs(plan(x, out), out)
            self.within(out, want[0], bound[0])
        wide = self.normal(40, 3)
        plan = lacuna.Plan(weight, 1, x_layout="feature")
        want, bound = plan.reference(wide[:, 1])
        self.within(plan(wide[:, 1]), want[0], bound[0])  # X[k][1] may have gaps between its lines
        self.refuses(ValueError, ["x", "stride"], lacuna.Plan(weight, 1), wide[:, 1])
        self.refuses(ValueError, ["x", "(40,)", "(2, 40)"], lacuna.Plan(weight, 2), self.normal(40))

    def test_sizes_of_zero(self):
        for m, n, k in [(0, 8, 16), (3, 0, 16), (0, 0, 16), (3, 8, 0)]:
            weight, dense = compressed(np.zeros((n, k), np.float32), "2:4")
            plan = lacuna.Plan(weight, m, bias=True)
            y = plan(np.zeros((m, k), np.float32), bias=np.arange(n, dtype=np.float32))
            np.testing.assert_array_equal(y, np.broadcast_to(np.arange(n, dtype=np.float32), (m, n)))

    def test_residual_in_place(self):
        weight, _ = compressed(self.normal(16, 32), "2:4")
        plan = lacuna.Plan(weight, 5, residual=True)
        x, c = self.normal(5, 32), self.normal(5, 16)
        want, bound = plan.reference(x, c=c)
        self.assertIs(plan(x, c, c=c), c)
        self.within(c, want, bound)

    def test_beta_of_zero_reads_no_c(self):
        weight, _ = compressed(self.normal(16, 32), "2:4")
        plan = lacuna.Plan(weight, 5, residual=True)
        x = self.normal(5, 32)
        want, bound = plan.reference(x, c=np.full((5, 16), np.nan, np.float32), beta=0)
        self.within(plan(x, c=np.full((5, 16), np.nan, np.float32), beta=0), want, bound)
        self.within(plan(x, beta=0), want, bound)

    def test_what_is_not_finite(self):
        w = self.normal(16, 32)
        w[3, :] = np.nan
        w[5, 0] = np.inf
        weight, _ = compressed(w, "2:4")
        plan = lacuna.Plan(weight, 2)
        y = plan(np.ones((2, 32), np.float32))
        self.assertTrue(np.isnan(y[:, 3]).all() and np.isinf(y[:, 5]).all())
        self.assertTrue(np.isfinite(np.delete(y, [3, 5], 1)).all())

    def test_shards_make_the_whole(self):
        w, x = self.normal(32, 64), self.normal(4, 64)
        weight, dense = compressed(w, "vw8:2:8")
        whole, bound = lacuna.Plan(weight, 4).reference(x)
        rows = [weight.shard("n", a, b) for a, b in [(0, 8), (8, 32)]]
        self.within(np.hstack([lacuna.Plan(part, 4)(x) for part in rows]), whole, bound)
        cols = [weight.shard("k", a, b) for a, b in [(0, 24), (24, 64)]]
        parts = [lacuna.Plan(part, 4).reference(x[:, a:b])[0] for part, (a, b) in zip(cols, [(0, 24), (24, 64)])]
        np.testing.assert_allclose(sum(parts), whole, rtol=1e-13, atol=1e-13)
        # a shard of permuted rows writes its own outputs into the whole Y and leaves the others alone
        weight, dense = compressed(w, "shfl8:25%")
        plan = lacuna.Plan(weight.shard("n", 0, 16), 4)
        self.assertEqual(plan.n, 32)
        y = np.full((4, 32), 7, np.float32)
        plan(x, y)
        whole, bound = lacuna.Plan(weight, 4).reference(x)
        own = ~(y == 7).all(0)
        self.assertEqual(own.sum(), 16)
        self.within(y[:, own], whole[:, own], bound[:, own])

    def test_what_a_plan_tells(self):
        weight, _ = compressed(self.normal(64, 128), "2:4", "f16")
        plan = lacuna.Plan(weight, m=9, device="cpu", bias=True, activation="silu", y_dtype="f32", threads=1)
        self.assertEqual((plan.m, plan.n, plan.k), (9, 64, 128))
        self.assertEqual((plan.x_dtype, plan.y_dtype, plan.bias_dtype, plan.c_dtype), ("f16", "f32", "f32", "f32"))
        self.assertEqual((plan.has_bias, plan.has_residual, plan.activation, plan.x_layout), (True, False, "silu", "token"))
        self.assertEqual(bytes(plan.weight.parts["values"]), bytes(weight.parts["values"]))  # another holder of the same
        self.assertEqual(plan.device.name, "cpu")
        self.assertIn(plan.kernel, [k.name for k in lacuna.kernels()])
        levels = plan.explain()
        self.assertEqual(sum(level.is_bound for level in levels), 1)
        self.assertEqual([level.name for level in levels if level.is_bound], [plan.bound])
        self.assertGreaterEqual(plan.predicted_seconds, plan.ceiling_seconds)
        self.assertEqual(repr(plan), f"<lacuna.Plan 9, 64, 128 on cpu: {plan.kernel}>")

    def test_prediction_for_a_gpu_that_is_not_here(self):
        weight, _ = compressed(self.normal(64, 128), "2:4", "f16")
        plan = lacuna.Plan(weight, 16, "h200", predict_only=True)
        self.assertTrue(plan.kernel.startswith("cuda"))
        self.refuses(ValueError, ["x", "'h200'"], plan, self.normal(16, 128, dtype=np.float16))
        self.refuses(ValueError, "oracle", plan.reference, self.normal(16, 128, dtype=np.float16))

    def test_addresses(self):
        weight, _ = compressed(self.normal(24, 40), "2:4")
        plan = lacuna.Plan(weight, 3, bias=True)
        x, y, b = self.normal(3, 40), np.empty((3, 24), np.float32), self.normal(24)
        want, bound = plan.reference(x, bias=b)
        plan.execute_pointers(x.ctypes.data, 0, y.ctypes.data, 0, b.ctypes.data, 0, 0, 0, 0, 0)
        self.within(y, want, bound)
        self.refuses(TypeError, ["10", "3"], plan.execute_pointers, 1, 2, 3)
        self.refuses(ValueError, ["ldy", "-1"], plan.execute_pointers, x.ctypes.data, 0, y.ctypes.data, -1, b.ctypes.data, 0, 0, 0, 0, 0)
        self.refuses(ValueError, ["bias", "'b'"], plan.execute_pointers, x.ctypes.data, 0, y.ctypes.data, 0, "b", 0, 0, 0, 0, 0)
        self.refuses(
            lacuna.errors.InvalidArgument, ["args->x is NULL"], plan.execute_pointers, 0, 0, y.ctypes.data, 0, b.ctypes.data, 0, 0, 0, 0, 0
        )

    def test_threads_share_a_plan(self):
        """Calls that need scratch memory at the same time must not share it: each has its own x, and all results are right, every time."""
        weight, _ = compressed(self.normal(96, 256), "2:4", "f16")
        plans = [lacuna.Plan(weight, 8, x_layout=a, y_layout=b) for a in ["token", "feature"] for b in ["token", "feature"]]
        plan = max(plans, key=lambda p: p.workspace_bytes)
        self.assertGreater(plan.workspace_bytes, 0, "no plan here needs scratch memory, so that this shows nothing")
        wrong, gate = [], threading.Barrier(6)

        def work(number):
            x = np.random.default_rng(number).standard_normal((8, 256)).astype(np.float16)
            x = np.asfortranarray(x) if plan.x_layout == "feature" else x
            want = np.array(plan(x))
            gate.wait()
            for _ in range(150):
                if not (plan(x) == want).all():
                    wrong.append(number)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        self.assertEqual(wrong, [])


if __name__ == "__main__":
    main()
