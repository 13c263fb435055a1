//! UDP sockets against the real kernel, over loopback. No test needs root.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use trieste_io::udp::steering::{self, Key};
use trieste_io::{Error, Offloads, PacketIo, UdpConfig, UdpIo};
use trieste_packet::{CableId, DropReason, Layout, LayoutKind, Outer, Packet};

use crate::support::{Side, noise};

const LOOPBACKS: [&str; 2] = ["127.0.0.1", "::1"];

fn open(gso: bool, gro: bool) -> UdpIo {
    UdpIo::open(&UdpConfig { gso, gro, ..UdpConfig::new(0) }).unwrap()
}

fn at(host: &str, io: &UdpIo) -> SocketAddr {
    SocketAddr::new(host.parse().unwrap(), io.port().unwrap())
}

fn outer(peer: SocketAddr) -> Outer {
    Outer { peer, local: None, tos: 0 }
}

fn datagrams(packets: &[Packet]) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for packet in packets {
        if packet.layout.kind == LayoutKind::Single {
            all.push(packet.bytes().to_vec());
        } else {
            all.extend(packet.bytes().chunks(packet.layout.stride_bytes.into()).map(<[u8]>::to_vec));
        }
    }
    all
}

#[test]
fn trains_cross_whole_or_cut_and_carry_the_same_datagrams() {
    for (gso, gro) in [(true, true), (true, false), (false, true), (false, false)] {
        for host in LOOPBACKS {
            let (mut near, mut far) = (open(gso, gro), open(gso, gro));
            let (mut from, mut to) = (Side::new(), Side::new());
            let bytes = noise(1, 40 * 1000 + 300);
            let packet = from.push(&bytes);
            packet.layout = Layout::datagrams(1000, 41);
            packet.outer = Outer { tos: 0xb9, ..outer(at(host, &far)) };
            assert_eq!(from.send(&mut near), 41);
            from.assert_nothing_leaked();

            let packets = recv(&mut to, &mut far, 41);
            assert_eq!(datagrams(&packets).concat(), bytes, "{host} gso {gso} gro {gro}");
            assert!(datagrams(&packets).iter().take(40).all(|one| one.len() == 1000));
            for packet in &packets {
                assert_eq!(packet.outer.peer, at(host, &near));
                assert_eq!(packet.outer.local, Some(host.parse().unwrap()));
                assert_eq!(packet.outer.tos, 0xb9);
            }
            if gso && gro {
                assert_eq!(packets.len(), 1, "the kernel hands the train over whole");
            }
            if !gro {
                assert_eq!(packets.len(), 41);
            }
        }
    }
}

fn recv(side: &mut Side, io: &mut UdpIo, count: usize) -> Vec<Packet> {
    let other = io.try_clone().unwrap();
    side.recv(io, other.fds(), count)
}

#[test]
fn switched_off_offloads_are_said() {
    let io = open(false, true);
    assert_eq!(io.capabilities().offloads, Offloads::UDP_GRO);
    let features: Vec<_> = io.fallbacks().iter().map(|fallback| fallback.feature).collect();
    assert!(features.contains(&"udp-gso") && !features.contains(&"udp-gro"), "{features:?}");
    assert_eq!(open(true, true).capabilities().offloads, Offloads::UDP);
}

#[test]
fn answers_leave_from_the_address_that_was_asked() {
    let (mut near, mut far) = (open(true, true), open(true, true));
    let (mut from, mut to) = (Side::new(), Side::new());
    from.push(b"question").outer = outer(at("127.0.0.7", &far));
    from.send(&mut near);
    let question = recv(&mut to, &mut far, 1).remove(0);
    assert_eq!(question.outer.local, Some("127.0.0.7".parse().unwrap()));

    to.push(b"answer").outer = Outer { tos: 2, ..question.outer };
    to.send(&mut far);
    let answer = recv(&mut from, &mut near, 1).remove(0);
    assert_eq!(
        answer.outer,
        Outer { peer: at("127.0.0.7", &far), local: Some("127.0.0.1".parse().unwrap()), tos: 2 }
    );
}

