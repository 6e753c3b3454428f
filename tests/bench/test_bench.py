"""test_bench.py - lacuna bench: columns, labels, refusal of wrong results, peers, baselines, reports, comparison.

The environment names what it runs: LACUNA=build/lacuna, and PEER_CSR, PEER_FAULTY and FAKE_OPENBLAS, the shared libraries.
"""

import csv
import fcntl
import html.parser
import io
import os
import re
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli"))
from support import MEASURED, Case  # noqa: E402

COLUMNS = (
    "device,kernel,dtype,precision,pattern,density,layout,threads,m,n,k,time_us,spread,dense_name,dense_us,speedup,"
    "tflops_dense_equivalent,tflops_real,gbytes_per_s,ceiling_us,share_of_ceiling,max_error,error_bound,cache,commit,"
    "device_info"
)
EXTENDED = COLUMNS + ",name,predicted_us,bound,is_dense,runs,dense_spread,levels"
PEER_CSR = os.environ["PEER_CSR"]
PEER_FAULTY = os.environ["PEER_FAULTY"]
FAKE = os.environ["FAKE_OPENBLAS"]
SHAPES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "bench", "shapes")


class Page(html.parser.HTMLParser):
    """Checks that tags nest, and counts them. Cells, rows and the parts of a table may leave out their end tags."""

    INSIDE = {"td": 3, "th": 3, "tr": 2, "thead": 1, "tbody": 1, "table": 0}

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.problems, self.classes = [], [], [], []

    def end_implied(self, tag):
        while self.open and self.INSIDE.get(self.open[-1], -1) >= self.INSIDE[tag] > 0:
            self.open.pop()

    def handle_starttag(self, tag, attrs):
        if tag in self.INSIDE:
            self.end_implied(tag)
        self.tags.append(tag)
        self.classes += (dict(attrs).get("class") or "").split()
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.classes += (dict(attrs).get("class") or "").split()

    def handle_endtag(self, tag):
        while tag == "table" and self.open and self.INSIDE.get(self.open[-1], 0) > 0:
            self.open.pop()
        if not self.open or self.open.pop() != tag:
            self.problems.append("</%s> at %s" % (tag, self.getpos()))


