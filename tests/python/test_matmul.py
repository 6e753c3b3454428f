"""test_matmul.py - lacuna.matmul() and the plans behind it, with numpy alone: against the oracle's bound, element by element.

PYTHONPATH=build/python build/venv/bin/python -B tests/python/test_matmul.py
"""

import gc
import os
import threading
import time
import unittest
import warnings
import weakref

import numpy

import lacuna
from lacuna import _plans

PATTERNS = ("2:4", "vw4:3:7", "bw2x2:1:2", "8:2:8", "shfl8:40%")
DTYPES = {"f32": numpy.float32, "f16": numpy.float16}


def gaussian(*shape, seed=1, dtype=numpy.float32):
    return numpy.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


def weight_of(n, k, pattern="2:4", dtype="f32"):
    return lacuna.compress(gaussian(n, k), pattern, dtype=dtype)


class Case(unittest.TestCase):
    def check(self, y, x, weight, **given):
        """y [..., n] is what the oracle says of x [..., k], within its bound; `given` are matmul's arguments."""
        n, k = weight.shape
        x2 = numpy.ascontiguousarray(x.reshape(-1, k))
        operands = {name: given[name] for name in ("bias", "alpha", "beta") if given.get(name) is not None}
        if given.get("residual") is not None:
            operands["c"] = numpy.ascontiguousarray(given["residual"].reshape(-1, n))
        options = {"bias": given.get("bias") is not None, "residual": given.get("residual") is not None}
        options.update(
            {name + "_dtype": given[key].dtype for name, key in (("bias", "bias"), ("c", "residual")) if given.get(key) is not None}
        )
        plan = lacuna.Plan(weight, len(x2), x_dtype=x.dtype, y_dtype=y.dtype, activation=given.get("activation", "none"), **options)
        expected, bound = plan.reference(x2, **operands)
        self.assertEqual(y.shape, (*x.shape[:-1], n))
        far = numpy.abs(y.reshape(-1, n).astype(numpy.float64) - expected) - bound
        self.assertTrue((far <= 0).all(), f"{numpy.count_nonzero(far > 0)} of {far.size} are too far, by {far.max()} at most")
        self.assertGreater(numpy.abs(expected).sum(), 0)


