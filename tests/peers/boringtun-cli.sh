#!/bin/sh
# boringtun-cli, installed by `./dev` from crates.io at a pinned version. PEER_THREADS sets its worker threads
# (without it, the program's own default).
set -eu
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"

up() {
    set -- --foreground --disable-drop-privileges --verbosity "${PEER_LOG_LEVEL:-error}"
    [ -z "${PEER_THREADS:-}" ] || set -- "$@" --threads "$PEER_THREADS"
    daemon boringtun-cli "${PEER_BIN:?}/boringtun-cli" "$@" "$PEER_IF"
    wait_for 5 "boringtun-cli's control socket" test -S "$(uapi_socket)"
    wireguard_up
}

down() {
    wireguard_down
}

main "$@"
