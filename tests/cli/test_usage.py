"""test_usage.py - the command line itself: help, options, mistakes, devices, info, colour, progress."""

import json
import os
import pty
import re
import subprocess
import sys
import termios
import unittest

from support import COMMANDS, LACUNA, Case, gaussian, write_npy, write_safetensors


class Usage(Case):
    def test_overview(self):
        out, _ = self.run_lacuna("--help")
        for command in ["devices", "info", "prune", "verify", "convert", "multiply", "demo", "help"]:
            self.assertIn(command, COMMANDS)
        self.assertEqual(self.run_lacuna("help")[0], out)
        self.assertRegex(self.run_lacuna("--version")[0], r"^lacuna \d+\.\d+\.\d+\n$")

    def test_no_command_is_a_usage_error(self):
        result = subprocess.run([LACUNA], capture_output=True, text=True)
        self.assertEqual((result.returncode, result.stdout), (2, ""))
        self.assertIn("usage: lacuna COMMAND", result.stderr)

    def test_every_command_has_help(self):
        for command in COMMANDS:
            out, _ = self.run_lacuna(command, "--help")
            self.assertIn("usage: lacuna %s" % command, out)
            self.assertIn("Exit status:", out)
            self.assertEqual(self.run_lacuna("help", command)[0], out)
            self.assertEqual(self.run_lacuna(command, "-h")[0], out)
            for line in out.splitlines():
                self.assertLessEqual(len(line), 100, line)

    def test_unknown_names_are_answered_with_the_nearest(self):
        for arguments, nearest in [
            (["prnue"], "'prune'"),
            (["prune", "a", "b", "--patern", "2:4"], "'--pattern'"),
            (["prune", "a", "b", "--patern=2:4"], "'--pattern'"),
            (["verify", "a", "--agianst", "b"], "'--against'"),
            (["devices", "--kernel"], "'--kernels'"),
            (["help", "verfy"], "'verify'"),
        ]:
            _, error = self.run_lacuna(*arguments, status=2)
            self.assertIn("did you mean %s?" % nearest, error)

    def test_mistakes_name_argument_and_value(self):
        for arguments, words in [
            (["wholly-unknown-thing"], ["unknown command 'wholly-unknown-thing'"]),
            (["prune", "a", "b", "--zzzzzzzzzzz"], ["unknown option '--zzzzzzzzzzz'", "--help"]),
            (["prune", "a", "b", "-Z"], ["unknown option '-Z'"]),
            (["devices", "--markdown", "--json"], ["--markdown and --json exclude each other"]),
            (["prune", "a", "b"], ["--pattern", "--schedule", "--budget"]),
            (["prune", "a", "--pattern", "2:4"], ["OUT is missing"]),
            (["prune", "a", "b", "c", "-p", "2:4"], ["one argument too many: 'c'"]),
            (["prune", "a", "b", "--pattern"], ["--pattern needs a value"]),
            (["prune", "a", "b", "-p", "5:4"], ["--pattern '5:4': N is 5"]),
            (["prune", "a", "b", "-p", "2:4", "--score", "l3"], ["--score 'l3'", "l1, l2"]),
            (["prune", "a", "b", "-p", "2:4", "--dtype", "f64"], ["--dtype 'f64'", "f32, f16, bf16"]),
            (["prune", "a", "b", "-p", "2:4", "--threads", "-1"], ["--threads '-1'", "from 0 to 4096"]),
            (["prune", "a", "b", "-p", "2:4", "--threads", "2x"], ["--threads '2x'"]),
            (["prune", "a", "b", "-p", "2:4", "--force=yes"], ["--force takes no value", "'yes'"]),
            (["prune", "a", "b", "-p", "2:4", "--dense", "--dtype", "f16"], ["--dense", "--dtype"]),
            (["multiply", "a", "b", "c.npy", "--alpha", "inf"], ["--alpha 'inf'", "finite"]),
            (["multiply", "a", "b", "c.npy", "--beta", "2"], ["--beta 2", "--residual"]),
            (["bench", "1,8,8", "--min-time", "-1"], ["--min-time is -1"]),
            (["bench", "1,8,8", "--max-seconds", "-2.5"], ["--max-seconds is -2.5"]),
            (["bench", "1,8,8", "--tolerance", "1"], ["--tolerance is 1"]),
            (["bench", "1,8,8", "-p", "2:4,5:4"], ["--pattern '5:4': N is 5"]),
            (["bench", "--from", "a.csv", "--csv", "b.csv", "-d", "f16,f8"], ["--dtype 'f8': must be one of f32, f16, bf16"]),
            (["bench", "1,8,8", "--precision", "strict,"], ["--precision '': must be one of default, strict, fast, tf32"]),
            (["compile", "-a", "sm_90a", "-p", "2:4,1:4", "-m", "8,0"], ["--tokens '0'", "from 1 to"]),
            (["multiply", "a", "b", "c.npy", "--alpha", "-1e39"], ["--alpha -1e+39", "too large"]),
            (["multiply", "a", "b", "c.npy", "--beta", "1e39", "--residual", "c"], ["--beta 1e+39", "too large"]),
            (["multiply", "a", "b", "c.txt"], ["c.txt", ".npy"]),
            (["multiply", "a", "b", "c.npy", "--repeat", "0"], ["--repeat '0'"]),
            (["help", "--completion", "tcsh"], ["--completion 'tcsh'", "bash, zsh, fish"]),
        ]:
            _, error = self.run_lacuna(*arguments, status=2)
            for word in words:
                self.assertIn(word, error)
        self.assertEqual(self.files(), [])

    def test_failures_name_option_and_value(self):
        self.make_checkpoint()
        self.run_lacuna("prune", "model.safetensors", "pruned.safetensors", "--pattern", "2:4")
        explain = ["explain", "--shape", "4,64,64", "--pattern", "2:4"]
        for arguments, words in [
            (["info", "nowhere.safetensors"], ["nowhere.safetensors: cannot open"]),
            (["prune", "nowhere.safetensors", "o", "-p", "2:4"], ["nowhere.safetensors: cannot open"]),
            (["prune", "model.safetensors", "nowhere/o", "-p", "2:4"], ["nowhere/o"]),
            (["prune", "model.safetensors", "pruned.safetensors", "-p", "2:4"], ["pruned.safetensors: exists; --force"]),
            (["prune", "model.safetensors", "o", "--budget", "speedup=99"], ["--budget", "speedup of 99"]),
            (["multiply", "model.safetensors", "x.npy", "y.npy"], ["model.safetensors: holds no compressed weight"]),
            (["multiply", "pruned.safetensors", "x.npy", "y.npy"], ["weights; --name says which"]),
            (["multiply", "pruned.safetensors", "x.npy", "y.npy", "--name", "zz"], ["no weight 'zz'"]),
            (explain + ["--device", "gpu"], ["--device is 'gpu'", "no such device"]),
            (explain + ["--device", "cuda:7"], ["--device is 'cuda:7'", "/nowhere/libcuda.so"]),
            (explain + ["--kernel", "cpu_warp_drive"], ["--kernel is 'cpu_warp_drive'", "no such kernel"]),
            (explain + ["--kernel", "cuda_f32_plain"], ["--kernel is 'cuda_f32_plain'", "pattern 2:4", "on cpu"]),
            (["compile", "-a", "sm_90a", "-p", "2:4", "-o", "k", "--kernel", "zz"], ["--kernel is 'zz'"]),
            (["compile", "-a", "sm_99", "-p", "2:4", "-o", "k"], ["--arch is 'sm_99'", "sm_90a"]),
            (["prune", "model.safetensors", "o", "-p", "2:4", "--producer", "a"], ["--producer 'a': it must be CONSUMER=PRODUCER"]),
            (["bench", "4,64,64", "--compare", "nowhere.csv"], ["--compare: nowhere.csv: No such file"]),
        ]:
            _, error = self.run_lacuna(*arguments, status=3, environment={"LAC_CUDA_LIBRARY": "/nowhere/libcuda.so"})
            for word in words:
                self.assertIn(word, error)

    def test_forms_of_options(self):
        self.make_checkpoint()
        want = self.run_json("prune", "model.safetensors", "x", "--pattern", "2:4", "--dry-run", "--include", "a*")
        for arguments in [
            ["-np2:4", "-ia*", "model.safetensors", "x"],
            ["model.safetensors", "-n", "-p=2:4", "x", "--include=a*"],
            ["--dry-run", "--pattern=2:4", "-i", "a*", "--", "model.safetensors", "x"],
        ]:
            # --json must come before `--`, so it stands first here.
            out, _ = self.run_lacuna("prune", "--json", *arguments)
            self.assertEqual(json.loads(out)["layers"], want["layers"])

    def test_a_full_disk_is_no_success(self):
        if not os.path.exists("/dev/full"):
            self.skipTest("no /dev/full here")
        bench = ["bench", "4,32,32", "8,32,32", "-p2:4", "-t1", "--baseline", "none", "--warm", "--min-time", "0.001"]
        for arguments, name in [
            (["--help"], "lacuna"),
            (["devices", "--kernels", "--json"], "lacuna devices"),  # fills a buffer
            (bench, "lacuna bench"),  # each row is sent at once, so that nothing is left to be sent in the end
            ([*bench, "--csv", "out.csv"], "lacuna bench"),
            ([*bench, "--csv", "-"], "lacuna bench"),
        ]:
            with open("/dev/full", "w") as full:
                result = subprocess.run([LACUNA, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, cwd=self.folder)
            self.assertEqual((result.returncode, result.stderr), (3, name + ": standard output: No space left on device\n"))


class Devices(Case):
    def test_devices(self):
        out, _ = self.run_lacuna("devices")
        self.assertRegex(out, r"(?m)^cpu +yes ")
        document = self.run_json("devices")
        cpu = [d for d in document["devices"] if d["name"] == "cpu"][0]
        self.assertEqual(
            set(cpu),
            {"name", "kind", "model", "available", "note", "cores", "vector_unit", "memory_bytes", "l1_bytes", "l2_bytes", "l3_bytes"},
        )
        self.assertTrue(cpu["available"])
        self.assertGreaterEqual(cpu["cores"], 1)
        self.assertNotIn("kernels", document)

    def test_kernels(self):
        document = self.run_json("devices", "--kernels")
        self.assertGreaterEqual(len(document["kernels"]), 2)
        for kernel in document["kernels"]:
            self.assertEqual(
                set(kernel), {"name", "device", "is_dense", "summary", "families", "weight_dtypes", "x_dtypes", "y_dtypes"}
            )
        families = set(sum((k["families"] for k in document["kernels"]), []))
        self.assertEqual(families, {"element", "vector", "block", "vnm", "shuffled"})
        out, _ = self.run_lacuna("devices", "-k")
        for kernel in document["kernels"]:
            self.assertIn(kernel["name"], out)


class Info(Case):
    def test_checkpoint(self):
        self.make_checkpoint()
        document = self.run_json("info", "model.safetensors")
        self.assertEqual(document["format"], "safetensors")
        self.assertEqual(document["metadata"], {"made": "by a test"})
        self.assertEqual({t["name"]: t["shape"] for t in document["tensors"]}["b.weight"], [7, 13])
        self.assertEqual({t["name"]: t["type"] for t in document["tensors"]}["ids"], "I64")
        self.assertEqual(document["totals"]["bytes"], 4 * (512 + 91 + 80 + 5) + 2 * 96 + 8 * 6)
        out, _ = self.run_lacuna("info", "model.safetensors", "--metadata")
        for word in ["a.weight", "16x32", "by a test", "total"]:
            self.assertIn(word, out)

    def test_container(self):
        self.make_checkpoint()
        self.run_lacuna("prune", "model.safetensors", "out.safetensors", "-p", "2:4", "-x", "embed")
        document = self.run_json("info", "out.safetensors")
        weight = {w["name"]: w for w in document["weights"]}["a.weight"]
        self.assertEqual((weight["n"], weight["k"], weight["pattern"], weight["dtype"]), (16, 32, "2:4", "f32"))
        self.assertEqual((weight["kept"], weight["density"]), (256, 0.5))
        self.assertEqual(weight["bytes"], 256 * 4 + 16 * 4)  # values, and 2 bits for each
        self.assertEqual(weight["encoding"], "packed")
        self.assertEqual(sorted(t["name"] for t in document["tensors"]), ["embed", "ids", "norm"])
        self.assertIn("2:4", self.run_lacuna("info", "out.safetensors")[0])

    def test_density_is_counted(self):
        write_safetensors(self.path("z.safetensors"), {"z": ("F32", [2, 4], [0.0, 1.0, -0.0, 0.0, 2.0, 0.0, 0.0, 0.0])})
        self.assertIsNone(self.run_json("info", "z.safetensors")["tensors"][0]["density"])
        self.assertEqual(self.run_json("info", "z.safetensors", "--density")["tensors"][0]["density"], 0.25)

    def test_other_formats(self):
        write_npy(self.path("w.npy"), [3, 4], gaussian(3, 4, 1))
        document = self.run_json("info", "w.npy")
        self.assertEqual((document["format"], document["tensors"][0]["shape"]), ("npy", [3, 4]))
        with open(self.path("m.smtx"), "w") as file:
            file.write("2, 3, 2\n0 1 2\n0 2\n")
        document = self.run_json("info", "m.smtx")
        self.assertEqual((document["format"], document["masks"][0]["kept"]), ("smtx", 2))
        self.assertIn("33.33%", self.run_lacuna("info", "m.smtx")[0])

    def test_checkpoint_of_several_files(self):
        os.mkdir(self.path("parts"))
        write_safetensors(self.path("parts/1.safetensors"), {"a": ("F32", [2, 4], gaussian(2, 4, 1))})
        write_safetensors(self.path("parts/2.safetensors"), {"b": ("F32", [2, 4], gaussian(2, 4, 2))})
        index = {"metadata": {}, "weight_map": {"a": "1.safetensors", "b": "2.safetensors"}}
        with open(self.path("parts/model.safetensors.index.json"), "w") as file:
            json.dump(index, file)
        for path in ["parts", "parts/model.safetensors.index.json"]:
            document = self.run_json("info", path)
            self.assertEqual((document["files"], sorted(t["name"] for t in document["tensors"])), (2, ["a", "b"]))

    def test_bad_files(self):
        _, error = self.run_lacuna("info", "missing.safetensors", status=3)
        self.assertIn("missing.safetensors", error)
        self.assertIn("No such file", error)
        with open(self.path("cut.safetensors"), "wb") as file:
            file.write(b"\x10\0\0\0\0\0\0\0{")
        self.assertIn("cut.safetensors", self.run_lacuna("info", "cut.safetensors", status=3)[1])
        # A name of one letter occurs in every message, and is said all the same.
        os.rename(self.path("cut.safetensors"), self.path("e"))
        self.assertIn("e: ", self.run_lacuna("verify", "e", status=1)[1].split("lacuna verify: ")[1][:4])
        with open(self.path("empty"), "wb"):
            pass
        self.assertIn("empty", self.run_lacuna("info", "empty", status=3)[1])

    def test_names_cannot_steer_the_terminal(self):
        write_safetensors(self.path("evil.safetensors"), {"\x1b[2Jx": ("F32", [2, 2], [1.0, 2.0, 3.0, 4.0])})
        out, _ = self.run_lacuna("info", "evil.safetensors")
        self.assertNotIn("\x1b", out)
        _, error = self.run_lacuna("verify", "evil.safetensors", "--pattern", "1:2", status=1)
        self.assertNotIn("\x1b", error)
        # A terminal takes U+009B for an escape and a bracket; letters that share its first byte stay.
        write_safetensors(self.path("c1.safetensors"), {"a\u009b2Jx\u00a9": ("F32", [2, 2], [1.0, 2.0, 3.0, 4.0])})
        out, _ = self.run_lacuna("info", "c1.safetensors")
        self.assertIn("a?2Jx\u00a9", out)
        _, error = self.run_lacuna("verify", "c1.safetensors", "--pattern", "1:2", status=1)
        self.assertNotIn("\u009b", error)
        _, error = self.run_lacuna("prune", "c1.safetensors", "o", "--pattern", "2:\u009b4", status=2)
        self.assertIn("\\xc2\\x9b", error)
        _, error = self.run_lacuna("convert", "c1.safetensors", "o.npy", "--name", "\u009b", status=3)
        self.assertNotIn("\u009b", error)

    def test_file_names_that_are_no_utf8(self):
        write_npy(os.path.join(os.fsencode(self.folder), b"w\xff.npy"), [1, 1], [1.0])
        result = subprocess.run([LACUNA.encode(), b"info", b"w\xff.npy", b"--json"], cwd=self.folder, stdout=subprocess.PIPE)
        self.assertEqual(result.returncode, 0)
        self.assertEqual(json.loads(result.stdout)["file"], "w\ufffd.npy")


class Terminal(Case):
    def run_on_terminal(self, *arguments, environment=None, columns=80):
        leader, follower = pty.openpty()
        termios.tcsetwinsize(follower, (24, columns))
        environment = dict(os.environ, TERM="xterm", **(environment or {}))
        if "NO_COLOR" in environment and not environment["NO_COLOR"]:
            del environment["NO_COLOR"]
        process = subprocess.Popen([LACUNA, *arguments], cwd=self.folder, stdout=follower, stderr=follower, env=environment)
        os.close(follower)
        text = b""
        while True:
            try:
                piece = os.read(leader, 65536)
            except OSError:
                break
            if not piece:
                break
            text += piece
        os.close(leader)
        self.assertEqual(process.wait(), 0, text)
        return text.decode()

    def test_colour_only_on_a_terminal_and_when_wanted(self):
        self.make_checkpoint()
        self.assertIn("\x1b[1m", self.run_on_terminal("info", "model.safetensors", environment={"NO_COLOR": ""}))
        self.assertNotIn("\x1b", self.run_on_terminal("info", "model.safetensors", environment={"NO_COLOR": "1"}))
        self.assertNotIn("\x1b", self.run_lacuna("info", "model.safetensors")[0])

    def test_progress(self):
        self.make_checkpoint()
        _, error = self.run_lacuna("prune", "model.safetensors", "o1", "-p", "2:4", "--progress", "always")
        self.assertRegex(error, r"\[#+\.*\] +\d+%  \d+:\d\d left")
        _, error = self.run_lacuna("prune", "model.safetensors", "o2", "-p", "2:4", "--progress", "never")
        self.assertEqual(error, "")
        _, error = self.run_lacuna("prune", "model.safetensors", "o3", "-p", "2:4", "--progress", "auto")
        self.assertEqual(error, "")
        # It takes far less than two seconds, so a terminal sees no bar either.
        self.assertNotIn("left", self.run_on_terminal("prune", "model.safetensors", "o4", "-p", "2:4"))

    def test_progress_stays_on_its_line(self):
        names = ["model.layers.%d.self_attn.q_proj.weight" % i for i in range(4)] + ["\x1b" * 50, "\u009b" * 50, "\u00e9" * 60]
        write_safetensors(self.path("m.safetensors"), {name: ("F32", [4, 8], [1.0] * 32) for name in names})
        for width in (80, 50, 30, 10, 1):
            text = self.run_on_terminal("prune", "m.safetensors", "o", "-p", "2:4", "-f", "--progress", "always", columns=width)
            drawn = text[: text.rindex("\r\x1b[K")].split("\r\x1b[K")[1:]
            self.assertTrue(drawn)
            for line in drawn:
                self.assertLess(len(line), width, line)

    def test_columns_are_aligned(self):
        self.make_checkpoint()
        lines = self.run_lacuna("info", "model.safetensors")[0].splitlines()
        column = lines[1].index("of dense") + len("of dense")
        for line in lines[2:8]:
            self.assertTrue(re.search(r"100\.00%", line) and line[:column].endswith("%"), line)
        for line in lines:
            self.assertEqual(line, line.rstrip())


if __name__ == "__main__":
    sys.exit(unittest.main())