class Bench(Case):
    def bench(self, *arguments, status=0, blas=FAKE, cold=False, **environment):
        """Runs quickly, which warm is, and returns both outputs."""
        environment["LAC_OPENBLAS"] = blas
        warm = [] if cold else ["--warm"]
        return self.run_lacuna("bench", *arguments, *warm, "--min-time", "0.002", status=status, environment=environment)

    def rows(self, *arguments, status=0, cold=False, **environment):
        self.bench(*arguments, "--csv", "out.csv", status=status, cold=cold, **environment)
        with open(self.path("out.csv"), newline="") as file:
            return list(csv.DictReader(file))

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

    def test_resume_adds_what_is_missing(self):
        common = ["4,32,32", "8,32,32", "-p", "2:4", "--extended", "--csv", "out.csv", "--resume"]
        first = common + ["--threads", "1"]
        self.bench(*first)
        with open(self.path("out.csv")) as file:
            before = file.read()
        self.assertEqual(before.count("\n"), 3)
        self.bench(*first)  # nothing is left
        with open(self.path("out.csv")) as file:
            self.assertEqual(file.read(), before)
        self.bench(*first, "16,32,32", "-p", "1:4")
        with open(self.path("out.csv")) as file:
            after = file.read()
        self.assertTrue(after.startswith(before))
        rows = list(csv.DictReader(io.StringIO(after)))
        cells = [(row["m"], row["pattern"]) for row in rows]
        self.assertEqual(sorted(cells), sorted((m, p) for m in ("4", "8", "16") for p in ("2:4", "1:4")))
        self.bench(*common, "--threads", "2")  # the same problems under other conditions
        self.bench(*first, cold=True)
        with open(self.path("out.csv")) as file:
            self.assertEqual(file.read().count("\n"), after.count("\n") + 4)
        with open(self.path("out.csv"), "w") as file:
            file.write(before.replace("cpu,", "cuda:0,"))  # what another device has done
        self.bench(*first)
        with open(self.path("out.csv")) as file:
            self.assertEqual(file.read().count("\n"), 5)

    def test_resume_of_a_file_that_was_cut_off(self):
        arguments = ["4,32,32", "8,32,32", "-p", "2:4", "--threads", "1", "--extended", "--csv", "out.csv"]
        self.bench(*arguments)
        with open(self.path("out.csv")) as file:
            whole = file.read()
        rows = whole.splitlines(keepends=True)
        for cut in [1, 40, len(rows[2]) - 5, len(rows[2]) + 7, len(rows[1] + rows[2]) + 9]:  # behind the last row, in it, in others, in the header
            with open(self.path("out.csv"), "w") as file:
                file.write(whole[:-cut])
            out, _ = self.bench(*arguments, "--resume")
            self.assertEqual("was cut off" in out, cut < len(rows[1] + rows[2]))
            with open(self.path("out.csv"), newline="") as file:
                self.assertEqual([row["m"] for row in csv.DictReader(file)], ["4", "8"])
        for first in ["a,b\n", rows[0].replace("m,n,k", "n,m,k")]:  # no file of ours loses anything
            with open(self.path("out.csv"), "w") as file:
                file.write(first + "and a line without an end")
            self.bench(*arguments, "--resume", status=2)
            with open(self.path("out.csv")) as file:
                self.assertEqual(file.read(), first + "and a line without an end")

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

    def test_resume_needs_a_file_with_its_columns(self):
        self.assertIn("--resume", self.bench("4,32,32", "-p", "2:4", "--resume", status=2)[1])
        self.bench("4,32,32", "-p", "2:4", "--csv", "out.csv")
        self.assertIn("extended", self.bench("8,32,32", "-p", "2:4", "--extended", "--csv", "out.csv", "--resume", status=2)[1])

    def test_quick_check_finds_a_wrong_peer(self):
        arguments = ["512,48,32", "-p", "2:4", "--quick-check", "--peer", PEER_FAULTY]
        self.assertIn("WRONG", self.bench(*arguments, status=1, FAULTY_PEER="late")[1])

    def test_extended_columns_and_standard_output(self):
        out, _ = self.bench("4,32,32", "-p", "2:4", "--extended", "--csv", "-")
        rows = list(csv.DictReader(io.StringIO(out)))
        self.assertEqual(out.splitlines()[0], EXTENDED)
        self.assertEqual(len(rows), 1)
        self.assertGreater(float(rows[0]["predicted_us"]), 0)
        self.assertGreaterEqual(int(rows[0]["runs"]), 3)
        self.assertIn(rows[0]["is_dense"], "01")

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

    def test_shape_files(self):
        rows = self.rows(
            "--shapes", os.path.join(SHAPES, "shflbw_conv_resnet50.csv"), "--max-m", "1", "-p", "2:4", "--baseline", "none"
        )
        self.assertEqual({r["m"] for r in rows}, {"1"})
        self.assertEqual((rows[0]["n"], rows[0]["k"]), ("64", str(3 * 7 * 7)))
        with open(self.path("s.csv"), "w") as file:
            file.write("# two that become one\nk,name,n,m\n32,a,48,100\n\n32,b,48,200\n")
        rows = self.rows("--shapes", "s.csv", "3,16,16", "--max-m", "7", "-p", "2:4", "--extended", "--baseline", "none")
        self.assertEqual([(r["m"], r["n"], r["k"], r["name"]) for r in rows], [("3", "16", "16", ""), ("7", "48", "32", "a")])
        with open(self.path("s.csv"), "w") as file:
            file.write("m,batch,h,w,c_in,c_out,r,s\n64,1,2,2,4,8,3,3\n")  # m alone says nothing
        rows = self.rows("--shapes", "s.csv", "-p", "2:4", "--baseline", "none")
        self.assertEqual([(r["m"], r["n"], r["k"]) for r in rows], [("4", "8", "36")])
        with open(self.path("s.csv"), "w") as file:  # lines of any length, and quotes, as in any CSV
            file.write("# %s\nm,n,k,note,name\n1,8,8,%s4,8,8,,\"a, b\"\n" % ("x," * 700, "y" * 1017))
        rows = self.rows("--shapes", "s.csv", "-p", "2:4", "--extended", "--baseline", "none")
        self.assertEqual([(r["m"], r["n"], r["k"], r["name"]) for r in rows], [("1", "8", "8", "8")])
        with open(self.path("s.csv"), "w") as file:
            file.write('name,m,n,k\n"a, b",1,8,8\n')
        rows = self.rows("--shapes", "s.csv", "-p", "2:4", "--extended", "--baseline", "none")
        self.assertEqual(rows[0]["name"], "a, b")
        for text, words in [
            ("name,m,n\na,1,2\n", "neither m,n,k"),
            ("m,n,k\n1,2,x\n", "k is 'x'"),
            ("m,n,k\n1,2\n", "k is ''"),
            ("m,n,k\n0,2,3\n", "m is '0'"),
            ("m,n,k\n", "no shapes"),
            ('m,n,k\n1,2,"3\n', "s.csv:2: an open quote"),
        ]:
            with open(self.path("s.csv"), "w") as file:
                file.write(text)
            self.assertIn(words, self.bench("--shapes", "s.csv", status=2)[1])
        self.assertIn("No such file", self.bench("--shapes", "none.csv", status=3)[1])

    def test_mistakes(self):
        for arguments, words in [
            (["8,64"], "'8,64' is no shape"),
            (["8,64,64,64"], "is no shape"),
            (["0,64,64"], "is no shape"),
            (["8,64,64", "-p", "2:4,nonsense"], "--pattern 'nonsense'"),
            (["8,64,64", "-d", "f64"], "--dtype 'f64'"),
            (["8,64,64", "--tolerance", "2"], "--tolerance"),
            (["--from", "x.csv"], "--from needs"),
            (["--from", "x.csv", "8,8,8", "--report", "r.html"], "takes no shapes"),
        ]:
            self.assertIn(words, self.bench(*arguments, status=2)[1])
        self.assertIn("no such device", self.bench("8,64,64", "--device", "cuda:99", status=3)[1])
        self.assertIn("nowhere", self.bench("8,64,64", "--csv", "nowhere/out.csv", status=3)[1])

    def test_what_is_read_is_not_written_over(self):
        self.bench("1,64,64", "-p", "2:4", "--csv", "out.csv")
        before = self.text("out.csv")
        os.symlink("out.csv", self.path("link.csv"))
        with open(self.path("shapes.csv"), "w") as file:
            file.write("m,n,k\n1,64,64\n")
        for arguments, words in [
            (["--from", "out.csv", "--report", "./out.csv"], "--report would write over what --from reads"),
            (["--from", "out.csv", "--report", "link.csv"], "--report would write over what --from reads"),
            (["--from", "out.csv", "--compare", "out.csv", "--report", "link.csv"], "--report would write over what --compare reads"),
            (["--shapes", "shapes.csv", "-p", "2:4", "--csv", "shapes.csv"], "--csv would write over what --shapes reads"),
            (["1,64,64", "--csv", "new", "--report", "new"], "name the same file"),
            (["1,64,64", "--csv", "out.csv", "--report", "link.csv"], "name the same file"),
        ]:
            self.assertIn(words, self.bench(*arguments, status=2)[1])
            self.assertEqual(self.text("out.csv"), before)

    def check_page(self, name, sections=6):
        with open(self.path(name)) as file:
            text = file.read()
        page = Page()
        page.feed(text)
        page.close()
        self.assertEqual((page.problems, page.open), ([], []))
        self.assertTrue(text.startswith("<!DOCTYPE html>"))
        self.assertEqual(page.tags.count("section"), sections)
        self.assertIn("prefers-color-scheme:dark", text)
        self.assertEqual(re.findall(r"https?://|src=|@import|<link", text), [], "the page must need no network")
        return text, page

    def test_report(self):
        arguments = ["1,64,64", "16,64,64", "-p", "2:4,1:4,vw32:8:32", "--csv", "out.csv", "--extended"]
        self.bench(*arguments, "--report", "run.html", "--peer", PEER_CSR)
        text, page = self.check_page("run.html")
        for title in [
            "Speedup against sparsity",
            "Where it wins",
            "Time per token against batch",
            "Roofline",
            "Predicted against measured",
            "Every result",
        ]:
            self.assertIn("<h2>%s</h2>" % title, text)
        # One panel a shape, one a layer, roofline, prediction; the rest of the pictures are legends.
        charts = re.findall(r'<svg viewBox[^>]*aria-label="([^"]*)"', text)
        self.assertEqual(charts[:2], ["1 x 64 x 64", "16 x 64 x 64"])
        self.assertEqual(charts[2:], ["n 64, k 64", "Roofline", "Predicted against measured time"])
        self.assertEqual(page.classes.count("ideal"), 2)
        rows = self.table_of(text)
        self.assertEqual(len(rows), 12)
        self.assertTrue({"m", "kernel", "speedup", "predicted us"} <= rows[0].keys())
        self.assertFalse({"dtype", "threads", "cache"} & rows[0].keys())  # the head says them, as all rows have the same
        cells = re.findall(r'<td class="h\d" data-r="(\d+)">([\d.]+)', text)
        self.assertEqual(len(cells), 6)
        for number, speedup in cells:
            self.assertEqual(rows[int(number)]["speedup"], speedup + "x")
        marks = [int(number) for number in re.findall(r'<use [^>]*data-r="(\d+)"', text)]
        self.assertTrue(len(marks) > 12 and max(marks) < 12)
        self.assertNotRegex(text.lower(), r"\bnan\b")
        self.run_lacuna("bench", "--from", "out.csv", "--report", "again.html")
        with open(self.path("again.html")) as file:
            again = file.read()
        shown = lambda page: re.findall(r"<use [^>]*>|data-r=[^>]*>", page)  # noqa: E731
        self.assertEqual(len(shown(again)), len(shown(text)))

    def table_of(self, text):
        """The table of all results, as a dictionary for each row."""
        head, body = re.search(r'<table id="rows"><thead>(.*?)<tbody>(.*?)</table>', text, re.S).groups()
        titles = re.findall(r"<button[^>]*>(.*?)</button>", head)
        rows = [re.findall(r"<td[^>]*>([^<\n]*)", row) for row in body.split("<tr>")[1:]]
        self.assertEqual({len(row) for row in rows}, {len(titles)})
        return [dict(zip(titles, row)) for row in rows]

    def test_report_takes_the_place_of_a_whole_one(self):
        self.bench("1,64,64", "-p", "2:4", "--csv", "out.csv", "--report", "run.html")
        before = self.text("run.html")
        _, error = self.run_lacuna("bench", "--from", "out.csv", "--report", "run.html", status=3, most_bytes=2048)
        self.assertIn("run.html: File too large", error)
        self.assertEqual(self.text("run.html"), before)
        self.assertEqual(self.files(), ["out.csv", "run.html"])

    def test_report_of_thousands(self):
        rows = self.rows("4,32,32", "-p", "2:4", "--extended")
        with open(self.path("many.csv"), "w", newline="") as file:
            writer = csv.DictWriter(file, rows[0].keys())
            writer.writeheader()
            for i in range(2400):
                writer.writerow(dict(rows[0], m=16 << i % 5, n=64 * (1 + i // 5), threads=1 + i % 2))
        self.run_lacuna("bench", "--from", "many.csv", "--report", "many.html")
        text, _ = self.check_page("many.html")
        table = self.table_of(text)
        self.assertEqual(len(table), 2400)
        self.assertEqual([row["threads"] for row in table[:3]], ["1", "2", "1"])  # now it differs
        self.assertLess(len(text), 1000 * 1000)

    def test_report_of_bare_and_hostile_results(self):
        rows = self.rows("4,32,32", "-p", "2:4", "--baseline", "none")
        rows[0]["kernel"] = "<script>alert('x')</script>"
        with open(self.path("bare.csv"), "w", newline="") as file:
            writer = csv.DictWriter(file, rows[0].keys())
            writer.writeheader()
            writer.writerows(rows)
        self.run_lacuna("bench", "--from", "bare.csv", "--report", "bare.html")
        text, _ = self.check_page("bare.html")
        self.assertNotIn("<script>alert", text)
        self.assertIn("no baseline", text)
        self.assertIn("no predictions", text)
        for content, words in [
            ("", "empty"),
            ("a,b\n1,2\n", "no column 'device'"),
            (COLUMNS + "\n1,2\n", "cannot be read"),
            (COLUMNS + "\n", "--from 'bad.csv': there are no results"),
            ('"open', "open quote"),
        ]:
            with open(self.path("bad.csv"), "w") as file:
                file.write(content)
            self.assertIn(words, self.run_lacuna("bench", "--from", "bad.csv", "--report", "x.html", status=2)[1])
        for column, value in [
            ("m", "0"), ("k", "-1"), ("density", "0"), ("density", "1.5"), ("density", ""), ("time_us", "0"), ("time_us", ""),
            ("time_us", "nan"), ("dense_us", "0"), ("speedup", "-1"), ("speedup", "inf"), ("tflops_real", "nan"),
        ]:  # fmt: skip
            with open(self.path("bad.csv"), "w", newline="") as file:
                writer = csv.DictWriter(file, rows[0].keys())
                writer.writeheader()
                writer.writerow(dict(rows[0], **{column: value}))
            self.assertIn("bad.csv:2: column '%s' " % column, self.run_lacuna("bench", "--from", "bad.csv", "--report", "x.html", status=2)[1])
        self.assertIn("nowhere", self.run_lacuna("bench", "--from", "bare.csv", "--report", "nowhere/x.html", status=3)[1])
        for path in ("nowhere/x.html", ".", "r" * 240):  # said before anything is timed; the last leaves no room for what is beside it
            output, error = self.bench("8,64,64", "-p", "2:4", "--report", path, status=3)
            self.assertIn(path + ": --report:", error)
            self.assertEqual(output, "")

    def test_report_of_speed_against_loss(self):
        self.bench("16,64,64", "-p", "2:4,1:4,vw32:8:32", "--csv", "out.csv", "--baseline", "auto")
        header = "pattern,method,permute,dense_loss,dense_tuned_loss,pruned_loss,tuned_loss\n"
        losses = ["2:4,magnitude,,1.0,0.9,1.5,1.0", "2:4,obs,columns,1.0,0.9,1.2,", "1:4,obs,,1.0,0.9,2.0,1.2", "3:7,obs,,1,1,1,1"]
        with open(self.path("losses.csv"), "w") as file:
            file.write(header + "\n".join(losses) + "\n")
        self.run_lacuna("bench", "--from", "out.csv", "--accuracy", "losses.csv", "--report", "page.html")
        text, _ = self.check_page("page.html", 7)
        self.assertIn("<h2>Speed against loss</h2>", text)
        self.assertIn("2:4: loss +0.200 by obs, permuted columns", text)  # the best method after pruning
        self.assertIn("2:4: loss +0.100 by magnitude", text)  # and after tuning, which the other was not given
        self.assertIn("1:4: loss +0.300 by obs", text)
        self.assertNotIn("3:7", text)
        with open(self.path("out.csv"), newline="") as file:
            rows = list(csv.DictReader(file))
        with open(self.path("hostile.csv"), "w", newline="") as file:  # titles tell the conditions where they differ
            writer = csv.DictWriter(file, rows[0].keys())
            writer.writeheader()
            writer.writerows([dict(row, dtype="<script", layout="src=//x", cache=">") for row in rows] + rows[:1])
        self.run_lacuna("bench", "--from", "hostile.csv", "--accuracy", "losses.csv", "--report", "page.html")
        with open(self.path("page.html")) as file:
            text = file.read()
        self.assertIn("measured at 16 x 64 x 64 &lt;script", text)
        self.assertNotIn("<script src", text)
        for content, words in [("", "no losses"), ("a,b\n", "no column 'pattern'"), (header + "1,2\n", "line 2: 2 fields"), (header, "no losses")]:
            with open(self.path("losses.csv"), "w") as file:
                file.write(content)
            self.assertIn(words, self.run_lacuna("bench", "8,64,64", "--accuracy", "losses.csv", "--report", "x.html", status=2)[1])
        self.assertIn("needs --report", self.bench("8,64,64", "--accuracy", "losses.csv", status=2)[1])

    def test_compare(self):
        rows = self.rows("4,32,32", "16,32,32", "-p", "2:4")

        def store(name, factor):
            with open(self.path(name), "w", newline="") as file:
                writer = csv.DictWriter(file, rows[0].keys())
                writer.writeheader()
                for row in rows:
                    writer.writerow(dict(row, speedup=float(row["speedup"]) * factor))

        store("same.csv", 1.05)
        store("faster.csv", 1.5)
        out, _ = self.run_lacuna("bench", "--from", "out.csv", "--compare", "same.csv")
        self.assertIn("2 cells compared: 0 slower", out)
        out, _ = self.run_lacuna_raw(1, "bench", "--from", "out.csv", "--compare", "faster.csv")
        self.assertEqual(out.count("slower: "), 2)
        self.assertIn("slower: 16,32,32 2:4 f32 token warm", out)
        self.run_lacuna("bench", "--from", "out.csv", "--compare", "faster.csv", "--tolerance", "0.5")
        with open(self.path("out.csv"), "a", newline="") as out_file, open(self.path("same.csv"), "a", newline="") as stored:
            for file, speedup in (out_file, 0.5), (stored, 2.0):  # a peer that was quicker is no fault of ours
                csv.DictWriter(file, rows[0].keys()).writerow(dict(rows[0], kernel="peer:other", speedup=speedup))
        out, _ = self.run_lacuna("bench", "--from", "out.csv", "--compare", "same.csv")
        self.assertIn("2 cells compared: 0 slower", out)
        store("again.csv", 1000)
        self.run_lacuna_raw(1, "bench", "--from", "out.csv", "--csv", "again.csv", "--compare", "again.csv")  # with what it held before
        with open(self.path("bad.csv"), "w") as file:
            file.write("a,b\n")
        out, error = self.bench("4,32,32", "-p", "2:4", "--compare", "bad.csv", status=2)
        self.assertEqual((out, "--compare: bad.csv:1: no column 'device'" in error), ("", True))  # before anything is timed
        self.rows("8,32,32", "-p", "2:4")
        out, _ = self.run_lacuna_raw(2, "bench", "--from", "out.csv", "--compare", "same.csv")
        self.assertIn("no cell of this run", out)

    def run_lacuna_raw(self, status, *arguments):
        """Comparison answers on standard output whatever the answer is."""
        result = subprocess.run([os.environ["LACUNA"], *arguments], cwd=self.folder, capture_output=True, text=True)
        self.assertEqual(result.returncode, status, result.stdout + result.stderr)
        return result.stdout, result.stderr

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

    def test_sweep_says_how_it_stands(self):
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "bench", "sweep_gpu.sh")
        patterns = ["vw32:%d:32" % kept for kept in (16, 12, 8, 4)]
        rows = [(256, 2048, 2048, pattern, how, kernel, time) for pattern in patterns
                for how, kernel, time in (("strict", "own", 4), ("strict", "peer:other", 8), ("fast", "own", 2))]
        rows += [(512, 2048, 2048, "vw32:8:32", "strict", "own", 16), (512, 2048, 2048, "vw32:8:32", "strict", "peer:other", 8)]
        with open(self.path("llama.csv"), "w", newline="") as file:
            writer = csv.DictWriter(file, EXTENDED.split(","), restval="1")
            writer.writeheader()
            for m, n, k, pattern, precision, kernel, time in rows:
                writer.writerow({"m": m, "n": n, "k": k, "pattern": pattern, "precision": precision, "kernel": kernel,
                                 "time_us": time, "speedup": 8 / time, "runs": 9, "is_dense": 0})

        def sweep(name, program, what):
            result = subprocess.run(["sh", script, name, program, self.folder, what], capture_output=True, text=True)
            self.assertEqual(result.returncode, 0, result.stderr)
            return result.stdout

        out = sweep("llama", os.environ["LACUNA"], "gather")
        self.assertIn("strict: 5 cells, 1.52x of dense in geomean, least 0.50x (512,2048,2048 vw32:8:32 own), 1 under 0.98x", out)
        self.assertIn("strict against peer:other: 5 cells, 1.516x in geomean, worst 0.500x (512,2048,2048 vw32:8:32), 1 cells behind",
                      out)
        self.assertIn("fast against peer:other: 4 cells, 4.000x in geomean", out)
        lines = sweep("llama", "unused", "list").splitlines()
        self.assertEqual(len(lines), 800)
        self.assertEqual(lines[0], "256,2048,2048 vw32:16:32 f32 feature strict")
        self.assertEqual(sweep("conv", "unused", "list").splitlines()[0], "8192,64,147 shfl64:25% f16 feature default")
        with open(self.path("lacuna"), "w") as file:
            file.write("#!/bin/sh\necho \"$@\" >asked\n")
        os.chmod(self.path("lacuna"), 0o755)
        subprocess.run(["sh", script, "venom", "./lacuna", ".", "9", "peer.so"], cwd=self.folder, check=True)
        with open(self.path("asked")) as file:
            asked = file.read()
        self.assertIn("--max-seconds 9 --csv ./venom.csv --resume --turns ./venom.turns --peer peer.so", asked)
        self.assertIn("--pattern 128:2:8,64:2:8,", asked)

    def test_standing_cells_of_the_gpu_are_stored_ones(self):
        script = os.path.join(os.path.dirname(SHAPES), "standing.sh")
        with open(self.path("lacuna"), "w") as file:
            file.write("#!/bin/sh\necho \"$@\" >>asked\n")
        os.chmod(self.path("lacuna"), 0o755)
        subprocess.run(["sh", script, "./lacuna", ".", "bench-gpu"], cwd=self.folder, check=True)
        with open(self.path("asked")) as file:
            calls = [line.split() for line in file]
        self.assertEqual(calls[-1][:3], ["bench", "--from", "./bench-gpu.csv"])
        self.assertEqual(calls[-1][3:5], ["--compare", "./bench-gpu-stored.csv"])
        with open(self.path("bench-gpu-stored.csv"), newline="") as file:
            stored = {(row["m"], row["n"], row["k"], row["pattern"], row["dtype"], row["layout"]) for row in csv.DictReader(file)}
        for call in calls[:-1]:
            option = lambda name, otherwise: call[call.index(name) + 1] if name in call else otherwise
            for shape in (word for word in call if re.fullmatch(r"\d+,\d+,\d+", word)):
                for pattern in option("--pattern", "").split(","):
                    cell = (*shape.split(","), pattern, option("--dtype", "f32"), option("--layout", "token"))
                    self.assertIn(cell, stored)

    def test_sweep_in_several_processes_loses_no_row(self):
        script = os.path.join(os.path.dirname(SHAPES), "sweep_gpu.sh")
        with open(self.path("lacuna"), "w") as file:  # a row for each shape that the file of --csv lacks
            file.write("""#!/bin/sh
while [ $# -gt 0 ]; do case $1 in --shapes) shapes=$2 ;; --csv) csv=$2 ;; esac; shift; done
[ -e "$csv" ] || echo name >"$csv"
grep -v '^name' "$shapes" | cut -d, -f1 | while read -r name; do grep -qx "$name" "$csv" || echo "$name" >>"$csv"; done
""")
        os.chmod(self.path("lacuna"), 0o755)
        with open(os.path.join(SHAPES, "venom_bert.csv")) as file:
            names = sorted(line.split(",")[0] for line in file if line[0] != "#" and not line.startswith("name"))
        with open(self.path("venom.csv"), "w") as file:
            file.write("name\n%s\n" % names[3])
        for _ in range(2):  # the second time there is nothing to add
            subprocess.run(["sh", script, "venom", "./lacuna", ".", "9"], cwd=self.folder, check=True, env=dict(os.environ, PROCESSES="7"))
            with open(self.path("venom.csv")) as file:
                rows = file.read().splitlines()
            self.assertEqual((rows[:2], sorted(rows[1:])), (["name", names[3]], names))
        self.assertEqual([name for name in os.listdir(self.folder) if ".part" in name], [])

    def test_earlier_results_stay_until_there_are_others(self):
        self.bench("4,32,32", "-p", "2:4", "--csv", "out.csv")
        with open(self.path("out.csv")) as file:
            before = file.read()
        for status, arguments in [
            (2, ["4,32,32", "-p", "nonsense"]),
            (2, ["4,32,32", "-k", "nonsense"]),
            (3, ["--shapes", "none.csv"]),
            (3, ["4,32,32", "--device", "nonsense"]),
            (3, ["4,32,32", "--peer", "none.so"]),
            (3, ["4,32,32", "--max-seconds", "0.000001"]),
        ]:
            self.bench(*arguments, "--csv", "out.csv", status=status)
            with open(self.path("out.csv")) as file:
                self.assertEqual(file.read(), before)
        self.run_lacuna("bench", "--from", "out.csv", "--csv", "out.csv")  # onto itself
        with open(self.path("out.csv")) as file:
            self.assertEqual(file.read(), before)
        self.bench("4,32,32", "--max-seconds", "0.000001", "--csv", "new.csv", status=3)  # a new file has its header
        with open(self.path("new.csv")) as file:
            self.assertEqual(file.read(), COLUMNS + "\n")
        self.bench("8,32,32", "-p", "2:4", "--csv", "out.csv")
        with open(self.path("out.csv")) as file:
            self.assertEqual([line.split(",")[8] for line in file.read().splitlines()], ["m", "8"])

    def test_time_limit_between_precisions(self):
        arguments = ["64,128,128", "-p", "2:4", "--threads", "1", "--baseline", "none", "--precision", "strict,tf32", "--csv", "out.csv"]
        result = subprocess.run([os.environ["LACUNA"], "bench", *arguments, "--warm", "--min-time", "5", "--max-seconds", "0.2"], cwd=self.folder,
                                capture_output=True, text=True)  # fmt: skip
        self.assertIn("1 of 1 problems were left out", result.stderr)
        self.bench(*arguments, "--resume")
        with open(self.path("out.csv"), newline="") as file:
            self.assertEqual([row["precision"] for row in csv.DictReader(file)], ["strict", "tf32"])  # each once

    def test_baseline_that_ends(self):
        for status, calls, words in [(3, "0", "the baseline: the process"), (1, "10", "WRONG: openblas_sgemm_n"), (3, "12", "it was timed: the process")]:
            _, error = self.bench("4,64,64", "-p", "2:4", "--progress", "never", status=status, FAKE_OPENBLAS_ENDS=calls)
            self.assertIn(words, error)
            self.assertIn("the process that runs OpenBLAS ended", error)

    def test_uncommitted_builds_are_not_the_same_code(self):
        with open(self.path("results.csv"), "w") as file:
            file.write("kernel,pattern,m,n,k,dtype,layout,precision,commit\n")
            for m in (1, 2):
                file.write("cuda_spmv_gather,2:4,%d,64,64,f16,token,fast,0123456789ab+changes\n" % m)
        script = os.path.join(os.path.dirname(SHAPES), "same_code.py")
        result = subprocess.run([sys.executable, "-B", script, "none", self.folder, self.path("results.csv")], capture_output=True, text=True)
        self.assertEqual(result.stdout.splitlines()[1:], ["results.csv,0123456+changes,cuda_spmv_gather,2,0,uncommitted"], result.stderr)

    def test_tables_of_goals_need_rows(self):
        script = os.path.join(os.path.dirname(SHAPES), "goals_table.py")
        for name, content, said in (("head.csv", "kernel,speedup\n", "holds no rows"), ("empty.csv", "", "holds no rows"),
                                    ("other.csv", "a,b\n1,2\n", "no column 'kernel'"), ("none.csv", None, "cannot be read")):
            if content is not None:
                with open(self.path(name), "w") as file:
                    file.write(content)
            result = subprocess.run([sys.executable, "-B", script, "--sweep", self.path(name)], capture_output=True, text=True)
            self.assertEqual((result.returncode, result.stdout), (1, ""), result.stderr)
            self.assertRegex(result.stderr, "^goals_table.py: .*%s: .*%s" % (name, said))

    def test_all_kernels_over_and_over(self):
        common = ["1,8,8", "-p", "2:4", "--threads", "1", "--baseline", "none", "--precision", "strict,fast", "--max-seconds", "20"]
        once = len(self.rows(*common, "-k", "all"))
        self.assertEqual(len(self.rows(*common, *["-k", "all"] * 16)), 16 * once)

    def test_time_limit_is_said(self):
        _, error = self.bench("8,64,64", "9,64,64", "10,64,64", "--max-seconds", "0.000001", "--progress", "never", status=3)
        self.assertIn("15 of 15 problems were left out", error)


if __name__ == "__main__":
    unittest.main()
