#!/bin/sh
# Our own gateway with the IPsec cable: between two of ours that is AES-128-GCM; in UDP, as through any NAT.
set -eu
TRIESTE_DRIVER=ipsec
TRIESTE_FLAGS=--force-udp-encaps
export TRIESTE_DRIVER TRIESTE_FLAGS
exec "$(dirname "$0")/trieste-wireguard.sh" "$@"
