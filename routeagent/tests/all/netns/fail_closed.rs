//! Nothing for a remote cluster leaves in clear, whichever process is dead.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use nix::sys::socket::{setsockopt, sockopt};

use super::cluster::{cluster, install};
use super::lab::{Lab, eventually, lab};

const REMOTE4: &str = "10.2.0.5:80";
const REMOTE6: &str = "[fd00:2::5]:80";
const TIMEOUT: Duration = Duration::from_secs(5);

#[test]
fn after_a_reboot_the_node_is_closed_before_any_store_was_read() {
    let lab = lab!();
    lab.join();
    std::fs::create_dir(lab.state("node")).unwrap();
    lab.agent_once(&["--once"]);
    let closed = "unreachable 10.2.0.0/16 proto static metric 4278198272";
    // As a reboot leaves it, with a store that does not answer.
    for family in ["-4", "-6"] {
        for (table, which) in [("main", "unreachable"), ("150", "unreachable"), ("150", "unicast")] {
            let words = [family, "route", "flush", "table", table, "type", which, "proto", "static"];
            lab.try_ip("node", &words);
        }
        for priority in ["140", "150"] {
            lab.try_ip("node", &[family, "rule", "delete", "pref", priority]);
        }
    }
    lab.run("node", "nft", &["delete", "table", "inet", "trieste"]);
    assert!(!lab.ip("node", &["route"]).contains("unreachable"));
    std::fs::rename(lab.store(), lab.store().with_extension("away")).unwrap();

    let agent = lab.start_agent();

    eventually("the node is closed", || lab.ip("node", &["route"]).contains(closed));
    eventually("and guarded", || {
        let set = ["-t", "list", "tables"];
        lab.run("node", "nft", &set).contains("inet trieste")
    });
    assert!(lab.ip("node", &["-6", "route"]).contains("unreachable fd00:2::/48"));
    drop(agent);
    lab.uninstall();
    assert!(std::fs::read_dir(lab.state("node")).unwrap().next().is_none());
}

#[test]
fn without_an_agent_the_underlay_sees_packets_for_remote_clusters() {
    // Shows that the other tests of this file would notice a leak.
    let lab = lab!();
    for place in ["node", "pod"] {
        send(&lab, place, REMOTE4, b"x", None).unwrap();
        send(&lab, place, REMOTE6, b"x", None).unwrap();
    }
    eventually("both families are seen", || lab.leaked() == (2, 2));
}

#[test]
fn a_dead_gateway_means_unreachable_for_the_node_and_for_pods() {
    let lab = lab!();
    lab.join();
    lab.agent_once(&["--once"]);
    assert_refused(&lab, &["node", "pod"]);
}

#[test]
fn traffic_moves_to_the_gateway_when_it_lives_and_is_refused_when_it_is_killed() {
    let lab = lab!();
    lab.join();
    let _agent = lab.start_agent();
    eventually("everything is installed", || lab.plan() == "nothing to change\n");

    for life in 0..3 {
        let mut tun = lab.hold_tun();
        for (place, remote) in [("node", REMOTE4), ("node", REMOTE6), ("pod", REMOTE4), ("pod", REMOTE6)] {
            let marker = format!("marker {life} {place} {remote}");
            eventually("the gateway is used", || is_routed_to_tun(&lab, remote));
            tun.expect(&marker, |marker| send(&lab, place, remote, marker, None).unwrap());
        }
        tun.kill();
        assert_refused(&lab, &["node", "pod"]);
    }
}

#[test]
fn the_node_stays_closed_without_agent_gateway_and_device() {
    let lab = lab!();
    lab.join();
    let mut agent = lab.start_agent();
    eventually("everything is installed", || lab.plan() == "nothing to change\n");
    agent.kill();
    lab.ip("node", &["link", "del", "submariner"]);
    assert_refused(&lab, &["node", "pod"]);

    // Also when the rules are lost: the main table refuses by itself.
    lab.ip("node", &["rule", "del", "pref", "150"]);
    lab.ip("node", &["-6", "rule", "del", "pref", "150"]);
    assert_refused(&lab, &["node", "pod"]);
}

