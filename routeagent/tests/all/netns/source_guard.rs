//! Who may claim to be in a remote cluster.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

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
    let ways = ways.map(|(from, place, to)| (from, listen(&lab, place, to, 7777)));
    for (from, listener) in &ways {
        // IPv6 neighbours take a second to find each other on fresh devices.
        eventually("it arrives without an agent", || arrives(&lab, from, listener));
    }

    lab.agent_once(&["--once"]);

    for (from, listener) in &ways {
        assert!(!arrives(&lab, from, listener), "{from} to {listener:?}");
    }
    assert_eq!(lab.counter("node", "trieste", "spoofed4"), 2);
    assert_eq!(lab.counter("node", "trieste", "spoofed6"), 2);
    let [_, pod4, node6, _] = ways.map(|(_, listener)| listener);
    eventually("it arrives", || arrives(&lab, "172.31.1.1", &pod4));
    eventually("it arrives", || arrives(&lab, "fd31::1", &node6));
}

#[test]
fn the_counters_survive_a_change_of_the_cluster_set() {
    let lab = lab!();
    lab.join();
    lab.address("wan", "lo", &["10.2.0.9/32"]);
    lab.agent_once(&["--once"]);
    assert!(!arrives(&lab, "10.2.0.9", &listen(&lab, "node", "172.31.1.11", 7777)));

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

    eventually("it arrives", || arrives(&lab, "10.2.0.9", &listen(&lab, "node", "240.31.1.11", 7777)));
    assert_eq!(lab.counter("node", "trieste", "spoofed4"), 0);
}

#[test]
fn a_gateway_inside_its_own_network_may_send_to_the_cable_port_only() {
    let lab = lab!();
    lab.join();
    lab.put_endpoint("b", "b-gw1", &["10.2.0.0/16", "fd00:2::/48"], "10.2.0.21", "");
    lab.address("wan", "lo", &["10.2.0.21/32", "10.2.0.22/32"]);
    lab.agent_once(&["--once"]);

    let [cable, discovery, other] = [4500, 4490, 7777].map(|port| listen(&lab, "node", "172.31.1.11", port));
    eventually("it arrives", || arrives(&lab, "10.2.0.21", &cable));
    eventually("it arrives", || arrives(&lab, "10.2.0.21", &discovery));
    assert!(!arrives(&lab, "10.2.0.21", &other));
    assert!(!arrives(&lab, "10.2.0.22", &cable));
}

#[test]
fn neighbours_are_heard_where_a_remote_network_contains_the_nodes_own() {
    let lab = lab!();
    lab.join();
    lab.put_endpoint("b", "b-gw1", &["172.24.0.0/13"], "203.0.113.21", "");
    lab.address("wan", "lo", &["172.28.0.9/32"]);
    lab.agent_once(&["--once"]);

    let node = listen(&lab, "node", "172.31.1.11", 7777);
    eventually("it arrives", || arrives(&lab, "172.31.1.1", &node));
    assert!(!arrives(&lab, "172.28.0.9", &node));
}

/// Listens at a place. One listener serves a whole test: while another test starts a program, a copy of a socket outlives it for
/// a moment, and its address is in use.
fn listen(lab: &Lab, place: &str, to: &str, port: u16) -> UdpSocket {
    let to = SocketAddr::new(to.parse().unwrap(), port);
    lab.inside(place, || UdpSocket::bind(to)).unwrap()
}

/// Sends from an address of the WAN and says whether that arrives within the 300 ms that a listener waits.
fn arrives(lab: &Lab, from: &str, listener: &UdpSocket) -> bool {
    static SENT: AtomicU32 = AtomicU32::new(0);
    let number = SENT.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    let (to, source) = (listener.local_addr().unwrap(), SocketAddr::new(from.parse().unwrap(), 0));
    lab.inside("wan", || UdpSocket::bind(source).and_then(|socket| socket.send_to(&number, to))).unwrap();
    let until = Instant::now() + Duration::from_millis(300);
    let mut buffer = [0; 16];
    loop {
        let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        listener.set_read_timeout(Some(left)).unwrap();
        match listener.recv_from(&mut buffer) {
            Ok((length, sender)) if buffer[..length] == number => return sender.ip() == source.ip(),
            Ok(_) => {}
            Err(_) => return false,
        }
    }
}
