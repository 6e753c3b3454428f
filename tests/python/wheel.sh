#!/usr/bin/env bash
# wheel.sh - builds the Python package as users do, installs it where nothing else is, and uses it there. make test-wheel runs it.
#
#   wheel.sh PYTHON SCRATCH      PYTHON has pip and reaches the Python package index; SCRATCH is made anew
set -euo pipefail
python=$1 scratch=$2
cd "$(dirname "$0")/../.."
source=$PWD
rm -rf "$scratch"
mkdir -p "$scratch"
scratch=$(cd "$scratch" && pwd)

fail() {
    echo "wheel.sh: $*" >&2
    exit 1
}

"$python" -m pip wheel --quiet --no-deps --wheel-dir "$scratch/wheels" "$source"
wheels=("$scratch"/wheels/*)
version=$(sed -n 's/^project(lacuna VERSION \([0-9.]*\) .*/\1/p' CMakeLists.txt)
name=${wheels[0]##*/}
[ ${#wheels[@]} -eq 1 ] || fail "more than one file: ${wheels[*]}"
case $name in
"lacuna-$version-cp311-abi3-linux_"*.whl) ;;
*) fail "the wheel is called $name; it is version $version for Python 3.11 and later" ;;
esac

"$python" -m venv "$scratch/venv"
"$scratch/venv/bin/python" -m pip install --quiet "${wheels[0]}"
cd "$scratch"
clean=(env -i HOME="$scratch" PATH=/usr/bin:/bin OMP_WAIT_POLICY=passive)
folder=$("${clean[@]}" venv/bin/python - "$version" <<'END'
import importlib.metadata, os, sys
import numpy
import lacuna

assert lacuna.__version__ == importlib.metadata.version("lacuna") == sys.argv[1], lacuna.__version__
random = numpy.random.default_rng(1)
w, x = random.integers(-4, 5, (64, 96)).astype("f4"), random.integers(-4, 5, (7, 96)).astype("f4")
mask = lacuna.prune(w, "2:4")
y = lacuna.matmul(x, lacuna.compress(w, mask), activation="relu")
assert numpy.array_equal(y, numpy.maximum(x @ (w * mask.numpy()).T, 0))
lacuna.compress(w, mask).save("one.safetensors")
try:
    import lacuna.torch
except ModuleNotFoundError as error:
    assert error.name == "torch", error
else:
    raise SystemExit("lacuna.torch was imported, but there is no PyTorch here")
print(os.path.dirname(lacuna.__file__))
END
)
case $folder in "$scratch"/venv/*) ;; *) fail "the package was imported from $folder" ;; esac

# The command: the program itself, and by the module, also where it is not on PATH.
"${clean[@]}" venv/bin/lacuna --version | grep -qx "lacuna $version" || fail "venv/bin/lacuna --version does not say $version"
"${clean[@]}" venv/bin/python -m lacuna devices | grep -q '^cpu ' || fail "python -m lacuna devices names no CPU"
"${clean[@]}" venv/bin/python -m lacuna info one.safetensors | grep -q '2:4' || fail "the command does not read what the package wrote"
status=0
"${clean[@]}" venv/bin/python -m lacuna no-such-command >/dev/null 2>&1 || status=$?
[ "$status" -eq 2 ] || fail "python -m lacuna hands on a status of $status; the command's is 2"

# What it needs of the machine: the C library and OpenMP's runtime.
for file in "$folder"/_core.abi3.so venv/bin/lacuna; do
    while read -r library _ where; do # "name => /a folder/name (0x7f...)", where there is one
        where=${where% (*}
        case $library in
        linux-vdso* | libc.so* | libm.so* | libgomp.so* | libpthread.so* | libdl.so* | */ld-linux*) ;;
        libjansson.so*) case $where in "$folder"/*) ;; *) fail "$file uses the machine's jansson, $where" ;; esac ;;
        *) fail "$file needs $library" ;;
        esac
    done < <(ldd "$file")
done
shown=$(nm -D --defined-only "$folder/_core.abi3.so" | awk '{ print $3 }')
[ "$shown" = PyInit__core ] || fail "the module shows more than its start: $shown"
echo "$name: installed, imported, run; $(du -h "${wheels[0]}" | cut -f1)"