#[test]
fn any_other_node_is_closed_also_where_a_route_leads_out_in_clear() {
    let lab = lab!();
    lab.join();
    super::lab::finish(&mut lab.agent_as("a-w1", &["--once"]));
    assert_refused(&lab, &["node", "pod"]);

    // Any route has a better metric than the refusal, and may have been made by anyone. The filter is the second line.
    lab.ip("node", &["route", "add", "10.2.0.0/16", "via", "172.31.1.1", "proto", "static"]);
    lab.ip("node", &["-6", "route", "add", "fd00:2::/48", "via", "fd31::1"]);
    send(&lab, "pod", REMOTE4, b"x", None).unwrap();
    send(&lab, "pod", REMOTE6, b"x", None).unwrap();
    let strays = || (lab.counter("node", "trieste", "stray4"), lab.counter("node", "trieste", "stray6"));
    eventually("it is dropped", || strays() == (1, 1));
    lab.ip("node", &["route", "del", "10.2.0.0/16", "via", "172.31.1.1"]);
    assert_eq!(connect(&lab, "pod", REMOTE4), ErrorKind::HostUnreachable);
    assert_eq!(lab.leaked(), (0, 0));
}

#[test]
fn a_closed_network_without_a_gateway_is_closed_to_rules_and_tables_of_others_too() {
    let lab = lab!();
    lab.join();
    lab.delete_endpoint("b");
    lab.put_cluster("b", &["10.2.0.0/16", "fd00:2::/48"]);
    // No member's to have: neither routed nor closed, and others may route it.
    lab.put_cluster("c", &["198.51.100.0/24", "2001:db8:9::/48"]);
    lab.agent_once(&["--once"]);
    lead_astray(&lab);

    for place in ["node", "pod"] {
        for to in [REMOTE4, REMOTE6, "198.51.100.7:80", "[2001:db8:9::7]:80"] {
            // The sender may be told at once.
            let _ = send(&lab, place, to, b"x", None);
        }
    }

    let strays = || (lab.counter("node", "trieste", "stray4"), lab.counter("node", "trieste", "stray6"));
    eventually("it is dropped", || strays() == (2, 2));
    let others = || (lab.counter("wan", "others", "claimed4"), lab.counter("wan", "others", "claimed6"));
    eventually("what is not closed leaves", || others() == (2, 2));
    assert_eq!(lab.leaked(), (0, 0));
}

#[test]
fn a_mark_or_port_of_cables_lets_nothing_out_that_is_only_forwarded() {
    let lab = lab!();
    lab.join();
    lab.put_endpoint("b", "b-gw1", &["10.2.0.0/16", "fd00:2::/48"], "10.2.0.21", "");
    lab.agent_once(&["--once"]);
    lead_astray(&lab);
    lab.nft(
        "node",
        "
table inet plugin {
    chain early { type filter hook prerouting priority mangle; udp dport 81 meta mark set 0x540000; }
    chain late { type filter hook postrouting priority mangle; udp dport 82 meta mark set 0x5412ab; }
}
",
    );

    for to in ["10.2.0.5:81", "10.2.0.5:82", "[fd00:2::5]:81", "[fd00:2::5]:82"] {
        send(&lab, "pod", to, b"x", None).unwrap();
    }
    // As a cable's packet to that gateway, but a pod's.
    send_from(&lab, "pod", "0.0.0.0:4500", "10.2.0.21:4500", b"x", None).unwrap();

    let strays = || (lab.counter("node", "trieste", "stray4"), lab.counter("node", "trieste", "stray6"));
    eventually("it is dropped", || strays() == (3, 2));
    assert_eq!(lab.leaked(), (0, 0));
    send(&lab, "node", "10.2.0.21:4500", b"sealed", Some(0x0054_0000)).unwrap();
    send(&lab, "node", REMOTE6, b"sealed", Some(0x0054_0000)).unwrap();
    eventually("the node's own marked sockets are let out", || lab.leaked() == (1, 1));
}

