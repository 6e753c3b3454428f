"""test_core_weights.py - patterns, masks, pruning, calibrations and compressed weights against numpy."""

import copy
import gc
import pickle
import threading
import weakref

import numpy as np
from core_case import PATTERNS, Case, Lender, compressed, lend_bf16, main, to_bf16

import lacuna
from lacuna.errors import InvalidArgument, PatternViolated, ValueOutOfRange


class Patterns(Case):
    def test_texts_and_fields(self):
        fields = {
            "2:4": ("element", 1, 1, 2, 4, 0.5),
            "vw32:8:32": ("vector", 32, 1, 8, 32, 0.25),
            "bw4x2:2:8": ("block", 4, 2, 2, 8, 0.25),
            "64:2:8": ("vnm", 64, 1, 2, 8, 0.25),
            "shfl64:12.5%": ("shuffled", 64, 1, 0, 0, 0.125),
            "25%": ("element", 1, 1, 0, 0, 0.25),
        }
        for text, want in fields.items():
            p = lacuna.Pattern(text)
            self.assertEqual((p.family, p.unit_n, p.unit_k, p.n, p.m, p.density), want)
            self.assertEqual((str(p), repr(p), lacuna.Pattern(p)), (text, f"Pattern('{text}')", p))

    def test_equality_hash_and_copies(self):
        a, b, c = lacuna.Pattern("2:4"), lacuna.Pattern("2:4"), lacuna.Pattern("1:4")
        self.assertTrue(a == b and a != c and not a != b and a != "2:4")
        self.assertEqual(len({a, b, c}), 2)
        for p in map(lacuna.Pattern, PATTERNS):
            self.assertEqual(pickle.loads(pickle.dumps(p)), p)
            self.assertIs(copy.deepcopy(p), p)
        with self.assertRaises(TypeError):
            a < b

    def test_refusals(self):
        self.refuses(InvalidArgument, ["5:4"], lacuna.Pattern, "5:4")
        self.refuses(ValueError, ["text", "null"], lacuna.Pattern, "2:4\0:8")
        self.refuses(TypeError, ["text", "24"], lacuna.Pattern, 24)
        self.refuses(TypeError, ["pattern", "None"], lacuna.prune, self.normal(4, 4), None)
        self.refuses(UnicodeEncodeError, "surrogates", lacuna.Pattern, "2:4\udc80")

    def test_check(self):
        w = np.zeros((4, 8), np.float32)
        w[1, :2] = w[3, 4:7] = 1
        error = self.refuses(PatternViolated, ["3"], lacuna.Pattern("2:4").check, w)
        self.assertEqual((error.row, error.kept, error.allowed), (3, 3, 2))
        self.assertIn(error.col, [4, 5, 6])
        self.assertIsNone(lacuna.Pattern("3:4").check(w))


