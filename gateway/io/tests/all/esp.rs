//! Raw ESP (IP protocol 50) against the real kernel, each test in a network namespace of its own. Needs root.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, ipproto, sockopt};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use trieste_io::poll::{Interest, Poller};
use trieste_io::udp::OuterFragments;
use trieste_io::udp::steering::{self, Key};
use trieste_io::{Offloads, PacketIo as _, UdpConfig, UdpIo, link};
use trieste_packet::{CableId, DropReason, Layout, Outer, Packet};

use crate::support::{self, Namespace, Side, noise};

/// Two addresses of the loopback interface for each family: what is bound to one does not see the other's packets.
const PAIRS: [(&str, &str); 2] = [("127.0.0.1", "127.0.0.2"), ("fd00::1", "fd00::2")];

fn namespace() -> Option<Namespace> {
    let namespace = Namespace::new()?;
    for (here, there) in PAIRS {
        for address in [here, there].into_iter().filter(|address| address.contains(':')) {
            namespace.ip(&format!("addr add {address}/128 dev lo nodad"));
            // The kernel makes the address reachable a little after the command has returned.
            while !namespace.ip(&format!("route get {address}")).starts_with("local") {}
        }
    }
    Some(namespace)
}

fn bound_to(host: &str) -> UdpConfig {
    let (mut config, host) = (UdpConfig::new(0), host.parse().unwrap());
    (config.ipv4, config.ipv6) = match host {
        IpAddr::V4(v4) => (Some(v4), None),
        IpAddr::V6(v6) => (None, Some(v6)),
    };
    config
}

fn open_group(namespace: &Namespace, config: UdpConfig, workers: usize) -> Vec<UdpIo> {
    namespace.run(move || {
        let mut group = UdpIo::open_group(&config, workers).unwrap();
        UdpIo::carry_esp(&mut group, &config);
        group
    })
}

fn open(namespace: &Namespace, config: UdpConfig) -> UdpIo {
    let io = open_group(namespace, config, 1).remove(0);
    let features: Vec<_> = io.fallbacks().iter().map(|fallback| fallback.feature).collect();
    assert!(!features.iter().any(|feature| feature.starts_with("raw-esp")), "{:?}", io.fallbacks());
    io
}

fn to(host: &str) -> Outer {
    Outer { peer: SocketAddr::new(host.parse().unwrap(), 0), ..Outer::NONE }
}

fn recv(side: &mut Side, io: &mut UdpIo, count: usize) -> Vec<Packet> {
    let other = io.try_clone().unwrap();
    side.recv(io, other.fds(), count)
}

/// A raw socket of the standard kind, bound to `host`.
fn plain(namespace: &Namespace, host: &str) -> OwnedFd {
    let host: IpAddr = host.parse().unwrap();
    namespace.run(move || {
        let family = if host.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket = rustix::net::socket(family, SocketType::RAW, Some(ipproto::ESP)).unwrap();
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(support::PATIENCE)).unwrap();
        rustix::net::bind(&socket, &SocketAddr::new(host, 0)).unwrap();
        socket
    })
}

#[test]
fn trains_leave_as_single_packets_and_answers_come_from_the_address_that_was_asked() {
    let Some(namespace) = namespace() else { return };
    for (here, there) in PAIRS {
        let mut near = open(&namespace, bound_to(here));
        let mut far = open(&namespace, bound_to(there));
        let (mut from, mut back) = (Side::new(), Side::new());
        for ecn in 0..4 {
            let bytes = noise(1, 2 * 1000 + 300);
            let packet = from.push(&bytes);
            packet.layout = Layout::datagrams(1000, 3);
            packet.outer = Outer { tos: 0xb8 | ecn, ..to(there) };
            assert_eq!(from.send(&mut near), 3);
            let packets = recv(&mut back, &mut far, 3);
            let lengths: Vec<_> = packets.iter().map(|packet| packet.buf.len()).collect();
            assert_eq!(lengths, [1000, 1000, 300]);
            let joined: Vec<u8> = packets.iter().flat_map(|packet| packet.bytes()).copied().collect();
            assert_eq!(joined, bytes, "{here}: the packet begins behind the IP header");
            for packet in &packets {
                let expected = Outer { local: Some(there.parse().unwrap()), tos: 0xb8 | ecn, ..to(here) };
                assert_eq!(packet.outer, expected);
            }
            back.push(b"\x01\x02\x03\x04 back").outer = packets[0].outer;
            assert_eq!(back.send(&mut far), 1);
            let answer = recv(&mut from, &mut near, 1).remove(0);
            assert_eq!(answer.bytes(), b"\x01\x02\x03\x04 back");
            let expected = Outer { local: Some(here.parse().unwrap()), tos: 0xb8 | ecn, ..to(there) };
            assert_eq!(answer.outer, expected);
        }
        from.assert_nothing_leaked();
        back.assert_nothing_leaked();
    }
}

