"""test_describe.py - manual pages and completion scripts: they render, they parse, and they name every option."""

import os
import re
import shutil
import subprocess
import sys
import unittest

from support import COMMANDS, LACUNA, Case


def long_options(text):
    return set(re.findall(r"--[a-z][a-z-]*", text))


class Describe(Case):
    def options_of(self, command):
        """The options that --help lists."""
        out, _ = self.run_lacuna(command, "--help")
        return set(re.findall(r"(?m)^  (?:-\w, |    )(--[a-z-]+)", out))

    def test_manual_pages_name_every_option(self):
        for command in COMMANDS:
            page, _ = self.run_lacuna("help", "--man", command)
            options = self.options_of(command)
            self.assertIn("--help", options)
            self.assertLessEqual(options, long_options(page.replace("\\-", "-")), command)
            for section in ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS", "SEE ALSO"]:
                self.assertIn(".SH %s\n" % section, page)
        overview, _ = self.run_lacuna("help", "--man")
        for command in COMMANDS:
            self.assertIn("lacuna\\-%s (1)" % command, overview)

    def test_help_names_every_architecture(self):
        _, error = self.run_lacuna("compile", "-a", "sm_99", "-p", "2:4", "-o", "k", status=3)
        archs = re.findall(r"sm_\w+", error.split("one of")[1])
        self.assertGreater(len(archs), 6)
        out, _ = self.run_lacuna("compile", "--help")
        self.assertLessEqual(set(archs), set(re.findall(r"sm_\w+", out)))

    def test_manual_pages_render_without_warnings(self):
        groff = shutil.which("groff")
        if not groff:
            self.skipTest("no groff here")
        for command in [None, *COMMANDS]:
            page, _ = self.run_lacuna("help", "--man", *([command] if command else []))
            result = subprocess.run([groff, "-man", "-Tascii", "-ww"], input=page, capture_output=True, text=True)
            self.assertEqual((result.returncode, result.stderr), (0, ""), command)
            plain = re.sub(".\b", "", result.stdout)  # bold is a letter struck twice
            self.assertIn("EXIT STATUS", plain)
            for option in self.options_of(command) if command else []:
                self.assertIn(option, plain)

    def test_everything_is_written(self):
        self.run_lacuna("help", "--write", "made")
        pages = sorted(os.listdir(self.path("made/man")))
        self.assertEqual(pages, sorted(["lacuna.1"] + ["lacuna-%s.1" % c for c in COMMANDS]))
        for name, shell in [("bash/lacuna", "bash"), ("zsh/_lacuna", "zsh"), ("fish/lacuna.fish", "fish")]:
            with open(self.path("made/" + name)) as file:
                self.assertEqual(file.read(), self.run_lacuna("help", "--completion", shell)[0])
        with open(self.path("file"), "w"):
            pass
        self.assertIn("file", self.run_lacuna("help", "--write", "file", status=3)[1])

    def test_completion_scripts_parse_and_name_every_option(self):
        for shell in ["bash", "zsh", "fish"]:
            script, _ = self.run_lacuna("help", "--completion", shell)
            for command in COMMANDS:
                for option in self.options_of(command):
                    name = option if shell != "fish" else "-l " + option[2:]
                    self.assertIn(name, script, (shell, command))
            if shutil.which(shell):
                result = subprocess.run([shell, "-n"], input=script, capture_output=True, text=True)
                self.assertEqual((result.returncode, result.stderr), (0, ""), shell)

    def test_zsh_offers_again_what_may_be_repeated(self):
        script, _ = self.run_lacuna("help", "--completion", "zsh")
        for command in COMMANDS:
            part = script.split("\n    %s)\n" % command)[1].split(";;")[0]
            for line in re.findall(r"(?m)^ *'.*", part):
                name = re.match(r" *'\*?(--[a-z-]+)", line)
                if name and name.group(1) != "--help":
                    said = re.search(r"(?i)may be repeated", line) is not None
                    self.assertEqual(line.lstrip().startswith("'*"), said, (command, name.group(1)))

    def complete(self, *words):
        """What bash offers for the last word."""
        script, _ = self.run_lacuna("help", "--completion", "bash")
        quoted = " ".join("'%s'" % w for w in words)
        script += "COMP_WORDS=(%s); COMP_CWORD=%d; compopt() { :; }; _lacuna; printf '%%s\\n' \"${COMPREPLY[@]}\"" % (
            quoted,
            len(words) - 1,
        )
        result = subprocess.run(["bash", "-c", script], cwd=self.folder, capture_output=True, text=True)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return sorted(result.stdout.split("\n")[:-1])

    def test_bash_completes(self):
        self.assertEqual(self.complete("lacuna", "pr"), ["prune"])
        self.assertEqual(self.complete("lacuna", "help", "in"), ["info"])
        self.assertEqual(self.complete("lacuna", "prune", "--dr"), ["--dry-run"])
        self.assertEqual(self.complete("lacuna", "prune", "--score", ""), ["l1", "l2"])
        self.assertEqual(self.complete("lacuna", "prune", "-s", "l"), ["l1", "l2"])
        self.assertEqual(self.complete("lacuna", "multiply", "--activation", "gelu"), ["gelu", "gelu-tanh"])
        self.assertEqual(self.complete("lacuna", "bench", "--dtype", ""), ["bf16", "f16", "f32"])
        self.assertEqual(self.complete("lacuna", "bench", "--precision", "s"), ["strict"])
        for name in ["my model.safetensors", "other.txt"]:
            with open(self.path(name), "w"):
                pass
        os.mkdir(self.path("folder"))
        self.assertEqual(self.complete("lacuna", "info", "my"), ["my model.safetensors"])
        self.assertEqual(self.complete("lacuna", "verify", "--against", "o"), ["other.txt"])
        self.assertEqual(self.complete("lacuna", "demo", "--out", ""), ["folder"])


if __name__ == "__main__":
    sys.exit(unittest.main())
