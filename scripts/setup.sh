#!/bin/sh
# setup.sh - makes sure that what a build needs is there. The Makefile and .ci/run call it before they do anything.
#
#   scripts/setup.sh build              compiler, CMake, Ninja, pkg-config, jansson, cmocka
#   scripts/setup.sh bench              and OpenBLAS, on OpenMP, so that its threads and Lacuna's are one pool
#   scripts/setup.sh test [BUILD]       and a C++ compiler, Python and its headers; numpy, safetensors, ml_dtypes and NVRTC in BUILD/venv
#   scripts/setup.sh torch [BUILD]      test's, and PyTorch in BUILD/torch-venv
#   scripts/setup.sh ci [BUILD]         and clang, libomp, clang-format
#   scripts/setup.sh neon BUILD         build's, a compiler and qemu for 64-bit Arm; jansson and cmocka for it in BUILD/sysroot
#
# It looks before it acts: when nothing is missing it starts no package manager. Missing Debian packages are installed by
# root, or through sudo where that asks for no password; otherwise it prints the one command to run, and stops.
set -eu

level=${1:-build}
build=${2:-build}
case $level in
build | bench | test | torch | ci | neon) ;;
*)
    echo "setup.sh: unknown level '$level'; it is build, bench, test, torch, ci or neon" >&2
    exit 2
    ;;
esac

missing=

# lack PACKAGE: one more package to install
lack() {
    case " $missing " in
    *" $1 "*) ;;
    *) missing="${missing:+$missing }$1" ;;
    esac
}

has() { command -v "$1" >/dev/null 2>&1; }

# compiles COMPILER... : does it make a program of a trivial main?
compiles() {
    scratch=$(mktemp -d)
    printf '#include <stdio.h>\nint main(void) { return puts("") < 0; }\n' >"$scratch/probe.c"
    if "$@" "$scratch/probe.c" -o "$scratch/probe" >/dev/null 2>&1; then result=0; else result=1; fi
    rm -rf "$scratch"
    return $result
}

# links_fuzzer: clang with its sanitizer runtimes
links_fuzzer() {
    scratch=$(mktemp -d)
    printf 'int LLVMFuzzerTestOneInput(const unsigned char *d, unsigned long n) { return d == 0 && n; }\n' >"$scratch/probe.c"
    if clang -fsanitize=fuzzer,address,undefined "$scratch/probe.c" -o "$scratch/probe" >/dev/null 2>&1; then result=0; else result=1; fi
    rm -rf "$scratch"
    return $result
}

probe_build() {
    has "${CC:-cc}" || lack gcc
    compiles "${CC:-cc}" || { lack gcc && lack libc6-dev; }
    has cmake || lack cmake
    has ninja || lack ninja-build
    if has pkg-config; then
        pkg-config --exists jansson || lack libjansson-dev
        pkg-config --exists cmocka || lack libcmocka-dev
    else
        lack pkg-config && lack libjansson-dev && lack libcmocka-dev
    fi
}

probe_bench() {
    for library in /usr/lib/*/openblas-openmp/libopenblas.so.0 /usr/lib*/libopenblaso.so.0 "${LAC_OPENBLAS:-}"; do
        if [ -e "$library" ]; then return; fi
    done
    lack libopenblas0-openmp
}

probe_test() {
    has nm || lack binutils
    has "${CXX:-c++}" || lack g++
    has python3 || lack python3
    python3 -c 'import venv, ensurepip' >/dev/null 2>&1 || lack python3-venv
    python3 -c 'import os, sysconfig; os.stat(os.path.join(sysconfig.get_paths()["include"], "Python.h"))' >/dev/null 2>&1 || lack python3-dev
}

probe_ci() {
    has clang || lack clang
    has clang-format || lack clang-format
    compiles clang -fopenmp || lack libomp-dev
    links_fuzzer || lack libclang-rt-14-dev
    has llvm-symbolizer || lack llvm
}

