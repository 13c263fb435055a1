//! TUN devices against the real kernel, each in a network namespace of its own. Needs root.
//!
//! ```text
//!   kernel of the namespace ── 10.77.0.1, fd77::1 ── TUN ── the test, which plays 10.77.0.2 and fd77::2
//! ```

use std::fs;
use std::net::{Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

use etherparse::PacketBuilder;
use trieste_io::link::{self, Family};
use trieste_io::poll::{Interest, Poller};
use trieste_io::{Error, Offloads, PacketIo, Tun, TunConfig, TunQueue, UdpConfig, UdpIo, tun};
use trieste_packet::coalesce::coalesce;
use trieste_packet::wire::{Inner, Transport};
use trieste_packet::{CableId, Checksum, DropReason, Layout, LayoutKind, Outer, Packet, checksum};

use crate::skip::skip;
use crate::support::{Namespace, PATIENCE, Side, noise};

const NAME: &str = "tt0";
const TSO: Offloads = Offloads::CHECKSUM.with(Offloads::TSO4).with(Offloads::TSO6);

/// A device that is up and has addresses.
fn device(namespace: &Namespace, offloads: Offloads) -> TunQueue {
    let mut queue = namespace.run(move || {
        let config =
            TunConfig { offloads, is_persistent: false, mtu_bytes: Some(1500), ..TunConfig::new(NAME) };
        let tun = Tun::open(&config).unwrap();
        // No neighbour or router discovery of the kernel's own in between.
        tun.set_sysctl(Path::new("/proc/sys"), Family::Ipv6, "addr_gen_mode", "1").unwrap();
        tun.set_sysctl(Path::new("/proc/sys"), Family::Ipv6, "dad_transmits", "0").unwrap();
        tun.set_up(true).unwrap();
        tun.into_queues().remove(0)
    });
    namespace.ip(&format!("addr add 10.77.0.1/24 dev {NAME}"));
    namespace.ip(&format!("addr add fd77::1/64 dev {NAME} nodad"));
    namespace.run(|| wait_until_usable("[fd77::1]:0"));
    // Before it is in use, what it sends to itself comes to us.
    let mut side = Side::new();
    while queue.recv(&mut side.pool, &mut side.batch, &mut side.drops).unwrap() > 0 {
        side.batch.drain().for_each(drop);
    }
    queue
}

/// IPv6 takes an address into use, and its route, only after the link's state has gone round.
fn wait_until_usable(address: &str) {
    let deadline = Instant::now() + PATIENCE;
    let is_usable = || {
        let socket = UdpSocket::bind(address)?;
        socket.set_read_timeout(Some(Duration::from_millis(50)))?;
        socket.send_to(b"to myself", socket.local_addr()?)?;
        socket.recv(&mut [0; 16])
    };
    while let Err(error) = is_usable() {
        assert!(Instant::now() < deadline, "{address}: {error}");
        std::thread::yield_now();
    }
}

/// A child that another test starts holds our descriptors until it runs its program.
fn wait_until_gone(name: &str) {
    let deadline = Instant::now() + PATIENCE;
    while link::exists(name).unwrap() {
        assert!(Instant::now() < deadline, "{name} is still there");
        std::thread::yield_now();
    }
}

fn udp_packet(is_v6: bool, port: u16, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    if is_v6 {
        let (near, far) = ("fd77::1".parse::<Ipv6Addr>(), "fd77::2".parse::<Ipv6Addr>());
        PacketBuilder::ipv6(far.unwrap().octets(), near.unwrap().octets(), 64)
            .udp(9, port)
            .write(&mut bytes, payload)
            .unwrap();
    } else {
        PacketBuilder::ipv4([10, 77, 0, 2], [10, 77, 0, 1], 64)
            .udp(9, port)
            .write(&mut bytes, payload)
            .unwrap();
    }
    bytes
}

/// The UDP datagrams that `packets` stand for, whichever way they are cut.
fn payloads(packets: &[Packet]) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for packet in packets {
        let Ok(Inner { transport: Transport::Udp, transport_offset, .. }) = Inner::parse(packet.bytes())
        else {
            continue;
        };
        let header = usize::from(transport_offset) + 8;
        if packet.layout.kind == LayoutKind::Udp {
            assert_eq!(usize::from(packet.layout.header_bytes), header);
            let stride = usize::from(packet.layout.stride_bytes);
            all.extend(packet.bytes()[header..].chunks(stride).map(<[u8]>::to_vec));
        } else {
            all.push(packet.bytes()[header..].to_vec());
        }
    }
    all
}

