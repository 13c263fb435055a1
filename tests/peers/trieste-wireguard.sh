#!/bin/sh
# Our own gateway as a peer, so that a bench puts it where it puts the others. TRIESTE_BIN is the directory with
# our programs; TRIESTE_DRIVER, TRIESTE_PROGRAM and TRIESTE_FLAGS are for trieste-plain.sh and trieste-esp.sh. Keys and
# addresses go over a broker directory beside PEER_STATE: the PEER_*KEY variables and PEER_REMOTE are not needed.
set -eu
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"

up() {
    require PEER_LOCAL PEER_SUBNETS
    driver=${TRIESTE_DRIVER:-wireguard}
    broker=$(dirname "$PEER_STATE")/broker-$driver
    mkdir -p "$broker"
    programs=${TRIESTE_BIN:-$(dirname "$0")/../../target/dist}
    # shellcheck disable=SC2086 # the program may be followed by a subcommand, and there may be no flags
    daemon gateway "$programs/"${TRIESTE_PROGRAM:-trieste-gateway} \
        --cluster-id "$(echo "c-$PEER_LOCAL" | tr '.:' '--')" --cluster-cidrs "$(own_subnets)" --hostname "$PEER_IF" \
        --private-ip "$PEER_LOCAL" --udp-port "${PEER_PORT:-4500}" --cable-driver "$driver" --tun-name "$PEER_IF" \
        --broker "dir:$broker" --state-dir "$PEER_STATE/state" --psk a-key-of-the-bench-alone \
        --admin-socket "$PEER_STATE/gateway.sock" --metrics-port 0 --cpus off ${TRIESTE_FLAGS:-}
    wait_for 10 "Trieste's admin socket" test -S "$PEER_STATE/gateway.sock"
    wait_for 5 "Trieste's device" ip -n "$PEER_NS" link show dev "$PEER_IF" up
    for subnet in $PEER_SUBNETS; do
        ip -n "$PEER_NS" route replace "$subnet" dev "$PEER_IF"
    done
}

down() {
    end_daemons
    rm -f "$PEER_STATE/gateway.sock"
    ip -n "$PEER_NS" link del "$PEER_IF" 2>/dev/null || true
}

main "$@"