#[test]
fn an_address_that_is_gone_is_forgotten_and_the_packet_goes_on() {
    for (host, gone) in [("127.0.0.1", "192.0.2.77"), ("::1", "2001:db8::77")] {
        let (mut near, mut far) = (open(true, true), open(true, true));
        let (mut from, mut to) = (Side::new(), Side::new());
        let packet = from.push(&noise(2, 2500));
        packet.layout = Layout::datagrams(1000, 3);
        packet.outer = Outer { local: Some(gone.parse().unwrap()), ..outer(at(host, &far)) };
        assert_eq!(from.send(&mut near), 3);
        assert_eq!(datagrams(&recv(&mut to, &mut far, 3)).concat(), noise(2, 2500));
        assert_eq!(near.capabilities().offloads, Offloads::UDP, "this says nothing about offload");
    }
}

#[test]
fn many_peers_of_both_families_share_a_batch() {
    let mut near = open(true, true);
    let mut far: Vec<UdpIo> = (0..10).map(|_| open(true, true)).collect();
    let mut from = Side::new();
    for round in 0..3u8 {
        for (index, io) in far.iter().enumerate() {
            let packet = from.push(&noise(index as u64, 1500));
            packet.buf.bytes_mut()[0] = round;
            packet.layout = Layout::datagrams(700, 3);
            packet.outer = outer(at(LOOPBACKS[(index + usize::from(round)) % 2], io));
        }
    }
    assert_eq!(from.send(&mut near), 90);
    assert!(near.blocked().is_none());
    for (index, io) in far.iter_mut().enumerate() {
        let mut to = Side::new();
        let mut got = datagrams(&recv(&mut to, io, 9));
        got.sort_by_key(|one| one.len());
        assert_eq!(got.iter().filter(|one| one[..] == noise(index as u64, 1500)[1400..]).count(), 3);
    }
    from.assert_nothing_leaked();
}

#[test]
fn what_the_kernel_refuses_is_counted_under_its_cable_and_the_rest_goes_on() {
    let (mut near, mut far) = (open(true, true), open(true, true));
    let (mut from, mut to) = (Side::new(), Side::new());
    let peer = at("127.0.0.1", &far);
    from.push(b"first").outer = outer(peer);
    let huge = from.push(&noise(3, 66_000));
    huge.outer = outer(peer);
    huge.decision.cable = CableId(3);
    from.push(b"second").outer = outer(peer);
    let train = from.push(&noise(4, 3000));
    train.layout = Layout::train(LayoutKind::Tcp, 40, 1000, 3);
    train.outer = outer(peer);
    train.decision.cable = CableId(4);
    from.push(b"third").outer = outer(peer);

    assert_eq!(from.send(&mut near), 3);
    assert!(from.batch.is_empty());
    let counted: Vec<_> = from.drops.iter().collect();
    assert_eq!(counted, [(CableId(3), DropReason::SocketWrite, 1), (CableId(4), DropReason::SocketWrite, 3)]);
    assert_eq!(datagrams(&recv(&mut to, &mut far, 3)), [&b"first"[..], b"second", b"third"]);
    from.assert_nothing_leaked();
}

#[test]
fn a_family_without_a_socket_is_counted() {
    let mut near = UdpIo::open(&UdpConfig { ipv6: None, ..UdpConfig::new(0) }).unwrap();
    let mut from = Side::new();
    from.push(b"lost").outer = outer("[::1]:9".parse().unwrap());
    assert_eq!(from.send(&mut near), 0);
    assert_eq!(from.drops.of(DropReason::SocketWrite), 1);
    assert_eq!(near.fds().count(), 1);
}

#[test]
fn long_and_odd_trains_are_cut_to_what_the_kernel_takes() {
    // More segments than one message takes, more bytes than one message takes, one byte each, nothing at all.
    for (bytes, stride) in [(200 * 100, 100u16), (66_000, 1400), (130, 1), (66_001, 33_000)] {
        let (mut near, mut far) = (open(true, true), open(true, true));
        let (mut from, mut to) = (Side::new(), Side::new());
        let count = usize::div_ceil(bytes, usize::from(stride));
        let packet = from.push(&noise(5, bytes));
        packet.layout = Layout::datagrams(stride, u16::try_from(count).unwrap());
        packet.outer = outer(at("127.0.0.1", &far));
        assert_eq!(from.send(&mut near), count, "{bytes} by {stride}");
        let got = datagrams(&recv(&mut to, &mut far, count));
        assert_eq!(got.concat(), noise(5, bytes));
        assert!(got[..count - 1].iter().all(|one| one.len() == usize::from(stride)));
    }
}

