#!/bin/sh
# Dependencies that nothing uses: each dependency of a member is named in that member's sources, a normal one outside
# of its tests, and each entry of the workspace's table by a member. cargo-machete and cargo-shear find the same and are
# not used: each is a minute or two of compiling on a machine that has nothing yet (cargo-udeps wants a nightly compiler).
set -eu
cd "$(dirname "$0")/../.."
. tests/check/sources.sh

# names SECTION < MANIFEST — the keys of one section.
names() {
    awk -v section="[$1]" '/^\[/ { inside = $0 == section; next }
        inside && match($0, /^[A-Za-z0-9_-]+/) { print substr($0, 1, RLENGTH) }'
}

# is_exempt NAME WHERE — whether dependencies.txt says why this one stands there all the same.
is_exempt() {
    awk -v name="$1" -v where="$2" '$1 == name && $2 == where { found = 1 } END { exit !found }' \
        tests/check/dependencies.txt
}

# is_named NAME FOLDER... — whether Rust files there say the crate's name, as a path, in a `use` or as a crate.
is_named() {
    crate=$(echo "$1" | tr - _)
    shift
    grep -rqE --include='*.rs' "(^|[^A-Za-z0-9_:])($crate::|use $crate;|use $crate as |extern crate $crate)" "$@"
}

manifests=$(git ls-files -co --exclude-standard -- '*/Cargo.toml')
for manifest in $manifests; do
    member=$(dirname "$manifest")
    for section in dependencies dev-dependencies build-dependencies "target.'cfg(loom)'.dependencies"; do
        case $section in
        dependencies)
            folders=$member/src
            [ -d "$folders" ] || folders=$member
            # A crate without a library but with programs or tests in other folders uses its dependencies there.
            [ "$member" != tests ] || folders="tests/src tests/tests"
            ;;
        *) folders=$member ;;
        esac
        for name in $(names "$section" <"$manifest"); do
            # shellcheck disable=SC2086 # a list of folders
            if ! is_named "$name" $folders && ! is_exempt "$name" "$member"; then
                complain "$manifest: nothing in $folders uses $name ($section): remove it, or say why in tests/check/dependencies.txt"
            fi
        done
    done
done
for name in $(names workspace.dependencies <Cargo.toml); do
    # shellcheck disable=SC2086 # a list of paths
    grep -qE "^$name( =|\.workspace)" $manifests || is_exempt "$name" . ||
        complain "Cargo.toml: no member uses $name of [workspace.dependencies]: remove it"
done
while read -r name where _; do
    case $name in '#'* | '') continue ;; *) ;; esac
    grep -qE "^$name( =|\.)" "$where/Cargo.toml" ||
        complain "tests/check/dependencies.txt: $where/Cargo.toml does not name $name: remove the exception"
done <tests/check/dependencies.txt
[ "$status" -ne 0 ] || echo "every dependency is used"
exit "$status"
