#!/bin/sh
# run.sh - installs Lacuna into a scratch folder and builds the consumer against it in every way that is promised: with
# find_package and with pkg-config, shared and static, C and C++. ctest runs it as `consumer`.
#
#   run.sh BUILD SCRATCH CC
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=$1 scratch=$2 cc=$3
case $cc in
*clang*) cxx=${cc%clang*}clang++${cc##*clang} ;;
*) cxx=${CXX:-c++} ;;
esac
rm -rf "$scratch"
mkdir -p "$scratch"
# installed in one place, used in another: the package must not remember where it was built
cmake --install "$build" --prefix "$scratch/first" >"$scratch/install.log"
mv "$scratch/first" "$scratch/another place"
prefix="$scratch/another place"

headers=$(cd "$prefix/include" && find . -type f)
if [ "$headers" != ./lacuna.h ]; then
    echo "run.sh: lacuna.h should be the only header installed, but there are: $headers" >&2
    exit 1
fi

count=0
# check PROGRAM: it runs, and says that it did
check() {
    said=$("$1")
    case $said in
    "lacuna "*": ok") echo "$(basename "$1"): $said" ;;
    *)
        echo "run.sh: $1 said '$said'" >&2
        exit 1
        ;;
    esac
    count=$((count + 1))
}

cmake -S "$here" -B "$scratch/cmake" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_COMPILER="$cc" \
    -DCMAKE_CXX_COMPILER="$cxx" -DCMAKE_C_FLAGS="-Wall -Wextra -Wpedantic -Werror" \
    -DCMAKE_CXX_FLAGS="-Wall -Wextra -Wpedantic -Werror" >"$scratch/cmake.log" 2>&1 || { cat "$scratch/cmake.log" >&2; exit 1; }
cmake --build "$scratch/cmake" >>"$scratch/cmake.log" 2>&1 || { cat "$scratch/cmake.log" >&2; exit 1; }
for program in c_lacuna c_lacuna_static cpp_lacuna cpp_lacuna_static; do check "$scratch/cmake/$program"; done

libdir=$(dirname "$(find "$prefix" -name liblacuna.a)")
PKG_CONFIG_PATH=$libdir/pkgconfig${PKG_CONFIG_PATH:+:$PKG_CONFIG_PATH}
export PKG_CONFIG_PATH
# pkg-config escapes the spaces of a path for a shell, so a shell has to read its answer
eval "set -- $(pkg-config --cflags --libs lacuna)"
"$cc" -std=c11 -Wall -Wextra -Wpedantic -Werror "$here/consumer.c" -o "$scratch/pc_shared" "$@" "-Wl,-rpath,$libdir"
check "$scratch/pc_shared"
"$cxx" -std=c++17 -Wall -Wextra -Wpedantic -Werror "$here/consumer.cpp" -o "$scratch/pc_shared_cpp" "$@" "-Wl,-rpath,$libdir"
check "$scratch/pc_shared_cpp"

# --static without the shared library in reach, or the linker would take that
mkdir "$scratch/static"
cp -R "$prefix/." "$scratch/static"
find "$scratch/static" -name 'liblacuna.so*' -exec rm {} +
PKG_CONFIG_PATH=$scratch/static/${libdir#"$prefix"/}/pkgconfig:$PKG_CONFIG_PATH
eval "set -- $(pkg-config --static --cflags --libs lacuna)"
"$cc" -std=c11 -Wall -Wextra -Wpedantic -Werror "$here/consumer.c" -o "$scratch/pc_static" "$@"
check "$scratch/pc_static"

echo "$count programs built and run"
