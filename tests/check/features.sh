#!/bin/sh
# Equal features: what two selections of packages share is built from the same features, or cargo would compile it twice.
# A selection's packages with their features come from `cargo tree`; the smaller one of a pair may have none that the
# larger one lacks. The selections are those of ./dev: dev builds (check, demo, test), shipped ones (image, bench), and
# the simulation, which cannot be part of the workspace.
set -eu
cd "$(dirname "$0")/../.."
. tests/check/sources.sh
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# tree FILE ARGUMENT... — a selection's packages, each with its features.
tree() {
    file=$1
    shift
    cargo tree --quiet --offline "$@" -f '{p}|{f}' --prefix none >"$scratch/$file.raw" || return 1
    sed -e 's/ (\*)$//' -e 's/ (proc-macro)//' -e 's/ ([^)]*)|/|/' "$scratch/$file.raw" | grep . | sort -u >"$scratch/$file"
}

# differing SMALLER LARGER [EXCEPTED] — prints every line of the smaller selection that the larger has with other
# features; EXCEPTED is an extended regular expression for names.
differing() {
    awk -F '|' -v smaller="$1" -v larger="$2" -v excepted="^(${3:-nothing}) " '
        FILENAME == ARGV[1] { known[$1] = known[$1] "; " $2; has[$1, $2] = 1; next }
        ($1 in known) && !(($1, $2) in has) && $1 !~ excepted {
            print "    " $1 " in " smaller ": " $2 "; in " larger ":" substr(known[$1], 2)
        }' "$scratch/$2" "$scratch/$1"
}

# equal SMALLER LARGER — fails if what both have differs, either way round: `cargo tree` tells a package that is built for
# the machine that compiles from one for the target by nothing but its features.
equal() {
    { differing "$1" "$2" && differing "$2" "$1"; } >"$scratch/differing"
    [ ! -s "$scratch/differing" ] || {
        complain "Features differ. Let them stand in the workspace's table (Cargo.toml), where every selection has them:"
        cat "$scratch/differing"
    }
}

. dev.d/cargo.sh # what is shipped
cp Cargo.lock tests/sim/Cargo.lock
# On a machine that has built nothing yet the crates are not there; afterwards this asks nobody.
cargo fetch --quiet --locked
cargo fetch --quiet --manifest-path tests/sim/Cargo.toml
tree dev --workspace --locked -e normal,build &
one=$!
tree tests --workspace --locked -e normal,build,dev &
two=$!
# shellcheck disable=SC2086 # a list of arguments
tree image --locked -e normal,build $shipped &
three=$!
# shellcheck disable=SC2086 # a list of arguments
tree bench --locked -e normal,build $shipped -p trieste-bench &
four=$!
tree simulation --manifest-path tests/sim/Cargo.toml -e normal,build,dev &
five=$!
for tree in $one $two $three $four $five; do
    wait "$tree" || complain "cargo tree failed: see above"
done
[ "$status" -eq 0 ] || exit "$status"
for file in dev tests image bench simulation; do
    [ -s "$scratch/$file" ] || { echo "cargo tree lists no packages for $file"; exit 1; }
done
equal dev tests
equal image bench
# Its clock is boringtun's feature, so boringtun and what stands on it are compiled for it alone.
differing simulation dev 'boringtun|mock_instant|trieste-(cables|pipeline|sim)' >"$scratch/differing"
ratchet features-of-the-simulation "$(grep -c . "$scratch/differing" || :)" \
    "Name them in tests/sim/Cargo.toml with the features that the workspace's build has:" || cat "$scratch/differing"
exit "$status"
