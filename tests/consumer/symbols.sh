#!/bin/sh
# symbols.sh - the shared library exports exactly the functions that lacuna.h declares, and the static library's global
# names all begin with lac_, so that neither can clash with a program's own. ctest runs it as `symbols`.
#
#   symbols.sh HEADER SHARED STATIC NM
set -eu
header=$1 shared=$2 static=$3 nm=$4
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export LC_ALL=C

# a declaration may run over two lines; the first lac_name( behind LAC_API is the function
tr '\n' ' ' <"$header" | sed 's/LAC_API/\n&/g' | sed -n 's/^LAC_API[^(]*[ *]\(lac_[a-z0-9_]*\)(.*/\1/p' | sort -u >"$scratch/declared"
"$nm" -D --defined-only "$shared" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | sort -u >"$scratch/exported"
declared=$(wc -l <"$scratch/declared")
marked=$(grep -c '^LAC_API' "$header")
status=0
if [ "$declared" -ne "$marked" ] || [ "$declared" -eq 0 ]; then
    echo "symbols.sh: $header marks $marked declarations with LAC_API, but $declared names were found" >&2
    status=1
fi
if ! diff "$scratch/declared" "$scratch/exported" >"$scratch/difference"; then
    echo "symbols.sh: < is declared in lacuna.h but not exported, > is exported but not declared:" >&2
    grep '^[<>]' "$scratch/difference" >&2
    status=1
fi

"$nm" -g --defined-only "$static" | awk 'NF == 3 { print $3 }' | sort -u >"$scratch/global"
if ! [ -s "$scratch/global" ]; then
    echo "symbols.sh: $static defines nothing" >&2
    status=1
fi
if grep -v '^lac_' "$scratch/global" >"$scratch/stray"; then
    echo "symbols.sh: global names of the static library that do not begin with lac_:" >&2
    cat "$scratch/stray" >&2
    status=1
fi
echo "$declared functions declared, $(wc -l <"$scratch/exported") exported, $(wc -l <"$scratch/global") global names in the static library"
exit $status
