"""test_bench_run.py - what lacuna bench times and tells: columns, labels, refusal of wrong results, peers, baselines, limits, turns."""

import csv
import fcntl
import io
import os
import subprocess
import unittest

from bench_case import BenchCase, COLUMNS, FAKE, MEASURED, PEER_CSR, PEER_FAULTY


class BenchRun(BenchCase):
    def test_columns_and_numbers(self):
        rows = self.rows("16,64,96", "1,64,96", "-p", "2:4,vw32:8:32", "--threads", "1", cold=True, LAC_COMMIT="cafe", **MEASURED)
        with open(self.path("out.csv")) as file:
            self.assertEqual(file.readline().rstrip("\n"), COLUMNS)
        self.assertEqual(
            [(r["m"], r["pattern"]) for r in rows], [("16", "2:4"), ("1", "2:4"), ("16", "vw32:8:32"), ("1", "vw32:8:32")]
        )
        for row in rows:
            m, n, k = int(row["m"]), int(row["n"]), int(row["k"])
            time, dense = float(row["time_us"]), float(row["dense_us"])
            density = {"2:4": 0.5, "vw32:8:32": 0.25}[row["pattern"]]
            self.assertEqual((n, k, float(row["density"])), (64, 96, density))
            self.assertAlmostEqual(float(row["speedup"]), dense / time, delta=1e-4 * dense / time)
            dense_rate = 2e-6 * m * n * k / time
            self.assertAlmostEqual(float(row["tflops_dense_equivalent"]), dense_rate, delta=1e-4 * dense_rate)
            self.assertAlmostEqual(float(row["tflops_real"]), density * dense_rate, delta=1e-4 * dense_rate)
            self.assertAlmostEqual(float(row["share_of_ceiling"]), float(row["ceiling_us"]) / time, delta=1e-3)
            self.assertLessEqual(float(row["max_error"]), float(row["error_bound"]))
            self.assertGreaterEqual(float(row["spread"]), 0)
            self.assertRegex(row["dense_name"], r"^openblas_sgemv_[nt]$" if m == 1 else r"^openblas_sgemm_n[nt]$")
            self.assertEqual(
                [row[c] for c in ["device", "dtype", "precision", "layout", "threads", "cache", "commit"]],
                ["cpu", "f32", "strict", "token", "1", "cold", "cafe"],
            )
            for part in [
                "model=",
                "cores=",
                "vector=",
                "peak_gflops=",
                "memory_gbytes=",
                "openblas=9.9.9; openblas_core=Plainloops",
            ]:
                self.assertIn(part, row["device_info"])

            self.assertNotIn("ceilings=told", row["device_info"])

    def test_ceilings_told(self):
        row = self.rows("4,32,32", "-p", "2:4", "--threads", "1")[0]
        self.assertIn("peak_gflops=80.0; memory_gbytes=12.0; cache_gbytes=300.0; ceilings=told;", row["device_info"])
        for wrong in ["80", "80,12", "80,12,", "80,12,0", "80,12,-3", "80,12,nan", "80,12,300,1", "80,12,300 ", "x", "1e300,1,1"]:
            told = self.bench("4,32,32", "-p", "2:4", status=3, LAC_CPU_CEILINGS=wrong)[1]
            self.assertIn("LAC_CPU_CEILINGS is '%s'; it takes three positive numbers" % wrong, told)

    def test_turns_are_waited_for(self):
        command = [os.environ["LACUNA"], "bench", "4,32,32", "-p", "2:4", "--min-time", "0.001", "--turns", "turns", "--csv", "out.csv"]
        with open(self.path("turns"), "w") as file:
            fcntl.lockf(file, fcntl.LOCK_EX, 1, 1)  # somebody times
            process = subprocess.Popen(command, cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            with self.assertRaises(subprocess.TimeoutExpired):
                process.wait(1.5)
            fcntl.lockf(file, fcntl.LOCK_UN, 1, 1)
            self.assertEqual(process.wait(120), 0)
        with open(self.path("out.csv")) as file:
            self.assertEqual(file.read().count("\n"), 2)
        self.assertIn("no/such/turns", self.bench("4,32,32", "-p", "2:4", "--turns", "no/such/turns", status=3)[1])

    def test_several_take_turns(self):
        runs = [subprocess.Popen([os.environ["LACUNA"], "bench", "%d,32,32" % m, "-p", "2:4,1:4", "--min-time", "0.001", "--turns", "turns", "--csv",
                                  "out%d.csv" % m], cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                for m in (1, 4, 8)]  # fmt: skip
        self.assertEqual([run.wait(120) for run in runs], [0, 0, 0])
        for m in (1, 4, 8):
            with open(self.path("out%d.csv" % m)) as file:
                self.assertEqual(file.read().count("\n"), 3)

    def test_quick_check_finds_a_wrong_peer(self):
        arguments = ["512,48,32", "-p", "2:4", "--quick-check", "--peer", PEER_FAULTY]
        self.assertIn("WRONG", self.bench(*arguments, status=1, FAULTY_PEER="late")[1])

    def test_table(self):
        out, _ = self.bench("4,32,48", "-p", "1:4")
        self.assertIn("speedup", out.splitlines()[0])
        self.assertRegex(out.splitlines()[1], r"^4,32,48 +1:4 +f32 +\S+ +[\d.]+ +[\d.]+% +[\d.]+ +[\d.]+x")

    def test_every_family_dtype_and_layout(self):
        for layout in ["token", "feature"]:
            rows = self.rows("5,70,50", "--dtype", "f32,f16", "-d", "bf16", "--layout", layout)
            self.assertEqual(len(rows), 15)
            self.assertEqual({r["layout"] for r in rows}, {layout})
            self.assertEqual({r["dtype"] for r in rows}, {"f32", "f16", "bf16"})
            for row in rows:
                self.assertEqual(row["dense_name"].endswith("_widened"), row["dtype"] != "f32")

    def test_warm_and_cold(self):
        self.assertEqual({r["cache"] for r in self.rows("2,32,32", "-p", "2:4", cold=False)}, {"warm"})
        self.assertEqual({r["cache"] for r in self.rows("2,32,32", "-p", "2:4", cold=True)}, {"cold"})
        # Large enough that copies do instead of sweeps.
        self.assertEqual(
            {r["cache"] for r in self.rows("1,1024,1024", "-p", "vw32:8:32", "--peer", PEER_CSR, cold=True)}, {"cold"}
        )

    def test_a_precision_named_often_is_timed_once(self):
        rows = self.rows("2,32,32", "-p", "2:4", "--threads", "1", "--precision", ",".join(["strict"] * 9), "--precision", "strict")
        self.assertEqual([r["precision"] for r in rows], ["strict"])

    def test_kernels(self):
        every = self.rows("8,64,64", "-p", "2:4", "--kernel", "all")
        names = [r["kernel"] for r in every]
        self.assertEqual(len(names), len(set(names)))
        self.assertGreater(len(names), 1)
        self.assertNotIn("ref_f64", names)
        one = self.rows("8,64,64", "-p", "2:4", "--kernel", names[0], "--kernel", "ref_f64")
        self.assertEqual([r["kernel"] for r in one], [names[0], "ref_f64"])
        _, error = self.bench("8,64,64", "--kernel", "no_such", status=2)
        self.assertIn("no kernel 'no_such'", error)

    def test_no_baseline(self):
        missing = os.path.join(self.folder, "nowhere.so")
        rows = self.rows("4,32,32", "-p", "2:4", "--baseline", "none", blas=missing)
        self.assertEqual([rows[0][c] for c in ["dense_name", "dense_us", "speedup"]], ["", "", ""])
        self.assertGreater(float(rows[0]["time_us"]), 0)
        out, error = self.bench("4,32,32", "-p", "2:4", "--csv", "-", "--progress", "never", blas=missing)
        self.assertIn("no baseline: LAC_OPENBLAS is '%s'" % missing, error)
        self.assertEqual(next(csv.DictReader(io.StringIO(out)))["dense_us"], "")
        _, error = self.bench("4,32,32", "-p", "2:4", "--progress", "never", blas=PEER_CSR)
        self.assertIn("is it OpenBLAS?", error)

    def test_wrong_baseline_is_refused(self):
        rows = self.rows("4,32,32", "-p", "2:4", status=1, FAKE_OPENBLAS_WRONG="1")
        self.assertEqual([rows[0][c] for c in ["dense_name", "dense_us", "speedup"]], ["", "", ""])

    def test_peer(self):
        rows = self.rows("8,64,64", "-p", "vw32:8:32", "--peer", PEER_CSR)
        self.assertEqual(rows[1]["kernel"], "peer:csr")
        self.assertEqual(rows[0]["dense_us"], rows[1]["dense_us"])
        rows = self.rows("8,64,64", "-p", "2:4", "--peer", PEER_FAULTY, FAULTY_PEER="none")
        self.assertEqual([(r["kernel"], r["layout"]) for r in rows][1], ("peer:faulty", "feature"))
        self.assertEqual(rows[0]["layout"], "token")

    def test_wrong_results_are_refused(self):
        for fault, words in [
            ("element", "Y[0][0] is"),
            ("unwritten", "nan; it must be"),
            ("fails", "it says that it failed"),
        ]:
            rows = self.rows("8,64,64", "-p", "2:4", "--peer", PEER_FAULTY, status=1, FAULTY_PEER=fault)
            self.assertEqual(len(rows), 1, fault)
            self.assertFalse(rows[0]["kernel"].startswith("peer:"))
            _, error = self.bench("8,64,64", "-p", "2:4", "--peer", PEER_FAULTY, status=1, FAULTY_PEER=fault)
            self.assertIn("WRONG: peer:faulty on 8,64,64 2:4 f32: ", error)
            self.assertIn(words, error)

    def test_wrong_results_between_the_samples_are_refused(self):
        # 64 of 512 tokens are compared element by element; seed 1 does not draw token 333.
        _, error = self.bench("512,48,32", "-p", "2:4", "--peer", PEER_FAULTY, status=1, FAULTY_PEER="late")
        self.assertIn("WRONG: peer:faulty on 512,48,32", error)
        self.assertIn("token 333 add up", error)
        self.assertEqual(len(self.rows("512,48,32", "-p", "2:4", "--peer", PEER_FAULTY, FAULTY_PEER="none")), 2)

    def test_peers_that_cannot(self):
        rows = self.rows("8,64,64", "-p", "2:4", "--peer", PEER_FAULTY, "--progress", "never", FAULTY_PEER="unable")
        self.assertEqual(len(rows), 1)
        _, error = self.bench("8,64,64", "-p", "2:4", "--peer", PEER_FAULTY, status=1, FAULTY_PEER="unprepared")
        self.assertIn("left out: peer:faulty: prepare failed", error)
        rows = self.rows("8,64,64", "4,64,64", "-p", "2:4", "--peer", PEER_FAULTY, status=1, FAULTY_PEER="unprepared")
        self.assertEqual([row["m"] for row in rows], ["8", "4"])  # what is ours is timed
        _, error = self.bench("8,64,64", "-p", "2:4", "--peer", PEER_FAULTY, status=3, FAULTY_PEER="old")
        self.assertIn("version 2 of peer.h", error)
        _, error = self.bench("8,64,64", "--peer", "missing.so", status=3)
        self.assertIn("missing.so", error)
        _, error = self.bench("8,64,64", "--peer", FAKE, status=3)
        self.assertIn("lac_peer_version", error)

    def test_same_seed_same_data(self):
        # one kernel: the planner's pick depends on the machine's mood
        common = ["4,64,64", "-p", "2:4", "-k", "cpu_scalar_f32_gather", "--seed"]
        error = [self.rows(*common, seed)[0]["max_error"] for seed in ["7", "7", "8"]]
        self.assertEqual(error[0], error[1])
        self.assertNotEqual(error[0], error[2])

    def test_precisions_side_by_side(self):
        rows = self.rows("4,64,64", "-p", "2:4", "--precision", "strict,fast", "--precision", "strict")
        self.assertEqual([row["precision"] for row in rows], ["strict", "fast"])
        _, error = self.bench("4,64,64", "--precision", "strict,exact", status=2)
        self.assertIn("'exact': must be one of default, strict, fast, tf32", error)

    def test_bands_of_a_large_weight(self):
        """The oracle computes some outputs of some tokens; a wrong one elsewhere is found by the sums."""
        common = ["9,4096,2560", "-p", "2:4", "--baseline", "none", "--peer", PEER_FAULTY, "--max-seconds", "20"]
        _, error = self.bench(*common, status=1, FAULTY_PEER="between")
        self.assertIn("WRONG: peer:faulty on 9,4096,2560 2:4 f32: the outputs of token 4 add up to", error)

    def test_baseline_that_ends(self):
        for status, calls, words in [(3, "0", "the baseline: the process"), (1, "10", "WRONG: openblas_sgemm_n"), (3, "12", "it was timed: the process")]:
            _, error = self.bench("4,64,64", "-p", "2:4", "--progress", "never", status=status, FAKE_OPENBLAS_ENDS=calls)
            self.assertIn(words, error)
            self.assertIn("the process that runs OpenBLAS ended", error)

    def test_all_kernels_over_and_over(self):
        common = ["1,8,8", "-p", "2:4", "--threads", "1", "--baseline", "none", "--precision", "strict,fast", "--max-seconds", "200"]
        once = len(self.rows(*common, "-k", "all"))
        self.assertEqual(len(self.rows(*common, *["-k", "all"] * 16)), 16 * once)

    def test_time_limit_is_said(self):
        _, error = self.bench("8,64,64", "9,64,64", "10,64,64", "--max-seconds", "0.000001", "--progress", "never", status=3)
        self.assertIn("15 of 15 problems were left out", error)


if __name__ == "__main__":
    unittest.main()