class Masks(Case):
    def test_magnitude_against_numpy(self):
        for dtype in [np.float32, np.float16, np.float64]:
            w = self.normal(12, 16, dtype=dtype)
            mask = lacuna.prune(w, "2:4")
            rank = np.argsort(np.argsort(-np.abs(w.reshape(12, 4, 4)), 2, kind="stable"), 2)
            np.testing.assert_array_equal(mask.numpy(), (rank < 2).reshape(12, 16))
            self.assertEqual((mask.n, mask.k, mask.shape, mask.kept, str(mask.pattern)), (12, 16, (12, 16), 96, "2:4"))
        self.assertEqual(repr(mask), "<lacuna.Mask 12 x 16, 2:4, 96 kept>")

    def test_orders_of_memory_and_lenders(self):
        w = self.normal(12, 16)
        want = lacuna.prune(w, "2:4").numpy()
        wide = np.zeros((12, 40), np.float32)
        wide[:, 5:21] = w
        for same in [np.asfortranarray(w), wide[:, 5:21], Lender(w), Lender(np.asfortranarray(w)), w[:, :], w.copy()]:
            np.testing.assert_array_equal(lacuna.prune(same, "2:4").numpy(), want)
        np.testing.assert_array_equal(lacuna.prune(w[:, :1], "1:1").numpy(), True)
        column = np.asfortranarray(self.normal(8, 3))[:, 1:2]
        np.testing.assert_array_equal(lacuna.prune(column, "1:2").numpy(), True)
        self.refuses(ValueError, ["w", "strides"], lacuna.prune, w[:, ::2], "2:4")
        self.refuses(ValueError, ["w", "(3,)", "a matrix"], lacuna.prune, w[0, :3], "2:4")

    def test_families_obey_their_pattern(self):
        for text in PATTERNS:
            w = self.normal(32, 64)
            mask = lacuna.prune(w, text)
            kept = np.where(mask.numpy(), w, 0)
            if mask.row_perm is None:
                lacuna.Pattern(text).check(kept)
            self.assertEqual(mask.kept, mask.numpy().sum())
            k, total = mask.energy(w)
            self.assertAlmostEqual(total, float((w.astype(np.float64) ** 2).sum()), delta=1e-9 * total)
            self.assertAlmostEqual(k, float((kept.astype(np.float64) ** 2).sum()), delta=1e-9 * total)
            again = w.copy()
            self.assertIs(mask.apply(again), again)
            np.testing.assert_array_equal(again, kept)

    def test_made_otherwise(self):
        w = self.normal(8, 16)
        pruned = np.where(lacuna.prune(w, "2:4").numpy(), w, 0)
        bare = lacuna.Mask.from_nonzeros(pruned)
        self.assertIsNone(bare.pattern)
        np.testing.assert_array_equal(bare.numpy(), pruned != 0)
        self.assertEqual(str(bare.with_pattern("2:4").pattern), "2:4")
        self.refuses(PatternViolated, "", bare.with_pattern, "1:4")
        np.testing.assert_array_equal(lacuna.Mask.from_matrix(w=pruned, pattern="2:4").numpy(), pruned != 0)
        self.refuses(PatternViolated, "", lacuna.Mask.from_matrix, w, "2:4")
        self.refuses(TypeError, "cannot create", lacuna.Mask)

    def test_orders(self):
        w = self.normal(32, 64)
        mask = lacuna.prune(w, "vw8:2:8", permute="rows")
        if mask.row_perm is not None:
            self.assertEqual(sorted(mask.row_perm), list(range(32)))
        bare = lacuna.Mask.from_nonzeros(np.where(mask.numpy(), w, 0))
        rows, cols = self.random.permutation(32), self.random.permutation(64)
        np.testing.assert_array_equal(bare.reorder(rows, cols).numpy(), bare.numpy()[rows][:, cols])
        np.testing.assert_array_equal(bare.reorder(cols=list(cols)).numpy(), bare.numpy()[:, cols])
        self.refuses(ValueError, ["rows", "31", "32"], bare.reorder, rows[:31])
        self.refuses(ValueError, ["cols", "64", "63"], bare.reorder, None, [64] * 64)
        self.refuses(ValueError, ["rows", "-1"], bare.reorder, [-1] * 32)
        self.refuses(TypeError, ["rows", "5"], bare.reorder, 5)
        self.refuses(TypeError, ["rows", "1.0"], bare.reorder, [1.0] * 32)
        self.refuses(InvalidArgument, "rows", bare.reorder, [0] * 32)
        weight = lacuna.compress(w, lacuna.prune(w, "2:4", permute=("columns",), permute_rounds=5))
        self.assertEqual(weight.has_col_perm, "col_perm" in weight.parts)

    def test_options(self):
        w = self.normal(16, 32)
        l1, l2 = (lacuna.prune(w, "vw4:2:8", score=s).numpy() for s in ["l1", "l2"])
        self.assertFalse((l1 == l2).all())
        both = lacuna.prune(w, "2:4", transposable=True).numpy()
        for axis in [both, both.T]:
            self.assertTrue((axis.reshape(-1, 4).sum(1) == 2).all())
        two = lacuna.prune(w, "2:8", schedule=["4:8"]).numpy()
        self.assertEqual(two.sum(), 16 * 8)
        self.refuses(ValueError, ["method", "'best'", "'magnitude'"], lacuna.prune, w, "2:4", method="best")
        self.refuses(TypeError, ["score", "3"], lacuna.prune, w, "2:4", score=3)
        self.refuses(TypeError, ["prune()", "'metod'"], lacuna.prune, w, "2:4", metod="l2")
        self.refuses(TypeError, ["threads", "1.5"], lacuna.prune, w, "2:4", threads=1.5)
        self.refuses(TypeError, ["threads", "True"], lacuna.prune, w, "2:4", threads=True)
        self.refuses(ValueError, ["threads", str(1 << 40)], lacuna.prune, w, "2:4", threads=1 << 40)
        self.refuses(InvalidArgument, ["threads", "-1"], lacuna.prune, w, "2:4", threads=-1)
        self.refuses(TypeError, ["schedule", "'4:8'"], lacuna.prune, w, "2:8", schedule="4:8")
        self.refuses(TypeError, ["calibration", "7"], lacuna.prune, w, "2:4", calibration=7)
        self.refuses(TypeError, ["transposable", "'no'"], lacuna.prune, w, "2:4", transposable="no")
        self.refuses(TypeError, "two values for 'w'", lacuna.prune, w, "2:4", w=w)
        self.refuses(TypeError, "needs 'pattern'", lacuna.prune, w)
        self.refuses(InvalidArgument, "calibration", lacuna.prune, w, "2:4", method="obs")
        lacuna.prune(w, "2:4", threads=None, method=None, calibration=None, device=None, transposable=np.bool_(False))


