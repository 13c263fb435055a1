#!/bin/sh
# Who may depend on whom: compares the crates' direct dependencies with the arrows of docs/architecture.md, and
# keeps sockets and runtimes away from the packet path. Dev-dependencies are free.
set -eu
cd "$(dirname "$0")/../.."
status=0

# allowed CRATE DEPENDENCY... — the only crates of ours that CRATE may depend on.
allowed() {
    crate=$1
    shift
    for dependency in $(cargo tree --locked -p "$crate" -e normal,build --depth 1 --prefix none | awk '{ print $1 }' | sort -u); do
        case $dependency in
        "$crate") continue ;;
        trieste-*) ;;
        *) continue ;;
        esac
        case " $* " in
        *" $dependency "*) ;;
        *)
            echo "$crate must not depend on $dependency (allowed: ${*:-nothing of ours})"
            status=1
            ;;
        esac
    done
}

# pure CRATE — no runtime, no device, no socket: its tree may not hold these crates.
pure() {
    for dependency in $(cargo tree --locked -p "$1" -e normal --prefix none | awk '{ print $1 }' | sort -u); do
        case $dependency in
        tokio | mio | socket2 | tun-rs | nix | rustix | rtnetlink | inotify | axum | hyper)
            echo "$1 is sans-IO and must not reach $dependency (cargo tree -p $1 -i $dependency)"
            status=1
            ;;
        *) ;;
        esac
    done
}

allowed trieste-packet
allowed trieste-cables trieste-packet
allowed trieste-io trieste-packet
allowed trieste-pipeline trieste-packet trieste-cables
allowed trieste-control
allowed trieste-routeagent trieste-control
allowed trieste-gateway trieste-packet trieste-cables trieste-pipeline trieste-io trieste-control
pure trieste-packet
pure trieste-cables
pure trieste-pipeline
[ "$status" -ne 0 ] || echo "every arrow is an allowed one"
exit "$status"