class Products(Case):
    def test_patterns_and_dtypes(self):
        for pattern in PATTERNS:
            for dtype in DTYPES.values():
                with self.subTest(pattern=pattern, dtype=dtype.__name__):
                    weight = lacuna.compress(gaussian(37, 53, dtype=dtype), pattern)
                    x = gaussian(9, 53, dtype=dtype)
                    y = lacuna.matmul(x, weight)
                    self.assertEqual(y.dtype, dtype)
                    self.check(y, x, weight)

    def test_leading_dimensions(self):
        weight = weight_of(24, 40)
        for shape in ((40,), (1, 40), (2, 3, 40), (2, 1, 3, 2, 40)):
            x = gaussian(*shape)
            self.check(lacuna.matmul(x, weight), x, weight)
        for shape in ((0, 40), (3, 0, 40)):
            self.assertEqual(lacuna.matmul(gaussian(*shape), weight).shape, (*shape[:-1], 24))

    def test_views(self):
        """Strided, reversed, transposed and broadcast inputs give what their copies do."""
        weight = weight_of(24, 40)
        wide = gaussian(12, 80)
        for x in (wide[::2, :40], wide[:, ::2], wide[::-1, :40], gaussian(40, 12).T, numpy.broadcast_to(gaussian(40), (5, 40))):
            with self.subTest(strides=x.strides):
                self.check(lacuna.matmul(x, weight), x, weight)

    def test_epilogue(self):
        weight, x = weight_of(24, 40), gaussian(2, 3, 40)
        bias, residual = gaussian(24, seed=2), gaussian(2, 3, 24, seed=3)
        for activation in ("none", "relu", "gelu", "gelu_tanh", "silu"):
            for given in ({}, {"bias": bias}, {"residual": residual}, {"bias": bias, "residual": residual, "alpha": 0.5, "beta": -2.0}):
                with self.subTest(activation=activation, given=list(given)):
                    given["activation"] = activation
                    self.check(lacuna.matmul(x, weight, **given), x, weight, **given)

    def test_mixed_dtypes(self):
        weight, x = weight_of(24, 40, dtype="f16"), gaussian(6, 40)
        for dtype in (numpy.float16, numpy.float32):
            residual, bias = gaussian(6, 24, dtype=dtype), gaussian(24, dtype=dtype)
            y = lacuna.matmul(x, weight, residual=residual, bias=bias, y_dtype="f16")
            self.assertEqual(y.dtype, numpy.float16)
            self.check(y, x, weight, residual=residual, bias=bias)

    def test_out(self):
        weight, x = weight_of(24, 40), gaussian(2, 3, 40)
        for out in (numpy.full((2, 3, 24), numpy.nan, numpy.float32), numpy.full((6, 2, 30), numpy.nan, numpy.float32)[:, 0, :24]):
            shaped = x if out.ndim == 3 else x.reshape(6, 40)
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # numpy's, of what it will not do for ever
                self.assertIs(lacuna.matmul(shaped, weight, out=out), out)
            self.check(out, shaped, weight)
        wide = numpy.full((2, 3, 30), numpy.nan, numpy.float32)
        lacuna.matmul(x, weight, out=wide[..., 3:27])
        self.check(wide[..., 3:27], x, weight)
        self.assertTrue(numpy.isnan(wide[..., :3]).all() and numpy.isnan(wide[..., 27:]).all())
        nothing = numpy.empty((2, 0, 24), numpy.float32)
        self.assertIs(lacuna.matmul(x[:, :0], weight, out=nothing), nothing)
        turned = numpy.full((24, 6), numpy.nan, numpy.float32)
        lacuna.matmul(x.reshape(6, 40), weight, out=turned.T, residual=gaussian(6, 24))
        self.check(turned.T, x.reshape(6, 40), weight, residual=gaussian(6, 24))

    def test_feature_major_needs_no_copy(self):
        weight = weight_of(24, 40)
        y = lacuna.matmul(gaussian(40, 12).T, weight, y_layout="feature")
        self.assertEqual(y.strides, (4, 48))
        self.assertEqual([(plan.x_layout, plan.y_layout) for plan in lacuna.cached_plans(weight)], [("feature", "feature")])

    def test_integers_are_exact(self):
        random = numpy.random.default_rng(5)
        w = random.integers(-4, 5, (33, 64)).astype(numpy.float32)
        for pattern in PATTERNS:
            mask = lacuna.prune(w, pattern)
            weight = lacuna.compress(w, mask)
            for m in (1, 3, 17, 18, 19, 20, 21, 22, 23):
                x = random.integers(-4, 5, (m, 64)).astype(numpy.float32)
                numpy.testing.assert_array_equal(lacuna.matmul(x, weight), x @ (w * mask.numpy()).T)


