#!/bin/sh
# Log messages are fixed texts; what varies are fields (`warn!(%error, "endpoint not published")`), so that messages can
# be searched for and counted.
set -eu
cd "$(dirname "$0")/../.."
. tests/check/sources.sh
# shellcheck disable=SC2046 # a list of paths
found=$(awk -v STRINGS=1 -f tests/check/code.awk $(sources) | awk '
    # A call may go over several lines: up to the bracket that closes it.
    {
        text = substr($0, index($0, "\t") + 1)
        if (!depth) {
            if (!match(text, /(^|[^A-Za-z0-9_])(trace|debug|info|warn|error)!\(/)) next
            at = substr($0, 1, index($0, "\t") - 1)
            text = substr(text, RSTART)
            call = ""
            depth = 0
        }
        call = call text
        braces = text
        gsub(/"[^"]*"/, "", braces)
        opened = gsub(/\(/, "", braces)
        depth += opened - gsub(/\)/, "", braces)
        if (depth > 0) next
        depth = 0
        # The message is the last text that follows the opening bracket or a comma.
        message = ""
        while (match(call, /[(,] *"[^"]*"/)) {
            message = message substr(call, RSTART, RLENGTH)
            call = substr(call, RSTART + RLENGTH)
        }
        if (message ~ /[{]/) print at ": " message
    }')
ratchet log-messages-that-interpolate "$(printf '%s' "$found" | grep -c .)" "Make what is in braces a field:" || echo "$found" | new_ones
exit "$status"
