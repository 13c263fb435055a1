#!/bin/sh
# Every controller under every fault: each type that implements the runner's `Controller` is a subject of the fault table
# (control/tests/all/runner/faults/bed.rs), by its name at the beginning of the subject's.
set -eu
cd "$(dirname "$0")/../.."
. tests/check/sources.sh
# shellcheck disable=SC2046 # a list of paths
controllers=$(sed -nE 's/^ *impl(<.*>)? ([A-Za-z_]+::)*Controller for ([A-Za-z0-9_]+).*/\3/p' $(sources))
for name in $controllers; do
    git grep -qE --untracked "^ *name: \"${name}[\",]" -- '*faults.rs' '*/faults/*.rs' ||
        complain "$name is no subject of the fault table: add it to SUBJECTS of its crate's faults.rs (docs/development/controllers.md)"
done
[ -n "$controllers" ] || complain "no controllers were found: this check reads \`impl Controller for\`"
[ "$status" -ne 0 ] || echo "$(echo "$controllers" | wc -l) controllers, each under every fault"
exit "$status"
