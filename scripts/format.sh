#!/bin/sh
# format.sh - clang-format over all C and C++ of the project: writes, or with --check only compares.
set -eu
cd "$(dirname "$0")/.."
case ${1:-} in
--check) set -- --dry-run -Werror ;;
'') set -- -i ;;
*)
    echo "format.sh: unknown argument '$1'; it is --check or nothing" >&2
    exit 2
    ;;
esac
# Debian 12's version decides; another one may lay out a line or two differently.
tool=$(command -v clang-format-14 || command -v clang-format)
find include src cli bench examples tests python -name '*.[ch]' -o -name '*.cpp' | sort | tr '\n' '\0' | xargs -0 "$tool" "$@"
