#!/bin/sh
# Circles of imports between the files of a crate: the number of imports that are part of one, per crate. One of them
# turned round or moved to a file of its own cuts the circle.
set -eu
cd "$(dirname "$0")/../.."
. tests/check/sources.sh
found=$(mktemp)
trap 'rm -f "$found"' EXIT
all=$(sources)
for crate in $(echo "$all" | sed 's#/src/.*##' | sort -u); do
    has_lib=0
    [ ! -e "$crate/src/lib.rs" ] || has_lib=1
    # shellcheck disable=SC2046 # a list of paths
    awk -f tests/check/code.awk $(echo "$all" | grep "^$crate/src/") |
        awk -v ROOT="$crate" -v HAS_LIB="$has_lib" -f tests/check/circles.awk >"$found"
    edges=$(sed -n 's/^edges //p' "$found")
    ratchet "circles/$crate" "$edges" "Cut what closes a circle: move what both need to a file of its own." ||
        grep '^ ' "$found"
done
exit "$status"
