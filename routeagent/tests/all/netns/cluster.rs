//! A cluster of three nodes with a pod each, and a remote cluster behind its gateway.
//!
//! ```text
//!   pod-gw1 ─ cni0 ┌─────┐ eth0 172.31.1.11 ─┐
//!   10.1.1.10      │ gw1 │ submariner ── remote (10.2.0.9, 100.66.0.9, fd00:2::9)
//!                  └─────┘                   │ ┌─────┐
//!   pod-w1 ─ cni0 ── w1 ── eth0 172.31.3.21 ─┼─┤ wan │ routes between the nodes, counts what is for the remote
//!   pod-w2 ─ cni0 ── w2 ── eth0 172.31.4.22 ─┘ └─────┘ cluster in clear
//! ```
//!
//! Every node filters strictly by reverse path, drops what iptables does not accept, and masquerades what leaves the
//! cluster, as kube-proxy and a network plugin do. The service 100.65.0.10:80 is the pod on w2. `submariner` is a veth
//! pair instead of a TUN: the route agent only knows its name.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use super::lab::{Lab, NAMESPACE};

/// Host part of the node's address, third octet of its address and of its pods.
pub(crate) const NODES: [(&str, &str, u8, u8); 3] =
    [("gw1", "a-gw1", 1, 11), ("w1", "a-w1", 3, 21), ("w2", "a-w2", 4, 22)];
pub(crate) const PLACES: [&str; 8] = ["gw1", "w1", "w2", "pod-gw1", "pod-w1", "pod-w2", "wan", "remote"];
/// Long enough for a SYN that has to be sent twice.
const PATIENCE: Duration = Duration::from_secs(4);

/// Drops, masquerades and redirects as kube-proxy, a network plugin and a careful administrator do.
const IPTABLES: &str = "\
*filter
:INPUT DROP [0:0]
:FORWARD DROP [0:0]
-A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A INPUT -i lo -j ACCEPT
-A INPUT -p POD_ICMP -j ACCEPT
-A INPUT -p tcp -j ACCEPT
-A FORWARD -m conntrack --ctstate INVALID -j DROP
-A FORWARD -s PODS -d PODS -j ACCEPT
COMMIT
*nat
-A POSTROUTING -s PODS ! -d PODS -j MASQUERADE
COMMIT
";

pub(crate) fn cluster() -> Option<Lab> {
    cluster_of(&PLACES)
}

/// Makes the cluster, and further empty namespaces.
pub(crate) fn cluster_of(places: &'static [&'static str]) -> Option<Lab> {
    let lab = Lab::bare(places)?;
    for (place, _, net, host) in NODES {
        let pod = format!("pod-{place}");
        lab.pair(place, "eth0", "wan", place);
        lab.pair(place, "cni0", &pod, "eth0");
        lab.address(place, "eth0", &[&format!("172.31.{net}.{host}/24"), &format!("fd31:{net}::{host}/64")]);
        lab.address("wan", place, &[&format!("172.31.{net}.1/24"), &format!("fd31:{net}::1/64")]);
        lab.address(place, "cni0", &[&format!("10.1.{net}.1/24"), &format!("fd00:1:0:{net}::1/64")]);
        lab.address(&pod, "eth0", &[&format!("10.1.{net}.10/24"), &format!("fd00:1:0:{net}::10/64")]);
        let gateways = [
            (place, format!("172.31.{net}.1"), format!("fd31:{net}::1")),
            (&pod, format!("10.1.{net}.1"), format!("fd00:1:0:{net}::1")),
        ];
        for (place, v4, v6) in gateways {
            lab.ip(place, &["route", "add", "default", "via", &v4]);
            lab.ip(place, &["-6", "route", "add", "default", "via", &v6]);
        }
        lab.ip("wan", &["route", "add", &format!("10.1.{net}.0/24"), "via", &format!("172.31.{net}.{host}")]);
        let v6 = [&format!("fd00:1:0:{net}::/64"), "via", &format!("fd31:{net}::{host}")];
        lab.ip("wan", &[&["-6", "route", "add"], &v6[..]].concat());
        lab.run(place, "sysctl", &["-qw", "net.ipv4.conf.all.rp_filter=1"]);
        for (restore, pods, icmp) in [
            ("iptables-nft-restore", "10.1.0.0/16", "icmp"),
            ("ip6tables-nft-restore", "fd00:1::/48", "icmpv6"),
        ] {
            lab.feed(place, restore, &IPTABLES.replace("PODS", pods).replace("POD_ICMP", icmp));
        }
        let service = "-t nat -A PREROUTING -d 100.65.0.10 -p tcp --dport 80 -j DNAT --to 10.1.4.10:8080";
        lab.run(place, "iptables-nft", &service.split(' ').collect::<Vec<_>>());
    }
    for place in ["gw1", "w1", "w2", "wan"] {
        lab.run(place, "sysctl", &["-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"]);
    }
    lab.nft("wan", super::lab::COUNTING);
    connect_remote(&lab, "gw1");
    join(&lab);
    Some(lab)
}

/// Puts the remote cluster behind a node's `submariner`, taking it from whichever had it.
pub(crate) fn connect_remote(lab: &Lab, gateway: &str) {
    lab.try_ip("remote", &["link", "del", "tun0"]);
    lab.pair(gateway, "submariner", "remote", "tun0");
    lab.address(gateway, "submariner", &["169.254.9.1/24", "fd99::1/64"]);
    lab.address(
        "remote",
        "tun0",
        &["10.2.0.9/16", "100.66.0.9/16", "fd00:2::9/48", "169.254.9.2/24", "fd99::2/64"],
    );
    lab.ip("remote", &["route", "add", "default", "via", "169.254.9.1", "src", "10.2.0.9"]);
    lab.ip("remote", &["-6", "route", "add", "default", "via", "fd99::1", "src", "fd00:2::9"]);
}