#[test]
fn an_echo_request_is_answered_by_the_kernel() {
    for offloads in [Offloads::TUN, Offloads::NONE] {
        let Some(namespace) = Namespace::new() else { return };
        let mut queue = device(&namespace, offloads);
        let mut side = Side::new();
        let mut request = Vec::new();
        PacketBuilder::ipv4([10, 77, 0, 2], [10, 77, 0, 1], 64)
            .icmpv4_echo_request(7, 8)
            .write(&mut request, b"hello")
            .unwrap();
        side.push(&request);
        assert_eq!(side.send(&mut queue), 1);
        let fd = queue.try_clone().unwrap();
        let reply = side.recv(&mut queue, std::iter::once(fd.as_fd()), 1).remove(0);
        assert_eq!(&reply.bytes()[12..20], &[10, 77, 0, 1, 10, 77, 0, 2]);
        assert_eq!(&reply.bytes()[20..22], &[0, 0]);
        assert_eq!(&reply.bytes()[24..], &request[24..]);
        assert_eq!(reply.buf.headroom(), trieste_packet::pool::HEADROOM);
        drop(reply);
        side.assert_nothing_leaked();
    }
}

#[test]
fn udp_trains_come_whole_where_the_kernel_has_uso_and_cut_elsewhere() {
    for offloads in [Offloads::TUN, TSO, Offloads::CHECKSUM, Offloads::NONE] {
        for host in ["10.77.0.2:9", "[fd77::2]:9"] {
            let Some(namespace) = Namespace::new() else { return };
            let mut queue = device(&namespace, offloads);
            let negotiated = queue.offloads();
            let expected = offloads.without(negotiated);
            if !expected.is_empty() {
                skip(&format!("this kernel has no {expected:?}"));
            }
            let peer: SocketAddr = host.parse().unwrap();
            let bytes = noise(1, 30 * 1000 + 17);
            let mut socket = namespace.run(|| UdpIo::open(&UdpConfig::new(0)).unwrap());
            let mut from = Side::new();
            let train = from.push(&bytes);
            train.layout = Layout::datagrams(1000, 31);
            train.outer = Outer { peer, ..Outer::NONE };
            assert_eq!(from.send(&mut socket), 31);
            let mut side = Side::new();
            let fd = queue.try_clone().unwrap();
            let mut packets = side.recv(&mut queue, std::iter::once(fd.as_fd()), 31);
            assert_eq!(payloads(&packets).concat(), bytes);
            let has_trains = packets.iter().any(|packet| packet.layout.is_train());
            assert_eq!(has_trains, negotiated.contains(Offloads::USO4), "{offloads:?}");
            for packet in packets.iter_mut().filter(|packet| !packet.layout.is_train()) {
                if let Checksum::Partial { start, field } = packet.checksum {
                    assert!(negotiated.contains(Offloads::CHECKSUM));
                    assert!(checksum::finish_partial(packet.buf.bytes_mut(), start.into(), field.into()));
                }
                let start = Inner::parse(packet.bytes()).unwrap().transport_offset;
                assert!(checksum::transport_is_valid(packet.bytes(), start.into()));
            }
        }
    }
}

