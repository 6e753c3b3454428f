"""test_core_life.py - how long things live: threads, fork, the interpreter's end; and the log, which comes from within calls."""

import gc
import logging
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
from core_case import Case, allocated, attempt, compressed, main

import lacuna
from lacuna import errors


class Orders(Case):
    def test_whatever_goes_first(self):
        x = self.normal(4, 64)
        weight, _ = compressed(self.normal(32, 64), "2:4")
        plan = lacuna.Plan(weight, 4)
        want = plan(x)
        device = lacuna.Device("cpu")
        array = lacuna.DeviceArray((4, 64), "f32", device).copy_from(x)
        del weight, device
        gc.collect()
        np.testing.assert_array_equal(plan(array).numpy(), want)
        part = plan.weight.parts["values"]
        del plan
        gc.collect()
        self.assertEqual(len(bytes(part)), 32 * 32 * 4)
        view = np.from_dlpack(array)
        del array
        gc.collect()
        np.testing.assert_array_equal(view, x)

    def test_the_interpreters_lock_is_given_up(self):
        """Another thread goes on all through one long call."""
        ticks, done = [], threading.Event()

        def tick():
            while not done.is_set():
                ticks.append(time.monotonic())
                time.sleep(0.001)

        thread = threading.Thread(target=tick)
        thread.start()
        try:
            for size in (2048, 4096, 8192):  # however fast the machine is
                w = self.normal(size, size)
                begin = time.monotonic()
                mask = lacuna.prune(w, "shfl64:25%", threads=1)
                end = time.monotonic()
                if end - begin > 0.05:
                    break
        finally:
            done.set()
            thread.join()
        self.assertEqual(mask.shape, (size, size))
        self.assertGreater(end - begin, 0.05, "the call is too short to show anything")
        middle = [t for t in ticks if begin + 0.25 * (end - begin) < t < begin + 0.75 * (end - begin)]
        self.assertGreater(len(middle), 2)

    def test_fork(self):
        x = self.normal(4, 64)
        weight, _ = compressed(self.normal(32, 64), "2:4")
        plan = lacuna.Plan(weight, 4)
        want = plan(x)
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            status = 1
            try:
                fresh = lacuna.Plan(lacuna.compress(weight.dense(), "2:4", threads=1), 4, threads=1)
                status = 0 if (fresh(x) == want).all() else 2
            finally:
                os._exit(status)
        self.assertEqual(os.waitpid(child, 0)[1], 0)

    def script(self, text):
        """Runs as a program of its own; what it prints. It must end well."""
        done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=120)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout

    def test_the_interpreters_end(self):
        """Objects in globals, views, capsules that somebody still holds, and threads that are in the middle of a call."""
        self.script("""
import ctypes, threading, time
import numpy as np, lacuna
w = lacuna.compress(np.ones((64, 64), np.float32), "2:4")
plan, part, x = lacuna.Plan(w, 8), w.parts["values"], np.ones((8, 64), np.float32)
array = lacuna.DeviceArray((4, 4), "f32", "cpu")
view = np.from_dlpack(array)
capsule = array.__dlpack__()
mask, calibration, cycle = lacuna.prune(x, "2:4"), lacuna.Calibration(3), []
cycle.append((cycle, w, plan, mask))
def work():
    while True:
        plan(x); lacuna.prune(x, "2:4")
for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
time.sleep(0.1)
""")

    def test_other_interpreters(self):
        """A second interpreter takes the module or refuses it; it does not fall."""
        out = self.script("""
import lacuna
try:
    import _interpreters as others
except ImportError:
    try:
        import _xxsubinterpreters as others
    except ImportError:
        others = None
if others:
    it = others.create()
    try:
        failed = others.run_string(it, "import warnings as w; w.simplefilter('ignore'); import lacuna; assert lacuna.Pattern('2:4').n == 2")
    except Exception as error:
        failed = error
    others.destroy(it)
print(lacuna.Pattern("2:4").m)
""")
        self.assertEqual(out, "4\n")

    def test_imported_again(self):
        self.assertEqual(
            self.script("""
import sys, lacuna
old = lacuna.Pattern("2:4")
for name in [n for n in sys.modules if n.startswith("lacuna")]:
    del sys.modules[name]
import lacuna
print(lacuna.Pattern("2:4") == old)
"""),
            "True\n",
        )


