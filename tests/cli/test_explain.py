"""test_explain.py - `lacuna explain`: its tables and its JSON say the same, its numbers hang together, wrong questions are refused."""

import sys
import unittest

from support import Case


class Explain(Case):
    def explain(self, *arguments):
        return self.run_json("explain", *arguments)

    def test_levels_and_candidates_hang_together(self):
        for pattern in ["2:4", "vw32:8:32", "bw4x4:2:8", "64:2:8", "shfl64:25%"]:
            for m in [1, 64]:
                answer = self.explain("--shape", "%d,256,512" % m, "--pattern", pattern, "--threads", "1")
                self.assertEqual((answer["m"], answer["n"], answer["k"], answer["pattern"]), (m, 256, 512, pattern))
                pick, levels, candidates = answer["pick"], answer["levels"], answer["candidates"]
                times = [c["predicted_seconds"] for c in candidates]
                self.assertEqual(times, sorted(times))
                self.assertEqual(candidates[0]["predicted_seconds"], pick["predicted_seconds"])
                self.assertIn(pick["kernel"], [c["kernel"] for c in candidates])
                self.assertNotIn("ref_f64", [c["kernel"] for c in candidates])
                bounds = [level for level in levels if level["is_bound"]]
                self.assertEqual([level["name"] for level in bounds], [pick["bound_by"]])
                self.assertEqual(bounds[0]["seconds"], max(level["seconds"] for level in levels))
                self.assertEqual(bounds[0]["seconds"], pick["ceiling_seconds"])
                self.assertLessEqual(pick["ceiling_seconds"], pick["predicted_seconds"])
                for level in levels:
                    self.assertAlmostEqual(level["amount"] / level["rate"], level["seconds"], delta=1e-9)
                self.assertTrue(answer["dense"]["is_dense"])
                self.assertGreater(answer["dense"]["predicted_seconds"], pick["predicted_seconds"])
                self.assertGreater(len(answer["remedy"]), 20)
                self.assertIsNone(pick["measured_seconds"])

    def test_bytes_follow_the_dtype(self):
        amounts = {}
        for dtype in ["f32", "bf16"]:
            answer = self.explain("--shape", "1,512,1024", "--pattern", "4:4", "--dtype", dtype, "--kernel", "cpu_scalar_f32_dense")
            self.assertEqual(answer["pick"]["kernel"], "cpu_scalar_f32_dense")
            amounts[dtype] = next(level["amount"] for level in answer["levels"] if level["name"] == "memory")
        self.assertGreater(amounts["f32"], 1.9 * amounts["bf16"])
        self.assertGreaterEqual(amounts["f32"], 4 * 512 * 1024)

    def test_measuring_times_every_candidate(self):
        answer = self.explain("--shape", "4,64,128", "--pattern", "2:4", "--measure", "--layout", "feature")
        self.assertEqual(answer["layout"], "feature")
        for candidate in [answer["pick"], *answer["candidates"]]:
            self.assertGreater(candidate["measured_seconds"], 0)

    def test_tables_say_what_json_says(self):
        question = ["--shape", "8,256,512", "--pattern", "1:4", "--threads", "1"]
        out, _ = self.run_lacuna("explain", *question)
        answer = self.explain(*question)
        for candidate in answer["candidates"]:
            self.assertIn(candidate["kernel"], out)
        for level in answer["levels"]:
            self.assertRegex(out, r"(?m)^%s " % level["name"])
        self.assertIn("bound by %s, and the ceiling is " % answer["pick"]["bound_by"], out)
        self.assertIn(answer["remedy"], out)
        self.assertIn("Dense (%s)" % answer["dense"]["kernel"], out)

    def test_the_oracle_can_be_asked_too(self):
        answer = self.explain("--shape", "2,16,32", "--pattern", "2:4", "--kernel", "ref_f64")
        self.assertEqual((answer["pick"]["kernel"], answer["levels"], answer["remedy"]), ("ref_f64", [], None))

    def test_dense_is_told_and_can_be_forbidden(self):
        question = ["--device", "h200", "--shape", "1024,1024,1024", "--pattern", "15:16", "--precision", "strict"]
        answer = self.explain(*question)
        self.assertEqual(answer["pick"]["kernel"], "cuda_cublaslt_dense")
        self.assertEqual((answer["pick"]["dense_bytes"], answer["note"]), (1024 * 1024 * 4, ""))
        out, _ = self.run_lacuna("explain", *question)
        self.assertIn("keeps W with its zeros, 4.00 MiB", out)
        self.assertRegex(out, r"does not, cuda_f32_\w+, would take [0-9.]+ \w+ by the model")
        answer = self.explain(*question, "--no-dense")
        self.assertEqual([c["kernel"] for c in [answer["pick"], *answer["candidates"]] if c["is_dense"]], [])
        self.assertEqual((answer["pick"]["dense_bytes"], answer["dense"]), (0, None))
        # Others change with it: cuda_f16_gather has no tiles that hold nearly all zeros of W.
        question = ["--device", "h200", "--shape", "300,256,256", "--pattern", "75%", "--dtype", "f16", "--no-dense"]
        answer = self.explain(*question)
        self.assertEqual(answer["pick"]["kernel"], answer["candidates"][0]["kernel"])
        self.assertNotIn("cuda_f16_gather", [c["kernel"] for c in answer["candidates"]])
        _, error = self.run_lacuna("explain", *question, "--kernel", "cuda_cublaslt_dense", status=3)
        self.assertIn("no_dense", error)

    def test_a_gpu_that_is_not_here(self):
        for precision in ["strict", "fast"]:
            answer = self.explain("--device", "h200", "--shape", "512,512,512", "--pattern", "vw32:8:32", "--precision", precision)
            self.assertEqual(answer["device"], "h200")
            names = [level["name"] for level in answer["levels"]]
            self.assertEqual(names, ["memory", "l2", "shared", "issue", "tensor", "waves", "latency", "launch"])
            self.assertIn(answer["pick"]["bound_by"], names)
            self.assertTrue(all(c["kernel"].startswith("cuda_") for c in answer["candidates"]))
            self.assertLessEqual(answer["pick"]["ceiling_seconds"], answer["pick"]["predicted_seconds"])
        question = ["explain", "--device", "h200", "--shape", "8,64,64", "--pattern", "2:4"]
        self.assertIn("predicted", self.run_lacuna(*question)[0])
        self.run_lacuna(*question, "--measure", status=3)

    def test_wrong_questions_are_refused(self):
        for shape in ["", "1,2", "1,2,3,4", "0,8,8", "1,8,-8", "a,b,c", "1,8,99999999999"]:
            self.assertIn("--shape", self.run_lacuna("explain", "--shape", shape, "--pattern", "2:4", status=2)[1])
        self.run_lacuna("explain", "--pattern", "2:4", status=2)
        self.run_lacuna("explain", "--shape", "1,8,8", status=2)
        question = ["explain", "--shape", "1,8,8", "--pattern", "2:4"]
        self.assertIn("no_such", self.run_lacuna(*question, "--kernel", "no_such", status=3)[1])
        self.assertIn("tpu", self.run_lacuna(*question, "--device", "tpu", status=3)[1])
        wrong = {"LAC_CPU_RATES": "fast"}
        self.assertIn("LAC_CPU_RATES", self.run_lacuna(*question, status=3, environment=wrong)[1])


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=1))
