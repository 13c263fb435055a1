//! Who may claim to be in a remote cluster.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use super::lab::{Lab, eventually, lab};

#[test]
fn a_forged_source_is_dropped_and_counted_and_an_honest_one_passes() {
    let lab = lab!();
    lab.join();
    lab.address("wan", "lo", &["10.2.0.9/32", "fd00:2::9/128"]);
    // To the node itself and through it to a pod, in both families: without an agent all of it arrives.
    let ways = [
        ("10.2.0.9", "node", "172.31.1.11"),
        ("10.2.0.9", "pod", "10.1.1.10"),
        ("fd00:2::9", "node", "fd31::11"),
        ("fd00:2::9", "pod", "fd00:1::10"),
    ];
    for (from, place, to) in ways {
        // IPv6 neighbours take a second to find each other on fresh devices.
        eventually("it arrives without an agent", || arrives(&lab, from, place, to, 7777));
    }

    lab.agent_once(&["--once"]);

    for (from, place, to) in ways {
        assert!(!arrives(&lab, from, place, to, 7777), "{from} to {place}");
    }
    assert_eq!(lab.counter("node", "trieste", "spoofed4"), 2);
    assert_eq!(lab.counter("node", "trieste", "spoofed6"), 2);
    assert!(arrives(&lab, "172.31.1.1", "pod", "10.1.1.10", 7777));
    assert!(arrives(&lab, "fd31::1", "node", "fd31::11", 7777));
}

#[test]
fn the_counters_survive_a_change_of_the_cluster_set() {
    let lab = lab!();
    lab.join();
    lab.address("wan", "lo", &["10.2.0.9/32"]);
    lab.agent_once(&["--once"]);
    assert!(!arrives(&lab, "10.2.0.9", "node", "172.31.1.11", 7777));

    lab.put_endpoint("c", "c-gw1", &["10.9.0.0/16", "fd00:9::/48"], "203.0.113.31", "");
    let text = lab.agent_once(&["--once"]);

    assert!(text.contains("remote4+10.9.0.0/16 remote6+fd00:9::/48"), "{text}");
    assert_eq!(lab.counter("node", "trieste", "spoofed4"), 1);
}

#[test]
fn remote_sources_may_enter_by_the_vxlan_between_nodes() {
    let lab = lab!();
    lab.join();
    lab.agent_once(&["--once"]);
    // A veth pair in the name of the VXLAN device: what counts is by which device a packet enters.
    lab.pair("node", "vx-submariner", "wan", "vx0");
    lab.address("node", "vx-submariner", &["240.31.1.11/8"]);
    lab.address("wan", "vx0", &["240.31.1.1/8"]);
    lab.address("wan", "lo", &["10.2.0.9/32"]);

    assert!(arrives(&lab, "10.2.0.9", "node", "240.31.1.11", 7777));
    assert_eq!(lab.counter("node", "trieste", "spoofed4"), 0);
}

#[test]
fn a_gateway_inside_its_own_network_may_send_to_the_cable_port_only() {
    let lab = lab!();
    lab.join();
    lab.put_endpoint("b", "b-gw1", &["10.2.0.0/16", "fd00:2::/48"], "10.2.0.21", "");
    lab.address("wan", "lo", &["10.2.0.21/32", "10.2.0.22/32"]);
    lab.agent_once(&["--once"]);

    assert!(arrives(&lab, "10.2.0.21", "node", "172.31.1.11", 4500));
    assert!(arrives(&lab, "10.2.0.21", "node", "172.31.1.11", 4490));
    assert!(!arrives(&lab, "10.2.0.21", "node", "172.31.1.11", 7777));
    assert!(!arrives(&lab, "10.2.0.22", "node", "172.31.1.11", 4500));
}

#[test]
fn neighbours_are_heard_where_a_remote_network_contains_the_nodes_own() {
    let lab = lab!();
    lab.join();
    lab.put_endpoint("b", "b-gw1", &["172.24.0.0/13"], "203.0.113.21", "");
    lab.address("wan", "lo", &["172.28.0.9/32"]);
    lab.agent_once(&["--once"]);

    assert!(arrives(&lab, "172.31.1.1", "node", "172.31.1.11", 7777));
    assert!(!arrives(&lab, "172.28.0.9", "node", "172.31.1.11", 7777));
}

/// Sends from an address of the WAN and says whether it arrives within the 300 ms that a listener waits.
fn arrives(lab: &Lab, from: &str, place: &str, to: &str, port: u16) -> bool {
    let to = SocketAddr::new(to.parse().unwrap(), port);
    let listener = lab.inside(place, || UdpSocket::bind(to)).unwrap();
    listener.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let source = SocketAddr::new(from.parse().unwrap(), 0);
    lab.inside("wan", || UdpSocket::bind(source).and_then(|socket| socket.send_to(b"hello", to))).unwrap();
    let mut buffer = [0; 16];
    matches!(listener.recv_from(&mut buffer), Ok((5, sender)) if sender.ip() == source.ip())
}
