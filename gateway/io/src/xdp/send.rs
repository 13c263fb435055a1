//! From a batch to the transmit ring: headers in front, trains cut into frames.

use std::io;

use trieste_packet::checksum::Sum;
use trieste_packet::{LayoutKind, Packet};

use super::frame::{Header, Hop};
use super::frames::Frames;
use super::ring::{Descriptor, Entry, Producer};
use super::socket::{QueueSocket, wake_to_send};
use crate::rings::XdpCounters;

/// System calls for one batch at most, each of which sends 32 frames or more.
const WAKEUPS: u64 = 64;

/// What has become of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// All of it is in the ring.
    Sent,
    /// The ring is full, or there is no frame: what is left of the packet has to wait.
    Full,
}

/// Where frames are put.
pub(super) struct Out<'a> {
    pub(super) socket: &'a mut QueueSocket,
    pub(super) frames: &'a mut Frames,
    pub(super) counters: &'a mut XdpCounters,
    /// The identification of the next packet.
    pub(super) identification: &'a mut u16,
}

/// Puts a packet or a train into the ring, as far as there is room; what was put there leaves the packet. Returns the
/// number of datagrams besides.
pub(super) fn put(packet: &mut Packet, header: Header, hop: &Hop, out: &mut Out<'_>) -> (usize, Outcome) {
    let stride = match packet.layout.kind {
        LayoutKind::Datagrams => usize::from(packet.layout.stride_bytes).max(1),
        LayoutKind::Single | LayoutKind::Tcp | LayoutKind::Udp | LayoutKind::Packets => usize::MAX,
    };
    let mut sent = 0;
    loop {
        if out.socket.transmit.room() == 0 && !make_room(out) {
            return (sent, Outcome::Full);
        }
        let bytes = packet.buf.len().min(stride);
        let header = Header { identification: *out.identification, ..header };
        let is_put = if bytes == packet.buf.len() && can_stay(packet, &header, out.frames) {
            put_in_place(packet, &header, hop, out)
        } else {
            put_copy(&packet.bytes()[..bytes], &header, hop, out)
        };
        if !is_put {
            return (sent, Outcome::Full);
        }
        *out.identification = out.identification.wrapping_add(1);
        sent += 1;
        if bytes >= packet.buf.len() {
            return (sent, Outcome::Sent);
        }
        packet.buf.advance(bytes);
        packet.layout.count = packet.layout.count.saturating_sub(1).max(1);
    }
}

fn can_stay(packet: &Packet, header: &Header, frames: &Frames) -> bool {
    packet.buf.headroom() >= header.frame_bytes() && frames.is_ours(&packet.buf)
}

/// Sends the buffer itself; an empty one takes its place.
fn put_in_place(packet: &mut Packet, header: &Header, hop: &Hop, out: &mut Out<'_>) -> bool {
    let Some(spare) = out.frames.alloc() else { return false };
    let mut buf = std::mem::replace(&mut packet.buf, spare);
    let (payload, bytes) = (Sum::ZERO.bytes(buf.bytes()), buf.len());
    let is_written = header.write(buf.prepend(header.frame_bytes()), hop, payload, bytes).is_some();
    let length = buf.len();
    if is_written && let Ok(address) = out.frames.hold(buf) {
        out.counters.sent_in_place += 1;
        return push(address, length, out);
    }
    false
}

fn put_copy(payload: &[u8], header: &Header, hop: &Hop, out: &mut Out<'_>) -> bool {
    let Some(mut frame) = out.frames.alloc() else { return false };
    if frame.tailroom() < payload.len() {
        out.frames.recycle(frame);
        return false;
    }
    let sum = Sum::ZERO.copied_bytes(payload, frame.extend(payload.len()));
    if header.write(frame.prepend(header.frame_bytes()), hop, sum, payload.len()).is_none() {
        out.frames.recycle(frame);
        return false;
    }
    let length = frame.len();
    let Ok(address) = out.frames.hold(frame) else { return false };
    out.counters.sent_copied += 1;
    push(address, length, out)
}

fn push(address: u64, length: usize, out: &mut Out<'_>) -> bool {
    out.counters.sent += 1;
    let bytes = u32::try_from(length).unwrap_or(0);
    out.socket.transmit.push(Descriptor { address, bytes, options: 0 })
}

/// Makes the kernel send, and takes back what it has sent. `false` if the ring is as full as before.
fn make_room(out: &mut Out<'_>) -> bool {
    flush(out.socket, out.counters);
    reap(out.socket, out.frames, out.counters);
    out.socket.transmit.room() > 0
}

/// Takes frames back that have been sent.
pub(super) fn reap(socket: &mut QueueSocket, frames: &mut Frames, counters: &mut XdpCounters) {
    let mut reaped = false;
    while let Some(address) = socket.completion.pop() {
        reaped = true;
        match frames.take_back(address) {
            Some(buf) => frames.recycle(buf),
            None => counters.strange_frames += 1,
        }
    }
    if reaped {
        socket.completion.release();
    }
}

/// Makes the kernel send what is in the ring, as far as it can now.
pub(super) fn flush(socket: &mut QueueSocket, counters: &mut XdpCounters) {
    socket.transmit.publish();
    let QueueSocket { transmit, fd, .. } = socket;
    counters.wakeups += drive(transmit, || wake_to_send(fd));
}

/// Wakes the kernel for as long as it takes entries and there are more. Returns the number of times.
fn drive<T: Entry>(transmit: &mut Producer<T>, mut wake: impl FnMut() -> io::Result<()>) -> u64 {
    let mut pending = transmit.pending();
    for wakeups in 0..WAKEUPS {
        if pending == 0 || !transmit.needs_wakeup() {
            return wakeups;
        }
        // Whatever it answers: its budget for one call may be spent, its buffers, the device's queue, or the device may have
        // dropped one. What is behind that goes on as long as there is progress, and else later.
        let _ = wake();
        let left = transmit.pending();
        if left == pending {
            return wakeups + 1;
        }
        pending = left;
    }
    WAKEUPS
}

#[cfg(test)]
mod tests {
    use super::super::ring::tests::pair;
    use super::*;

    #[test]
    fn the_kernel_is_woken_as_long_as_it_takes_something_whatever_it_answers() {
        let answer = |code: i32| if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code)) };
        for (code, takes, wakeups, left) in [
            (0, 3, 3, 0),
            // A spent budget, a frame that the device dropped, no buffers.
            (libc::EAGAIN, 2, 4, 0),
            (libc::EBUSY, 1, 8, 0),
            (libc::ENOBUFS, 4, 2, 0),
            // Nothing moves: later.
            (libc::EAGAIN, 0, 1, 8),
            (libc::ENETDOWN, 0, 1, 8),
        ] {
            let (mut ours, mut kernels) = pair(u32::MAX - 3);
            for address in 0..8 {
                ours.push(address);
            }
            ours.publish();
            ours.fall_asleep();
            let woken = drive(&mut ours, || {
                for _ in 0..takes {
                    kernels.pop();
                }
                kernels.release();
                answer(code)
            });
            assert_eq!((woken, ours.pending()), (wakeups, left), "{code} {takes}");
            assert_eq!((ours.has_pending(), ours.is_over_half()), (left > 0, left > 4), "{code} {takes}");
        }
    }

    #[test]
    fn a_kernel_that_is_awake_is_left_alone() {
        let (mut ours, _kernels) = pair(0);
        ours.push(1);
        ours.publish();
        assert_eq!(drive(&mut ours, || panic!("it is awake")), 0);
    }
}
