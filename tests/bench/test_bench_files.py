"""test_bench_files.py - the files of lacuna bench: shapes that it reads, results that it adds to, replaces or must not touch."""

import csv
import io
import os
import re
import subprocess
import unittest

from bench_case import LACUNA, BenchCase, COLUMNS, EXTENDED, FILES_HAVE_A_LIMIT, SHAPES, disk_of


class BenchFiles(BenchCase):
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

    def test_resume_tells_machines_apart(self):
        arguments = ["4,32,32", "-p", "2:4", "--threads", "1", "--csv", "out.csv", "--resume"]
        self.bench(*arguments)
        with open(self.path("out.csv")) as file:
            before = file.read()
        for key, parts in [("model", True), ("cores", True), ("vector", True), ("clock_mhz", False), ("load", False), ("system", False)]:
            other = re.sub(r"\b%s=[^;]*" % key, "%s=of another" % key, before)
            self.assertTrue(other != before or key == "clock_mhz", key)  # not every system tells the clock
            with open(self.path("out.csv"), "w") as file:
                file.write(other)
            self.bench(*arguments)
            with open(self.path("out.csv")) as file:
                self.assertEqual(file.read().count("\n"), 3 if parts else 2, key)

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

    def test_files_without_an_end(self):
        os.mkfifo(self.path("pipe"))
        for path in ["/dev/full", "/dev/zero", "pipe"]:  # no line ends in the first two, and nobody writes into the third
            self.assertIn("--resume: it is not a regular file", self.bench("4,32,32", "--csv", path, "--resume", status=3)[1])
        for option in ["--from", "--shapes"]:
            error = self.bench(option, "/dev/zero", "--csv", "out.csv", status=2)[1]
            self.assertIn("/dev/zero:1: a line that is too long, or no text", error)
        self.assertIn("--compare: /dev/zero:1: ", self.bench("4,32,32", "--compare", "/dev/zero", status=2)[1])

    def test_resume_of_a_file_that_may_not_be_read(self):
        with open(self.path("out.csv"), "w") as file:
            file.write("results\n")
        os.chmod(self.path("out.csv"), 0o222)
        os.chmod(self.folder, 0o711)
        other = {"user": 65534} if os.geteuid() == 0 else {}  # nothing is forbidden to root
        try:
            subprocess.run([os.environ["LACUNA"], "--version"], stdout=subprocess.DEVNULL, check=True, **other)
        except (OSError, subprocess.CalledProcessError):
            self.skipTest("nobody else may run it here")
        command = [os.environ["LACUNA"], "bench", "4,32,32", "-p", "2:4", "--warm", "--min-time", "0.002", "--baseline", "none", "--csv", "out.csv", "--resume"]
        result = subprocess.run(command, cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, **other)
        self.assertEqual((result.returncode, result.stderr), (3, "lacuna bench: out.csv: --resume: Permission denied\n"))
        os.chmod(self.path("out.csv"), 0o644)
        with open(self.path("out.csv")) as file:
            self.assertEqual(file.read(), "results\n")

    def test_a_full_disk_keeps_what_was_read(self):
        self.bench("4,32,32", "8,32,32", "-p", "2:4", "--threads", "1", "--csv", "out.csv")
        with open(self.path("out.csv")) as file:
            before = file.read()
        arguments = ["bench", "--from", "out.csv", "--from", "out.csv", "--csv", "out.csv"]
        error = self.run_lacuna(*arguments, status=3, most_bytes=len(before) // 2)[1]
        self.assertEqual(error, "lacuna bench: out.csv: File too large\n")
        with open(self.path("out.csv")) as file:
            self.assertEqual(file.read(), before)
        self.assertEqual(self.files(), ["out.csv"])
        self.run_lacuna(*arguments)
        with open(self.path("out.csv")) as file:
            self.assertEqual(file.read(), before + before.split("\n", 1)[1])

    @unittest.skipUnless(FILES_HAVE_A_LIMIT, "under this sanitizer")
    def test_a_full_disk_in_the_midst_of_a_run(self):
        """What was written stays, and the reason is said, wherever between two rows it came."""
        command = [LACUNA, "bench", *("%d,32,32" % m for m in range(1, 9)), "-p", "2:4", "-t", "1", "--warm", "--min-time", "0.001"]
        command += ["--csv", "out.csv", "--baseline", "none"]
        self.assertEqual(subprocess.run(command, cwd=self.folder, stdout=subprocess.DEVNULL).returncode, 0)
        whole = self.text("out.csv")
        for most in [2048, 2500, 3000]:  # clang's OpenMP has a file of 1024 bytes of its own
            os.unlink(self.path("out.csv"))
            full = subprocess.run(
                command, cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, preexec_fn=disk_of(most)
            )
            self.assertEqual((full.returncode, full.stderr), (3, "lacuna bench: out.csv: File too large\n"))
            self.assertEqual(self.text("out.csv").split("\n")[0], whole.split("\n")[0])
            self.assertEqual(len(self.text("out.csv")), most)

    def test_standard_output_by_another_name(self):
        arguments = [os.environ["LACUNA"], "bench", "4,32,32", "-p", "2:4", "--warm", "--min-time", "0.002", "--baseline", "none", "--csv"]
        for name in ["/dev/stdout", "out.csv"]:
            with open(self.path("out.csv"), "w") as file:
                subprocess.run([*arguments, name], cwd=self.folder, stdout=file, check=True)
            with open(self.path("out.csv"), newline="") as file:
                self.assertEqual(file.readline().rstrip("\n"), COLUMNS)
                self.assertEqual(len(file.readlines()), 1)  # and no table

    def test_resume_needs_a_file_with_its_columns(self):
        self.assertIn("--resume", self.bench("4,32,32", "-p", "2:4", "--resume", status=2)[1])
        self.bench("4,32,32", "-p", "2:4", "--csv", "out.csv")
        self.assertIn("extended", self.bench("8,32,32", "-p", "2:4", "--extended", "--csv", "out.csv", "--resume", status=2)[1])

    def test_extended_columns_and_standard_output(self):
        out, _ = self.bench("4,32,32", "-p", "2:4", "--extended", "--csv", "-")
        rows = list(csv.DictReader(io.StringIO(out)))
        self.assertEqual(out.splitlines()[0], EXTENDED)
        self.assertEqual(len(rows), 1)
        self.assertGreater(float(rows[0]["predicted_us"]), 0)
        self.assertGreaterEqual(int(rows[0]["runs"]), 3)
        self.assertIn(rows[0]["is_dense"], "01")

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
        for attempt in range(40):  # until the limit falls between the two, wherever that is on this machine
            result = subprocess.run([os.environ["LACUNA"], "bench", *arguments, "--warm", "--min-time", "5", "--max-seconds", str(0.01 * 1.2**attempt)],
                                    cwd=self.folder, capture_output=True, text=True)  # fmt: skip
            with open(self.path("out.csv"), newline="") as file:
                done = [row["precision"] for row in csv.DictReader(file)]
            if done == ["strict"]:
                break
            os.remove(self.path("out.csv"))
        self.assertEqual(done, ["strict"])
        self.assertIn("1 of 1 problems were left out", result.stderr)
        self.bench(*arguments, "--resume")
        with open(self.path("out.csv"), newline="") as file:
            self.assertEqual([row["precision"] for row in csv.DictReader(file)], ["strict", "tf32"])  # each once


if __name__ == "__main__":
    unittest.main()
