//! Several queues: shared out among workers, two of them on the frames of one, more workers than queues.

use std::time::Instant;

use trieste_io::xdp::{XdpConfig, XdpIo, XdpMode};
use trieste_io::{PacketIo as _, UdpConfig, UdpIo};

use super::{Cable, FAR, NEAR, PORT, to};
use crate::support::{PATIENCE, Side};

fn group(cable: &Cable, workers: usize, mode: XdpMode) -> Vec<XdpIo> {
    cable.far.run(move || {
        let mut sockets = UdpIo::open_group(&UdpConfig::new(PORT), workers).unwrap();
        let config = XdpConfig { mode, ..XdpConfig::new("vb") };
        XdpIo::open_group(&config, &mut sockets).unwrap()
    })
}

/// Sends from many ports until every worker of `expected` has received by its rings, and what has come is what was sent.
fn receive_at_all(cable: &Cable, group: &mut [XdpIo], expected: usize) {
    let mut sides: Vec<Side> = group.iter().map(|_| Side::new()).collect();
    let mut senders: Vec<UdpIo> =
        cable.near.run(|| (0..32).map(|_| UdpIo::open(&UdpConfig::new(0)).unwrap()).collect());
    let mut from = Side::new();
    let (mut sent, mut received) = (0, 0);
    let deadline = Instant::now() + PATIENCE;
    loop {
        for sender in &mut senders {
            from.push(b"to some queue").outer = to(FAR[sent % 2]);
            sent += from.send(sender);
        }
        while received < sent {
            assert!(Instant::now() < deadline, "{received} of {sent}");
            for (io, side) in group.iter_mut().zip(&mut sides) {
                received += io.recv(&mut side.pool, &mut side.batch, &mut side.drops).unwrap();
                assert!(side.batch.drain().all(|packet| packet.bytes() == b"to some queue"));
            }
        }
        let busy = group.iter().filter(|io| io.counters().received > 0).count();
        if busy >= expected {
            return;
        }
        assert!(Instant::now() < deadline, "{busy} of {expected} workers receive by rings");
    }
}

#[test]
fn one_worker_has_all_queues_on_the_same_frames() {
    let Some(cable) = Cable::with_queues(2) else { return };
    let mut group = group(&cable, 1, XdpMode::Native);
    // Two rings and the sockets of both families.
    assert_eq!(group[0].fds().count(), 4);
    receive_at_all(&cable, &mut group, 1);
    let counters = group[0].counters();
    assert_eq!((counters.strange_frames, counters.kernel_refusals), (0, 0), "{counters:?}");
}

#[test]
fn each_worker_has_a_queue() {
    let Some(cable) = Cable::with_queues(2) else { return };
    let mut group = group(&cable, 2, XdpMode::Native);
    assert_eq!(group.iter().map(|io| io.fds().count()).collect::<Vec<_>>(), [3, 3]);
    receive_at_all(&cable, &mut group, 2);
    // A worker that goes leaves its queue to the kernel, and the program to the other.
    group.pop();
    assert!(cable.far.ip("link show vb").contains("xdp"));
    receive_at_all(&cable, &mut group, 1);
}

#[test]
fn a_worker_without_a_queue_sends_through_its_sockets() {
    let Some(cable) = Cable::new() else { return };
    let mut group = group(&cable, 2, XdpMode::Generic);
    let features: Vec<_> = group[1].fallbacks().iter().map(|fallback| fallback.feature).collect();
    assert!(features.contains(&"xdp-queues"), "{features:?}");
    let mut near = cable.open(true, None);
    let (mut from, mut side) = (Side::new(), Side::new());
    from.push(b"by socket").outer = to(NEAR[0]);
    assert_eq!(from.send(&mut group[1]), 1);
    assert_eq!(super::drain(&mut side, &mut near, 1).len(), 1);
    assert_eq!((group[1].counters().no_ring, group[1].counters().sent), (1, 0));
    assert_eq!(group[1].retry_after(), None);
}
