#!/bin/sh
# support-table.sh - the README's table of kernels is the one that the program prints from its registry.
#
#   scripts/support-table.sh [--write] ARCHITECTURE LACUNA...
#
# LACUNA... is the command to run, with an emulator before it where one is needed. ctest runs this as `support_table`; with
# --write (`make support-table`) it puts the table into the README. Each architecture has its own, between two markers.
set -eu
write=no
if [ "${1:-}" = --write ]; then
    write=yes
    shift
fi
architecture=$1
shift
readme=$(dirname "$0")/../README.md
table=$(mktemp)
expected=$(mktemp)
trap 'rm -f "$table" "$expected"' EXIT
"$@" devices --markdown >"$table"
if ! grep -q '^| `' "$table"; then
    echo "support-table.sh: '$* devices --markdown' names no kernel" >&2
    exit 1
fi
if ! awk -v table="$table" -v first="<!-- kernels $architecture -->" -v last="<!-- end of kernels $architecture -->" '
    $0 == last && inside { inside = 0; found = 1 }
    !inside { print }
    $0 == first { inside = 1; while ((getline line < table) > 0) print line }
    END { exit !found || inside }' "$readme" >"$expected"; then
    echo "support-table.sh: README.md has no place marked 'kernels $architecture'" >&2
    exit 1
fi
if [ $write = yes ]; then
    cat "$expected" >"$readme"
elif ! diff -u "$readme" "$expected"; then
    echo "support-table.sh: README.md lists other kernels than the registry; 'make support-table' writes the table anew" >&2
    exit 1
fi
