#!/bin/sh
# run.sh - runs check_container.py with the Python that has numpy and safetensors; 77 (skipped) when there is none.
#
#   run.sh PYTHON LACUNA SCRATCH      PYTHON is the one of the virtual environment that scripts/setup.sh makes
set -eu
here=$(cd "$(dirname "$0")" && pwd)
python=$1
if ! [ -x "$python" ]; then
    echo "skipped: no $python; scripts/setup.sh test makes it"
    exit 77
fi
shift
PYTHONDONTWRITEBYTECODE=1 exec "$python" "$here/check_container.py" "$@"