#[test]
fn an_empty_datagram_is_a_datagram() {
    let (mut near, mut far) = (open(true, true), open(true, true));
    let (mut from, mut to) = (Side::new(), Side::new());
    from.push(b"").outer = outer(at("::1", &far));
    assert_eq!(from.send(&mut near), 1);
    assert_eq!(recv(&mut to, &mut far, 1)[0].bytes(), b"");
}

#[test]
fn datagrams_longer_than_a_buffer_are_counted() {
    let (mut near, mut far) = (open(true, true), open(true, true));
    let (mut from, mut to) = (Side::new(), Side::new());
    to.pool = trieste_packet::Pool::new(trieste_packet::PoolConfig { slots: 4, slot_bytes: 512 });
    from.push(&noise(6, 1000)).outer = outer(at("127.0.0.1", &far));
    from.push(b"short").outer = outer(at("127.0.0.1", &far));
    from.send(&mut near);
    let packets = recv(&mut to, &mut far, 2);
    assert_eq!(datagrams(&packets), [b"short"]);
    assert_eq!(to.drops.of(DropReason::NoBuffer), 1);
    drop(packets);
    to.assert_nothing_leaked();
}

#[test]
fn without_buffers_datagrams_wait_in_the_kernel() {
    let (mut near, mut far) = (open(true, true), open(true, true));
    let (mut from, mut to) = (Side::new(), Side::new());
    from.push(b"patient").outer = outer(at("127.0.0.1", &far));
    from.send(&mut near);
    let taken: Vec<_> = std::iter::from_fn(|| to.pool.alloc()).collect();
    assert_eq!(far.recv(&mut to.pool, &mut to.batch, &mut to.drops).unwrap(), 0);
    drop(taken);
    assert_eq!(datagrams(&recv(&mut to, &mut far, 1)), [b"patient"]);
}

#[test]
fn nobody_listening_does_not_disturb_the_socket() {
    let (mut near, mut far) = (open(true, true), open(true, true));
    let (mut from, mut to) = (Side::new(), Side::new());
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for _ in 0..3 {
        // The port is closed by now, and an ICMP error comes back for each.
        from.push(b"into the void").outer = outer(silent);
        from.push(b"heard").outer = outer(at("127.0.0.1", &far));
        assert_eq!(from.send(&mut near), 2);
    }
    assert_eq!(recv(&mut to, &mut far, 3).len(), 3);
    to.push(b"back").outer = outer(at("127.0.0.1", &near));
    to.send(&mut far);
    assert_eq!(recv(&mut from, &mut near, 1).len(), 1);
}

#[test]
fn a_taken_port_is_named() {
    for workers in [1, 2] {
        let first = UdpIo::open_group(&UdpConfig::new(0), workers).unwrap();
        let port = first[0].port().unwrap();
        for again in [1, 2] {
            let error = UdpIo::open_group(&UdpConfig::new(port), again).unwrap_err();
            assert!(matches!(error, Error::PortInUse(_)), "{error}");
            assert!(error.to_string().contains(&port.to_string()));
        }
    }
    assert!(matches!(UdpIo::open_group(&UdpConfig::new(0), 0), Err(Error::Count { .. })));
}

