#!/bin/sh
# module.sh - runs a test of the Python package's module in a build folder; 77 (skipped) where there is no Python with numpy.
#
#   module.sh PYTHON BUILD TEST      LAC_TEST_PRELOAD names the runtime of a sanitizer that the module was built with
set -eu
python=$1 build=$2 test=$3
if ! "$python" -c 'import numpy' >/dev/null 2>&1; then
    echo "skipped: no numpy for $python; scripts/setup.sh test installs it"
    exit 77
fi
if [ -n "${LAC_TEST_PRELOAD:-}" ]; then
    # Python keeps memory until the process ends, and would be told of as leaking. Every block comes from malloc, so that each is guarded.
    export LD_PRELOAD="$LAC_TEST_PRELOAD" PYTHONMALLOC=malloc
    export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0:allocator_may_return_null=1"
fi
# What plans take otherwise long to measure, and so the same picks everywhere.
export LAC_CPU_RATES="${LAC_CPU_RATES:-5,5,120,30,12,24}" LAC_CPU_CEILINGS="${LAC_CPU_CEILINGS:-80,12,300}"
export OMP_WAIT_POLICY="${OMP_WAIT_POLICY:-passive}"
VIRTUAL_ENV=${VIRTUAL_ENV:-$(dirname "$(dirname "$python")")} # where Lacuna looks for NVRTC
export VIRTUAL_ENV PYTHONPATH="$build/python" PYTHONDONTWRITEBYTECODE=1
exec "$python" "$test"
