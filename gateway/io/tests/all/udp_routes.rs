//! UDP sockets where routes, neighbours and MTUs matter, each in a network namespace of its own. Needs root.

use std::time::Duration;

use trieste_io::poll::{Interest, Poller};
use trieste_io::udp::OuterFragments;
use trieste_io::{PacketIo as _, UdpConfig, UdpIo, link};
use trieste_packet::{CableId, DropReason, Layout, Outer, Packet};

use crate::support::{self, Namespace, Side, noise};

fn open(namespace: &Namespace, config: UdpConfig) -> UdpIo {
    namespace.run(move || UdpIo::open(&config).unwrap())
}

fn to(peer: &str) -> Outer {
    Outer { peer: peer.parse().unwrap(), ..Outer::NONE }
}

fn recv(side: &mut Side, io: &mut UdpIo, count: usize) -> Vec<Packet> {
    let other = io.try_clone().unwrap();
    side.recv(io, other.fds(), count)
}

#[test]
fn a_full_socket_keeps_the_rest_of_the_batch_until_there_is_room() {
    let Some(namespace) = Namespace::new() else { return };
    namespace.ip("link add va type veth peer name vb");
    for command in ["link set va up", "link set vb up", "addr add 10.79.0.1/24 dev va"] {
        namespace.ip(command);
    }
    // Packets for a neighbour that does not answer wait in the kernel, on the socket's account.
    for gso in [true, false] {
        namespace.ip("neigh flush dev va");
        let mut near = open(&namespace, UdpConfig { buffer_bytes: 1, gso, ipv6: None, ..UdpConfig::new(0) });
        let mut side = Side::new();
        for _ in 0..30 {
            let packet = side.push(&noise(1, 2100));
            packet.layout = Layout::datagrams(1000, 3);
            packet.outer = to("10.79.0.2:9");
        }
        let sent = side.send(&mut near);
        assert!(sent > 0 && !side.batch.is_empty(), "{sent} sent");
        assert_eq!(side.drops.total(), 0);
        let left: u64 = side.batch.segments();
        assert_eq!(sent as u64 + left, 90);
        assert_eq!(side.send(&mut near), 0, "still full");

        let mut poller = Poller::new().unwrap();
        poller.add(near.blocked().expect("says which socket"), 1, Interest::Writable).unwrap();
        assert!(poller.wait(Some(Duration::ZERO)).unwrap().is_empty());
        let mac = "02:00:00:00:00:02";
        namespace.ip(&format!("neigh replace 10.79.0.2 lladdr {mac} dev va nud permanent"));
        let mut all = sent;
        while !side.batch.is_empty() {
            assert!(poller.wait(Some(support::PATIENCE)).unwrap().is_writable(1), "room in the end");
            all += side.send(&mut near);
        }
        assert_eq!((all, side.drops.total()), (90, 0));
        assert!(near.blocked().is_none());
        side.assert_nothing_leaked();
        namespace.ip("neigh del 10.79.0.2 dev va");
    }
}

#[test]
fn larger_than_the_link_is_fragmented_or_counted_as_configured() {
    let Some(namespace) = Namespace::new() else { return };
    namespace.run(|| link::set_mtu("lo", 1500).unwrap());
    for host in ["127.0.0.1", "[::1]"] {
        for fragments in [OuterFragments::Allowed, OuterFragments::Forbidden] {
            let mut near = open(&namespace, UdpConfig { fragments, ..UdpConfig::new(0) });
            let mut far = open(&namespace, UdpConfig::new(0));
            let peer = format!("{host}:{}", far.port().unwrap());
            let (mut from, mut side) = (Side::new(), Side::new());
            from.push(b"first").outer = to(&peer);
            // A train whose segments are too large, then one that fits, and a large single datagram.
            let train = from.push(&noise(2, 3 * 2000));
            train.layout = Layout::datagrams(2000, 3);
            train.outer = to(&peer);
            train.decision.cable = CableId(5);
            let fitting = from.push(&noise(3, 3 * 1000));
            fitting.layout = Layout::datagrams(1000, 3);
            fitting.outer = to(&peer);
            from.push(&noise(4, 1700)).outer = to(&peer);
            from.push(b"last").outer = to(&peer);
            let sent = from.send(&mut near);
            assert!(from.batch.is_empty());
            let is_allowed = fragments == OuterFragments::Allowed;
            assert_eq!(sent, if is_allowed { 9 } else { 5 }, "{host} {fragments:?}");
            let counted: Vec<_> = from.drops.iter().collect();
            if is_allowed {
                assert_eq!(counted, []);
            } else {
                let reason = DropReason::SocketWrite;
                assert_eq!(counted, [(CableId(0), reason, 1), (CableId(5), reason, 3)]);
            }
            let bytes: usize = recv(&mut side, &mut far, sent).iter().map(|packet| packet.buf.len()).sum();
            assert_eq!(bytes, 5 + 3000 + 4 + if is_allowed { 6000 + 1700 } else { 0 });
            from.assert_nothing_leaked();
        }
    }
}

#[test]
fn no_route_is_counted_and_the_rest_goes_on() {
    let Some(namespace) = Namespace::new() else { return };
    let mut near = open(&namespace, UdpConfig::new(0));
    let mut far = open(&namespace, UdpConfig::new(0));
    let port = far.port().unwrap();
    let (mut from, mut side) = (Side::new(), Side::new());
    for peer in ["203.0.113.1:9", "[2001:db8::1]:9", &format!("127.0.0.1:{port}"), &format!("[::1]:{port}")] {
        from.push(b"somewhere").outer = Outer { tos: 0x2e, ..to(peer) };
    }
    assert_eq!(from.send(&mut near), 2);
    assert_eq!(from.drops.of(DropReason::SocketWrite), 2);
    assert_eq!(recv(&mut side, &mut far, 2).len(), 2);
}

#[test]
fn sockets_carry_their_mark() {
    let Some(namespace) = Namespace::new() else { return };
    // Marked packets find a table that says the destination is unreachable.
    for command in
        ["rule add fwmark 0x00540000/0x00ff0000 lookup 77 pref 1", "route add unreachable default table 77"]
    {
        namespace.ip(command);
    }
    namespace.ip("link add va type veth peer name vb");
    for command in ["link set va up", "link set vb up", "addr add 10.79.0.1/24 dev va"] {
        namespace.ip(command);
    }
    for (mark, sent) in [(None, 1), (Some(0x0054_0000), 0)] {
        let mut near = open(&namespace, UdpConfig { mark, ipv6: None, ..UdpConfig::new(0) });
        let mut side = Side::new();
        side.push(b"marked?").outer = to("10.79.0.2:9");
        assert_eq!(side.send(&mut near), sent, "{mark:?}");
        assert_eq!(near.fallbacks(), []);
    }
}
