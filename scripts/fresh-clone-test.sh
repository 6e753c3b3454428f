#!/usr/bin/env bash
# fresh-clone-test.sh - runs the README's two commands from a fresh clone of HEAD, in a folder with a space in its name.
# Root runs it: first as root, then as an ordinary user made for the purpose, who has no right to install anything.
#
#   scripts/fresh-clone-test.sh [root|user]      both when nothing is said
set -euo pipefail
cd "$(dirname "$0")/.."
if [ "$(id -u)" -ne 0 ]; then
    echo "fresh-clone-test.sh: only root can make the ordinary user; run it as root" >&2
    exit 1
fi

scratch=$(mktemp -d)
chmod 755 "$scratch"
user=
clean_up() {
    [ -z "$user" ] || userdel --remove "$user" >/dev/null 2>&1 || true
    rm -rf "$scratch"
}
trap clean_up EXIT

# A bundle, since git refuses to clone for one user what another owns.
git bundle create --quiet "$scratch/lacuna.bundle" HEAD

cat >"$scratch/commands.sh" <<'COMMANDS'
set -eu
where=$1 bundle=$2
mkdir -p "$where/some folder"
cd "$where/some folder"
git -c advice.detachedHead=false clone --quiet "$bundle" lacuna
cd lacuna
for target in test demo; do
    begin=$(date +%s)
    if ! make $target >../$target.log 2>&1; then
        tail -n 60 ../$target.log
        echo "$(id -un): make $target FAILED"
        exit 1
    fi
    grep -E '% tests passed|\(Skipped\)' ../$target.log || true
    echo "$(id -un): make $target passed in $(($(date +%s) - begin)) s"
done
changed=$(git status --porcelain)
if [ -n "$changed" ]; then
    echo "$(id -un): the commands left changes in the tree: $changed"
    exit 1
fi
COMMANDS

for who in ${1:-root user}; do
    case $who in
    root) bash "$scratch/commands.sh" "$scratch/root" "$scratch/lacuna.bundle" ;;
    user)
        user=lacuna-test-$$
        useradd --create-home --shell /bin/bash "$user"
        su - "$user" -c "bash '$scratch/commands.sh' ~ '$scratch/lacuna.bundle'"
        ;;
    *)
        echo "fresh-clone-test.sh: unknown argument '$who'; it is root or user" >&2
        exit 2
        ;;
    esac
done
