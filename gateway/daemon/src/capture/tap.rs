//! A worker's side of captures: from packets and trains to the frames that a reader can understand.
//!
//! Every frame is one packet as it is on a wire: trains are cut, checksums that a device would finish are finished,
//! datagrams get their outer header back. It is all done on copies, and only for packets that a capture wants.

use std::sync::Arc;
use std::time::Instant;

use trieste_control::admin::CapturePoint;
use trieste_packet::pool::TRAIN_SLOT_BYTES;
use trieste_packet::segment::Segmenter;
use trieste_packet::wire::Inner;
use trieste_packet::{CableId, Checksum, DropReason, LayoutKind, Outer, Packet, Pool, PoolConfig, Witness};
use trieste_pipeline::{Point, Tap};

use super::outer::{self, Ends, LocalEnd, Remains};
use super::pcapng::Direction;
use super::queue::{Capture, Record};

/// Shows one worker's packets to all captures that look at the line.
pub(super) struct WorkerTap {
    captures: Vec<Arc<Capture>>,
    local: LocalEnd,
    worker: u16,
    /// One buffer, to cut trains in.
    scratch: Pool,
}

impl WorkerTap {
    pub(super) fn new(captures: Vec<Arc<Capture>>, local: LocalEnd, worker: u16) -> Self {
        let scratch = Pool::new(PoolConfig { slots: 1, slot_bytes: TRAIN_SLOT_BYTES });
        Self { captures, local, worker, scratch }
    }
}

impl Tap for WorkerTap {
    fn see(&mut self, point: Point, packet: &Packet, outer: Option<&Outer>, now: Instant) {
        let (point, direction) = place(point);
        for capture in &self.captures {
            let Some(interface) = capture.interface(point) else { continue };
            let timestamp_ns = capture.clock.nanoseconds(now);
            let sink = Sink { capture, interface, direction, worker: self.worker, timestamp_ns, drop: None };
            match outer {
                Some(outer) => sink.datagrams(packet, &Ends::new(outer, direction, self.local)),
                None => sink.inner(packet, &mut self.scratch),
            }
        }
    }
}

/// Returns the capture point of a point of the line, and the direction there, in and out being seen from the cluster.
fn place(point: Point) -> (CapturePoint, Direction) {
    match point {
        Point::OuterRx => (CapturePoint::OuterRx, Direction::Inbound),
        Point::Opened => (CapturePoint::Opened, Direction::Inbound),
        Point::InnerTx => (CapturePoint::InnerTx, Direction::Inbound),
        Point::InnerRx => (CapturePoint::InnerRx, Direction::Outbound),
        Point::OuterTx => (CapturePoint::OuterTx, Direction::Outbound),
        Point::Drop => (CapturePoint::Drops, Direction::Unknown),
    }
}

/// Shows one worker's dropped packets to all captures that want them.
pub(super) struct DropWitness {
    captures: Vec<Arc<Capture>>,
    local: LocalEnd,
    worker: u16,
}

impl DropWitness {
    pub(super) fn new(captures: Vec<Arc<Capture>>, local: LocalEnd, worker: u16) -> Self {
        Self { captures, local, worker }
    }
}

impl Witness for DropWitness {
    /// Records a dropped packet. Inner packets are recorded unchanged, a train as one long frame. Datagrams get an outer header
    /// with an unknown far end: address 0.0.0.0, port 0.
    fn dropped(&mut self, cable: CableId, reason: DropReason, bytes: &[u8]) {
        let now = Instant::now();
        for capture in &self.captures {
            let Some(interface) = capture.interface(CapturePoint::Drops) else { continue };
            let sink = |direction| Sink {
                capture,
                interface,
                direction,
                worker: self.worker,
                timestamp_ns: capture.clock.nanoseconds(now),
                drop: Some((reason, cable)),
            };
            match Remains::new(reason, bytes) {
                Remains::Inner(direction) => {
                    if capture.filter.wants_inner(bytes) {
                        sink(direction).put(bytes);
                    }
                }
                Remains::Datagram(direction) => {
                    sink(direction).datagram(bytes, &Ends::without_peer(direction, self.local));
                }
            }
        }
    }
}

/// Where the frames of one packet go.
struct Sink<'a> {
    capture: &'a Capture,
    interface: usize,
    direction: Direction,
    worker: u16,
    timestamp_ns: u64,
    drop: Option<(DropReason, CableId)>,
}

impl Sink<'_> {
    fn datagrams(&self, packet: &Packet, ends: &Ends) {
        for index in 0..usize::from(packet.layout.count) {
            let (start, end) = packet.segment_range(index);
            if let Some(payload) = packet.bytes().get(start..end) {
                self.datagram(payload, ends);
            }
        }
    }

    fn datagram(&self, payload: &[u8], ends: &Ends) {
        if self.capture.filter.wants_datagram(ends) {
            let (frame, original_bytes) = outer::datagram(ends, payload, self.capture.snap_bytes);
            self.push(frame.len(), original_bytes, || frame);
        }
    }

    fn inner(&self, packet: &Packet, scratch: &mut Pool) {
        match packet.layout.kind {
            LayoutKind::Packets | LayoutKind::Datagrams => self.slots(packet),
            LayoutKind::Single | LayoutKind::Tcp | LayoutKind::Udp => {
                if self.capture.filter.wants_inner(packet.bytes()) {
                    self.cut(packet, scratch);
                }
            }
        }
    }

    /// Records packets in slots, each with its own header.
    fn slots(&self, packet: &Packet) {
        let layout = packet.layout;
        for index in 0..usize::from(layout.count) {
            let is_hole =
                layout.kind == LayoutKind::Packets && (index >= 64 || layout.present >> index & 1 == 0);
            if is_hole {
                continue;
            }
            let (start, end) = packet.segment_range(index);
            let Some(slot) = packet.bytes().get(start..end) else { continue };
            let bytes = Inner::parse(slot).map_or(slot, |inner| &slot[..usize::from(inner.total_bytes)]);
            if self.capture.filter.wants_inner(bytes) {
                self.put(bytes);
            }
        }
    }

    /// Records a packet or a train with one header, cut into segments where possible.
    fn cut(&self, packet: &Packet, scratch: &mut Pool) {
        let is_final = packet.layout.kind == LayoutKind::Single
            && matches!(packet.checksum, Checksum::Unchecked | Checksum::Verified);
        if is_final {
            self.put(packet.bytes());
            return;
        }
        let Some(buf) = scratch.alloc_copy(packet.bytes()) else {
            self.put(packet.bytes());
            return;
        };
        let mut copy = Packet { layout: packet.layout, checksum: packet.checksum, ..Packet::new(buf) };
        match Segmenter::new(&mut copy) {
            Ok(mut segmenter) => {
                while let Some(segment) = segmenter.next_segment() {
                    self.put(segment);
                }
            }
            Err(_) => self.put(packet.bytes()),
        }
        scratch.recycle(copy.buf);
    }

    fn put(&self, bytes: &[u8]) {
        let kept = &bytes[..bytes.len().min(self.capture.snap_bytes)];
        self.push(kept.len(), bytes.len(), || kept.to_vec());
    }

    fn push(&self, kept_bytes: usize, original_bytes: usize, make: impl FnOnce() -> Vec<u8>) {
        self.capture.push(self.interface, kept_bytes, || Record {
            interface: self.interface,
            direction: self.direction,
            worker: self.worker,
            timestamp_ns: self.timestamp_ns,
            bytes: make(),
            original_bytes,
            lost: 0,
            drop: self.drop,
        });
    }
}