/// Both clusters' objects, and the nodes.
fn join(lab: &Lab) {
    std::fs::create_dir_all(lab.store().join(NAMESPACE)).unwrap();
    for (_, name, net, host) in NODES {
        let pods = [format!("10.1.{net}.0/24"), format!("fd00:1:0:{net}::/64")];
        lab.put_node(name, &format!("172.31.{net}.{host}"), &pods);
    }
    put_gateway(lab, "a-gw1", "172.31.1.11", "10.1.1.1");
    lab.put_endpoint("b", "b-gw1", &["100.66.0.0/16", "10.2.0.0/16", "fd00:2::/48"], "203.0.113.21", "");
}

/// Makes a node the active gateway of cluster `a`.
pub(crate) fn put_gateway(lab: &Lab, hostname: &str, address: &str, health_check: &str) {
    let networks = ["100.65.0.0/16", "10.1.0.0/16", "fd00:1::/48"];
    lab.put_endpoint("a", hostname, &networks, address, health_check);
}

/// Makes one pass on every node.
pub(crate) fn install(lab: &Lab) {
    for (place, hostname, ..) in NODES {
        super::lab::finish(&mut lab.agent_on(place, hostname, &["--once"]));
    }
}

/// Takes in a connection that a client believes to have: the last packet of its beginning may be lost for good.
pub(crate) fn accept(listener: &TcpListener) -> std::io::Result<(TcpStream, SocketAddr)> {
    let deadline = Instant::now() + PATIENCE;
    listener.set_nonblocking(true)?;
    loop {
        match listener.accept() {
            Ok((stream, peer)) => {
                stream.set_nonblocking(false)?;
                return Ok((stream, peer));
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(error) => return Err(error),
        }
    }
}

/// Sends 5,000 bytes over TCP and waits for their number; returns the source that the server saw.
pub(crate) fn talk(lab: &Lab, from: &str, to_place: &str, listen: &str, to: &str) -> Result<IpAddr, String> {
    const PAYLOAD: [u8; 5000] = [7; 5000];
    let (listen, to): (SocketAddr, SocketAddr) = (listen.parse().unwrap(), to.parse().unwrap());
    let mut listener = None;
    // A process that another test is just starting may hold the former listener for a moment.
    super::lab::eventually(&format!("{listen} is free in {to_place}"), || {
        listener = lab.inside(to_place, || TcpListener::bind(listen)).ok();
        listener.is_some()
    });
    let listener = listener.unwrap();
    let mut client = lab
        .inside(from, || TcpStream::connect_timeout(&to, PATIENCE))
        .map_err(|error| format!("{from} to {to}: {error}"))?;
    let (mut server, peer) = accept(&listener).map_err(|error| format!("{from} to {to}: {error}"))?;
    for stream in [&client, &server] {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
    }
    let failed = |error: std::io::Error| format!("{from} to {to}: {error}");
    client.write_all(&PAYLOAD).map_err(failed)?;
    let mut received = [0; PAYLOAD.len()];
    server.read_exact(&mut received).map_err(failed)?;
    server.write_all(&PAYLOAD).map_err(failed)?;
    client.read_exact(&mut received).map_err(failed)?;
    Ok(peer.ip())
}

/// Everything about a node's network that an uninstall has to leave as it was, as text.
pub(crate) fn everything(lab: &Lab, place: &str) -> String {
    let ip = |arguments: &[&str]| lab.ip(place, arguments);
    let links = ip(&["-d", "link"]).lines().map(without_timers).collect::<Vec<_>>().join("\n");
    let filters =
        ["iptables-nft-save", "ip6tables-nft-save", "iptables-legacy-save", "ip6tables-legacy-save"].map(
            |save| {
                lab.run(place, save, &[])
                    .lines()
                    .filter(|line| !line.starts_with('#'))
                    .map(without_counts)
                    .collect::<Vec<_>>()
                    .join("\n")
            },
        );
    let neighbours =
        ip(&["neigh", "show", "nud", "permanent"]) + &ip(&["-6", "neigh", "show", "nud", "permanent"]);
    let ruleset = lab.run(place, "nft", &["-s", "list", "ruleset"]);
    let settings = lab.run(place, "sh", &["-c", "cd /proc/sys/net && grep -r . ipv4/conf ipv6/conf 2>/dev/null | grep -E '/(rp_filter|forwarding|accept_local|disable_ipv6|ignore_routes_with_linkdown):' | grep -v '/submariner/' | sort"]);
    [
        ip(&["rule"]),
        ip(&["-6", "rule"]),
        ip(&["route", "show", "table", "all"]),
        ip(&["-6", "route", "show", "table", "all"]),
        links,
        ip(&["address"]),
        neighbours,
        ip(&["nexthop"]),
        lab.run(place, "bridge", &["fdb"]),
        ruleset,
        filters.join("\n"),
        settings,
    ]
    .join("\n---\n")
}

fn without_timers(line: &str) -> String {
    line.split(" gc_timer").next().unwrap_or_default().to_owned()
}

fn without_counts(line: &str) -> String {
    line.split(" [").next().unwrap_or_default().to_owned()
}
