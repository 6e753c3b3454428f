#!/usr/bin/env python3
"""Takes every synchronisation out of the kernels, one at a time, and looks whether the GPU's tests on the emulator see it.

    tests/emulator/mutate.py --file gather.cu --rows 8 mutants.csv

A mutant is a kernel with one wait, fence or barrier missing, with a wait that lets one group more be under way, or with an acquire, a release
or a fence of the GPU that is relaxed or of the block alone. It counts as found when test_gpu fails: a wrong result, the emulator's message, a deadlock, a row without end. Which kernels use a file is seen by running their rows
once as they are, which also leaves the programs that a mutant does not change; test_gpu compiles the others into a folder of its own.
"same code" are mutants that change no program of these rows: other rows, or problems of the tiles (--tiles, --tile), may reach them.

One process runs, and ends at the first row that fails. Lines go to the CSV as they come, so that a run may be stopped.
"""
import argparse
import csv
import os
import re
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
KERNELS = ROOT / "src" / "cuda" / "kernels"

# What threads wait by, and what makes writes seen. Those that are kernels' own names for one asm statement are among them.
CALLS = """lac_async_fence lac_barrier_init_fence lac_barrier_wait lac_cluster_arrive lac_cluster_sync lac_cluster_wait lac_computers
           lac_copy_wait lac_counter_wait lac_global_fence lac_spreaders_sync lac_store_wait_read lac_wait_for_inputs lac_warpgroup_sync lac_wgmma_fence
           lac_wgmma_wait
           wait_for_phase wait_until_asked __syncthreads __syncthreads_or __syncwarp""".split()
CALL = re.compile(r"\b(%s)(<[^<>;]*>)?\(" % "|".join(CALLS))
ASM = re.compile(r'\basm volatile\("(?:bar\.sync|barrier\.cluster|fence|membar)[^"]*"[^;]*\)(?=;)')
# How blocks speak to each other through global memory. Some of it stands in functions that CALLS names, and is weakened there for all of
# their callers.
ORDER = re.compile(r'\basm volatile\("\w+\.(?P<order>acquire|release|acq_rel|relaxed|sc)\.(?P<scope>gpu|sys)\b')
PROXY = re.compile(r'\basm volatile\("(?P<fence>fence\.proxy\.async\.global;)"')
DEFINITION = re.compile(r"__device__ __forceinline__ \w+ (%s)\(" % "|".join(CALLS))
INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)
ENTRY = re.compile(r"__global__[^;{]*?\b(lac_\w+)\(\s*(?:const )?(?:__grid_constant__|lac_|u\d|int|float|void|unsigned|double)")

NOT_FOUND = ("survived", "same code", "no kernel")

ORDERS = [("late", 1), ("random", 1), ("random", 2)]
NOT_COMPILED = re.compile(r"does not compile it|takes no program|EMULATOR_MUTATE")
FAILED = re.compile(r"^FAILED \(|goes on (?:for more than|and on)|outputs are wrong|^test_gpu: ")


class Mutant(NamedTuple):
    file: str
    line: int
    call: str
    mutation: str
    old: str
    new: str

    def variable(self):
        return f"{self.file}|{self.line}|{self.old}|{self.new}"


# ---- what there is to mutate


def closing(text, opened):
    """Where the parenthesis at `opened` ends; -1: not on this line."""
    depth = 0
    for at in range(opened, len(text)):
        depth += (text[at] == "(") - (text[at] == ")")
        if depth == 0:
            return at
    return -1


def definition_lines(lines):
    """The lines of the functions that CALLS names: these are not mutated, but who calls them."""
    inside = set()
    for first, line in enumerate(lines):
        if not DEFINITION.search(line):
            continue
        depth = 0
        for at in range(first, len(lines)):
            inside.add(at)
            depth += lines[at].count("{") - lines[at].count("}")
            if depth == 0 and "}" in lines[at]:
                break
    return inside


def without_comments(text):
    """The same text with blanks for comments, every character in its place."""
    return re.sub(r"/\*.*?\*/|//[^\n]*", lambda m: re.sub(r"[^\n]", " ", m.group()), text, flags=re.DOTALL)


