#!/usr/bin/env python3
"""counts_cpu.py - what the inner loops of the CPU kernels execute: instructions, FMAs and loads, counted by callgrind.

    bench/counts_cpu.py LACUNA [KERNEL PATTERN M,N,K] ...

Without problems, those behind the bounds in docs/kernels/cpu.md. Runs `lacuna bench` under valgrind (which has no AVX-512), one
thread, counting within the dataflow's inner loop alone (lac_stream, lac_permute, ...), and looks every instruction up in objdump's
listing. LACUNA must have its symbols. Counts are exact, and the same on every machine whose first-level cache is as large (blocks of
columns are cut to it); times are not measured here.
"""

import collections
import os
import re
import subprocess
import sys
import tempfile

# Whole blocks of columns where the first-level cache has 48 KiB, and as many rows as make the largest pools of pairs.
PROBLEMS = [("cpu_avx2_f32_stream", "64:2:4", "128,4096,640"), ("cpu_avx2_f32_stream", "64:2:8", "128,4096,640"),
            ("cpu_avx2_f32_stream", "64:2:16", "128,4096,640"), ("cpu_avx2_f32_stream", "16:32", "128,4096,640"),
            ("cpu_avx2_f32_stream", "8:32", "128,4096,960"), ("cpu_avx2_f32_stream", "4:32", "128,4096,960"),
            ("cpu_avx2_f32_stream", "vw32:8:32", "128,128,1024"),
            ("cpu_avx2_f32_permute", "16:32", "1,128,512"), ("cpu_avx2_f32_permute", "2:4", "1,512,1024")]
# Any rates will do, and none need be measured.
RATES = {"LAC_CPU_RATES": "5,5,120,30,12,24"}


def listing(lacuna):
    """Instructions by address."""
    found = {}
    text = subprocess.run(["objdump", "-d", "--no-show-raw-insn", lacuna], check=True, capture_output=True, text=True).stdout
    for line in text.splitlines():
        match = re.match(r"\s*([0-9a-f]+):\s+(\S+)\s*(.*)", line)
        if match:
            found[int(match.group(1), 16)] = (match.group(2), match.group(3))
    return found


def kinds(name, operands):
    """What an instruction counts as. AT&T order: the last operand is written, so a load's memory operand comes before it."""
    sources = re.sub(r"\s*[<#].*", "", operands)
    in_memory = [bool(re.search(r"\(", part)) for part in re.split(r",(?![^(]*\))", sources)]
    if name.startswith("prefetch"):
        return ["prefetches"]
    result = ["FMAs"] if name.startswith("vfmadd") else []
    if name.startswith("lea") or name.startswith("nop") or name.startswith("j"):
        return result
    compares = name.startswith(("cmp", "test"))
    if any(in_memory[:-1]) or (in_memory and in_memory[-1] and (compares or len(in_memory) == 1)):
        result.append("vector loads" if re.search(r"%[xyz]mm", operands) else "other loads")
    elif in_memory and in_memory[-1]:
        result.append("stores")
    if name.startswith("vperm"):
        result.append("permutes")
    return result


def count(lacuna, instructions, kernel, pattern, shape):
    loop = "lac_" + kernel.split("_")[-1]
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "callgrind.out")
        subprocess.run(["valgrind", "--tool=callgrind", "--toggle-collect=" + loop, "--dump-instr=yes", "--compress-pos=no",
                        "--compress-strings=no", "--callgrind-out-file=" + out, lacuna, "bench", shape, "--device", "cpu", "--threads",
                        "1", "--kernel", kernel, "--pattern", pattern, "--baseline", "none", "--min-time", "0.0001", "--quick-check",
                        "--progress", "never"], check=True, capture_output=True, env={**os.environ, **RATES})
        counts, inside, calls = collections.Counter(), False, False
        with open(out) as file:
            for line in file:
                if line.startswith("fn="):
                    inside = line[3:].strip().startswith(loop)
                elif line.startswith("calls="):
                    calls = True
                elif line.startswith("0x"):
                    parts = line.split()
                    if inside and not calls:
                        name, operands = instructions.get(int(parts[0], 16)) or instructions[int(parts[0], 16) & 0xfffff]
                        counts["instructions"] += int(parts[2])
                        for kind in kinds(name, operands):
                            counts[kind] += int(parts[2])
                    calls = False
    return counts


def main():
    if len(sys.argv) < 2 or (len(sys.argv) - 2) % 3 or sys.argv[1].startswith("-"):
        print(__doc__)
        return 2
    lacuna, rest = sys.argv[1], sys.argv[2:]
    problems = [tuple(rest[i:i + 3]) for i in range(0, len(rest), 3)] or PROBLEMS
    instructions = listing(lacuna)
    print("%-24s %-12s %-14s %12s  for each FMA: %8s %8s %8s %8s %8s" % (
        "kernel", "pattern", "m,n,k", "FMAs", "instr.", "v.loads", "loads", "stores", "permutes"))
    for problem in problems:
        counts = count(lacuna, instructions, *problem)
        share = [counts[kind] / counts["FMAs"] for kind in ("instructions", "vector loads", "other loads", "stores", "permutes")]
        print(("%-24s %-12s %-14s %12d" % (problem + (counts["FMAs"],))) + " " * 15 + "%9.3f%9.3f%9.3f%9.3f%9.3f" % tuple(share), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