class Refusals(Case):
    def refuses(self, kind, text, *args, **kwargs):
        with self.assertRaisesRegex(kind, text):
            lacuna.matmul(*args, **kwargs)

    def test_arguments(self):
        weight, x = weight_of(24, 40), gaussian(6, 40)
        self.refuses(TypeError, "weight is of type ndarray; it must be a lacuna.Weight", x, gaussian(24, 40))
        self.refuses(TypeError, "x is of type list", [[1.0] * 40], weight)
        self.refuses(ValueError, r"x has the shape \(6, 39\); its last dimension must be 40", x[:, :39], weight)
        self.refuses(ValueError, r"x has the shape \(\)", numpy.zeros((), numpy.float32), weight)
        self.refuses(ValueError, "x is of dtype float64", x.astype(numpy.float64), weight)
        self.refuses(ValueError, "bias is of dtype int64", x, weight, bias=numpy.arange(24))
        self.refuses(ValueError, r"bias has the shape .23,.; it must be .24,.", x, weight, bias=gaussian(23))
        self.refuses(ValueError, r"residual has the shape \(6, 23\); its last", x, weight, residual=gaussian(6, 23))
        self.refuses(ValueError, r"residual has the shape \(5, 24\); with this x it must be \(6, 24\)", x, weight, residual=gaussian(5, 24))
        self.refuses(ValueError, r"out has the shape \(5, 24\)", x, weight, out=gaussian(5, 24))
        self.refuses(ValueError, "beta is 2.0, but there is no residual", x, weight, beta=2.0)
        self.refuses(ValueError, "activation is 'tanh'", x, weight, activation="tanh")
        self.refuses(ValueError, "device is 'h200', but x is in the memory of 'cpu'", x, weight, device="h200")
        self.refuses(TypeError, "takes no x_layout", x, weight, x_layout="feature")
        self.refuses(TypeError, "flavour", x, weight, flavour=1)
        self.refuses(ValueError, "y_dtype is 'f64'", x, weight, y_dtype="f64")
        self.refuses(ValueError, "y_dtype is 'f16', but out is of dtype float32", x, weight, y_dtype="f16", out=gaussian(6, 24))
        for dtype in ("f16", "float16", numpy.float16, numpy.dtype("float16")):
            for m in (6, 0):
                self.assertEqual(lacuna.matmul(gaussian(m, 40), weight, y_dtype=dtype).dtype, numpy.float16)
        for m in (6, 7, 8, 9, 93):
            masked = numpy.ma.masked_array(gaussian(m, 40), gaussian(m, 40) > 0)
            self.refuses(TypeError, "x is a masked array", masked, weight)
            self.refuses(TypeError, "x is a masked array", masked[:, ::-1], weight)
            covered = numpy.ma.masked_array(gaussian(m, 24), True)
            for name in ("out", "residual"):
                self.refuses(TypeError, f"{name} is a masked array", gaussian(m, 40), weight, **{name: covered})
            self.refuses(TypeError, "bias is a masked array", gaussian(m, 40), weight, bias=covered[0])
            lacuna.matmul(gaussian(m, 40), weight)
        frozen = gaussian(93, 24)
        frozen.setflags(write=False)
        for m in (1, 2, 3, 4, 93):  # a plan of its own, and one for 96
            self.refuses(lacuna.errors.InvalidArgument, "out is read-only", gaussian(m, 40), weight, out=frozen[:m])
            lacuna.matmul(gaussian(m, 40), weight)
        gaps = numpy.empty((2, 3, 30), numpy.float32)[:, ::2, :24]
        self.refuses(ValueError, "out of shape .* cannot be seen as", gaussian(2, 2, 40), weight, out=gaps)
        self.refuses(lacuna.errors.NotFound, "no_such_kernel", x, weight, kernel="no_such_kernel")

    def test_limits(self):
        for name, value in (("per_weight", 0), ("per_weight", 1.5), ("exact", -1), ("exact", True)):
            with self.assertRaisesRegex(ValueError, f"{name} is {value}"):
                lacuna.plan_limits(**{name: value})
        self.assertEqual(lacuna.plan_limits(), {"per_weight": 8, "exact": 4})