probe_neon() {
    has aarch64-linux-gnu-gcc || lack gcc-aarch64-linux-gnu
    compiles aarch64-linux-gnu-gcc -fopenmp || { lack gcc-aarch64-linux-gnu && lack libc6-dev-arm64-cross; }
    has qemu-aarch64 || lack qemu-user
    has dpkg-deb || lack dpkg
}

probe() {
    missing=
    probe_build
    if [ "$level" = bench ]; then probe_bench; fi
    case $level in test | torch | ci) probe_test ;; esac
    if [ "$level" = ci ]; then probe_ci; fi
    if [ "$level" = neon ]; then probe_neon; fi
}

install_missing() {
    if ! has apt-get; then
        echo "Lacuna needs software that is not here. In Debian's names: $missing" >&2
        echo "Install it with your system's package manager and try again." >&2
        exit 1
    fi
    if [ "$(id -u)" -eq 0 ]; then
        as_root=
    elif has sudo && sudo -n true >/dev/null 2>&1; then
        as_root="sudo -n"
    else
        echo "Lacuna needs packages that are not installed, and you may not install them from here. Run this, then try again:" >&2
        echo "" >&2
        if has sudo; then
            echo "    sudo sh -c 'apt-get update && apt-get install -y --no-install-recommends $missing'" >&2
        else
            echo "    su -c 'apt-get update && apt-get install -y --no-install-recommends $missing'" >&2
        fi
        echo "" >&2
        exit 1
    fi
    echo "Installing: $missing"
    log=$(mktemp)
    # shellcheck disable=SC2086 # both are lists of words
    if ! { $as_root env DEBIAN_FRONTEND=noninteractive apt-get update &&
        $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $missing; } >"$log" 2>&1; then
        tail -n 30 "$log" >&2
        echo "setup.sh: apt-get could not install: $missing" >&2
        rm -f "$log"
        exit 1
    fi
    rm -f "$log"
    asked=$missing
    probe
    if [ -n "$missing" ]; then
        echo "setup.sh: installed $asked, but these are still missing or do not work: $missing" >&2
        exit 1
    fi
}