def weaker_orders(file, number, line):
    """Mutants of what a line says of order and scope."""
    for m in ORDER.finditer(line):
        said = line[m.start("order") - 1:m.end("scope")]
        begin = line.rindex('"', 0, m.start("order")) + 1
        call = line[begin:m.end("scope")]
        if m["order"] in ("acquire", "release"):
            yield Mutant(file, number, call, "relaxed", call, call.replace(said, f".relaxed.{m['scope']}"))
        yield Mutant(file, number, call, "of the block alone", call, call.replace(said, f".{m['order']}.cta"))
    for m in PROXY.finditer(line):
        yield Mutant(file, number, m["fence"], "nowhere", m["fence"], "")


def mutants_of(path):
    lines = without_comments(path.read_text()).split("\n")
    skipped = definition_lines(lines)
    for number, line in enumerate(lines):
        yield from weaker_orders(path.name, number + 1, line)
        if number in skipped:
            continue
        found = [(m.start(), closing(line, m.end() - 1) + 1, m.group(1), m.group(2)) for m in CALL.finditer(line)]
        found += [(m.start(), m.end(), "asm", None) for m in ASM.finditer(line)]
        for begin, end, name, count in sorted(found):
            if end <= begin:
                print(f"{path.name}:{number + 1}: {name} goes over several lines and is left out", file=sys.stderr)
                continue
            call = line[begin:end]
            # As much of the line before it as makes it the first of its kind.
            while line.find(line[begin:end]) != begin:
                begin -= 1
            before = line[begin:end - len(call)]
            removed = call[len(name):] if name.endswith("_or") else "(void)0"
            yield Mutant(path.name, number + 1, call, "removed", before + call, before + removed)
            if count:
                weaker = call.replace(count, f"<{count[1:-1]} + 1>", 1)
                yield Mutant(path.name, number + 1, call, "one more under way", before + call, before + weaker)


def includers():
    """For every file the programs (.cu) that it is part of."""
    direct = {path.name: INCLUDE.findall(path.read_text()) for path in KERNELS.iterdir()}
    users = {name: set() for name in direct}
    for program in (name for name in direct if name.endswith(".cu")):
        reached, left = set(), [program]
        while left:
            name = left.pop()
            if name not in reached:
                reached.add(name)
                left += direct.get(name, [])
        for name in reached & users.keys():
            users[name].add(program)
    return users


# ---- running test_gpu


def source_of(image):
    """The program that a compiled file is of: its head says it."""
    with open(image, "rb") as file:
        found = re.search(rb"^source (\S+)$", file.read(512), re.MULTILINE)
    return found.group(1).decode() if found else ""