class Plans(Case):
    def setUp(self):
        self.addCleanup(lacuna.plan_limits, **lacuna.plan_limits())

    def sizes(self, weight):
        return [plan.m for plan in lacuna.cached_plans(weight)]

    def test_rounding(self):
        """Never below m, less than a quarter above it, four steps an octave, and a fixed point."""
        steps = sorted({_plans.round_up(m) for m in range(1, 5000)})
        self.assertEqual(steps[:16], [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32])
        for m in range(1, 5000):
            self.assertTrue(m <= _plans.round_up(m) < 1.25 * m, m)
            self.assertEqual(_plans.round_up(_plans.round_up(m)), _plans.round_up(m))

    def test_one_plan_for_one_problem(self):
        weight, x = weight_of(24, 40), gaussian(6, 40)
        for _ in range(3):
            lacuna.matmul(x, weight)
            lacuna.matmul(x.reshape(2, 3, 40), weight)
            lacuna.matmul(x[:1], weight, bias=gaussian(24))
        self.assertEqual(sorted(self.sizes(weight)), [1, 6])
        self.assertEqual(lacuna.cached_plans(weight_of(24, 40)), [])

    def test_changing_sizes(self):
        """The first four sizes have plans of their own, later ones share; there are never more than eight, and all are right."""
        weight = weight_of(24, 40)
        for m in (1, 33, 50, 70):
            lacuna.matmul(gaussian(m, 40), weight)
        for m in (33, 41, 42, 43, 47, 39, 100, 101, 300, 33):
            x, residual = gaussian(m, 40), gaussian(m, 24, seed=2)
            self.check(lacuna.matmul(x, weight, residual=residual), x, weight, residual=residual)
        for m in range(1, 400, 7):
            x = gaussian(m, 40)
            self.check(lacuna.matmul(x, weight), x, weight)
            out = numpy.full((m, 24), numpy.nan, numpy.float32)
            self.check(lacuna.matmul(x, weight, out=out), x, weight)
            turned = gaussian(40, m).T
            self.check(lacuna.matmul(turned, weight, y_layout="feature"), turned, weight)
            self.assertLessEqual(len(self.sizes(weight)), 8)
        self.assertEqual(set(self.sizes(weight)) - {_plans.round_up(m) for m in range(1, 400)} - {1, 33, 50, 70}, set())

    def test_what_the_other_rows_are_does_not_matter(self):
        """A rounded product's rows are those of its own input, also where a neighbour overflows."""
        weight = weight_of(24, 40)
        lacuna.plan_limits(exact=0)
        x = gaussian(17, 40)
        clean = lacuna.matmul(x, weight)
        x[3] = numpy.inf
        dirty = lacuna.matmul(x, weight)
        self.assertEqual(self.sizes(weight), [20])
        numpy.testing.assert_array_equal(numpy.delete(dirty, 3, 0), numpy.delete(clean, 3, 0))

    def test_the_least_used_goes(self):
        lacuna.plan_limits(per_weight=3, exact=3)
        weight = weight_of(24, 40)
        for m in (1, 2, 3, 1, 4):
            lacuna.matmul(gaussian(m, 40), weight)
        self.assertEqual(self.sizes(weight), [3, 1, 4])

    def test_pinned_ones_stay(self):
        weight = weight_of(24, 40)
        pinned = _plans.plan_for(weight, 5, "cpu", (), pin=True)
        for m in range(1, 30):
            _plans.plan_for(weight, m, "cpu", (), rounded=False)
        self.assertIs(_plans.plan_for(weight, 5, "cpu", (), make=False), pinned)
        self.assertEqual(len(lacuna.cached_plans(weight)), 9)
        self.assertIsNone(_plans.plan_for(weight, 3, "cpu", (), make=False))

    def test_plans_go_with_the_weight(self):
        weight = weight_of(24, 40)
        lacuna.matmul(gaussian(6, 40), weight)
        gone = weakref.ref(weight)
        before = len(_plans._caches)
        del weight
        gc.collect()
        self.assertIsNone(gone())
        self.assertEqual(len(_plans._caches), before - 1)

    def test_memory_that_others_keep_is_let_go(self):
        """Where there is no memory for a plan, those that are only kept go, and it is tried once more."""
        kept, weight, calls = weight_of(24, 40), weight_of(24, 40), []
        lacuna.matmul(gaussian(6, 40), kept)
        real = _plans.Plan

        def plan(*args, **kwargs):
            calls.append(lacuna.cached_plans(kept))
            if len(calls) == 1:
                raise lacuna.errors.OutOfMemory("there is none")
            return real(*args, **kwargs)

        _plans.Plan = plan
        self.addCleanup(setattr, _plans, "Plan", real)
        lacuna.matmul(gaussian(6, 40), weight)
        self.assertEqual([len(found) for found in calls], [1, 0])

    def test_threads(self):
        """Eight threads, one weight, changing sizes: every result is right, and none has made a plan twice."""
        weight = weight_of(64, 96)
        inputs = {m: gaussian(m, 96) for m in (1, 2, 5, 9)}
        expected = {m: lacuna.matmul(x, weight_of(64, 96), threads=1) for m, x in inputs.items()}
        made, real, wrong = [], _plans.Plan, []

        def plan(*args, **kwargs):
            made.append(args[1])
            time.sleep(0.01)  # for others to come by
            return real(*args, **kwargs)

        def work(first):
            for i in range(60):
                m = list(inputs)[(first + i) % len(inputs)]
                if not numpy.array_equal(lacuna.matmul(inputs[m], weight, threads=1), expected[m]):
                    wrong.append(m)

        _plans.Plan = plan
        self.addCleanup(setattr, _plans, "Plan", real)
        threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])
        self.assertEqual(sorted(made), [1, 2, 5, 9])

    def test_a_call_within_a_call(self):
        """A handler of a signal, or an object that goes, multiplies by the weight whose plan is just being made."""
        weight, x, made, done = weight_of(24, 40), gaussian(6, 40), [], []
        real = _plans.Plan

        def plan(*args, **kwargs):
            made.append(args[1])
            if len(made) % 2:
                done.append(lacuna.matmul(x[: len(made) + 1], weight))
            return real(*args, **kwargs)

        def work():
            done.append(lacuna.matmul(x, weight))
            done.append(_plans.plan_for(weight, 7, "cpu", (), pin=True))

        _plans.Plan = plan
        self.addCleanup(setattr, _plans, "Plan", real)
        lacuna.plan_limits(per_weight=1)
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        thread.join(30)
        self.assertFalse(thread.is_alive(), "it waits for itself")
        self.assertEqual(made, [6, 2, 7, 4])
        for y in (done[0], done[1], done[2]):
            self.check(y, x[: len(y)], weight)
        self.assertIs(_plans.plan_for(weight, 7, "cpu", (), make=False), done[3])

    def test_fork(self):
        """A child multiplies by the weight that its parent has used with several threads."""
        weight, x = weight_of(256, 256), gaussian(64, 256)
        for given in ({}, {"threads": 2}):
            expected = lacuna.matmul(x, weight, **given)
            with self.subTest(given):
                self.in_child(lambda: numpy.allclose(lacuna.matmul(x, weight, **given), expected, rtol=1e-4, atol=1e-4))

    def test_fork_keeps_what_is_the_parents(self):
        """On a GPU a child could not release it."""
        weights = [weight_of(16, 16)]
        lacuna.matmul(gaussian(2, 16), weights[0])
        plans = weakref.ref(_plans.plans_of(weights[0]))

        def child():
            weights.clear()
            gc.collect()
            return plans() is not None

        self.in_child(child)
        weights.clear()
        gc.collect()
        self.assertIsNone(plans())

    def in_child(self, call):
        """call() is true in a child of fork(), within 30 seconds."""
        child = os.fork()
        if child == 0:
            try:
                os._exit(0 if call() else 1)
            except BaseException:
                os._exit(2)
        for _ in range(600):
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                break
            threading.Event().wait(0.05)
        else:
            os.kill(child, 9)
            os.waitpid(child, 0)
            self.fail("the child waits for ever")
        self.assertEqual(os.waitstatus_to_exitcode(status), 0)


