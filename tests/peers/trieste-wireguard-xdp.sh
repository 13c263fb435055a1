#!/bin/sh
# trieste-wireguard.sh with outer packets past the kernel's stack, by AF_XDP.
set -eu
TRIESTE_IO=af-xdp
export TRIESTE_IO
exec "$(dirname "$0")/trieste-wireguard.sh" "$@"
