//! Who may send over the VXLAN between nodes: nodes, and nobody through them.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use super::cluster::{cluster, install};
use super::lab::{Lab, eventually};

const NOT_EVEN_VXLAN: &[u8] = b"not even VXLAN";

#[test]
fn only_nodes_of_the_cluster_may_send_over_the_vxlan() {
    let Some(lab) = open_cluster() else { return };
    let strangers = || lab.counter("w1", "trieste", "strangers");
    send(&lab, "wan", "172.31.3.1:0", "172.31.3.21:4800");
    eventually("a stranger is dropped", || strangers() == 1);
    send(&lab, "w2", "172.31.4.22:0", "172.31.3.21:4800");
    send(&lab, "pod-w2", "10.1.4.10:0", "172.31.3.21:4800");
    // Its own node drops it: masqueraded, it would look like that node's.
    eventually("a pod is dropped", || lab.counter("w2", "trieste", "strangers") == 1);
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(strangers(), 1, "a node is not a stranger");
}

#[test]
fn a_service_does_not_lead_a_pod_into_the_vxlan() {
    let Some(lab) = open_cluster() else { return };
    for (program, service, node) in [
        ("iptables-nft", "100.65.0.66", "172.31.3.21:4800"),
        ("ip6tables-nft", "fd00:1:0:ffff::66", "[fd31:3::21]:4800"),
    ] {
        for place in ["w1", "w2"] {
            let rule = format!("-t nat -A PREROUTING -d {service} -p udp --dport 5000 -j DNAT --to {node}");
            lab.run(place, program, &rule.split(' ').collect::<Vec<_>>());
        }
    }
    lab.run("w1", "nft", &["add", "element", "inet", "trieste", "nodes6", "{ fd31:3::21, fd31:4::22 }"]);
    lab.run("w2", "nft", &["add", "element", "inet", "trieste", "nodes6", "{ fd31:3::21, fd31:4::22 }"]);
    for (at, strangers) in [(["w1", "w2"], 1), (["w1", "w2"], 2)] {
        for place in at {
            let (pod, net) = (format!("pod-{place}"), if place == "w1" { 3 } else { 4 });
            let (from, to) = match strangers {
                1 => (format!("10.1.{net}.10:0"), "100.65.0.66:5000"),
                _ => (format!("[fd00:1:0:{net}::10]:0"), "[fd00:1:0:ffff::66]:5000"),
            };
            // IPv6 neighbours take a second to find each other on fresh devices.
            eventually(&format!("{place} drops {to}"), || {
                send(&lab, &pod, &from, to);
                lab.counter(place, "trieste", "strangers") >= strangers
            });
        }
    }
    assert_eq!(received(&lab), 0);
}

#[test]
fn a_pod_that_writes_a_nodes_address_as_its_own_is_a_stranger() {
    let Some(lab) = open_cluster() else { return };
    lab.run("w1", "nft", &["add", "element", "inet", "trieste", "nodes6", "{ fd31:3::21, fd31:4::22 }"]);
    // Strict filtering would drop the IPv4 one before anybody looks; there is none in IPv6.
    for setting in ["net.ipv4.conf.all.rp_filter=0", "net.ipv4.conf.cni0.rp_filter=0"] {
        lab.run("w1", "sysctl", &["-qw", setting]);
    }
    lab.address("pod-w1", "lo", &["172.31.4.22/32", "fd31:4::22/128"]);
    for (count, from, to) in
        [(1, "172.31.4.22:0", "172.31.3.21:4800"), (2, "[fd31:4::22]:0", "[fd31:3::21]:4800")]
    {
        eventually(&format!("{from} by the pod's device is dropped"), || {
            send(&lab, "pod-w1", from, to);
            lab.counter("w1", "trieste", "strangers") >= count
        });
    }
    assert_eq!(received(&lab), 0);
    // The node itself, by the way that leads to it, in both families.
    let before = lab.counter("w1", "trieste", "strangers");
    for (from, to) in [("172.31.4.22:0", "172.31.3.21:4800"), ("[fd31:4::22]:0", "[fd31:3::21]:4800")] {
        let had = received(&lab);
        eventually(&format!("{from} is heard"), || {
            send(&lab, "w2", from, to);
            received(&lab) > had
        });
    }
    assert_eq!(lab.counter("w1", "trieste", "strangers"), before);
}

#[test]
fn no_address_of_a_node_is_reached_from_pods_and_pods_have_the_port_among_themselves() {
    let Some(lab) = open_cluster() else { return };
    // An address that no Node object names: a virtual one, or another card's.
    lab.address("w1", "lo", &["198.51.100.7/32"]);
    lab.ip("wan", &["route", "add", "198.51.100.7/32", "via", "172.31.3.21"]);
    for (count, from, to) in [(1, "10.1.4.10:0", "198.51.100.7:4800"), (2, "10.1.4.10:0", "10.1.3.1:4800")] {
        send(&lab, "pod-w2", from, to);
        eventually(&format!("{to} is not reached"), || {
            let dropped = |place| lab.counter(place, "trieste", "strangers");
            dropped("w1") + dropped("w2") == count
        });
    }
    assert_eq!(received(&lab), 0);

    let at: SocketAddr = "10.1.3.10:4800".parse().unwrap();
    let listener = lab.inside("pod-w1", || UdpSocket::bind(at)).unwrap();
    listener.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    eventually("a pod hears a pod at this port", || {
        send(&lab, "pod-w2", "10.1.4.10:0", "10.1.3.10:4800");
        matches!(listener.recv_from(&mut [0; 32]), Ok((_, sender)) if sender.ip().to_string() == "10.1.4.10")
    });
}

/// A cluster whose workers' other filters drop nothing, and count what reaches the port in the end.
fn open_cluster() -> Option<Lab> {
    let lab = cluster()?;
    install(&lab);
    for place in ["w1", "w2"] {
        for program in ["iptables-nft", "ip6tables-nft"] {
            for chain in ["INPUT", "FORWARD"] {
                lab.run(place, program, &["-P", chain, "ACCEPT"]);
            }
        }
    }
    // Told by its length from what the nodes' own VXLAN devices send at any time: listener reports and solicitations.
    let rule = format!("udp dport 4800 udp length {}", 8 + NOT_EVEN_VXLAN.len());
    lab.nft(
        "w1",
        &format!(
            "table inet seen {{ counter vxlan {{ }}; \
             chain in {{ type filter hook input priority 300; {rule} counter name vxlan; }}; }}"
        ),
    );
    Some(lab)
}

/// How many packets of [`send`] came to w1's VXLAN.
fn received(lab: &Lab) -> u64 {
    lab.counter("w1", "seen", "vxlan")
}

fn send(lab: &Lab, place: &str, from: &str, to: &str) {
    let (from, to): (SocketAddr, SocketAddr) = (from.parse().unwrap(), to.parse().unwrap());
    let socket = lab.inside(place, || UdpSocket::bind(from)).unwrap();
    // A refusal is an answer to an earlier packet.
    let _ = socket.send_to(NOT_EVEN_VXLAN, to);
}