#[test]
fn packets_leave_from_the_chosen_one_of_several_addresses() {
    let Some(namespace) = namespace() else { return };
    // The chosen ones are not those that the kernel would choose.
    for (there, chosen, gone) in
        [("127.0.0.2", "127.0.0.9", "192.0.2.7"), ("fd00::2", "fd00::1", "2001:db8::7")]
    {
        let mut far = open(&namespace, bound_to(there));
        let mut near = open(&namespace, UdpConfig::new(0));
        let mut from = Side::new();
        for local in [chosen, gone] {
            from.push(local.as_bytes()).outer = Outer { local: Some(local.parse().unwrap()), ..to(there) };
        }
        assert_eq!(from.send(&mut near), 2);
        let packets = recv(&mut Side::new(), &mut far, 2);
        assert_eq!((packets[0].bytes(), packets[0].outer.peer), (chosen.as_bytes(), to(chosen).peer));
        assert_eq!(packets[1].bytes(), gone.as_bytes(), "an address that is gone is forgotten");
        assert_ne!(packets[1].outer.peer, to(chosen).peer);
    }
}

#[test]
fn a_plain_raw_socket_sees_protocol_50_and_is_heard() {
    let Some(namespace) = namespace() else { return };
    for (here, there) in PAIRS {
        let mut near = open(&namespace, bound_to(here));
        let peer = plain(&namespace, there);
        let mut side = Side::new();
        side.push(b"\xc1\x43\xa4\x13 esp").outer = Outer { tos: 0x2d, ..to(there) };
        assert_eq!(side.send(&mut near), 1);
        let mut bytes = [0; 100];
        let (len, _, from) = rustix::net::recvfrom(&peer, &mut bytes, RecvFlags::empty()).unwrap();
        let payload = if here.contains(':') {
            &bytes[..len]
        } else {
            let header = &bytes[..20];
            assert_eq!((header[0], header[1], header[9]), (0x45, 0x2d, 50), "IPv4, TOS, protocol");
            assert_eq!(header[6] & 0x40, 0, "without DF");
            &bytes[20..len]
        };
        assert_eq!(payload, b"\xc1\x43\xa4\x13 esp");
        assert_eq!(SocketAddr::try_from(from.unwrap()).unwrap().ip(), here.parse::<IpAddr>().unwrap());

        if here.contains(':') {
            sockopt::set_ipv6_tclass(&peer, 0x03).unwrap();
        } else {
            sockopt::set_ip_tos(&peer, 0x03).unwrap();
        }
        rustix::net::sendto(&peer, b"\0\0\x01\x01 esp", SendFlags::empty(), &to(here).peer).unwrap();
        let heard = recv(&mut side, &mut near, 1).remove(0);
        assert_eq!(heard.bytes(), b"\0\0\x01\x01 esp");
        assert_eq!(heard.outer, Outer { local: Some(here.parse().unwrap()), tos: 3, ..to(there) });
    }
}

#[test]
fn both_protocols_and_families_share_a_batch() {
    let Some(namespace) = namespace() else { return };
    let (mut near, mut far) = (open(&namespace, UdpConfig::new(0)), open(&namespace, UdpConfig::new(0)));
    let port = far.port().unwrap();
    let mut from = Side::new();
    let mut expected = Vec::new();
    for round in 0..40u8 {
        let host = ["127.0.0.2", "fd00::2"][usize::from(round / 2 % 2)];
        let port = if round % 2 == 0 { 0 } else { port };
        let packet = from.push(&[round; 600]);
        packet.layout = Layout::datagrams(200, 3);
        packet.outer.peer = SocketAddr::new(host.parse().unwrap(), port);
        expected.push((round, port == 0));
    }
    assert_eq!(from.send(&mut near), 120);
    let mut seen = Vec::new();
    for packet in recv(&mut Side::new(), &mut far, 120) {
        let is_raw = packet.outer.peer.port() == 0;
        assert!(packet.bytes().chunks(200).all(|one| one.len() == 200));
        for bytes in packet.bytes().chunks(200) {
            seen.push((bytes[0], is_raw));
        }
    }
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen, expected);
    from.assert_nothing_leaked();
}

