# shellcheck shell=sh
# shellcheck disable=SC2154 # PEER_* come from the caller
# Shared by the peer scripts in this folder (`. "$(dirname "$0")/lib.sh"`). See README.md for the interface.

fail() {
    echo "${0##*/}: $*" >&2
    exit 1
}

# require NAME... — refuses to go on without these variables.
require() {
    for variable in "$@"; do
        eval "value=\${$variable:-}"
        [ -n "$value" ] || fail "$variable is not set (tests/peers/README.md says what it means)"
    done
}

# in_ns COMMAND... — runs a command in the peer's namespace.
in_ns() {
    ip netns exec "$PEER_NS" "$@"
}

# start_time PID — field 22 of /proc/PID/stat: together with the PID it names one process for good.
start_time() {
    sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20
}

# is_ours PID STARTED — true if that process still is the one we started, and not already a zombie.
is_ours() {
    [ -n "$2" ] && [ "$(start_time "$1")" = "$2" ] && ! grep -q '^State:[[:space:]]*Z' "/proc/$1/status" 2>/dev/null
}

# daemon NAME COMMAND... — starts COMMAND in the namespace, output in $PEER_STATE/NAME.log, and remembers it for
# `pids` and `down`. setsid keeps a Ctrl-C at the terminal from reaching it before the lab has tidied up.
daemon() {
    name=$1
    shift
    mkdir -p "$PEER_STATE"
    setsid ip netns exec "$PEER_NS" "$@" </dev/null >"$PEER_STATE/$name.log" 2>&1 &
    pid=$!
    echo "$pid $(start_time "$pid")" >>"$PEER_STATE/pids"
}

# wait_for SECONDS WHAT COMMAND... — polls COMMAND every 50 ms; on failure shows the logs and ends the script.
wait_for() {
    tries=$(($1 * 20))
    what=$2
    shift 2
    until "$@" >/dev/null 2>&1; do
        tries=$((tries - 1))
        if [ "$tries" -le 0 ]; then
            tail -n 20 "$PEER_STATE"/*.log >&2 2>/dev/null || true
            down
            fail "gave up waiting for $what"
        fi
        sleep 0.05
    done
}

# print_pids — one line per daemon that is still running: what the bench charges CPU seconds to.
print_pids() {
    [ -f "$PEER_STATE/pids" ] || return 0
    while read -r pid started; do
        if is_ours "$pid" "$started"; then echo "$pid"; fi
    done <"$PEER_STATE/pids"
}

# end_daemons — SIGTERM, and SIGKILL for what is left after two seconds.
end_daemons() {
    for pid in $(print_pids); do kill -TERM "$pid" 2>/dev/null || true; done
    tries=40
    while [ -n "$(print_pids)" ] && [ "$tries" -gt 0 ]; do
        tries=$((tries - 1))
        sleep 0.05
    done
    for pid in $(print_pids); do kill -KILL "$pid" 2>/dev/null || true; done
    rm -f "$PEER_STATE/pids"
}

# host_port ADDRESS PORT — as WireGuard's tools write it: IPv6 addresses in brackets.
host_port() {
    case $1 in
    *:*) echo "[$1]:$2" ;;
    *) echo "$1:$2" ;;
    esac
}

# wireguard_up — what every userspace WireGuard needs once its device and its UAPI socket exist.
wireguard_up() {
    require PEER_SUBNETS PEER_PRIVATE_KEY_FILE PEER_REMOTE_PUBLIC_KEY
    set -- listen-port "${PEER_PORT:-4500}" private-key "$PEER_PRIVATE_KEY_FILE" peer "$PEER_REMOTE_PUBLIC_KEY" \
        allowed-ips "$(echo "$PEER_SUBNETS" | tr ' ' ',')"
    [ -z "${PEER_PSK_FILE:-}" ] || set -- "$@" preshared-key "$PEER_PSK_FILE"
    [ -z "${PEER_REMOTE:-}" ] || set -- "$@" endpoint "$(host_port "$PEER_REMOTE" "${PEER_REMOTE_PORT:-4500}")"
    [ -z "${PEER_KEEPALIVE:-}" ] || set -- "$@" persistent-keepalive "$PEER_KEEPALIVE"
    in_ns wg set "$PEER_IF" "$@"
    for address in ${PEER_ADDRESSES:-}; do
        case $address in
        *:*) ip -n "$PEER_NS" addr add "$address" dev "$PEER_IF" nodad ;;
        *) ip -n "$PEER_NS" addr add "$address" dev "$PEER_IF" ;;
        esac
    done
    ip -n "$PEER_NS" link set "$PEER_IF" mtu "${PEER_MTU:-1420}" up
    for subnet in $PEER_SUBNETS; do
        ip -n "$PEER_NS" route replace "$subnet" dev "$PEER_IF"
    done
}

# uapi_socket — where the tools talk to a userspace WireGuard; one name space for the whole machine.
uapi_socket() {
    echo "/var/run/wireguard/$PEER_IF.sock"
}

# wireguard_down — a killed WireGuard leaves its socket behind, and the next one would be refused.
wireguard_down() {
    end_daemons
    ip -n "$PEER_NS" link del "$PEER_IF" 2>/dev/null || true
    rm -f "$(uapi_socket)"
}

# own_subnets — what the node reaches directly, but for the underlay: this cluster's subnets, separated by commas.
own_subnets() {
    underlay=$(ip -n "$PEER_NS" -o addr show to "$PEER_LOCAL" | awk '{ print $2; exit }')
    for family in -4 -6; do
        ip -n "$PEER_NS" "$family" -o route show scope link proto kernel |
            awk -v not="$underlay" '$3 != not && $1 !~ /^fe80:/ { print $1 }'
    done | paste -sd, -
}

# main VERB — calls the script's up and down.
main() {
    require PEER_NS PEER_IF PEER_STATE
    case ${1:-} in
    up)
        mkdir -p "$PEER_STATE"
        up
        ;;
    down) down ;;
    pids) print_pids ;;
    *) fail "usage: ${0##*/} up|down|pids" ;;
    esac
}
