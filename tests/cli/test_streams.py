"""test_streams.py - standard streams that are closed, signals that come late, names that are empty."""

import os
import signal
import subprocess
import sys
import time
import unittest

from support import LACUNA, Case


class Streams(Case):
    def run_closed(self, streams, *arguments):
        """Runs with these descriptors closed and returns the exit status and both outputs."""

        def close():
            for stream in streams:
                os.close(stream)

        process = subprocess.Popen([LACUNA, *arguments], cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=close)
        out, error = process.communicate(timeout=600)
        return process.returncode, out.decode(), error.decode()

    def test_messages_stay_out_of_files(self):
        problem = ["4,32,32", "-p", "2:4", "--threads", "1", "--baseline", "none", "--warm", "--min-time", "0.001"]
        for streams in [(2,), (1, 2), (0, 1, 2)]:
            status, _, _ = self.run_closed(streams, "bench", *problem, "--max-seconds", "0.000001", "--csv", "out.csv")
            self.assertEqual(status, 3)  # nothing was timed, which is said, to nobody
            with open(self.path("out.csv")) as file:
                lines = file.read().splitlines()
            self.assertEqual((len(lines), lines[0][:14]), (1, "device,kernel,"), streams)
            os.remove(self.path("out.csv"))
        for streams in [(1,), (0, 1)]:
            status, _, error = self.run_closed(streams, "bench", *problem, "--csv", "out.csv")
            self.assertEqual((status, "standard output: Bad file descriptor" in error), (3, True), error)
            with open(self.path("out.csv")) as file:
                self.assertEqual([line.split(",")[0] for line in file], ["device", "cpu"])
            os.remove(self.path("out.csv"))

    def test_names_of_files_are_not_empty(self):
        for arguments, name in [
            (["info", ""], "FILE"),
            (["prune", "", "b", "-p", "2:4"], "IN"),
            (["convert", "a", ""], "OUT"),
            (["bench", "1,8,8", "--csv", ""], "--csv"),
            (["bench", "1,8,8", "--report="], "--report"),
            (["verify", "a", "-a", ""], "--against"),
            (["demo", "--out", ""], "--out"),
        ]:
            _, error = self.run_lacuna(*arguments, status=2)
            self.assertIn(" %s is empty: it must name a " % name, error)
        self.assertEqual(self.files(), [])

    def test_a_signal_that_comes_last_is_heeded(self):
        rows, cols = 1 << 20, 16
        head = ("{'descr': '<f4', 'fortran_order': False, 'shape': (%d, %d), }" % (rows, cols)).ljust(117) + "\n"
        with open(self.path("x.npy"), "wb") as file:
            file.write(b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head.encode())
            file.truncate(128 + rows * cols * 4)
        ends = set()
        for _ in range(20):  # the file may be complete before the signal comes
            process = subprocess.Popen([LACUNA, "convert", "x.npy", "y.npy"], cwd=self.folder, stdout=subprocess.DEVNULL)
            while process.poll() is None and not any(name.endswith(".tmp") for name in os.listdir(self.folder)):
                time.sleep(0.0005)
            process.send_signal(signal.SIGINT)
            ends.add(process.wait(600))
            self.assertEqual(sorted(self.files()), ["x.npy", "y.npy"])  # what was in hand is whole
            self.assertEqual(os.path.getsize(self.path("y.npy")), 128 + rows * cols * 4)
            os.remove(self.path("y.npy"))
            if -signal.SIGINT in ends:
                break
        self.assertIn(-signal.SIGINT, ends)


if __name__ == "__main__":
    sys.exit(unittest.main())
