#!/bin/sh
# The documentation of a function begins with a verb in the third person ("Returns", "Waits"). That is guessed: a word
# that ends in s, and is none of those that are no verbs.
set -eu
cd "$(dirname "$0")/../.."
. tests/check/sources.sh
# shellcheck disable=SC2046 # a list of paths
found=$(awk '
    FNR == 1 { first = "" }
    /^ *\/\/\/ / {
        if (first == "") { first = $2; at = FILENAME ":" FNR; text = $0 }
        next
    }
    /^ *(\/\/|#\[|#!\[|\)\]|reason = |[a-z_:]+,?$)/ { next }
    first != "" && /^ *(pub(\([a-z: ]*\))? +)?((const|async|unsafe|extern "C") +)*fn / {
        word = first ~ /\047/ ? "" : first
        gsub(/[^A-Za-z-]/, "", word)
        if (word !~ /^[A-Z][a-z-]*s$/ || word ~ /^(This|These|Its|His|Whether|As|Always|Is|Was|Has|Does|Us|Yes|Less|Unless|Bytes|Packets|Addresses|Sessions|Seconds|Nodes|Clusters|Objects|Ports|Others|Pods|Settings|Statuses|Buckets|Buffers|Nanoseconds|Microseconds|Megabytes|Rows|Rights|Rules|Networks|Sources|Timers|Proxies|Metrics|Entries|Errors|Endpoints|Cables|Gateways|Namespaces|Datagrams|Definitions|Sockets|Services|Ours|Hosts|Access|Perhaps|Plus|Thus)$/)
            print at ": " text
    }
    { first = "" }' $(sources) | sed 's#: *///#: ///#')
ratchet function-docs-without-verb "$(printf '%s' "$found" | grep -c .)" \
    "It begins with what the function does (\"Returns\", \"Waits\"):" || echo "$found" | new_ones
exit "$status"