class Runner:
    def __init__(self, options):
        self.options = options
        self.build = Path(options.build).resolve()
        self.reference = self.build / "emulator_cache" / options.arch
        self.sources = {}  # of the compiled files of the reference, by their names

    def command(self):
        return [str(ROOT / "scripts" / "emulate.sh"), str(self.build), self.options.arch, str(self.build / "tests/gpu/test_gpu")]

    def run(self, case, **variables):
        """Runs a kernel's rows, or a problem of the tiles, up to the first failure. None: all passed; else what was said, as lines."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("LAC_TEST_GPU_", "EMULATOR_"))}
        environment.update(LAC_TEST_GPU_WORKERS="1", LAC_TEST_GPU_ROW_SECONDS=str(self.options.row_seconds))
        if self.options.multiprocessors:
            environment.update(EMULATOR_MULTIPROCESSORS=str(self.options.multiprocessors))
        if self.options.tiles:
            environment.update(LAC_TEST_GPU_PRODUCTS=self.options.tiles)
        if case.startswith("tile "):
            environment.update(LAC_TEST_GPU_ONLY="tiles", LAC_TEST_GPU_TILE=case.split()[1])
        elif case.startswith("tiles "):
            environment.update(LAC_TEST_GPU_ONLY="tiles", LAC_TEST_GPU_KERNEL=case.split()[1])
        else:  # with a limit nothing is compiled ahead
            environment.update(LAC_TEST_GPU_ONLY="rows", LAC_TEST_GPU_KERNEL=case, LAC_TEST_GPU_ROWS=str(self.options.rows),
                               LAC_TEST_GPU_SECONDS="100000")
        environment.update(variables)
        process = subprocess.Popen(self.command(), env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   start_new_session=True)
        try:
            lines = self.listen(process)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.stdout.close()
            process.wait()
        if process.returncode == 77:
            sys.exit("mutate.py: there is no NVRTC")
        return None if process.returncode == 0 else lines

    def listen(self, process):
        """What it says until it ends, a row fails or the time is over."""
        deadline, said = time.monotonic() + self.options.seconds, b""
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while time.monotonic() < deadline:
                if not selector.select(deadline - time.monotonic()):
                    break
                more = os.read(process.stdout.fileno(), 65536)
                said += more
                lines = said.decode(errors="replace").split("\n")
                if not more:
                    process.wait()
                    return lines
                if any(FAILED.search(line) for line in lines[:-1]):
                    return lines
        return said.decode(errors="replace").split("\n") + [f"FAILED (time): more than {self.options.seconds} s"]

    def cases(self):
        """The problems of the tiles that were asked for, or the names of the kernels that the architecture has rows for."""
        if self.options.tile:
            return [f"tile {number}" for number in self.options.tile]
        target = self.options.arch + ("a" if self.options.arch in ("sm_90", "sm_100") else "")
        listed = subprocess.run([str(self.build / "tests/gpu/test_gpu")], check=True, capture_output=True, text=True,
                                env={**os.environ, "LAC_TEST_GPU_LIST": target, "LAC_TEST_GPU_ROWS": "1"}).stdout
        kernels = sorted({line.split(":")[0] for line in listed.split("\n") if line.startswith(self.options.kernel)})
        return [f"tiles {name}" for name in kernels] if self.options.tiles else kernels

    def programs_of(self, case, program_of_entry):
        """The programs that it launches, seen by running it as it is, which it must pass."""
        with tempfile.TemporaryDirectory() as folder:
            counts = Path(folder) / "counts.csv"
            said = self.run(case, EMULATOR_COUNT=str(counts))
            if said is not None:
                sys.exit("mutate.py: %s fails as it is:\n%s" % (case, "\n".join(said)))
            if not counts.exists():  # a kernel without tiles launches nothing
                return set()
            with counts.open() as file:
                entries = {line["kernel"] for line in csv.DictReader(file)}
        return {program_of_entry[entry] for entry in entries if entry in program_of_entry}

    def seed(self, cache, programs):
        """Gives a mutant's folder what it does not change: all but these programs."""
        for image in self.reference.iterdir():
            if image.name not in self.sources:
                self.sources[image.name] = source_of(image)
            if self.sources[image.name] not in programs:
                os.link(image, cache / image.name)

    def changed(self, cache):
        """How many of the programs that were compiled are other than they were, and how many were."""
        fresh = [image for image in cache.iterdir() if image.stat().st_nlink == 1]
        same = sum((self.reference / image.name).exists() and (self.reference / image.name).read_bytes() == image.read_bytes()
                   for image in fresh)
        return len(fresh) - same, len(fresh)


def message(lines):
    """The line that tells most: the emulator's, or what the failed test said."""
    for pattern in (r"^emulator: ", r"goes on (?:for more than|and on)", r"does not compile it|takes no program", r"EMULATOR_MUTATE",
                    r"^FAILED \(time", r"wrong|differs|expected|error|canar", r"^FAILED"):
        for line in lines:
            if re.search(pattern, line):
                return line.strip()
    return " ".join(lines[-3:]).strip()


def failed_row(lines, case):
    for line in lines:
        found = re.search(r"^FAILED \([^)]*\): (\S+:\d+) ", line)
        if found:
            return found.group(1)
    return case


def try_mutant(runner, mutant, programs, cases):
    """A line of the CSV: who found it, or that nobody did."""
    cache = Path(tempfile.mkdtemp(prefix="mutant_", dir=runner.build))
    try:
        runner.seed(cache, programs)
        for order, seed in ORDERS:
            for case in cases:
                said = runner.run(case, EMULATOR_MUTATE=mutant.variable(), EMULATOR_CACHE=str(cache), EMULATOR_ORDER=order,
                                  EMULATOR_SEED=str(seed))
                if said is None:
                    continue
                if any(NOT_COMPILED.search(line) for line in said):
                    return case, "not compiled", message(said)
                return failed_row(said, case), order if order != "random" else f"random {seed}", message(said)
            changed, compiled = runner.changed(cache)
            if not changed:
                return ", ".join(cases), "same code", f"none of {compiled} programs is other than it was"
        return ", ".join(cases), "survived", f"{changed} of {compiled} programs are other than they were"
    finally:
        shutil.rmtree(cache)


