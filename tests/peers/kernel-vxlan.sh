#!/bin/sh
# The kernel's VXLAN device, set up as upstream's vxlan cable sets it up. It has no daemon: `pids` prints nothing.
set -eu
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"

# vtep ADDRESS — the node's address inside the tunnel.
vtep() {
    echo "241.${1#*.}"
}

up() {
    require PEER_LOCAL PEER_REMOTE PEER_SUBNETS
    ip -n "$PEER_NS" link add "$PEER_IF" type vxlan id 1000 dstport "${PEER_PORT:-4500}" nolearning udpcsum
    ip -n "$PEER_NS" addr add "$(vtep "$PEER_LOCAL")/8" dev "$PEER_IF"
    ip -n "$PEER_NS" link set "$PEER_IF" mtu "${PEER_MTU:-1450}" up
    bridge -n "$PEER_NS" fdb append 00:00:00:00:00:00 dev "$PEER_IF" dst "$PEER_REMOTE" self permanent
    for subnet in $PEER_SUBNETS; do
        ip -n "$PEER_NS" route replace "$subnet" via "$(vtep "$PEER_REMOTE")" dev "$PEER_IF"
    done
}

down() {
    ip -n "$PEER_NS" link del "$PEER_IF" 2>/dev/null || true
}

main "$@"
