#!/bin/sh
# gpu-sanitize.sh - a reduced set of the GPU's tests under compute-sanitizer, which finds accesses out of bounds, races in shared
# memory, reads of memory that nobody wrote, and barriers that not every thread reaches.
#
#   scripts/gpu-sanitize.sh TEST_GPU [TOOL...]      memcheck racecheck initcheck synccheck unless said
#
# TEST_GPU is the program that `make test-gpu` builds. LAC_TEST_GPU_ROWS (3) and LAC_TEST_GPU_SHAPES (1) say how much of it;
# LAC_TEST_GPU_KERNEL takes some kernels only; initcheck leaves out cuda_unshuffle unless that says otherwise.
set -u

if [ $# -lt 1 ]; then
    echo "usage: $0 TEST_GPU [memcheck|racecheck|initcheck|synccheck ...]" >&2
    exit 2
fi
program=$1
shift
[ $# -gt 0 ] || set -- memcheck racecheck initcheck synccheck

sanitizer=${COMPUTE_SANITIZER:-}
for place in compute-sanitizer "${CUDA_HOME:-/usr/local/cuda}/bin/compute-sanitizer" /usr/local/cuda/bin/compute-sanitizer; do
    [ -n "$sanitizer" ] || sanitizer=$(command -v "$place" || true)
done
if [ -z "$sanitizer" ]; then
    echo "gpu-sanitize.sh: no compute-sanitizer in PATH or in CUDA_HOME; it comes with the CUDA toolkit" >&2
    exit 3
fi

export LAC_TEST_GPU_WORKERS=0 LAC_TEST_GPU_RAW=1
export LAC_TEST_GPU_ROWS="${LAC_TEST_GPU_ROWS:-3}" LAC_TEST_GPU_SHAPES="${LAC_TEST_GPU_SHAPES:-1}"
failed=
for tool in "$@"; do
    echo "compute-sanitizer: $tool"
    options=
    kernels=${LAC_TEST_GPU_KERNEL:-}
    unset LAC_CUDA_OPTIONS
    case $tool in
    racecheck) # knows that a thread which arrives at a barrier is done, not that its warp is: here every thread arrives
        export LAC_CUDA_OPTIONS=-DLAC_EACH_ARRIVES=1
        ;;
    initcheck) # does not see what the copy engine stores, which this kernel reads, and all of cuda_unshuffle's (docs/testing.md)
        options='--kernel-name-exclude kernel_substring=lac_dense_finish'
        [ -n "$kernels" ] || kernels='!cuda_unshuffle'
        ;;
    esac
    # shellcheck disable=SC2086 # words
    env ${kernels:+LAC_TEST_GPU_KERNEL="$kernels"} "$sanitizer" --tool "$tool" $options --report-api-errors no --error-exitcode 9 \
        "$program" || failed="$failed $tool"
done
if [ -n "$failed" ]; then
    echo "compute-sanitizer found something:$failed" >&2
    exit 1
fi
echo "compute-sanitizer found nothing:" "$@"
