//! From a batch to the transmit ring: headers in front, trains cut into frames.

use std::io;

use trieste_packet::checksum::Sum;
use trieste_packet::{LayoutKind, Packet};

use super::config::XdpCounters;
use super::frame::{Header, Hop};
use super::frames::Frames;
use super::ring::Descriptor;
use super::socket::QueueSocket;

/// System calls for one batch at most, each of which sends 32 frames or more.
const WAKEUPS: u32 = 64;

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
    let mut pending = socket.transmit.pending();
    for _ in 0..WAKEUPS {
        if pending == 0 || !socket.transmit.needs_wakeup() {
            return;
        }
        counters.wakeups += 1;
        let is_more = match socket.wake_to_send() {
            // Its budget for one call is spent, or its buffers are.
            Err(error) => error.kind() == io::ErrorKind::WouldBlock,
            Ok(()) => true,
        };
        let left = socket.transmit.pending();
        if !is_more || left == pending {
            return;
        }
        pending = left;
    }
}