class Corrections(Case):
    def test_magnitude_leaves_values(self):
        w = self.normal(8, 16)
        mask, kept = lacuna.prune_and_correct(w, "2:4")
        np.testing.assert_array_equal(kept, np.where(mask.numpy(), w, 0))
        out = w.copy()
        self.assertIs(lacuna.prune_and_correct(out, "2:4", out=out)[1], out)
        np.testing.assert_array_equal(out, kept)
        small = np.empty((8, 16), np.float16)
        lacuna.prune_and_correct(w, "2:4", out=small)
        np.testing.assert_array_equal(small, kept.astype(np.float16))
        whole = np.zeros((9, 16), np.float32)
        self.refuses(ValueError, ["out", "shares memory with w"], lacuna.prune_and_correct, whole[:8], "2:4", out=whole[1:])
        self.refuses(ValueError, ["out", "(8, 15)", "(8, 16)"], lacuna.prune_and_correct, w, "2:4", out=np.empty((8, 15), np.float32))
        self.refuses(TypeError, "'oot'", lacuna.prune_and_correct, w, "2:4", oot=out)

    def test_obs_makes_up_for_what_goes(self):
        w, x = self.normal(8, 32), self.normal(256, 32) @ self.normal(32, 32)
        calibration = lacuna.Calibration(32)
        calibration.add(x)
        mask, kept = lacuna.prune_and_correct(w, "2:4", method="obs", calibration=calibration)
        self.assertFalse(kept[~mask.numpy()].any())
        plain = np.where(lacuna.prune(w, "2:4").numpy(), w, 0)
        lost = [float((((w - v).astype(np.float64) @ x.T.astype(np.float64)) ** 2).sum()) for v in (kept, plain)]
        self.assertLess(lost[0], 0.7 * lost[1])
        total = float(((w.astype(np.float64) @ x.T.astype(np.float64)) ** 2).sum())
        for value, want in zip((kept, plain), lost):
            got = calibration.error(w, value)
            self.assertAlmostEqual(got[0], want, delta=1e-6 * total)
            self.assertAlmostEqual(got[1], total, delta=1e-6 * total)

    def test_gradients_must_have_the_shape_of_w(self):
        w, g = self.normal(8, 16), self.normal(10, 8, 16)
        mask, kept = lacuna.prune_and_correct(w, "2:4", method="fisher", gradients=g)
        self.assertEqual(mask.kept, 64)
        for odd in [g[:, :4], g[:, :, :8], g[0], g[:, :, ::2]]:
            self.refuses(ValueError, ["gradients", "(samples, "], lacuna.prune, w, "2:4", method="fisher", gradients=odd)
        small = np.ascontiguousarray(g[:, :4])
        self.refuses(ValueError, ["gradients", "(10, 4, 16)", "8, 16"], lacuna.prune, w, "2:4", method="fisher", gradients=small)
        self.refuses(
            ValueError, ["gradients", "(10, 4, 16)", "8, 16"], lacuna.prune_and_correct, w, "2:4", method="fisher", gradients=small
        )