/// Leads everything to the underlay by a table of its own, before any rule of ours is asked.
fn lead_astray(lab: &Lab) {
    for (family, via) in [("-4", "172.31.1.1"), ("-6", "fd31::1")] {
        lab.ip("node", &[family, "route", "add", "default", "via", via, "table", "777"]);
        lab.ip("node", &[family, "rule", "add", "pref", "80", "lookup", "777"]);
    }
    lab.nft("wan", CLAIMED);
}

/// Counts, on the WAN, what a member claimed that it may not have.
const CLAIMED: &str = "
table inet others {
    counter claimed4 { }
    counter claimed6 { }
    chain in {
        type filter hook prerouting priority raw
        ip daddr 198.51.100.0/24 counter name claimed4
        ip6 daddr 2001:db8:9::/48 counter name claimed6
    }
}
";

#[test]
fn a_remote_gateway_inside_its_own_network_is_reached_by_marked_sockets_only() {
    let lab = lab!();
    lab.join();
    lab.put_endpoint("b", "b-gw1", &["10.2.0.0/16", "fd00:2::/48"], "10.2.0.21", "");
    lab.agent_once(&["--once"]);
    let mut tun = lab.hold_tun();

    send(&lab, "node", "10.2.0.21:4500", b"sealed", Some(0x0054_0000)).unwrap();
    eventually("the marked one is on the underlay", || lab.leaked().0 == 1);
    tun.expect("plain of the node", |text| send(&lab, "node", "10.2.0.21:4500", text, None).unwrap());
    // A pod's mark does not leave its namespace; a plugin's, put on what is forwarded, does not count either.
    lab.nft(
        "node",
        "
table inet plugin {
    chain c { type filter hook prerouting priority mangle; iifname cni0 meta mark set 0x540000; }
}
",
    );
    let send_marked = |text: &[u8]| send(&lab, "pod", "10.2.0.21:4500", text, Some(0x0054_0000)).unwrap();
    tun.expect("plain of a pod", send_marked);
    tun.kill();
    assert_eq!(connect(&lab, "pod", "10.2.0.21:80"), ErrorKind::HostUnreachable);
    assert_eq!(lab.leaked().0, 1);
}

#[test]
fn the_nodes_own_network_inside_a_remote_one_stays_usable() {
    let lab = lab!();
    lab.join();
    lab.put_endpoint("b", "b-gw1", &["172.24.0.0/13"], "203.0.113.21", "");
    lab.agent_once(&["--once"]);

    // The neighbour answers with a reset, which is all that is asked of it.
    assert_eq!(connect(&lab, "node", "172.31.1.1:80"), ErrorKind::ConnectionRefused);
    assert_eq!(connect(&lab, "node", "172.28.0.1:80"), ErrorKind::HostUnreachable);
}

