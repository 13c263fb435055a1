//! A lane of ours through its jobs: segmenting, checksums, sealing into trains; opening side by side.

use std::net::SocketAddr;
use std::time::Instant;

use anyhow::ensure;
use trieste_cables::{CableKind, Jobs, Tunnel};
use trieste_packet::pool::TRAIN_SLOT_BYTES;
use trieste_packet::{Batch, Drops, LaneId, MAX_BATCH, Outer, Packet, Pool, PoolConfig};

use crate::measure::Sample;
use crate::pair::{Direction, Joint, lane_config};
use crate::traffic::{Shape, Source};

/// A tunnel and what it works with.
struct Side {
    tunnel: Box<dyn Tunnel>,
    pool: Pool,
    output: Batch,
    drops: Drops,
}

/// How packets come to the lane.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Feed {
    /// What they look like.
    pub(crate) shape: Shape,
    /// Packets or trains in each batch.
    pub(crate) batch: usize,
    /// Packets of each pass.
    pub(crate) ring: usize,
}

/// A pass that times one direction.
///
/// # Errors
/// When the two ends do not come together, which would be a bug.
pub(crate) fn pass(joint: Joint, direction: Direction, feed: Feed) -> anyhow::Result<impl FnMut() -> Sample> {
    let Feed { shape, batch, ring } = feed;
    let (mut east, mut west) = sides(joint, shape, ring)?;
    let mut source = Source::new(shape);
    let trains = shape.trains(ring);
    let now = Instant::now();
    let mut packets = Vec::with_capacity(trains);
    let mut batches: Vec<Vec<Packet>> =
        (0..trains.div_ceil(batch)).map(|_| Vec::with_capacity(batch)).collect();
    Ok(move || {
        for _ in 0..trains {
            let mut packet = source.packet(&mut east.pool).expect("the pool is larger than the ring");
            packet.decision.mtu_bytes = shape.bytes;
            packets.push(packet);
        }
        cut(&mut packets, &mut batches, batch);
        if direction == Direction::Outbound {
            return Sample::of(|| east.work(&mut batches, false, |tunnel, jobs| tunnel.seal(jobs, now)));
        }
        east.work(&mut batches, true, |tunnel, jobs| tunnel.seal(jobs, now));
        let is_train = shape.segments > 1;
        for packet in east.output.drain() {
            let pieces = if is_train { 1 } else { usize::from(packet.layout.count) };
            for piece in 0..pieces {
                let (start, end) = if is_train { (0, packet.buf.len()) } else { packet.segment_range(piece) };
                let buf = west.pool.alloc_copy(&packet.bytes()[start..end]);
                let mut copy = Packet::new(buf.expect("the pool is larger than the ring"));
                if is_train {
                    copy.layout = packet.layout;
                }
                copy.outer = Outer { peer: address(1), local: None, tos: 0 };
                packets.push(copy);
            }
            east.pool.recycle(packet.buf);
        }
        cut(&mut packets, &mut batches, batch);
        Sample::of(|| west.work(&mut batches, false, |tunnel, jobs| tunnel.open(jobs, now)))
    })
}

/// Hands packets out to batches, in order.
fn cut(packets: &mut Vec<Packet>, batches: &mut [Vec<Packet>], size: usize) {
    let mut packets = packets.drain(..);
    for batch in batches {
        batch.extend(packets.by_ref().take(size));
    }
}

impl Side {
    /// Puts every batch through the tunnel; says how many packets came out. What came out of a batch leaves before
    /// the next, as it does in a gateway, unless it `is_kept`.
    fn work(
        &mut self,
        batches: &mut [Vec<Packet>],
        is_kept: bool,
        mut job: impl FnMut(&mut dyn Tunnel, &mut Jobs<'_>),
    ) -> u64 {
        let (mut consumed, mut packets) = (0, 0);
        for input in batches {
            let mut jobs = Jobs {
                input,
                output: &mut self.output,
                pool: &mut self.pool,
                drops: &mut self.drops,
                consumed: &mut consumed,
            };
            job(&mut *self.tunnel, &mut jobs);
            if !is_kept {
                packets += self.output.segments();
                self.forget_output();
            }
        }
        packets
    }

    fn forget_output(&mut self) {
        for packet in self.output.drain() {
            self.pool.recycle(packet.buf);
        }
    }
}

fn sides(joint: Joint, shape: Shape, ring: usize) -> anyhow::Result<(Side, Side)> {
    let now = Instant::now();
    let (east, west) = (joint.kind(1, now), joint.kind(2, now));
    let slots = shape.trains(ring) + 2 * MAX_BATCH;
    let side = |own: &dyn CableKind, other: &dyn CableKind, number: u8| -> anyhow::Result<Side> {
        let config = lane_config(LaneId(0x100), own, other, number);
        Ok(Side {
            tunnel: own.connect(&config, now)?,
            pool: Pool::new(PoolConfig { slots, slot_bytes: TRAIN_SLOT_BYTES }),
            output: Batch::with_limit(slots),
            drops: Drops::default(),
        })
    };
    let (mut east, mut west) = (side(&*east, &*west, 1)?, side(&*west, &*east, 2)?);
    for side in [&mut east, &mut west] {
        side.tunnel.handle_timeout(now, &mut side.drops);
    }
    for _ in 0..4 {
        carry(&mut east, &mut west, address(1), now);
        carry(&mut west, &mut east, address(2), now);
    }
    ensure!(east.tunnel.stats(now).is_up && west.tunnel.stats(now).is_up, "the two ends did not shake hands");
    Ok((east, west))
}

fn carry(from: &mut Side, to: &mut Side, sender: SocketAddr, now: Instant) {
    while let Some(transmit) = from.tunnel.poll_transmit() {
        let outer = Outer { peer: sender, local: None, tos: 0 };
        to.tunnel.handle_datagram(&transmit.payload, &outer, now, &mut to.drops);
    }
}

fn address(side: u8) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, side], 4500))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lane_carries_every_packet_of_every_pass() {
        for joint in [Joint::Wireguard, Joint::Esp, Joint::Vxlan] {
            for direction in [Direction::Outbound, Direction::Inbound] {
                for (shape, batch) in [
                    (Shape::single(512, 2), MAX_BATCH),
                    (Shape::single(512, 2), 1),
                    (Shape::train(1420, 2), 7),
                ] {
                    let mut pass = pass(joint, direction, Feed { shape, batch, ring: 100 }).unwrap();
                    for _ in 0..3 {
                        assert_eq!(pass().packets, shape.trains(100) as u64 * u64::from(shape.segments));
                    }
                }
            }
        }
    }
}
