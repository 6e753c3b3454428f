"""test_bench_report.py - the report of lacuna bench, and its comparison with stored results."""

import csv
import html.parser
import os
import re
import subprocess
import unittest

from bench_case import BenchCase, COLUMNS, PEER_CSR


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


class BenchReport(BenchCase):
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
        for most in [2048, 4096, len(before) // 2, len(before) * 3 // 4]:  # wherever it fails, what is said is why
            _, error = self.run_lacuna("bench", "--from", "out.csv", "--report", "run.html", status=3, most_bytes=most)
            self.assertEqual(error, "lacuna bench: run.html: File too large\n")
            self.assertEqual(self.text("run.html"), before)
            self.assertEqual(self.files(), ["out.csv", "run.html"])
        _, error = self.run_lacuna("bench", "--from", "out.csv", "--report", "/dev/full", status=3)
        self.assertEqual(error, "lacuna bench: /dev/full: No space left on device\n")

    def test_report_behind_links_and_under_long_names(self):
        self.bench("1,64,64", "-p", "2:4", "--csv", "out.csv", "--report", "run.html")
        os.mkdir(self.path("folder"))
        os.rename(self.path("run.html"), self.path("folder/run.html"))
        os.chmod(self.path("folder/run.html"), 0o640)
        os.symlink("folder/run.html", self.path("link.html"))
        os.symlink("nowhere.html", self.path("dangling.html"))
        long = "n" * 250 + ".html"  # as long as a name can be
        for name in ["link.html", "dangling.html", long, "folder/" + long]:
            self.run_lacuna("bench", "--from", "out.csv", "--report", name)
            self.check_page(name)
        self.assertTrue(os.path.islink(self.path("link.html")))
        self.assertEqual(os.stat(self.path("folder/run.html")).st_mode & 0o777, 0o640)
        self.assertFalse(os.path.islink(self.path("dangling.html")))
        self.assertEqual(self.files(), sorted(["out.csv", "folder", "link.html", "dangling.html", long]))
        self.assertEqual(sorted(os.listdir(self.path("folder"))), sorted(["run.html", long]))

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
        for path in ("nowhere/x.html", ".", "r" * 256):  # said before anything is timed; the last is longer than a name can be
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


if __name__ == "__main__":
    unittest.main()
