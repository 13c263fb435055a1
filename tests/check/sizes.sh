#!/bin/sh
# Sizes: files, functions, the packet path's one big type, programs that tests are linked into.
set -eu
cd "$(dirname "$0")/../.."
. tests/check/sources.sh
rust=$(git ls-files -co --exclude-standard -- '*.rs')

# shellcheck disable=SC2086 # a list of paths
lengths=$(wc -l $rust | awk '$2 != "total" { print $1, $2 }' | sort -n)
ratchet files-over-800-lines "$(echo "$lengths" | awk '$1 > 800 { n++ } END { print n + 0 }')" "Split them:" ||
    echo "$lengths" | awk '$1 > 800 { print "    " $2 ": " $1 " lines" }'
ratchet file-length-p90 "$(echo "$lengths" | awk '{ n[NR] = $1 } END { print n[int(NR * 0.9 + 0.5)] }')" \
    "Nine of ten files are that long at most. The longest are:" || echo "$lengths" | tail -n 20

# Clippy refuses functions of over 100 lines; these are the ones that say why they are longer.
# shellcheck disable=SC2086 # a list of paths
long=$(grep -Hn 'clippy::too_many_lines' $rust || :)
ratchet functions-over-100-lines "$(printf '%s' "$long" | grep -c .)" "Split them:" || echo "$long"

# functions_over LINES FILE... — functions with more lines than that, from their signature to the brace that closes them.
functions_over() {
    most=$1
    shift
    awk -v MOST="$most" '
        FNR == 1 { inside = 0 }
        !inside && match($0, /^ *(pub(\([a-z: ]*\))? +)?((const|async|unsafe|extern "C") +)*fn /) {
            indent = match($0, /[^ ]/) - 1
            start = FNR
            name = $0
            inside = !/[;}]$/
            next
        }
        inside && /^ *[^ ]/ && match($0, /[^ ]/) == indent + 1 {
            # `) -> T {` and `where` stand at the same indentation; a signature alone ends with a semicolon.
            if (/;$/) inside = 0
            if (!/^ *}/) next
            inside = 0
            if (FNR - start + 1 > MOST) print "    " FILENAME ":" start ": " FNR - start + 1 " lines"
        }' "$@"
}

# What was split stays so: folders whose sources, tests among them, have functions that fit on a screen, and files of one
# noun each.
for folder in gateway/daemon control routeagent plugins/ovsdb plugins/ovn reconcile vxlan; do
    files=$(echo "$rust" | grep "^$folder/")
    # shellcheck disable=SC2086 # a list of paths
    long=$(functions_over 60 $files)
    ratchet "functions-over-60-lines/$folder" "$(printf '%s' "$long" | grep -c .)" "Split them:" || echo "$long"
    # shellcheck disable=SC2086 # a list of paths
    long=$(wc -l $files | awk '$2 != "total" && $1 > 500 { print "    " $2 ": " $1 " lines" }')
    ratchet "files-over-500-lines/$folder" "$(printf '%s' "$long" | grep -c .)" "Split them:" || echo "$long"
done

pipeline=gateway/pipeline/src
implementations=$(grep -rlE '^impl(<[^>]*>)? Pipeline\b' "$pipeline")
ratchet pipeline-impl-files "$(echo "$implementations" | grep -c .)" "Make it a function of a stage:" ||
    echo "$implementations"
fields=$(awk '/^pub struct Pipeline \{/ { inside = 1; next } inside && /^\}/ { exit }
    inside && /^    [a-z_() ]+: / { print FILENAME ":" FNR ":" $0 }' "$pipeline/pipeline.rs")
[ -n "$fields" ] || complain "$pipeline/pipeline.rs has no struct Pipeline any more: this check wants to know where it is"
ratchet pipeline-fields "$(echo "$fields" | grep -c .)" "Put what belongs together into a type of its own:" ||
    echo "$fields"

programs=$(cargo metadata --no-deps --offline --format-version 1 |
    grep -oE '\{"kind":\["test"\],"crate_types":\["bin"\],"name":"[^"]*","src_path":"[^"]*"' |
    sed 's/.*"src_path":"\([^"]*\)"/    \1/')
[ -n "$programs" ] || complain "cargo metadata names no integration program: has its form changed?"
ratchet integration-programs "$(echo "$programs" | grep -c .)" "Each is linked by itself: make it a module of another one." ||
    echo "$programs"
exit "$status"