#[test]
fn opened_segments_reach_a_socket_as_one_train_or_cut() {
    for offloads in [Offloads::TUN, TSO, Offloads::CHECKSUM, Offloads::NONE] {
        for is_v6 in [false, true] {
            let Some(namespace) = Namespace::new() else { return };
            let mut queue = device(&namespace, offloads);
            let socket = namespace.run(move || {
                let any = if is_v6 { "[::]:0" } else { "0.0.0.0:0" };
                let socket = UdpSocket::bind(any).unwrap();
                socket.set_read_timeout(Some(PATIENCE)).unwrap();
                socket
            });
            let port = socket.local_addr().unwrap().port();
            let mut side = Side::new();
            let bytes = noise(2, 20 * 900 + 33);
            for piece in opened(&mut side, is_v6, port, &bytes) {
                assert_eq!((piece.layout.kind, piece.layout.count), (LayoutKind::Udp, 21));
                assert!(piece.layout.stride_bytes > piece.layout.segment_bytes, "with gaps");
                side.batch.push(piece).unwrap();
            }
            assert_eq!(side.send(&mut queue), 21, "{offloads:?}");
            assert_eq!(side.drops.total(), 0);
            let mut got: Vec<u8> = Vec::new();
            let mut buffer = [0; 2000];
            while got.len() < bytes.len() {
                let count = socket.recv(&mut buffer).unwrap_or_else(|error| {
                    panic!("{offloads:?} v6 {is_v6} after {} bytes: {error}", got.len())
                });
                assert!(count == 900 || got.len() + count == bytes.len());
                got.extend(&buffer[..count]);
            }
            assert!(got == bytes, "{offloads:?} v6 {is_v6}");
            side.assert_nothing_leaked();
        }
    }
}

/// What comes out of a lane: packets side by side with gaps, coalesced.
fn opened(side: &mut Side, is_v6: bool, port: u16, bytes: &[u8]) -> Vec<Packet> {
    const STRIDE: usize = 1000;
    let mut buf = side.pool.alloc().unwrap();
    let mut count = 0;
    for payload in bytes.chunks(900) {
        let packet = udp_packet(is_v6, port, payload);
        buf.extend(STRIDE)[..packet.len()].copy_from_slice(&packet);
        count += 1;
    }
    let mut packet = Packet::new(buf);
    packet.layout = Layout {
        kind: LayoutKind::Packets,
        stride_bytes: 1000,
        segment_bytes: 1000,
        count,
        present: (1 << count) - 1,
        ..Layout::SINGLE
    };
    let mut out = Vec::new();
    coalesce(packet, |packet| out.push(packet));
    out
}

#[test]
fn a_train_with_finished_checksums_is_taken_too() {
    let Some(namespace) = Namespace::new() else { return };
    let mut queue = device(&namespace, Offloads::TUN);
    let socket = namespace.run(|| {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    });
    let port = socket.local_addr().unwrap().port();
    let mut side = Side::new();
    // More segments than go in one piece, so that it is cut here; and a short one that goes whole.
    for count in [100u16, 10] {
        let bytes = noise(3, usize::from(count) * 200);
        let packet = side.push(&udp_packet(false, port, &bytes));
        packet.checksum = Checksum::Verified;
        packet.layout = Layout::train(LayoutKind::Udp, 28, 200, count);
        assert_eq!(side.send(&mut queue), usize::from(count));
        let mut buffer = [0; 2000];
        for expected in bytes.chunks(200) {
            let count = socket.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..count], expected);
        }
    }
}

#[test]
fn what_the_device_refuses_is_counted_under_its_cable_and_the_rest_goes_on() {
    let Some(namespace) = Namespace::new() else { return };
    let mut queue = device(&namespace, Offloads::TUN);
    let socket = namespace.run(|| {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    });
    let port = socket.local_addr().unwrap().port();
    let mut side = Side::new();
    side.push(&udp_packet(false, port, b"first"));
    side.push(&[0; 40]).decision.cable = CableId(1);
    side.push(b"").decision.cable = CableId(2);
    let train = side.push(&[0x45; 300]);
    train.layout = Layout::train(LayoutKind::Tcp, 40, 100, 3);
    train.decision.cable = CableId(3);
    let datagrams = side.push(&[0x45; 300]);
    datagrams.layout = Layout::datagrams(100, 3);
    datagrams.decision.cable = CableId(4);
    side.push(&udp_packet(false, port, b"second"));

    assert_eq!(side.send(&mut queue), 2);
    let counted: Vec<_> = side.drops.iter().map(|(cable, _, packets)| (cable.0, packets)).collect();
    assert_eq!(counted, [(1, 1), (2, 1), (3, 3), (4, 3)]);
    assert_eq!(side.drops.of(DropReason::TunWrite), 5);
    let mut buffer = [0; 100];
    for expected in [&b"first"[..], b"second"] {
        let count = socket.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..count], expected);
    }
    side.assert_nothing_leaked();
}

