#!/bin/sh
# check-readme.sh - the example in the README is the heart of the one that is compiled, examples/quickstart.c, word for word.
# ctest runs it as `readme`; with --write it copies the example into the README.
set -eu
cd "$(dirname "$0")/.."
example=$(mktemp)
expected=$(mktemp)
trap 'rm -f "$example" "$expected"' EXIT
sed -n '/^    lac_matrix dense/,/lac_plan_execute/s/^    //p' examples/quickstart.c >"$example"
if ! grep -q lac_plan_execute "$example"; then
    echo "check-readme.sh: no lines from 'lac_matrix dense' to 'lac_plan_execute' in examples/quickstart.c" >&2
    exit 1
fi
awk -v example="$example" '
    /^<!-- examples\/quickstart.c -->$/ { print; getline; print; while ((getline line < example) > 0) print line; skip = 1; found = 1; next }
    skip && /^```$/ { skip = 0 }
    !skip { print }
    END { exit !found }' README.md >"$expected"
if [ "${1:-}" = --write ]; then
    cat "$expected" >README.md
elif ! diff -u README.md "$expected"; then
    echo "check-readme.sh: the README's example differs from examples/quickstart.c; scripts/check-readme.sh --write copies it" >&2
    exit 1
fi
