#!/bin/sh
# House rules that no other tool knows: file sizes, where unsafe may live, self-contained sources.
set -eu
cd "$(dirname "$0")/../.."
status=0
complain() {
    echo "$*"
    status=1
}

sources=$(git ls-files -co --exclude-standard -- '*.rs')
for file in $sources; do
    lines=$(wc -l <"$file")
    [ "$lines" -le 800 ] || complain "$file has $lines lines: split it (limit 800, tests included)"
done

# Every crate root forbids unsafe code, but for the three that hold it.
for root in $(git ls-files -co --exclude-standard -- '*/src/lib.rs' '*/src/main.rs' '*/src/bin/*.rs'); do
    case $root in
    packet/src/* | cables/src/* | gateway/io/src/* | tests/fuzz/*) continue ;;
    *) grep -q '^#!\[forbid(unsafe_code)\]' "$root" || complain "$root lacks #![forbid(unsafe_code)]" ;;
    esac
done

# A folder says what it is.
for manifest in $(git ls-files -co --exclude-standard -- '*/Cargo.toml'); do
    folder=$(dirname "$manifest")
    [ -f "$folder/README.md" ] || complain "$folder has no README.md"
done

# Nothing here reads a path outside of the repository, or one of a single machine.
# shellcheck disable=SC2086 # a list of paths
if grep -n -e '\.\./shared' -e '/work/' -e '/home/' $sources dev .ci/run 2>/dev/null; then
    complain "the lines above name a path outside of this repository"
fi

[ "$status" -ne 0 ] || echo "all kept"
exit "$status"