#[test]
fn a_device_that_is_down_drops_and_one_that_is_gone_is_an_error() {
    let Some(namespace) = Namespace::new() else { return };
    let mut queue = device(&namespace, Offloads::TUN);
    let mut side = Side::new();
    namespace.run(|| link::set_up(NAME, false).unwrap());
    side.push(&udp_packet(false, 9, b"lost"));
    side.push(&udp_packet(false, 9, b"lost"));
    assert_eq!(side.send(&mut queue), 0);
    assert_eq!((side.drops.of(DropReason::TunWrite), side.batch.len()), (2, 0));
    queue.recv(&mut side.pool, &mut side.batch, &mut side.drops).unwrap();
    side.batch.drain().for_each(drop);

    namespace.ip(&format!("link del {NAME}"));
    side.push(&udp_packet(false, 9, b"kept"));
    assert!(queue.send(&mut side.batch, &mut side.pool, &mut side.drops).is_err());
    assert_eq!(side.batch.len(), 1);
    assert!(queue.recv(&mut side.pool, &mut side.batch, &mut side.drops).is_err());
    side.assert_nothing_leaked();
}

#[test]
fn a_persistent_device_outlives_its_process_and_ends_when_removed() {
    let Some(namespace) = Namespace::new() else { return };
    let config = TunConfig { mtu_bytes: Some(1400), ..TunConfig::new(NAME) };
    let again = config.clone();
    let tun = namespace.run(move || Tun::open(&config).unwrap());
    assert!(tun.fallbacks().is_empty() || tun.offloads() != Offloads::TUN, "{:?}", tun.fallbacks());
    drop(tun);
    namespace.run(move || {
        assert!(link::exists(NAME).unwrap());
        let tun = Tun::open(&again).unwrap();
        assert_eq!(tun.name(), NAME);
        assert_eq!(tun.into_queues()[0].capabilities().mtu_bytes, 1400);
        assert!(tun::remove(NAME).unwrap());
        wait_until_gone(NAME);
        assert!(!tun::remove(NAME).unwrap());
    });
}

#[test]
fn interfaces_of_other_kinds_are_left_alone() {
    let Some(namespace) = Namespace::new() else { return };
    namespace.ip("link add tv0 type veth peer name tv1");
    namespace.ip("tuntap add mode tun name ts0");
    namespace.ip("tuntap add mode tap name tp0");
    namespace.run(|| {
        for name in ["tv0", "ts0", "tp0"] {
            let error = Tun::open(&TunConfig::new(name)).unwrap_err();
            assert!(matches!(error, Error::NotOurKind { .. }), "{name}: {error}");
            assert!(link::exists(name).unwrap());
        }
        assert!(matches!(tun::remove("tv0"), Err(Error::NotOurKind { .. })));
        assert!(tun::remove("ts0").unwrap(), "a TUN device all the same");
        wait_until_gone("ts0");
        assert!(matches!(Tun::open(&TunConfig::new("a/b")), Err(Error::InterfaceName(_))));
        let none = TunConfig { queues: 0, ..TunConfig::new(NAME) };
        assert!(matches!(Tun::open(&none), Err(Error::Count { .. })));
        assert!(!link::exists(NAME).unwrap());
    });
}

#[test]
fn settings_reach_the_interface() {
    let Some(namespace) = Namespace::new() else { return };
    namespace.run(|| {
        let config = TunConfig { tx_queue_length: 1234, mtu_bytes: Some(1321), ..TunConfig::new(NAME) };
        let tun = Tun::open(&config).unwrap();
        for (key, value) in [("accept_local", "1"), ("rp_filter", "2")] {
            tun.set_sysctl(Path::new("/proc/sys"), Family::Ipv4, key, value).unwrap();
            let path = format!("/proc/sys/net/ipv4/conf/{NAME}/{key}");
            assert_eq!(fs::read_to_string(path).unwrap().trim(), value);
        }
        let error = tun.set_sysctl(Path::new("/proc/sys"), Family::Ipv4, "no_such_key", "1").unwrap_err();
        assert!(error.to_string().contains("no_such_key"), "{error}");
        assert_eq!(link::mtu(NAME).unwrap(), 1321);
        let error = link::set_mtu(NAME, 70_000).unwrap_err();
        assert!(error.to_string().contains("70000"), "{error}");
        tun.set_up(true).unwrap();
        let shown = std::process::Command::new("ip").args(["link", "show", NAME]).output().unwrap();
        let shown = String::from_utf8(shown.stdout).unwrap();
        assert!(shown.contains("qlen 1234") && shown.contains("LOWER_UP"), "{shown}");
        tun::remove(NAME).unwrap();
    });
}