def read_options():
    head, _, rest = __doc__.partition("\n\n")
    parser = argparse.ArgumentParser(description=head, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("csv", nargs="?", help="where the results go; what is there already is not run again")
    parser.add_argument("--file", action="append", metavar="NAME", help="only mutants of this file; may be given several times")
    parser.add_argument("--line", type=int, help="only mutants of this line")
    parser.add_argument("--kernel", default="cuda_", metavar="PREFIX", help="only kernels whose names begin so")
    parser.add_argument("--rows", type=int, default=8, help="at most so many rows of a kernel (%(default)s)")
    parser.add_argument("--again", action="store_true", help="run those that were not found yet, and add what comes of it")
    parser.add_argument("--tile", action="append", type=int, metavar="N",
                        help="this problem of the tiles instead of rows; may be given several times")
    parser.add_argument("--tiles", metavar="PRODUCTS",
                        help="instead of rows all problems of the tiles that have so many products at the most, such as 3e7")
    parser.add_argument("--multiprocessors", type=int, help="of the GPU: with few of them small problems give a block several tiles")
    parser.add_argument("--row-seconds", type=int, default=20, help="a row that goes on for longer has failed (%(default)s)")
    parser.add_argument("--seconds", type=int, default=300, help="so have all rows of a kernel (%(default)s)")
    parser.add_argument("--build", default=ROOT / "build", help="the build folder (%(default)s)")
    parser.add_argument("--arch", default="sm_90", help="the architecture (%(default)s)")
    parser.add_argument("--list", action="store_true", help="print the mutants and run nothing")
    options = parser.parse_args()
    if not options.list and not options.csv:
        parser.error("where do the results go?")
    return options


def wanted_mutants(options):
    names = options.file or sorted(path.name for path in KERNELS.iterdir() if path.suffix in (".cu", ".cuh"))
    for name in names:
        if not (KERNELS / name).exists():
            sys.exit(f"mutate.py: there is no {name} in {KERNELS}")
        yield from (m for m in mutants_of(KERNELS / name) if options.line in (None, m.line))


def open_results(options):
    """The file to write to, and what is said there of (file, line, call, mutation) last."""
    path, done = Path(options.csv), {}
    if path.exists():
        with path.open(newline="") as file:
            done = {tuple(row[:4]): row[6] for row in csv.reader(file) if len(row) == 8}
    file = path.open("a", newline="")
    if not done:
        commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
        file.write(f"# emulator, {options.arch}, commit {commit}\n")
        csv.writer(file).writerow(["file", "line", "call", "mutation", "kernel", "rows", "found_by", "said"])
    return file, done


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # by way of every `finally`
    options = read_options()
    mutants = list(wanted_mutants(options))
    if options.list:
        for mutant in mutants:
            print(f"{mutant.file}:{mutant.line}: {mutant.call}: {mutant.mutation}")
        print(f"{len(mutants)} mutants")
        return
    runner, users = Runner(options), includers()
    program_of_entry = {entry: path.name for path in KERNELS.glob("*.cu") for entry in ENTRY.findall(path.read_text())}
    programs_of = {case: runner.programs_of(case, program_of_entry) for case in runner.cases()}
    tally = {}
    file, done = open_results(options)
    with file:
        for mutant in mutants:
            before = done.get((mutant.file, str(mutant.line), mutant.call, mutant.mutation))
            if before and not (options.again and before in NOT_FOUND):
                continue
            programs = users[mutant.file]
            # A name that another begins with stands for both: the others first.
            cases = sorted((case for case in programs_of if programs_of[case] & programs), key=lambda name: (-len(name), name))
            begin = time.monotonic()
            case, found_by, said = try_mutant(runner, mutant, programs, cases) if cases else ("", "no kernel", "")
            csv.writer(file).writerow([*mutant[:4], case, "" if options.tile or options.tiles else options.rows, found_by, said])
            file.flush()
            result = found_by if found_by in (*NOT_FOUND, "not compiled") else "found"
            tally[result] = tally.get(result, 0) + 1
            print(f"{mutant.file}:{mutant.line}: {mutant.call}: {mutant.mutation}: {found_by} ({time.monotonic() - begin:.0f} s)",
                  flush=True)
    print(", ".join(f"{count} {result}" for result, count in sorted(tally.items())) or "nothing to do")


if __name__ == "__main__":
    main()
