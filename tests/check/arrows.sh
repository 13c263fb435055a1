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
    tree=$(cargo tree --locked -p "$crate" -e normal,build --depth 1 --prefix none)
    for dependency in $(echo "$tree" | awk '{ print $1 }' | sort -u); do
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

# pure CRATE [EXCEPTED] — no runtime, no device, no socket: its tree may not hold these crates, but for what EXCEPTED
# brings along.
pure() {
    tree=$(cargo tree --locked -p "$1" -e normal --prefix none ${2:+--prune "$2"})
    for dependency in $(echo "$tree" | awk '{ print $1 }' | sort -u); do
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
allowed trieste-nat trieste-packet
allowed trieste-vxlan
allowed trieste-cables trieste-packet trieste-vxlan
allowed trieste-io trieste-packet
allowed trieste-pipeline trieste-packet trieste-cables trieste-nat trieste-vxlan
allowed trieste-control
allowed trieste-deploy trieste-control
allowed trieste-cloud trieste-control trieste-deploy
allowed trieste-diagnose trieste-control trieste-vxlan
allowed trieste-operator trieste-control trieste-deploy trieste-cloud
allowed trieste-packaging
allowed trieste-simulator
allowed trieste-cli trieste-control trieste-deploy trieste-cloud trieste-diagnose trieste-dns trieste-discovery trieste-discovery-objects
allowed trieste-reconcile
allowed trieste-routeagent trieste-control trieste-dns trieste-discovery-objects trieste-reconcile trieste-vxlan
allowed trieste-dns
allowed trieste-ovsdb trieste-control
allowed trieste-ovn trieste-ovsdb trieste-control
allowed trieste-discovery-agent trieste-control
allowed trieste-discovery-objects trieste-dns trieste-control
allowed trieste-discovery trieste-dns trieste-discovery-agent trieste-discovery-objects trieste-control
allowed trieste-plugin-sync trieste-ovn trieste-ovsdb trieste-control
allowed trieste-gateway trieste-packet trieste-nat trieste-cables trieste-pipeline trieste-io trieste-control trieste-vxlan
pure trieste-packet
pure trieste-nat
pure trieste-vxlan
# boringtun has a device of its own; it stands behind the boundary of trieste-cables and none of that is called.
pure trieste-cables boringtun
pure trieste-pipeline boringtun
pure trieste-dns
pure trieste-reconcile
[ "$status" -ne 0 ] || echo "every arrow is an allowed one"
exit "$status"