class Dlpack:
    """Somebody else's array: DLPack and a shape, nothing of numpy's."""

    def __init__(self, array):
        self.array, self.shape, self.dtype = array, array.shape, array.dtype

    def __dlpack__(self, **kwargs):
        return self.array.__dlpack__(**kwargs)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def reshape(self, shape):
        return Dlpack(self.array.reshape(shape))


class Others(Case):
    def test_dlpack(self):
        weight, x = weight_of(24, 40), gaussian(2, 3, 40)
        for m in (1, 2, 3, 4, 5, 6):  # not rounded: they cannot be padded
            lacuna.matmul(Dlpack(gaussian(m + 40, 40)), weight)
        y = lacuna.matmul(Dlpack(x), weight)
        self.assertIsInstance(y, numpy.ndarray)
        self.check(y, x, weight)

    def test_operands_of_several_kinds(self):
        """What cannot be padded keeps all from being rounded, whichever operand it is."""
        weight = weight_of(24, 40)
        for m in range(9, 17):
            x, residual = gaussian(m, 40), gaussian(m, 24, seed=2)
            array, out = lacuna.DeviceArray((m, 24), "f32", "cpu"), numpy.full((m, 24), numpy.nan, numpy.float32)
            self.assertIs(lacuna.matmul(x, weight, out=array), array)
            self.check(array.numpy(), x, weight)
            lacuna.matmul(x, weight, out=Dlpack(out))
            self.check(out, x, weight)
            for lent in (array.copy_from(residual), Dlpack(residual)):
                self.check(lacuna.matmul(x, weight, residual=lent), x, weight, residual=residual)
            turned = lacuna.DeviceArray((24, m), "f32", "cpu").copy_from(numpy.ascontiguousarray(residual.T)).T
            self.check(lacuna.matmul(x, weight, residual=turned, y_layout="feature"), x, weight, residual=residual)

    def test_device_array(self):
        weight, x = weight_of(24, 40), gaussian(6, 40)
        y = lacuna.matmul(lacuna.DeviceArray((6, 40), "f32", "cpu").copy_from(x), weight, activation="relu")
        self.assertIsInstance(y, lacuna.DeviceArray)
        self.check(y.numpy(), x, weight, activation="relu")
        y = lacuna.matmul(lacuna.DeviceArray(40, "f32", "cpu").copy_from(x[0]), weight)
        self.check(y.numpy(), x[0], weight)
        with self.assertRaisesRegex(ValueError, "a DeviceArray must have one or two dimensions"):
            lacuna.matmul(lacuna.DeviceArray((2, 3, 40), "f32", "cpu"), weight)


if __name__ == "__main__":
    unittest.main()