# The Python packages are for the tests that say so when they are skipped for want of them: numpy and safetensors for
# python_safetensors and python_core_* (ml_dtypes gives numpy bfloat16), NVRTC for cuda_kernels_*. One that this machine has elsewhere is found by itself, but then it may be any
# version, and a fresh machine has none.
set_up_python() {
    python=$build/venv/bin/python
    if ! "$python" -c 'import numpy, safetensors' >/dev/null 2>&1; then
        echo "Installing numpy and safetensors in $build/venv"
        mkdir -p "$build"
        rm -rf "$build/venv"
        if ! python3 -m venv "$build/venv" >"$build/venv.log" 2>&1 ||
            ! "$python" -m pip install --quiet --retries 1 --timeout 20 numpy safetensors >>"$build/venv.log" 2>&1; then
            echo "setup.sh: no numpy and safetensors from PyPI ($build/venv.log says why): the tests python_* will be skipped" >&2
        fi
    fi
    if ! "$python" -c 'import ml_dtypes' >/dev/null 2>&1; then
        echo "Installing ml_dtypes in $build/venv"
        if ! "$python" -m pip install --quiet --retries 1 --timeout 20 ml_dtypes >>"$build/venv.log" 2>&1; then
            echo "setup.sh: no ml_dtypes from PyPI ($build/venv.log says why): tests of numpy's bfloat16 in python_core_* will be skipped" >&2
        fi
    fi
    for library in "$build"/venv/lib/python3*/site-packages/nvidia/*/lib/libnvrtc.so.13; do
        if [ -e "$library" ]; then return; fi
    done
    echo "Installing NVRTC in $build/venv"
    if ! "$python" -m pip install --quiet --retries 1 --timeout 60 'nvidia-cuda-nvrtc>=13,<14' >>"$build/venv.log" 2>&1; then
        echo "setup.sh: no nvidia-cuda-nvrtc from PyPI ($build/venv.log says why): the tests cuda_kernels_* will be skipped unless NVRTC is elsewhere" >&2
    fi
}

# PyTorch with an environment of its own. Its wheel for CUDA needs the CUDA libraries even to be imported; where the machine has them, the wheel
# alone will do, which is smaller by two gigabytes. What is still missing then is installed with all that it asks for.
set_up_torch() {
    python=$build/torch-venv/bin/python
    if "$python" -c 'import torch, numpy; assert torch.__version__.split("+")[0] == "2.11.0"' >/dev/null 2>&1; then return; fi
    echo "Installing PyTorch in $build/torch-venv"
    mkdir -p "$build"
    rm -rf "$build/torch-venv"
    torch_log=$build/torch-venv.log
    few="numpy filelock typing_extensions sympy networkx jinja2 fsspec mpmath setuptools nvidia-cufile nvidia-cusparselt-cu13==0.8.0 nvidia-nvshmem-cu13==3.4.5"
    # shellcheck disable=SC2086 # a list of words
    if python3 -m venv "$build/torch-venv" >"$torch_log" 2>&1; then
        libraries=$(PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2>/dev/null || true)
        if [ -z "${libraries##*libcublasLt.so.13*}" ] && [ -z "${libraries##*libcudnn.so.9*}" ] && [ -n "$libraries" ]; then
            { "$python" -m pip install --quiet --no-deps torch==2.11.0 && "$python" -m pip install --quiet $few; } >>"$torch_log" 2>&1 || true
        fi
        if "$python" -c 'import torch, numpy' >>"$torch_log" 2>&1; then return; fi
        if "$python" -m pip install --quiet torch==2.11.0 numpy >>"$torch_log" 2>&1 && "$python" -c 'import torch, numpy' >>"$torch_log" 2>&1; then
            return
        fi
    fi
    tail -n 5 "$torch_log" >&2
    echo "setup.sh: no PyTorch from PyPI; $torch_log says why" >&2
    exit 1
}

# Libraries for another architecture, without making it one of this system's: an apt of our own, whose lists lie in the build
# folder, downloads the packages, and they are unpacked beside them. Needs no root.
set_up_arm64() {
    if [ -e "$build/sysroot/usr/include/cmocka.h" ] && [ -e "$build/sysroot/usr/include/jansson.h" ]; then return; fi
    echo "Unpacking jansson and cmocka for arm64 in $build/sysroot"
    rm -rf "$build/sysroot" "$build/apt"
    mkdir -p "$build/apt/lists/partial" "$build/apt/archives/partial" "$build/apt/root"
    apt=$(cd "$build/apt" && pwd)
    : >"$apt/status"
    cat >"$apt/apt.conf" <<END
APT::Architecture "arm64";
APT::Architectures { "arm64"; };
APT::Sandbox::User "";
Dir::State "$apt";
Dir::State::lists "$apt/lists";
Dir::State::status "$apt/status";
Dir::Cache "$apt";
END
    if ! (cd "$apt" && export APT_CONFIG="$apt/apt.conf" && apt-get update &&
        apt-get download libjansson4 libjansson-dev libcmocka0 libcmocka-dev &&
        for package in *.deb; do dpkg-deb -x "$package" root || exit 1; done) >"$build/apt.log" 2>&1; then
        tail -n 10 "$build/apt.log" >&2
        echo "setup.sh: no jansson and cmocka for arm64 from Debian; $build/apt.log says why" >&2
        exit 1
    fi
    mv "$apt/root" "$build/sysroot"
    rm -rf "$apt"
    # pkg-config's own sysroot does not escape spaces, so the paths are written out, escaped
    escaped=$(cd "$build/sysroot" && pwd | sed 's/ /\\\\ /g')
    sed -i "s|/usr|$escaped/usr|" "$build"/sysroot/usr/lib/aarch64-linux-gnu/pkgconfig/*.pc
}

probe
if [ -n "$missing" ]; then install_missing; fi
case $level in test | torch | ci) set_up_python ;; esac
if [ "$level" = torch ]; then set_up_torch; fi
if [ "$level" = neon ]; then set_up_arm64; fi