#[test]
fn larger_than_the_link_is_fragmented_or_counted_as_configured() {
    let Some(namespace) = namespace() else { return };
    namespace.run(|| link::set_mtu("lo", 1500).unwrap());
    for (here, there) in PAIRS {
        for fragments in [OuterFragments::Allowed, OuterFragments::Forbidden] {
            let mut near = open(&namespace, UdpConfig { fragments, ..bound_to(here) });
            let mut far = open(&namespace, bound_to(there));
            let mut from = Side::new();
            from.push(b"first").outer = to(there);
            let train = from.push(&noise(2, 2 * 4000 + 100));
            train.layout = Layout::datagrams(4000, 3);
            train.outer = Outer { tos: 2, ..to(there) };
            train.decision.cable = CableId(5);
            from.push(b"last").outer = to(there);
            let is_allowed = fragments == OuterFragments::Allowed;
            let sent = from.send(&mut near);
            assert!(from.batch.is_empty());
            assert_eq!(sent, if is_allowed { 5 } else { 3 }, "{here} {fragments:?}");
            let counted: Vec<_> = from.drops.iter().collect();
            let lost = [(CableId(5), DropReason::SocketWrite, 2)];
            assert_eq!(counted, if is_allowed { &[][..] } else { &lost });
            let packets = recv(&mut Side::new(), &mut far, sent);
            let lengths: Vec<_> = packets.iter().map(|packet| packet.buf.len()).collect();
            assert_eq!(lengths, if is_allowed { vec![5, 4000, 4000, 100, 4] } else { vec![5, 100, 4] });
            assert!(packets.iter().all(|packet| packet.buf.len() < 10 || packet.outer.tos == 2));
            from.assert_nothing_leaked();
        }
    }
}

#[test]
fn worker_0_alone_reads_and_every_worker_sends() {
    let Some(namespace) = namespace() else { return };
    let group = open_group(&namespace, UdpConfig::new(0), 3);
    let fds: Vec<_> = group.iter().map(|io| (io.fds().count(), io.send_only_fds().count())).collect();
    assert_eq!(fds, [(4, 0), (2, 2), (2, 2)]);
    for (here, there) in PAIRS {
        let mut far = open_group(&namespace, bound_to(there), 3);
        let mut near = open(&namespace, bound_to(here));
        let (mut side, mut sides) = (Side::new(), [Side::new(), Side::new(), Side::new()]);
        for spi in 0..9u8 {
            side.push(&[0, 0, spi, 1, 9, 9]).outer = to(there);
        }
        assert_eq!(side.send(&mut near), 9);
        assert_eq!(recv(&mut sides[0], &mut far[0], 9).len(), 9);
        for (io, side) in far.iter_mut().zip(&mut sides) {
            side.push(b"from each").outer = Outer { local: Some(there.parse().unwrap()), ..to(here) };
            assert_eq!(side.send(io), 1);
        }
        assert_eq!(recv(&mut side, &mut near, 3).len(), 3);
        for (io, side) in far.iter_mut().zip(&mut sides).skip(1) {
            assert_eq!(io.recv(&mut side.pool, &mut side.batch, &mut side.drops).unwrap(), 0);
        }
    }
}

#[test]
fn esp_in_udp_reaches_the_worker_that_owns_the_lane() {
    const WORKERS: u32 = 3;
    let Some(namespace) = namespace() else { return };
    let mut group = open_group(&namespace, UdpConfig::new(0), 3);
    let mut near = open(&namespace, UdpConfig { gro: false, ..UdpConfig::new(0) });
    let port = group[0].port().unwrap();
    let (mut from, mut expected) = (Side::new(), [0usize; WORKERS as usize]);
    for lane in [0u32, 1, 2, 5, 0x0100, 0x02ff, 0x0004_0001, 0x00ff_fffe] {
        let mut packet = (lane << 8 | 7).to_be_bytes().to_vec();
        packet.extend([1; 20]);
        let worker = steering::worker_of(Key::Spi, &packet, WORKERS);
        assert_eq!(worker, (lane & 0xff) % WORKERS);
        expected[worker as usize] += 1;
        from.push(&packet).outer.peer = SocketAddr::new("127.0.0.1".parse().unwrap(), port);
    }
    // IKE behind its non-ESP marker, a keepalive, and nothing.
    for other in [&[0, 0, 0, 0, 9, 9, 9, 9, 9][..], &[0xff], &[]] {
        assert_eq!(steering::worker_of(Key::Spi, other, WORKERS), 0);
        expected[0] += 1;
        from.push(other).outer.peer = SocketAddr::new("::1".parse().unwrap(), port);
    }
    from.send(&mut near);
    for (io, count) in group.iter_mut().zip(expected) {
        assert_eq!(recv(&mut Side::new(), io, count).len(), count);
    }
}

