#!/bin/sh
# Our own gateway with a cable that does no cryptography, which only the bench has: the limit of everything else.
set -eu
TRIESTE_DRIVER=plain
TRIESTE_PROGRAM="trieste-bench plain-gateway"
export TRIESTE_DRIVER TRIESTE_PROGRAM
exec "$(dirname "$0")/trieste-wireguard.sh" "$@"