#[test]
fn vxlan_is_shared_out_by_where_it_comes_from() {
    let mut group = UdpIo::open_group(&UdpConfig::new(0), 2).unwrap();
    UdpIo::carry_vxlan(&mut group);
    let port = group[0].port().unwrap();
    // As WireGuard's data it would go to one worker.
    let datagram = [4, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    let senders: Vec<_> = (0..64).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
    for sender in &senders {
        sender.send_to(&datagram, ("127.0.0.1", port)).unwrap();
    }
    let mut counts = Vec::new();
    for io in &mut group {
        let (mut side, mut count) = (Side::new(), 0);
        while io.recv(&mut side.pool, &mut side.batch, &mut side.drops).unwrap() > 0 {
            count += side.batch.segments();
            for packet in side.batch.drain() {
                side.pool.recycle(packet.buf);
            }
        }
        counts.push(count);
    }
    assert_eq!(counts.iter().sum::<u64>(), 64);
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
}

#[test]
fn datagrams_reach_the_worker_that_owns_the_lane() {
    const WORKERS: u32 = 3;
    let mut group = UdpIo::open_group(&UdpConfig::new(0), WORKERS as usize).unwrap();
    let fallbacks = group[0].fallbacks();
    assert!(fallbacks.iter().all(|fallback| fallback.feature != "steering"), "{fallbacks:?}");
    let mut near = open(false, true);
    let (mut from, mut sides) = (Side::new(), [Side::new(), Side::new(), Side::new()]);

    let mut expected = [0usize; WORKERS as usize];
    for kind in 0..6u8 {
        for index in [0u32, 0x100, 0x2ff, 0x1_0000, 0x01ff_fe00, 0x0100_0000, 0xffff_ffff, 0x0003_0142] {
            let mut message = [0u8; 16];
            message[0] = kind;
            let place = if kind == 2 { 8 } else { 4 };
            message[place..place + 4].copy_from_slice(&index.to_le_bytes());
            let worker = steering::worker_of(Key::ReceiverIndex, &message, WORKERS);
            if (2..=4).contains(&kind) {
                assert_eq!(worker, (index >> 8 & 0xff) % WORKERS);
            } else {
                assert_eq!(worker, 0);
            }
            expected[worker as usize] += 1;
            let host = LOOPBACKS[usize::from(kind % 2)];
            from.push(&message).outer = outer(at(host, &group[0]));
        }
        from.send(&mut near);
    }
    for short in [&b""[..], &[4], &[4, 0, 0, 0, 0, 9, 9], &[2, 0, 0, 0, 0, 9, 9, 9, 9, 9]] {
        assert_eq!(steering::worker_of(Key::ReceiverIndex, short, WORKERS), 0);
        expected[0] += 1;
        from.push(short).outer = outer(at("127.0.0.1", &group[0]));
    }
    from.send(&mut near);

    for (worker, (io, side)) in group.iter_mut().zip(&mut sides).enumerate() {
        for packet in recv(side, io, expected[worker]) {
            assert_eq!(steering::worker_of(Key::ReceiverIndex, packet.bytes(), WORKERS) as usize, worker);
        }
        assert_eq!(io.recv(&mut side.pool, &mut side.batch, &mut side.drops).unwrap(), 0);
    }
}

#[test]
fn inherited_sockets_go_on_where_they_were() {
    let v4 = UdpSocket::bind("127.0.0.1:0").unwrap();
    let v6 = UdpSocket::bind("[::1]:0").unwrap();
    let (a, b) = (v4.local_addr().unwrap(), v6.local_addr().unwrap());
    let mut far = UdpIo::adopt([v6.into(), v4.into()], &UdpConfig::new(0)).unwrap();
    let mut near = open(true, true);
    let (mut from, mut to) = (Side::new(), Side::new());
    from.push(b"four").outer = outer(a);
    from.push(b"six").outer = outer(b);
    from.send(&mut near);
    let mut locals: Vec<_> = recv(&mut to, &mut far, 2).iter().map(|packet| packet.outer.local).collect();
    locals.sort();
    assert_eq!(locals, LOOPBACKS.map(|host| Some(host.parse::<IpAddr>().unwrap())));

    let twice =
        [UdpSocket::bind("127.0.0.1:0").unwrap().into(), UdpSocket::bind("127.0.0.1:0").unwrap().into()];
    assert!(matches!(UdpIo::adopt(twice, &UdpConfig::new(0)), Err(Error::Inherited(_))));
    let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    assert!(matches!(UdpIo::adopt([tcp.into()], &UdpConfig::new(0)), Err(Error::Inherited(_))));
}