class Calibrations(Case):
    def test_sums(self):
        x = self.normal(20, 8)
        x[:, 3] = 0
        one, two, three = (lacuna.Calibration(8) for _ in range(3))
        one.add(x)
        two.add(x[:7])
        two.add(np.asfortranarray(x[7:]), threads=1)
        three.add_moments((x.astype(np.float64).T @ x), 20)
        self.assertEqual([(c.k, c.samples, c.dead) for c in (one, two, three)], [(8, 20, 1)] * 3)
        w = self.normal(4, 8)
        want = float(((w.astype(np.float64) @ x.T) ** 2).sum())
        for c in (one, two, three):
            self.assertAlmostEqual(c.error(w, np.zeros_like(w))[0], want, delta=1e-5 * want)

    def test_refusals(self):
        c = lacuna.Calibration(8)
        x = self.normal(3, 8)
        x[1, 2] = np.nan
        self.refuses(InvalidArgument, ["x"], c.add, x)
        self.assertEqual(c.samples, 0)
        self.refuses(ValueError, ["x", "(3, 7)", "(rows, 8)"], c.add, x[:, :7])
        self.refuses(ValueError, ["moments", "(3, 8)", "(8, 8)"], c.add_moments, x, 3)
        self.refuses(TypeError, ["samples", "'many'"], c.add_moments, np.eye(8), "many")
        self.refuses(InvalidArgument, ["samples", "-1"], c.add_moments, np.eye(8), -1)
        self.refuses(ValueError, ["pruned", "(2, 8)", "(3, 8)"], c.error, self.normal(3, 8), self.normal(2, 8))
        self.refuses(TypeError, ["k", "2.5"], lacuna.Calibration, 2.5)
        self.refuses(InvalidArgument, ["k", "-3"], lacuna.Calibration, -3)
        self.refuses(ValueError, ["k", str(1 << 80)], lacuna.Calibration, 1 << 80)

    def test_threads_add_in_turn(self):
        c, x = lacuna.Calibration(64), self.normal(50, 64)
        w, seen = self.normal(16, 64), []

        def work():
            for _ in range(20):
                c.add(x, threads=1)
                seen.append(c.samples)
                lacuna.prune(w, "2:4", method="wanda", calibration=c, threads=1)

        threads = [threading.Thread(target=work) for _ in range(4)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        self.assertEqual(c.samples, 4 * 20 * 50)
        want = 80 * float(((w.astype(np.float64) @ x.T) ** 2).sum())
        self.assertAlmostEqual(c.error(w, np.zeros_like(w))[1], want, delta=1e-5 * want)


class Weights(Case):
    def test_what_it_is(self):
        for text in PATTERNS:
            w = self.normal(32, 64)
            mask = lacuna.prune(w, text)
            weight = lacuna.compress(w, mask)
            np.testing.assert_array_equal(weight.dense(), np.where(mask.numpy(), w, 0))
            self.assertEqual((weight.shape, weight.n, weight.k, weight.dtype, str(weight.pattern)), ((32, 64), 32, 64, "f32", text))
            self.assertEqual(weight.nbytes, sum(part.nbytes for part in weight.parts.values()))
            self.assertEqual((weight.value_bytes, weight.dense_bytes), (weight.parts["values"].nbytes, 32 * 64 * 4))
            self.assertEqual(repr(weight), f"<lacuna.Weight 32 x 64, {text}, f32>")
            self.assertTrue(all(part.readonly for part in weight.parts.values()))

    def test_options(self):
        w = self.normal(8, 16, dtype=np.float64)
        self.assertEqual(
            [lacuna.compress(w, "2:4", dtype=d).dtype for d in (None, "f16", "bf16", np.float32)], ["f32", "f16", "bf16", "f32"]
        )
        self.assertEqual([lacuna.compress(w, "2:4", encoding=e).encoding for e in ("packed", "bitmask")], ["packed", "bitmask"])
        w[2, 3] = 1e6
        self.refuses(ValueOutOfRange, ["1000000", "f16"], lacuna.compress, w, "2:4", dtype="f16")
        self.assertEqual(lacuna.compress(w, "2:4", dtype="f16", overflow="saturate").dense("f64")[2, 3], 65504)
        self.refuses(ValueError, ["dtype", "'f33'"], lacuna.compress, w, "2:4", dtype="f33")
        self.refuses(ValueError, ["overflow", "'wrap'", "'saturate'"], lacuna.compress, w, "2:4", overflow="wrap")
        self.refuses(ValueError, ["encoding", "'zip'"], lacuna.compress, w, "2:4", encoding="zip")
        self.refuses(InvalidArgument, "", lacuna.compress, w, lacuna.prune(self.normal(4, 16), "2:4"))
        self.refuses(TypeError, ["mask", "3"], lacuna.compress, w, 3)
        self.refuses(TypeError, "'dtipe'", lacuna.compress, w, "2:4", dtipe="f16")

    def test_dense(self):
        weight, dense = compressed(self.normal(8, 16), "2:4")
        out = np.empty((8, 16), np.float16, order="F")
        self.assertIs(weight.dense(out=out), out)
        np.testing.assert_array_equal(out, dense.astype(np.float16))
        self.refuses(TypeError, ["dtype", "'f32'", "out"], weight.dense, "f32", out)
        self.refuses(ValueError, ["dtype", "'i8'"], weight.dense, "i8")
        self.refuses(InvalidArgument, "", weight.dense, out=np.empty((8, 15), np.float32))

    def test_parts_and_pickles(self):
        for text in PATTERNS:
            weight, dense = compressed(self.normal(24, 48), text, "f16")
            for same in [
                pickle.loads(pickle.dumps(weight)),
                lacuna.weight_from_parts(weight.pattern, 24, 48, "f16", weight.parts, weight.encoding),
            ]:
                np.testing.assert_array_equal(same.dense("f64"), dense)
                self.assertEqual({k: bytes(v) for k, v in same.parts.items()}, {k: bytes(v) for k, v in weight.parts.items()})
            self.assertIs(copy.copy(weight), weight)
            self.assertIs(copy.deepcopy([weight])[0], weight)
            info, sizes = lacuna.measure_weight(weight.pattern, 24, 48, "f16", weight.encoding, weight.has_row_perm, weight.has_col_perm)
            self.assertEqual((info.n, info.k, info.dense_bytes), (24, 48, weight.dense_bytes))
            if weight.pattern.m:
                self.assertEqual(sizes, {k: v.nbytes for k, v in weight.parts.items()})
        shard = lacuna.compress(self.normal(32, 64), "shfl8:25%").shard("n", 0, 16)
        same = pickle.loads(pickle.dumps(shard))
        self.assertEqual((same.n, same.shape), (16, (32, 64)))
        np.testing.assert_array_equal(same.dense(), shard.dense())

    def test_hostile_parts(self):
        weight, _ = compressed(self.normal(8, 16), "2:4")
        parts = {name: bytes(view) for name, view in weight.parts.items()}
        make = lacuna.weight_from_parts
        self.refuses(InvalidArgument, "", make, "2:4", 8, 16, "f32", {**parts, "values": parts["values"][:-1]})
        self.refuses(InvalidArgument, "", make, "2:4", 8, 16, "f32", {"values": parts["values"]})
        self.refuses(ValueError, ["a part", "'valyes'"], make, "2:4", 8, 16, "f32", {"valyes": b""})
        self.refuses(TypeError, ["parts", "[]"], make, "2:4", 8, 16, "f32", [])
        self.refuses(TypeError, "int", make, "2:4", 8, 16, "f32", {**parts, "values": 5})
        self.refuses(InvalidArgument, "-8", make, "2:4", -8, 16, "f32", parts)
        self.refuses(TypeError, ["n", "'8'"], make, "2:4", "8", 16, "f32", parts)
        with self.assertRaises((PatternViolated, InvalidArgument)):
            make("2:4", 8, 16, "f32", {**parts, "index": b"\0" * len(parts["index"])})

    def test_views_keep_their_weight(self):
        weight, _ = compressed(self.normal(8, 16), "2:4")
        gone, view = weakref.ref(weight), weight.parts["values"]
        want = bytes(view)
        del weight
        gc.collect()
        self.assertIsNotNone(gone())
        self.assertEqual(bytes(view), want)
        with self.assertRaises(TypeError):
            view[0] = 1
        view.release()
        gc.collect()
        self.assertIsNone(gone())

    def test_shards(self):
        weight, dense = compressed(self.normal(32, 64), "vw8:2:8")
        np.testing.assert_array_equal(weight.shard("n", 8, 24).dense("f64"), dense[8:24])
        np.testing.assert_array_equal(weight.shard(axis="k", begin=16, end=64).dense("f64"), dense[:, 16:])
        self.refuses(InvalidArgument, "3", weight.shard, "n", 3, 24)
        self.refuses(ValueError, ["axis", "'m'", "'n' or 'k'"], weight.shard, "m", 0, 8)
        self.refuses(TypeError, ["begin", "0.0"], weight.shard, "n", 0.0, 8)

    def test_bfloat16_from_lenders(self):
        bits = to_bf16(self.normal(8, 16))
        weight = lacuna.compress(lend_bf16(bits), "2:4")
        mask = lacuna.prune(lend_bf16(bits), "2:4").numpy()
        kept = np.zeros((8, 16), np.uint16)
        weight.dense(out=lend_bf16(kept))
        np.testing.assert_array_equal(kept, np.where(mask, bits, 0))

    def test_what_cannot_be_pickled_says_so(self):
        weight, _ = compressed(self.normal(8, 16), "2:4")
        for it in [
            lacuna.prune(self.normal(4, 8), "2:4"),
            lacuna.Plan(weight, 1),
            lacuna.Calibration(4),
            lacuna.DeviceArray((2,), "f32", "cpu"),
        ]:
            self.refuses(TypeError, ["cannot pickle", type(it).__name__], pickle.dumps, it)
        device = lacuna.Device("cpu")
        self.assertEqual(pickle.loads(pickle.dumps(device)).name, "cpu")
        self.assertIs(lacuna.Device(device), device)
        record = lacuna.devices()[0]
        self.assertEqual(pickle.loads(pickle.dumps(record)), record)

    def test_limits(self):
        self.assertEqual((lacuna._core.MAX_DIMENSION, lacuna._core.MAX_GROUP, lacuna._core.MAX_RANK), (2**31 - 1, 256, 8))


if __name__ == "__main__":
    main()
