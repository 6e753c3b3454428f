"""bench_case.py - what the tests of lacuna bench share.

The environment names what they run: LACUNA=build/lacuna, and PEER_CSR, PEER_FAULTY and FAKE_OPENBLAS, the shared libraries.
"""

import csv
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli"))
from support import FILES_HAVE_A_LIMIT, LACUNA, MEASURED, Case, disk_of  # noqa: E402, F401

COLUMNS = (
    "device,kernel,dtype,precision,pattern,density,layout,threads,m,n,k,time_us,spread,dense_name,dense_us,speedup,"
    "tflops_dense_equivalent,tflops_real,gbytes_per_s,ceiling_us,share_of_ceiling,max_error,error_bound,cache,commit,"
    "device_info"
)
EXTENDED = COLUMNS + ",name,predicted_us,bound,is_dense,runs,dense_spread,levels"
PEER_CSR = os.environ["PEER_CSR"]
PEER_FAULTY = os.environ["PEER_FAULTY"]
FAKE = os.environ["FAKE_OPENBLAS"]
SHAPES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "bench", "shapes")


class BenchCase(Case):
    def bench(self, *arguments, status=0, blas=FAKE, cold=False, **environment):
        """Runs quickly, which warm is, and returns both outputs."""
        environment["LAC_OPENBLAS"] = blas
        warm = [] if cold else ["--warm"]
        return self.run_lacuna("bench", *arguments, *warm, "--min-time", "0.002", status=status, environment=environment)

    def rows(self, *arguments, status=0, cold=False, **environment):
        self.bench(*arguments, "--csv", "out.csv", status=status, cold=cold, **environment)
        with open(self.path("out.csv"), newline="") as file:
            return list(csv.DictReader(file))
