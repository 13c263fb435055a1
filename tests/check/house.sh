#!/bin/sh
# House rules that no other tool knows: where unsafe may live, self-contained sources.
set -eu
cd "$(dirname "$0")/../.."
status=0
complain() {
    echo "$*"
    status=1
}

sources=$(git ls-files -co --exclude-standard -- '*.rs')

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

# conditions — the names of all conditions that the sources set, tests left out: texts, or constants of the same file.
conditions() {
    for file in $(git ls-files -co --exclude-standard -- 'control/src/*.rs' 'gateway/daemon/src/*.rs' \
        'routeagent/src/*.rs'); do
        case $file in
        */tests.rs | */tests/*) continue ;;
        *) ;;
        esac
        code=$(sed '/^#\[cfg(test)\]/,$d' "$file")
        printf '%s' "$code" | tr '\n' ' ' | grep -oE 'onditions *\. *(set|put|replace)\( *("[A-Za-z]+"|[A-Z_]+)' |
            sed 's/.*( *//' | while read -r name; do
            case $name in
            \"*) echo "$name" | tr -d '"' ;;
            *)
                found=$(printf '%s\n' "$code" | sed -n "s/.*const $name: &str = \"\([A-Za-z]*\)\";.*/\1/p")
                echo "${found:-$name-of-$file}"
                ;;
            esac
        done
    done
    # The route agent's are one type, each with its name, and what its object says about itself.
    sed -n 's/.*Self::.* => "\([A-Z][A-Za-z0-9]*\)",$/\1/p' routeagent/src/condition.rs
    sed -n 's/.*name: "\([A-Z][A-Za-z]*\)"\.to_owned().*/\1/p' routeagent/src/status.rs
}
documented=$(sed -n 's/^| .\([A-Z][A-Za-z0-9]*\). | \(error\|warning\|info\) |.*/\1/p' docs/operations/troubleshooting.md | sort -u)
set_somewhere=$(conditions | sort -u)
[ -n "$set_somewhere" ] || complain "no condition was found in the sources: has the way changed in which they are set?"
for name in $set_somewhere; do
    echo "$documented" | grep -qx "$name" ||
        complain "condition $name is missing in docs/operations/troubleshooting.md: say what it means and what to do"
done
for name in $documented; do
    echo "$set_somewhere" | grep -qx "$name" ||
        complain "docs/operations/troubleshooting.md explains condition $name, which nobody sets"
done

[ "$status" -ne 0 ] || echo "all kept"
exit "$status"