#[test]
fn every_queue_reads_and_writes_and_an_inherited_one_goes_on() {
    let Some(namespace) = Namespace::new() else { return };
    let mut queues = namespace.run(|| {
        let config = TunConfig { queues: 3, is_persistent: false, ..TunConfig::new(NAME) };
        let tun = Tun::open(&config).unwrap();
        tun.set_sysctl(Path::new("/proc/sys"), Family::Ipv6, "addr_gen_mode", "1").unwrap();
        tun.set_up(true).unwrap();
        tun.into_queues()
    });
    namespace.ip(&format!("addr add 10.77.0.1/24 dev {NAME}"));
    let inherited = queues.remove(1).as_fd().try_clone_to_owned().unwrap();
    let adopted = namespace.run(move || TunQueue::adopt(inherited, Offloads::TUN).unwrap());
    assert_eq!(adopted.offloads(), queues[0].offloads());
    queues.push(adopted);
    let socket = namespace.run(|| UdpSocket::bind("0.0.0.0:0").unwrap());
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let port = socket.local_addr().unwrap().port();
    for (index, queue) in queues.iter_mut().enumerate() {
        let mut side = Side::new();
        side.push(&udp_packet(false, port, &[u8::try_from(index).unwrap()]));
        assert_eq!(side.send(queue), 1);
        let mut buffer = [9; 2];
        let (count, _) = socket.recv_from(&mut buffer).unwrap();
        assert_eq!((count, usize::from(buffer[0])), (1, index));
    }
    // Answers come out of some queue; all of them together show every one.
    for port in 100..140u16 {
        socket.send_to(b"out", ("10.77.0.2", port)).unwrap();
    }
    let mut poller = Poller::new().unwrap();
    for queue in &queues {
        poller.add(queue, 0, Interest::Readable).unwrap();
    }
    let (mut side, mut seen) = (Side::new(), 0);
    let deadline = Instant::now() + PATIENCE;
    while seen < 40 {
        assert!(Instant::now() < deadline, "{seen} of 40 packets came");
        poller.wait(Some(Duration::from_millis(100))).unwrap();
        for queue in &mut queues {
            seen += queue.recv(&mut side.pool, &mut side.batch, &mut side.drops).unwrap();
            side.batch.drain().for_each(drop);
        }
    }
    assert_eq!(seen, 40);

    let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
    assert!(matches!(TunQueue::adopt(socket.into(), Offloads::TUN), Err(Error::Inherited(_))));
}

#[test]
fn switched_off_offloads_are_said_one_by_one() {
    let Some(namespace) = Namespace::new() else { return };
    namespace.run(|| {
        let cases = [
            (TSO, &["uso4", "uso6"][..]),
            (Offloads::CHECKSUM, &["tso4", "tso6", "uso4", "uso6"]),
            (TSO.without(Offloads::TSO6), &["tso6", "uso4", "uso6"]),
            (TSO.with(Offloads::USO4), &["uso6", "uso4"]),
            (Offloads::TUN.without(Offloads::CHECKSUM), &["checksum", "tso4", "tso6", "uso4", "uso6"]),
        ];
        for (offloads, missing) in cases {
            let config = TunConfig { offloads, is_persistent: false, ..TunConfig::new(NAME) };
            let tun = Tun::open(&config).unwrap();
            let said: Vec<_> = tun.fallbacks().iter().map(|fallback| fallback.feature).collect();
            assert_eq!(said, missing, "{:?}", tun.fallbacks());
            drop(tun);
            wait_until_gone(NAME);
        }
    });
}
