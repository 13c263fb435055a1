#!/bin/sh
# wireguard-go, built by `./dev` from its Go module at the version in wireguard-go/go.mod.
set -eu
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"

up() {
    daemon wireguard-go env "LOG_LEVEL=${PEER_LOG_LEVEL:-error}" "${PEER_BIN:?}/wireguard-go" -f "$PEER_IF"
    wait_for 5 "wireguard-go's control socket" test -S "$(uapi_socket)"
    wireguard_up
}

down() {
    wireguard_down
}

main "$@"
