"""test_bench_scripts.py - the scripts of bench/ that run lacuna bench or read its results."""

import csv
import os
import re
import subprocess
import sys
import unittest

from bench_case import BenchCase, EXTENDED, SHAPES


class BenchScripts(BenchCase):
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


if __name__ == "__main__":
    unittest.main()
