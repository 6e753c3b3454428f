#!/bin/sh
# check-readme.sh - the example in the README is the one that is compiled, examples/quickstart.c, word for word. ctest runs
# it as `readme`; with --write it copies the example into the README.
set -eu
cd "$(dirname "$0")/.."
[ -s examples/quickstart.c ] || { echo "check-readme.sh: there is no examples/quickstart.c" >&2; exit 1; }
scratch=$(mktemp)
trap 'rm -f "$scratch"' EXIT
awk -v example=examples/quickstart.c '
    /^<!-- examples\/quickstart.c -->$/ { print; getline; print; while ((getline line < example) > 0) print line; skip = 1; found = 1; next }
    skip && /^```$/ { skip = 0 }
    !skip { print }
    END { exit !found }' README.md >"$scratch"
if [ "${1:-}" = --write ]; then
    cat "$scratch" >README.md
elif ! diff -u README.md "$scratch"; then
    echo "check-readme.sh: the README's example differs from examples/quickstart.c; scripts/check-readme.sh --write copies it" >&2
    exit 1
fi
