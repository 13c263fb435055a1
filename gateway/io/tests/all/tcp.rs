//! The kernel's own TCP between two namespaces, its packets carried by the test from one TUN to the other. Needs root.
//!
//! ```text
//!   TcpStream ── kernel A ── TUN ──▶ batches, as they are or cut and coalesced ──▶ TUN ── kernel B ── TcpListener
//! ```

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use trieste_io::link::Family;
use trieste_io::poll::{Interest, Poller};
use trieste_io::{Offloads, PacketIo, Tun, TunConfig, TunQueue};
use trieste_packet::coalesce::coalesce;
use trieste_packet::segment::Segmenter;
use trieste_packet::{Batch, Layout, LayoutKind, Packet, Pool};

use crate::support::{Namespace, PATIENCE, Side, noise};

const NAME: &str = "tt0";
const BYTES: usize = 6 << 20;
const TSO: Offloads = Offloads::CHECKSUM.with(Offloads::TSO4).with(Offloads::TSO6);

/// What happens to packets between the two devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Between {
    /// Nothing: trains stay trains.
    AsTheyAre,
    /// What a tunnel does: cut, laid side by side with gaps, coalesced again.
    LikeATunnel,
}

/// What the carrier saw.
#[derive(Debug, Default)]
struct Seen {
    received_trains: usize,
    sent_trains: usize,
    longest: u16,
}

fn device(namespace: &Namespace, host: u8, offloads: Offloads) -> TunQueue {
    let queue = namespace.run(move || {
        let config = TunConfig { offloads, is_persistent: false, ..TunConfig::new(NAME) };
        let tun = Tun::open(&config).unwrap();
        tun.set_sysctl(Path::new("/proc/sys"), Family::Ipv6, "addr_gen_mode", "1").unwrap();
        tun.set_up(true).unwrap();
        tun.into_queues().remove(0)
    });
    namespace.ip(&format!("addr add 10.77.0.{host}/24 dev {NAME}"));
    namespace.ip(&format!("addr add fd77::{host}/64 dev {NAME} nodad"));
    queue
}

/// Moves packets both ways until told to stop.
fn carry(mut queues: [TunQueue; 2], between: Between, is_over: &AtomicBool) -> Seen {
    let mut poller = Poller::new().unwrap();
    for queue in &queues {
        poller.add(queue, 0, Interest::Readable).unwrap();
    }
    let (mut side, mut seen, mut out) = (Side::new(), Seen::default(), Batch::with_limit(4096));
    while !is_over.load(Ordering::Relaxed) {
        poller.wait(Some(Duration::from_millis(20))).unwrap();
        for from in [0, 1] {
            queues[from].recv(&mut side.pool, &mut side.batch, &mut side.drops).unwrap();
            for packet in side.batch.drain() {
                if packet.layout.kind == LayoutKind::Tcp {
                    seen.received_trains += 1;
                    seen.longest = seen.longest.max(packet.layout.count);
                }
                match between {
                    Between::AsTheyAre => out.push(packet).unwrap(),
                    Between::LikeATunnel => through_a_tunnel(packet, &mut side.pool, &mut out),
                }
            }
            seen.sent_trains += out.as_slice().iter().filter(|packet| packet.layout.is_train()).count();
            queues[1 - from].send(&mut out, &mut side.pool, &mut side.drops).unwrap();
            assert!(out.is_empty());
        }
    }
    assert_eq!(side.drops.total(), 0);
    side.assert_nothing_leaked();
    seen
}

