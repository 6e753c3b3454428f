#!/bin/sh
# test-setup.sh - setup.sh with somebody else's eyes: a PATH in which cmake is missing and apt-get, sudo and id are fakes that
# write down how they were called. ctest runs it as `setup`.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir "$scratch/bin" "$scratch/fake"
cmake=$(command -v cmake)
for folder in /usr/local/bin /usr/bin; do
    find "$folder" -maxdepth 1 ! -type d ! -name cmake ! -name sudo ! -name apt-get ! -name id -exec ln -sf -t "$scratch/bin" {} +
done

fake() {
    cat >"$scratch/fake/$1"
    chmod +x "$scratch/fake/$1"
}
fake apt-get <<EOF
#!/bin/sh
echo "apt-get \$*" >>"$scratch/calls"
[ "\$1" != install ] || [ -e "$scratch/broken" ] || ln -sf "$cmake" "$scratch/bin/cmake"
EOF

# run_setup USER_ID: as that user; the status goes to \$status, what it said to said, what it called to calls
run_setup() {
    printf '#!/bin/sh\necho %s\n' "$1" | fake id
    : >"$scratch/calls"
    status=0
    PATH=$scratch/fake:$scratch/bin "$here/setup.sh" build >"$scratch/said" 2>&1 || status=$?
}
checks=0
# expect WHAT COMMAND...
expect() {
    what=$1
    shift
    checks=$((checks + 1))
    if ! "$@"; then
        echo "test-setup.sh: $what does not hold; status $status" >&2
        echo "it said:" >&2
        cat "$scratch/said" >&2
        echo "it called:" >&2
        cat "$scratch/calls" >&2
        exit 1
    fi
}
install_call='^apt-get install -y --no-install-recommends cmake$'

run_setup 1000
expect "an ordinary user is stopped" [ "$status" -eq 1 ]
expect "and told the one command" grep -q "su -c 'apt-get update && apt-get install -y --no-install-recommends cmake'" "$scratch/said"
expect "and nothing is started for him" [ ! -s "$scratch/calls" ]

# shellcheck disable=SC2016 # the fake expands them
printf '#!/bin/sh\n[ "$1" = -n ] || exit 9\nshift\necho "sudo $1" >>"%s"\nexec "$@"\n' "$scratch/calls" | fake sudo
run_setup 1000
expect "sudo without a password installs" [ "$status" -eq 0 ]
expect "through sudo" grep -q '^sudo env' "$scratch/calls"
expect "what is missing and no more" grep -q "$install_call" "$scratch/calls"

run_setup 1000
expect "nothing is missing any more" [ "$status" -eq 0 ]
expect "so no package manager is started" [ ! -s "$scratch/calls" ]

rm "$scratch/bin/cmake"
printf '#!/bin/sh\nexit 1\n' | fake sudo
run_setup 1000
expect "sudo that wants a password stops" [ "$status" -eq 1 ]
expect "with the one command" grep -q "sudo sh -c 'apt-get update && apt-get install -y --no-install-recommends cmake'" "$scratch/said"

run_setup 0
expect "root installs" [ "$status" -eq 0 ]
expect "after an update" [ "$(head -n 1 "$scratch/calls")" = "apt-get update" ]
expect "what is missing and no more" grep -q "$install_call" "$scratch/calls"

rm "$scratch/bin/cmake"
touch "$scratch/broken"
run_setup 0
expect "an installation that brings nothing is a failure" [ "$status" -eq 1 ]
expect "and says what is missing" grep -q 'still missing.*cmake' "$scratch/said"
echo "$checks checks"
