#!/bin/sh
# The ledger of flaky tests, tests/flaky.md: no test stands there twice, and every row says when, what and why.
# `flaky.sh TEST...` also fails if one of these tests stands there already: for ./dev, which has just seen it fail beside
# others and pass alone.
set -eu
cd "$(dirname "$0")/../.."
ledger=tests/flaky.md
status=0
awk -F '|' -v ledger="$ledger" '
    function cell(i) { gsub(/^[ `]+|[ `]+$/, "", $i); return $i }
    /^\|/ {
        rows++
        if (rows <= 2) next
        test = cell(2); date = cell(3); said = cell(4); cause = cell(5)
        if (test in at) complain(test " stands there a second time (first: line " at[test] "): cure it, or remove it with the name of the test that keeps its claim")
        at[test] = FNR
        if (date !~ /^[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]$/) complain(test " has no date (2026-11-24)")
        if (said == "") complain(test ": what did it say?")
        if (cause == "" || tolower(cause) ~ /^(\?+|-+|todo|tbd|unknown|looked for)\.?$/) complain(test ": what was the cause?")
        if (NF != 6) complain(test ": a row has four cells, without | inside of them")
    }
    function complain(text) { print ledger ":" FNR ": " text; failed = 1 }
    END {
        if (rows < 2) complain("has no table")
        exit failed
    }' "$ledger" || status=1
for name; do
    if awk -F '|' -v name="$name" '/^\|/ { gsub(/^[ `]+|[ `]+$/, "", $2); if ($2 == name) found = 1 } END { exit !found }' "$ledger"; then
        echo "$name was flaky before ($ledger): a second time is one too many"
        status=1
    fi
done
[ "$status" -ne 0 ] || echo "$(($(grep -c '^|' "$ledger") - 2)) tests in the ledger, none of them twice"
exit "$status"