fn through_a_tunnel(mut packet: Packet, pool: &mut Pool, out: &mut Batch) {
    let stride = packet.largest_packet_bytes() + 32;
    let mut segmenter = Segmenter::new(&mut packet).unwrap();
    let mut buf = None;
    let mut count = 0;
    let mut flush = |buf: Option<_>, count: u16| {
        let Some(buf) = buf else { return };
        let mut opened = Packet::new(buf);
        opened.layout = Layout {
            kind: LayoutKind::Packets,
            segment_bytes: u16::try_from(stride).unwrap(),
            stride_bytes: u16::try_from(stride).unwrap(),
            count,
            present: (1 << count) - 1,
            ..Layout::SINGLE
        };
        coalesce(opened, |packet| out.push(packet).unwrap());
    };
    while let Some(segment) = segmenter.next_segment() {
        if count == 40 {
            flush(buf.take(), count);
            count = 0;
        }
        let buf = buf.get_or_insert_with(|| pool.alloc().unwrap());
        buf.extend(stride)[..segment.len()].copy_from_slice(segment);
        count += 1;
    }
    flush(buf, count);
    pool.recycle(packet.buf);
}

/// Sends noise one way and an answer back, and returns what the carrier saw.
fn transfer(host: &'static str, offloads: [Offloads; 2], between: Between) -> Option<Seen> {
    let (near, far) = (Namespace::new()?, Namespace::new()?);
    let queues = [device(&near, 1, offloads[0]), device(&far, 2, offloads[1])];
    let is_over = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&is_over);
    let carrier = thread::spawn(move || carry(queues, between, &flag));

    let any = if host.contains(':') { "[::]:0" } else { "0.0.0.0:0" };
    let listener = far.run(move || TcpListener::bind(any).unwrap());
    let port = listener.local_addr().unwrap().port();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut got = vec![0; BYTES];
        stream.read_exact(&mut got).unwrap();
        stream.write_all(b"got it").unwrap();
        got
    });
    let mut client = near.run(move || connect(host, port));
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.set_write_timeout(Some(PATIENCE)).unwrap();
    client.write_all(&noise(9, BYTES)).unwrap();
    let mut answer = [0; 6];
    client.read_exact(&mut answer).unwrap();
    assert!(server.join().unwrap() == noise(9, BYTES), "{host} {offloads:?} {between:?}");
    is_over.store(true, Ordering::Relaxed);
    Some(carrier.join().unwrap())
}

/// The first packets may go lost while the kernel takes its addresses into use.
fn connect(host: &str, port: u16) -> TcpStream {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match TcpStream::connect((host, port)) {
            Ok(stream) => return stream,
            Err(error) => assert!(Instant::now() < deadline, "{host}: {error}"),
        }
    }
}

#[test]
fn streams_cross_in_trains_of_either_family() {
    for host in ["10.77.0.2", "fd77::2"] {
        let Some(seen) = transfer(host, [Offloads::TUN; 2], Between::AsTheyAre) else { return };
        assert!(seen.received_trains > 10 && seen.longest > 10, "{host} {seen:?}");
        assert!(seen.sent_trains > 10, "{host} {seen:?}");
    }
}

#[test]
fn streams_cross_a_tunnel_and_arrive_in_trains() {
    for host in ["10.77.0.2", "fd77::2"] {
        let Some(seen) = transfer(host, [Offloads::TUN; 2], Between::LikeATunnel) else { return };
        assert!(seen.received_trains > 10 && seen.sent_trains > 10, "{host} {seen:?}");
    }
}

#[test]
fn streams_cross_whatever_either_device_lacks() {
    for host in ["10.77.0.2", "fd77::2"] {
        for offloads in [
            [Offloads::TUN, TSO],
            [Offloads::TUN, Offloads::CHECKSUM],
            [Offloads::TUN, Offloads::NONE],
            [Offloads::NONE, Offloads::TUN],
            [Offloads::CHECKSUM, Offloads::NONE],
            [TSO.without(Offloads::TSO6), TSO.without(Offloads::TSO4)],
        ] {
            for between in [Between::AsTheyAre, Between::LikeATunnel] {
                let Some(seen) = transfer(host, offloads, between) else { return };
                let can = if host.contains(':') { Offloads::TSO6 } else { Offloads::TSO4 };
                // Only A sends enough for trains; its answers are single.
                assert_eq!(
                    seen.received_trains > 0,
                    offloads[0].contains(can),
                    "{host} {offloads:?} {seen:?}"
                );
            }
        }
    }
}
