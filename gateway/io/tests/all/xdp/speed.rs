//! What a datagram costs by each way, on one thread that is both ends: a measurement, and no claim.

use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use trieste_io::xdp::XdpMode;
use trieste_packet::Layout;

use super::{Cable, FAR, Wire, drain, to, warm_up};
use crate::support::{Side, noise};

/// How a batch is made.
#[derive(Debug, Clone, Copy)]
enum Load {
    /// This many single datagrams of these bytes.
    Singles(u64, usize),
    /// This many trains of 40 datagrams of these bytes.
    Trains(u64, u16),
}

fn cpu() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_THREAD).unwrap();
    let part = |time: nix::sys::time::TimeVal| {
        Duration::new(time.tv_sec().unsigned_abs(), 0) + Duration::from_micros(time.tv_usec().unsigned_abs())
    };
    part(usage.user_time()) + part(usage.system_time())
}

/// Nanoseconds of processor time for a datagram, both ends and the kernel between them.
fn measure(near: &mut Wire, far: &mut Wire, load: Load) -> (u128, u128) {
    let (mut from, mut side) = (Side::new(), Side::new());
    let bytes = noise(3, 64 << 10);
    let (mut sent, mut received) = (0, 0);
    let (start, began) = (cpu(), Instant::now());
    while began.elapsed() < Duration::from_millis(1500) {
        let (Load::Singles(count, _) | Load::Trains(count, _)) = load;
        for _ in 0..count {
            let packet = match load {
                Load::Singles(_, length) => from.push(&bytes[..length]),
                Load::Trains(_, stride) => from.push(&bytes[..usize::from(stride) * 40]),
            };
            if let Load::Trains(_, stride) = load {
                packet.layout = Layout::datagrams(stride, 40);
            }
            packet.outer = to(FAR[0]);
        }
        sent += from.send(near);
        let asked = Instant::now();
        while received < sent && asked.elapsed() < Duration::from_millis(50) {
            received += far.recv_all(&mut side);
        }
        received = sent;
    }
    let spent = (cpu() - start).as_nanos() / (sent as u128).max(1);
    (spent, began.elapsed().as_nanos() / (sent as u128).max(1))
}

impl Wire {
    fn recv_all(&mut self, side: &mut Side) -> usize {
        let count =
            trieste_io::PacketIo::recv(self, &mut side.pool, &mut side.batch, &mut side.drops).unwrap();
        for packet in side.batch.drain() {
            side.pool.recycle(packet.buf);
        }
        count
    }
}

#[test]
#[ignore = "a measurement: run it alone, with --nocapture"]
fn what_a_datagram_costs() {
    let loads = [
        Load::Singles(32, 64),
        Load::Singles(32, 512),
        Load::Singles(32, 1400),
        Load::Trains(2, 64),
        Load::Trains(2, 1400),
    ];
    for mode in [None, Some(XdpMode::Generic), Some(XdpMode::Native)] {
        let Some(cable) = Cable::new() else { return };
        let (mut near, mut far) = (cable.open(true, mode), cable.open(false, mode));
        if mode.is_some() {
            warm_up(&mut Side::new(), &mut near, FAR);
        }
        drain(&mut Side::new(), &mut far, 0);
        for load in loads {
            let (spent, passed) = measure(&mut near, &mut far, load);
            println!("{mode:?} {load:?}: {spent} ns of CPU, {passed} ns");
        }
        if mode.is_some() {
            println!("  {:?}", far.xdp().counters());
        }
    }
}
