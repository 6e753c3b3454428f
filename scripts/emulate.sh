#!/bin/sh
# emulate.sh - runs a command on a GPU made of the CPU (docs/emulator.md): Lacuna and the tests find it as they find the real one.
#
#   scripts/emulate.sh BUILD ARCH COMMAND...
#   scripts/emulate.sh build sm_90 build/lacuna devices
#   LAC_TEST_GPU_ONLY=rows scripts/emulate.sh build sm_75 build/tests/gpu/test_gpu
#
# ARCH is sm_75, sm_80, sm_86, sm_89, sm_90, sm_100 or sm_120. BUILD is the build folder, whose emulator_cache keeps the compiled kernels.
# EMULATOR_ORDER (late, early, random) and EMULATOR_SEED say when copies land. EMULATOR_CACHE names another folder for the compiled kernels.
# Ends with 77 where there is no NVRTC.
set -eu

if [ $# -lt 3 ]; then
    echo "usage: $0 BUILD ARCH COMMAND..." >&2
    exit 2
fi
build=$(cd "$1" && pwd)
arch=$2
shift 2

libraries=$build/tests/emulator
for library in libcuda.so.1 libemulated_nvrtc.so; do
    if [ ! -e "$libraries/$library" ]; then
        echo "emulate.sh: no $library in $libraries: build it first (make)" >&2
        exit 2
    fi
done

# The real compiler is where Lacuna finds it.
EMULATOR_NVRTC=$("$build/lacuna" devices | sed -n 's/^libnvrtc  *yes  *[0-9.]*  *//p' | sed 's/  .*//')
if [ -z "$EMULATOR_NVRTC" ]; then
    echo "emulate.sh: no libnvrtc, which compiles the kernels: pip install nvidia-cuda-nvrtc" >&2
    exit 77
fi
export EMULATOR_NVRTC
export EMULATOR_ARCH="$arch"
export EMULATOR_RACES="${EMULATOR_RACES:-1}" # accesses to shared or global memory that nothing orders end a launch
export EMULATOR_L2="${EMULATOR_L2:-65536}" # what is swept before a timed call
export LD_LIBRARY_PATH="$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export LAC_CUDA_LIBRARY="$libraries/libcuda.so.1" LAC_NVRTC_LIBRARY="$libraries/libemulated_nvrtc.so"
# The vendor's want the real libcuda; the fakes of the tests multiply by plain loops.
export LAC_CUBLAS_LIBRARY="$build/tests/libfake_cublas.so" LAC_CUBLASLT_LIBRARY="$build/tests/libfake_cublaslt.so"
export LAC_CACHE_DIR="${EMULATOR_CACHE:-$build/emulator_cache/$arch}" # PTX and machine code have the same names there
mkdir -p "$LAC_CACHE_DIR"
exec "$@"
