//! From the receive ring to a batch: frames are handed on where they are, or copied together to trains.

use trieste_packet::{Batch, Checksum, Drops, Layout, LayoutKind, Outer, Packet, PacketBuf, Pool};

use super::frame;
use super::frames::Frames;
use super::ring::{Address, Producer};
use super::socket::QueueSocket;
use crate::RECV_BYTES;
use crate::rings::XdpCounters;

/// Most datagrams of a train, as of the kernel's.
const MOST_SEGMENTS: u16 = 64;
/// Most frames that the fill rings leave for sending.
const RESERVED: usize = 256;

/// How received frames are handled.
#[derive(Debug, Clone, Copy)]
pub(super) struct Receiving {
    pub(super) trains: bool,
    pub(super) zero_checksum6: bool,
}

/// What a batch is filled from and with.
pub(super) struct Into<'a> {
    pub(super) frames: &'a mut Frames,
    pub(super) pool: &'a mut Pool,
    pub(super) batch: &'a mut Batch,
    pub(super) drops: &'a mut Drops,
    pub(super) counters: &'a mut XdpCounters,
}

/// Takes what has arrived at a queue. Returns the number of datagrams, those that were dropped included.
pub(super) fn receive(socket: &mut QueueSocket, how: Receiving, into: &mut Into<'_>) -> usize {
    let (mut received, mut bytes) = (0, 0);
    let mut train = Train { last: None, is_open: false };
    while into.batch.room() > usize::from(train.last.is_some()) && bytes < RECV_BYTES {
        let Some(descriptor) = socket.receive.pop() else { break };
        let Some(mut buf) = into.frames.take_filled(descriptor.address, descriptor.bytes) else {
            into.counters.strange_frames += 1;
            continue;
        };
        received += 1;
        bytes += buf.len();
        match frame::parse(buf.bytes(), how.zero_checksum6) {
            Ok(parsed) => {
                into.counters.partial_checksums += u64::from(parsed.is_partial);
                buf.advance(parsed.start);
                buf.truncate(parsed.bytes);
                train.add(buf, parsed.outer, how.trains, into);
            }
            Err(reason) => {
                // The frame goes home by being dropped.
                into.drops.discard(Packet::new(buf), reason, into.pool);
            }
        }
    }
    train.end(into);
    socket.receive.release();
    into.counters.received += received as u64;
    refill(socket, into.frames, into.counters);
    received
}

/// Gives the kernel free frames.
pub(super) fn refill(socket: &mut QueueSocket, frames: &mut Frames, counters: &mut XdpCounters) {
    if fill(&mut socket.fill, frames) {
        counters.wakeups += 1;
        socket.wake_to_receive();
    }
}

/// Fills the ring, and returns `true` if the kernel has to be woken to see that. It may also have fallen asleep over frames that
/// it was given before: its flag and ours cross.
fn fill(ring: &mut Producer<Address>, frames: &mut Frames) -> bool {
    // Small rings come with few frames.
    let reserved = RESERVED.min(ring.size() as usize);
    let mut is_given = false;
    while ring.room() > 0 && frames.available() > reserved {
        let Some(address) = frames.give() else { break };
        is_given |= ring.push(address);
    }
    if is_given {
        ring.publish();
    }
    ring.needs_wakeup() && ring.has_pending()
}

/// The packet that the next frame may join.
struct Train {
    last: Option<Packet>,
    /// Whether all of its datagrams have the same length.
    is_open: bool,
}

impl Train {
    fn add(&mut self, buf: PacketBuf, outer: Outer, trains: bool, into: &mut Into<'_>) {
        if trains && self.joins(&buf, &outer, into.pool) && self.append(&buf, into) {
            into.frames.recycle(buf);
            return;
        }
        self.end(into);
        // Raw ESP is opened packet by packet.
        self.is_open = outer.peer.port() != 0 && !buf.is_empty();
        self.last = Some(Packet { outer, checksum: Checksum::Unchecked, ..Packet::new(buf) });
    }

    fn joins(&self, buf: &PacketBuf, outer: &Outer, pool: &Pool) -> bool {
        let Some(last) = self.last.as_ref().filter(|last| self.is_open && last.outer == *outer) else {
            return false;
        };
        let (stride, room) = match last.layout.kind {
            LayoutKind::Single => (last.buf.len(), pool.packet_capacity().saturating_sub(last.buf.len())),
            LayoutKind::Datagrams | LayoutKind::Tcp | LayoutKind::Udp | LayoutKind::Packets => {
                (usize::from(last.layout.stride_bytes), last.buf.tailroom())
            }
        };
        !buf.is_empty() && buf.len() <= stride && buf.len() <= room && last.layout.count < MOST_SEGMENTS
    }

    /// Copies a datagram behind the last packet's. `false` if there is no buffer for a train.
    fn append(&mut self, buf: &PacketBuf, into: &mut Into<'_>) -> bool {
        let Some(last) = self.last.as_mut() else { return false };
        if last.layout.kind == LayoutKind::Single {
            let Ok(stride) = u16::try_from(last.buf.len()) else { return false };
            let Some(copy) = into.pool.alloc_copy(last.bytes()) else { return false };
            into.frames.recycle(std::mem::replace(&mut last.buf, copy));
            into.counters.received_copied += 1;
            last.layout = Layout::datagrams(stride, 1);
        }
        last.buf.extend(buf.len()).copy_from_slice(buf.bytes());
        last.layout.count += 1;
        self.is_open = buf.len() == usize::from(last.layout.stride_bytes);
        into.counters.received_copied += 1;
        true
    }

    fn end(&mut self, into: &mut Into<'_>) {
        let Some(packet) = self.last.take() else { return };
        into.counters.received_in_place += u64::from(packet.layout.kind == LayoutKind::Single);
        // The caller has left room for it.
        into.batch.append(packet);
    }
}

#[cfg(test)]
mod tests {
    use super::super::ring::tests::pair;
    use super::*;

    #[test]
    fn a_kernel_that_fell_asleep_over_a_full_ring_is_woken() {
        let (mut ring, mut kernels) = pair(0);
        let mut frames = Frames::new(16, 2048).unwrap();
        assert!(!fill(&mut ring, &mut frames), "it is awake");
        ring.fall_asleep();
        assert!(fill(&mut ring, &mut frames), "there is nothing to give, and all to take");
        while kernels.pop().is_some() {}
        kernels.release();
        // What is left is kept for sending.
        assert_eq!(frames.available(), 8);
        assert!(!fill(&mut ring, &mut frames), "there is nothing to be woken for");
    }

    #[test]
    fn small_rings_are_filled_and_leave_as_many_frames_for_sending() {
        let (mut ring, _) = pair(0);
        let mut frames = Frames::new(16, 2048).unwrap();
        fill(&mut ring, &mut frames);
        assert_eq!((ring.pending(), frames.available()), (8, 8));
    }
}