#[test]
fn a_full_socket_keeps_the_rest_of_the_batch_until_there_is_room() {
    let Some(namespace) = namespace() else { return };
    namespace.ip("link add va type veth peer name vb");
    for command in ["link set va up", "link set vb up", "addr add 10.79.0.1/24 dev va"] {
        namespace.ip(command);
    }
    // Packets for a neighbour that does not answer wait in the kernel, on the socket's account.
    let config = UdpConfig { buffer_bytes: 1, ipv6: None, ..UdpConfig::new(0) };
    let mut group = open_group(&namespace, config, 2);
    let mut near = group.remove(1);
    let mut side = Side::new();
    for _ in 0..30 {
        let packet = side.push(&noise(1, 2100));
        packet.layout = Layout::datagrams(1000, 3);
        packet.outer = to("10.79.0.2");
    }
    let mut all = side.send(&mut near);
    assert!(all > 0 && !side.batch.is_empty(), "{all} sent");
    assert_eq!(all as u64 + side.batch.segments(), 90);
    let mut poller = Poller::new().unwrap();
    poller.add(near.blocked().expect("says which socket"), 1, Interest::Writable).unwrap();
    assert!(poller.wait(Some(Duration::ZERO)).unwrap().is_empty());
    namespace.ip("neigh replace 10.79.0.2 lladdr 02:00:00:00:00:02 dev va nud permanent");
    while !side.batch.is_empty() {
        assert!(poller.wait(Some(support::PATIENCE)).unwrap().is_writable(1), "room in the end");
        all += side.send(&mut near);
    }
    assert_eq!((all, side.drops.total()), (90, 0));
    assert!(near.blocked().is_none());
    side.assert_nothing_leaked();
}

#[test]
fn what_the_kernel_refuses_is_counted_and_the_rest_goes_on() {
    let Some(namespace) = namespace() else { return };
    let mut near = open(&namespace, UdpConfig::new(0));
    let mut far = open(&namespace, bound_to("127.0.0.2"));
    let mut side = Side::new();
    // No route, no address at all, more than an IP packet holds.
    for lost in ["203.0.113.1", "2001:db8::1", "0.0.0.0", "::"] {
        side.push(b"lost").outer = to(lost);
    }
    side.push(&noise(3, 66_000)).outer = to("127.0.0.2");
    side.push(b"heard").outer = to("127.0.0.2");
    assert_eq!(side.send(&mut near), 1);
    assert_eq!(side.drops.of(DropReason::SocketWrite), 5);
    assert_eq!(recv(&mut Side::new(), &mut far, 1)[0].bytes(), b"heard");
    side.assert_nothing_leaked();
}

#[test]
fn raw_sockets_carry_the_mark() {
    let Some(namespace) = namespace() else { return };
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
        side.push(b"marked?").outer = to("10.79.0.2");
        assert_eq!(side.send(&mut near), sent, "{mark:?}");
    }
}

#[test]
fn without_the_capability_udp_goes_on_and_the_reason_is_said() {
    let Some(namespace) = Namespace::new() else { return };
    let mut io = namespace.run(|| {
        let mut sets = capabilities(None).unwrap();
        sets.effective.remove(CapabilitySet::NET_RAW);
        set_capabilities(None, sets).unwrap();
        let config = UdpConfig::new(0);
        let mut group = UdpIo::open_group(&config, 1).unwrap();
        UdpIo::carry_esp(&mut group, &config);
        group.remove(0)
    });
    for feature in ["raw-esp4", "raw-esp6"] {
        let fallback = io.fallbacks().iter().find(|fallback| fallback.feature == feature).unwrap();
        assert!(fallback.reason.contains("NET_RAW") && fallback.reason.contains("UDP"), "{fallback}");
    }
    assert_eq!(io.capabilities().offloads, Offloads::UDP);
    let mut side = Side::new();
    side.push(b"raw").outer = to("127.0.0.1");
    side.push(b"udp").outer.peer = SocketAddr::new("127.0.0.1".parse().unwrap(), io.port().unwrap());
    assert_eq!(side.send(&mut io), 1);
    assert_eq!(side.drops.of(DropReason::SocketWrite), 1);
    assert_eq!(recv(&mut side, &mut io, 1)[0].bytes(), b"udp");
}

#[test]
fn a_group_that_carries_esp_says_so_also_after_taking_over_inherited_sockets() {
    let Some(namespace) = Namespace::new() else { return };
    let config = UdpConfig::new(0);
    let raw = Offloads::RAW_ESP4.with(Offloads::RAW_ESP6);
    let before = open(&namespace, config.clone());
    assert_eq!(before.capabilities().offloads, Offloads::UDP.with(raw));
    let fds: Vec<OwnedFd> = before.fds().take(2).map(|fd| fd.try_clone_to_owned().unwrap()).collect();
    drop(before);
    let after = namespace.run(move || {
        let mut group = vec![UdpIo::adopt(fds, &config).unwrap()];
        assert_eq!(group[0].capabilities().offloads, Offloads::UDP);
        UdpIo::carry_esp(&mut group, &config);
        group.remove(0)
    });
    assert_eq!(after.capabilities().offloads, Offloads::UDP.with(raw));
}