class Log(Case):
    def setUp(self):
        super().setUp()
        self.said = []
        self.handler = logging.Handler()
        self.handler.emit = lambda record: self.said.append((record.levelname, record.getMessage()))
        self.logger = logging.getLogger("lacuna")
        self.logger.setLevel(logging.DEBUG)
        self.logger.addHandler(self.handler)
        self.addCleanup(self.logger.removeHandler, self.handler)
        self.addCleanup(lacuna.set_log_level, "warning")
        self.calibration = lacuna.Calibration(64)
        self.calibration.add(self.normal(4, 64))
        self.w = self.normal(8, 64)

    def warn(self):
        """Fewer samples than inputs: Lacuna says so."""
        return lacuna.prune_and_correct(self.w, "2:4", method="obs", calibration=self.calibration)

    def test_levels(self):
        for level, count in [("none", 0), ("warning", 1), ("info", 1), ("debug", 1)]:
            lacuna.set_log_level(level)
            self.said.clear()
            self.warn()
            said = [text for name, text in self.said if name == "WARNING" and "4 samples for 64 inputs" in text]
            self.assertEqual(len(said), count, (level, self.said))
        self.refuses(ValueError, ["level", "'loud'", "'warning'"], lacuna.set_log_level, "loud")
        self.refuses(TypeError, ["level", "3"], lacuna.set_log_level, 3)

    def test_text_that_is_no_utf8(self):
        """A file's name in a message: it comes to the handlers as far as it can be read, and the call goes on."""
        text = """
import logging, numpy as np, lacuna
logging.basicConfig(format="%(message)s", stream=__import__("sys").stdout)
x = np.random.default_rng(1).standard_normal((512, 256), dtype=np.float32)
calibration = lacuna.Calibration(256)
calibration.add(x)
lacuna.prune_and_correct(x[:8], "2:4", method="obs", calibration=calibration)
print(calibration.samples)
"""
        environment = {**os.environb, b"LAC_OPENBLAS": b"no \xff\xc3.so"}
        done = subprocess.run([sys.executable, "-c", text], capture_output=True, env=environment, timeout=120)
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        self.assertRegex(done.stdout, rb"LAC_OPENBLAS: no .xff.xc3.so does not open.*\n512\n")

    def test_a_handler_that_raises(self):
        """What it raises comes out of the call, and a failure of the call itself goes first. What was made is freed, as malloc counts."""

        def raising(record):
            raise ZeroDivisionError("mine")

        self.handler.emit = raising
        self.refuses(ZeroDivisionError, "mine", self.warn)
        self.refuses(
            errors.InvalidArgument, "inf", lacuna.prune_and_correct, self.w * np.inf, "2:4", method="obs", calibration=self.calibration
        )
        self.w = self.normal(64, 64)
        grown = []
        for _ in range(4):
            before = allocated()
            for _ in range(50):
                attempt(self.warn)
            grown.append(allocated() - before)
        self.assertLess(min(grown), 50 * 64 * 64 // 8)  # a mask has a bit an element at least

    def test_a_handler_that_calls_back(self):
        self.handler.emit = lambda record: self.said.append(lacuna.Pattern("2:4").m)
        self.warn()
        self.assertEqual(self.said, [4])

    def test_messages_of_other_threads(self):
        threads = [threading.Thread(target=self.warn) for _ in range(4)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        self.assertEqual(len(self.said), 4)


class Errors(Case):
    def test_what_they_are(self):
        builtins = {
            "InvalidArgument": ValueError,
            "OutOfMemory": MemoryError,
            "InputOutput": OSError,
            "BadFile": ValueError,
            "NotFound": LookupError,
            "PatternViolated": ValueError,
            "ValueOutOfRange": ValueError,
            "Unsupported": NotImplementedError,
            "DeviceFailure": RuntimeError,
            "Cancelled": Exception,
            "Internal": RuntimeError,
        }
        every = {name for name, it in vars(errors).items() if isinstance(it, type) and it is not errors.Error}
        self.assertEqual(every, set(builtins))
        for name, builtin in builtins.items():
            self.assertTrue(issubclass(getattr(errors, name), (errors.Error, builtin)) and issubclass(getattr(errors, name), builtin))

    def test_threads_have_their_own(self):
        wrong = []

        def work(number):
            for _ in range(200):
                try:
                    lacuna.Pattern(f"{number}:x")
                except errors.InvalidArgument as error:
                    if f"'{number}:x'" not in str(error):
                        wrong.append(str(error))

        threads = [threading.Thread(target=work, args=(i,)) for i in range(1, 5)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        self.assertEqual(wrong, [])


if __name__ == "__main__":
    main()
