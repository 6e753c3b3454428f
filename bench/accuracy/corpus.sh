#!/bin/sh
# corpus.sh OUT: freely licensed English text for the small language model, about 60 MB, from three packages of Debian: the
# manuals of Python (PSF licence) and Perl (GPL or Artistic) and the GNU Collaborative International Dictionary (GPL).
set -eu
[ $# -eq 1 ] || { echo "usage: corpus.sh OUT" >&2; exit 2; }
out=$(realpath "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
apt-get -q download python3.11-doc perl-doc dict-gcide
for package in *.deb; do dpkg -x "$package" all; done
{
    find all -name '*.rst.txt' | sort | tr '\n' '\0' | xargs -0 cat
    find all -name '*.pod' | sort | tr '\n' '\0' | xargs -0 cat
    gzip -dc < all/usr/share/dictd/gcide.dict.dz
} > text
mv text "$out"
