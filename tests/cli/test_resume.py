"""test_resume.py - lacuna prune killed again and again: nothing appears under the output's name before it is whole, the next run goes on from
what was finished, and the result is, byte for byte, that of a run which nobody killed."""

import os
import random
import signal
import subprocess
import sys
import time
import unittest

from support import LACUNA, Case, gaussian, write_safetensors

SCALE = int(os.environ.get("LAC_TEST_SCALE", "1"))
KILLS = 30 if SCALE == 1 else 6
MOST = 300


class Resume(Case):
    def make(self, tensors, rows, columns):
        values = gaussian(rows, columns, 7)
        write_safetensors(
            self.path("m.safetensors"),
            {"l%d.weight" % i: ("F32", [rows, columns], values[i:] + values[:i]) for i in range(tensors)},
        )
        samples = gaussian(2 * columns, columns, 8)
        write_safetensors(
            self.path("x.safetensors"),
            {"l%d.input" % i: ("F32", [2 * columns, columns], samples) for i in range(tensors)},
        )

    def bytes_of(self, name):
        with open(self.path(name), "rb") as file:
            return file.read()

    def command(self, method, out):
        command = ["prune", "m.safetensors", out, "-p", "2:4", "-m", method, "-t", "1"]
        return command + (["-c", "x.safetensors"] if method != "magnitude" else [])

    def finished(self):
        """How many tensors the journal says are done: a line each, behind the one with the options."""
        try:
            return max(0, self.bytes_of("o.safetensors.journal").count(b"\n") - 1)
        except FileNotFoundError:
            return 0

    def kill_behind(self, arguments, more, seconds):
        """Runs, and kills so many seconds after `more` tensors are done; True when it had not ended before. Moments are counted in tensors, for
        how long one takes depends on the machine and on what else it does."""
        process = subprocess.Popen([LACUNA, *arguments], cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        goal = self.finished() + more
        while process.poll() is None and self.finished() < goal:
            time.sleep(0.0002)
        time.sleep(seconds)
        process.kill()
        process.wait()
        return process.returncode == -signal.SIGKILL

    def check_killed(self, method, tensors, rows, columns):
        """Kills until it has seen what it is here for: runs that were killed, that left something, and that went on from a finished tensor. A
        busy machine makes a run end before its kill comes, so how many it takes is not certain; that MOST are enough is."""
        self.make(tensors, rows, columns)
        self.run_lacuna(*self.command(method, "whole.safetensors"))
        whole = self.bytes_of("whole.safetensors")
        rng, runs, killed, goes_on, partials = random.Random(9), 0, 0, 0, 0
        while runs < KILLS or not (killed and partials and goes_on):
            self.assertLess(runs, MOST, "%d killed, %d left something, %d went on" % (killed, partials, goes_on))
            runs += 1
            if self.kill_behind(self.command(method, "o.safetensors"), rng.randrange(tensors // 2), rng.uniform(0, 0.005)):
                killed += 1
                partials += "o.safetensors.partial" in self.files()
                if runs % 3 and "o.safetensors" not in self.files():
                    continue  # two more kills before it may go on
            if "o.safetensors" not in self.files():
                document = self.run_json(*self.command(method, "o.safetensors"))
                goes_on += document["totals"]["resumed"] > 0
                self.assertEqual(len(document["layers"]), tensors)
            self.assertEqual(self.bytes_of("o.safetensors"), whole)  # also where it was killed behind the last step but one
            if "o.safetensors.journal" in self.files():
                self.run_lacuna(*self.command(method, "o.safetensors"), "--force")
                self.assertEqual(self.bytes_of("o.safetensors"), whole)
            self.assertEqual(self.files(), ["m.safetensors", "o.safetensors", "whole.safetensors", "x.safetensors"])
            os.unlink(self.path("o.safetensors"))
        print("%s: %d runs, %d killed, %d left something, %d went on from a finished tensor" % (method, runs, killed, partials, goes_on))

    def test_killed_by_magnitude(self):
        self.check_killed("magnitude", 64, 64, 64)

    def test_killed_by_obs(self):
        self.check_killed("obs", 12, 96, 128)

    def interrupt(self, command):
        """Runs, and sends SIGINT behind the first tensor, until one run has not ended before the signal comes."""
        for _ in range(MOST):
            process = subprocess.Popen(
                [LACUNA, *command, "--progress", "always"], cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
            self.assertEqual(process.stderr.read(1), b"\r")  # drawn after the first tensor
            process.send_signal(signal.SIGINT)
            out, error = process.communicate(timeout=600)
            if process.returncode == -signal.SIGINT and "o.safetensors" not in self.files():
                return out, error
            self.assertIn(process.returncode, (0, -signal.SIGINT), error)
            os.unlink(self.path("o.safetensors"))
        self.fail("%d runs, and all had ended when the signal came" % MOST)

    def test_options_and_input_must_be_the_same(self):
        self.make(200, 64, 64)
        command = self.command("obs", "o.safetensors")
        out, error = self.interrupt(command)
        self.assertEqual(out, b"")
        self.assertIn(b"the same command goes on from there", error)
        leftovers = ["o.safetensors.journal", "o.safetensors.partial"]
        self.assertEqual(self.files(), ["m.safetensors", *leftovers, "x.safetensors"])
        other = [argument if argument != "2:4" else "1:4" for argument in command]
        _, error = self.run_lacuna(*other, status=3)
        self.assertIn('pattern "2:4", now it is "1:4"', error)
        self.assertIn("--restart", error)
        with open(self.path("m.safetensors"), "r+b") as file:
            file.seek(8 + int.from_bytes(file.read(8), "little"))
            file.write(b"\x01\x02\x03")
        _, error = self.run_lacuna(*command, status=3)
        self.assertIn("the weights of it changed since", error)
        document = self.run_json(*command, "--restart")
        self.assertEqual((document["totals"]["resumed"], document["totals"]["pruned"]), (0, 200))
        self.assertEqual(self.files(), ["m.safetensors", "o.safetensors", "x.safetensors"])


if __name__ == "__main__":
    sys.exit(unittest.main())