#[test]
fn what_a_remote_cluster_sends_to_a_pod_without_a_device_does_not_leave_by_the_default_route() {
    let Some(lab) = cluster() else { return };
    install(&lab);
    lab.nft("wan", COUNTING_SOURCES);
    let leaked = || (lab.counter("wan", "sources", "remote4"), lab.counter("wan", "sources", "remote6"));
    // As a network plugin does it that starts anew, on a worker and on the gateway's node.
    for (place, to) in
        [("w1", ["10.1.3.10:80", "[fd00:1:0:3::10]:80"]), ("gw1", ["10.1.1.10:80", "[fd00:1:0:1::10]:80"])]
    {
        lab.ip(place, &["link", "set", "cni0", "down"]);
        // Somebody else's filter would drop it, too.
        for program in ["iptables-nft", "ip6tables-nft"] {
            lab.run(place, program, &["-P", "FORWARD", "ACCEPT"]);
        }
        // The bridge's own network is closed.
        for to in to {
            send(&lab, "remote", to, b"x", None).unwrap();
            let address = to.parse::<SocketAddr>().unwrap().ip();
            let way = lab.try_ip(place, &["route", "get", &address.to_string()]);
            assert!(way.contains("No route to host"), "{way}");
        }
        assert_eq!(leaked(), (0, 0), "{place}, by routes");
        for (family, pods) in [("-4", "10.1.0.0/16"), ("-6", "fd00:1::/48")] {
            lab.ip(place, &[family, "route", "flush", "type", "unreachable", "root", pods]);
        }
        // Where somebody took that away, the filter drops it.
        for to in to {
            let stray =
                || lab.counter(place, "trieste", if to.starts_with('[') { "stray6" } else { "stray4" });
            eventually(&format!("what is for {to} is dropped on {place}"), || {
                send(&lab, "remote", to, b"x", None).unwrap();
                stray() > 0
            });
        }
        assert_eq!(leaked(), (0, 0), "{place}");
        // Shows that a leak would be noticed.
        lab.run(place, "nft", &["flush", "set", "inet", "trieste", "uplinks"]);
        for to in to {
            eventually(&format!("what is for {to} leaves {place}"), || {
                send(&lab, "remote", to, b"x", None).unwrap();
                if to.starts_with('[') { leaked().1 > 0 } else { leaked().0 > 0 }
            });
        }
        lab.nft("wan", "reset counters table inet sources");
    }
}

/// Counts, on the WAN, what has a source in a remote cluster.
const COUNTING_SOURCES: &str = "
table inet sources {
    counter remote4 { }
    counter remote6 { }
    chain in {
        type filter hook prerouting priority raw
        ip saddr 10.2.0.0/16 counter name remote4
        ip6 saddr fd00:2::/48 counter name remote6
    }
}
";

pub(crate) fn is_routed_to_tun(lab: &Lab, remote: &str) -> bool {
    let address = remote.parse::<SocketAddr>().unwrap().ip().to_string();
    lab.try_ip("node", &["route", "get", &address]).contains("dev submariner")
}

/// Both families fail at once with an ICMP error, and nothing is on the underlay.
fn assert_refused(lab: &Lab, places: &[&str]) {
    // The kernel takes up to a second to notice a lost carrier. Until then packets end in the device.
    eventually("the carrier is gone", || !is_routed_to_tun(lab, REMOTE4) && !is_routed_to_tun(lab, REMOTE6));
    for place in places {
        assert_eq!(connect(lab, place, REMOTE4), ErrorKind::HostUnreachable, "{place}");
        let error = connect(lab, place, REMOTE6);
        assert!(
            matches!(error, ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable),
            "{place}: {error}"
        );
    }
    assert_eq!(lab.leaked(), (0, 0));
}

pub(crate) fn connect(lab: &Lab, place: &str, to: &str) -> ErrorKind {
    let to: SocketAddr = to.parse().unwrap();
    lab.inside(place, || TcpStream::connect_timeout(&to, TIMEOUT)).unwrap_err().kind()
}

pub(crate) fn send(
    lab: &Lab,
    place: &str,
    to: &str,
    payload: &[u8],
    mark: Option<u32>,
) -> std::io::Result<usize> {
    let any = if to.starts_with('[') { "[::]:0" } else { "0.0.0.0:0" };
    send_from(lab, place, any, to, payload, mark)
}

fn send_from(
    lab: &Lab,
    place: &str,
    from: &str,
    to: &str,
    payload: &[u8],
    mark: Option<u32>,
) -> std::io::Result<usize> {
    let to: SocketAddr = to.parse().unwrap();
    lab.inside(place, || {
        let socket = UdpSocket::bind(from)?;
        if let Some(mark) = mark {
            setsockopt(&socket, sockopt::Mark, &mark)?;
        }
        socket.send_to(payload, to)
    })
}
