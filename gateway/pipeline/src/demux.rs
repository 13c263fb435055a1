//! Datagrams from the wire, to their lanes: by what the messages say (a receiver index, an SPI), without looking at
//! addresses; only VXLAN has nothing else.
//!
//! Every segment of a received train is looked at: the kernel merges by ports and length and knows nothing of
//! lanes. Handshake messages pass the gate and leave the line here.

use std::time::Instant;

use trieste_cables::{Admission, Jobs, Message};
use trieste_packet::{CableId, DropReason, LaneId, LayoutKind, Packet};

use crate::owner::{Handoff, HandoffKind};
use crate::pipeline::{Pipeline, send_control};
use crate::tables::{Tables, owner_of};

impl Pipeline {
    /// Sorts one received train: opened here, handed to its owner, or given to a slow half.
    pub(crate) fn demux(&mut self, mut packet: Packet, tables: &Tables, now: Instant) {
        let first = self.message(&packet, 0);
        if packet.layout.kind == LayoutKind::Datagrams {
            let count = usize::from(packet.layout.count);
            if (1..count).any(|index| self.message(&packet, index) != first)
                || !matches!(first, Message::Data(_))
            {
                self.demux_each(&packet, tables, now);
                self.pool.recycle(packet.buf);
                return;
            }
        }
        match first {
            Message::Data(lane) => {
                packet.decision.lane = lane;
                self.route_data(packet, lane, now);
            }
            Message::Keepalive => {
                self.counters.control_in += 1;
                self.pool.recycle(packet.buf);
            }
            Message::Control(_)
            | Message::Greeting
            | Message::Negotiation
            | Message::Stranger
            | Message::Unknown => {
                self.route_control(packet, first, tables, now);
            }
        }
    }

    fn message(&mut self, packet: &Packet, index: usize) -> Message {
        let (start, end) = packet.segment_range(index);
        self.gate.classify(&packet.bytes()[start..end], &packet.outer)
    }

    /// A train of several lanes or kinds: each datagram on its own, copied.
    fn demux_each(&mut self, packet: &Packet, tables: &Tables, now: Instant) {
        for index in 0..usize::from(packet.layout.count) {
            let (start, end) = packet.segment_range(index);
            let Some(buf) = self.pool.alloc_copy(&packet.bytes()[start..end]) else {
                self.drops.lose(CableId(0), DropReason::NoBuffer, &packet.bytes()[start..end]);
                continue;
            };
            let mut single = Packet::new(buf);
            single.outer = packet.outer;
            self.demux(single, tables, now);
        }
    }

    fn route_data(&mut self, packet: Packet, lane: LaneId, now: Instant) {
        let owner = owner_of(lane);
        if owner != self.config.worker && owner.0 < self.config.workers {
            self.to_workers.push(Handoff { to: owner, kind: HandoffKind::Open, packet });
        } else if self.lanes.contains(lane) {
            self.gather(packet, now);
        } else {
            self.drops.discard(packet, DropReason::UnknownReceiver, &mut self.pool);
        }
    }

    /// Adds datagrams to those for the same lane; opens the others first.
    pub(crate) fn gather(&mut self, packet: Packet, now: Instant) {
        if self.group.last().is_some_and(|last| last.decision.lane != packet.decision.lane) {
            self.open_group(now);
        }
        self.group.push(packet);
    }

    /// Opens the datagrams gathered so far, all for one lane.
    pub(crate) fn open_group(&mut self, now: Instant) {
        let Some(lane) = self.group.first().map(|packet| packet.decision.lane) else { return };
        let mut group = std::mem::take(&mut self.group);
        self.open(lane, &mut group, now);
        debug_assert!(self.group.is_empty(), "nothing is gathered while a group is opened");
        self.group = group;
    }

    /// Opens datagrams for one lane, and what came for it before its keys did.
    pub(crate) fn open(&mut self, lane: LaneId, datagrams: &mut Vec<Packet>, now: Instant) {
        let Some(slot) = self.lanes.find(lane) else {
            for packet in datagrams.drain(..) {
                self.drops.discard(packet, DropReason::UnknownReceiver, &mut self.pool);
            }
            return;
        };
        let mut jobs = Jobs {
            input: datagrams,
            output: &mut self.opened,
            pool: &mut self.pool,
            drops: &mut self.drops,
            consumed: &mut self.counters.control_in,
        };
        let (before, consumed) = (jobs.output.len(), *jobs.consumed);
        slot.tunnel.open(&mut jobs, now);
        let is_alive = *jobs.consumed > consumed;
        self.saw_opened(lane, before, is_alive, now);
        self.service(lane, now);
    }

    fn route_control(&mut self, packet: Packet, message: Message, tables: &Tables, now: Instant) {
        let lane = match message {
            Message::Control(lane) if self.is_known(lane) => Some(lane),
            Message::Control(_) => {
                self.drops.discard(packet, DropReason::UnknownReceiver, &mut self.pool);
                return;
            }
            Message::Greeting | Message::Negotiation => None,
            Message::Stranger => {
                self.drops.discard(packet, DropReason::UnknownPeer, &mut self.pool);
                return;
            }
            Message::Data(_) | Message::Keepalive | Message::Unknown => {
                self.drops.discard(packet, DropReason::UnknownDatagram, &mut self.pool);
                return;
            }
        };
        match self.gate.admit(packet.bytes(), &packet.outer, now) {
            Admission::Pass(identity) => {
                let known = identity.and_then(|identity| tables.lane_of_identity(&identity));
                match lane.or(known) {
                    Some(lane) => self.deliver_control(packet, lane, now),
                    None => self.drops.discard(packet, DropReason::UnknownPeer, &mut self.pool),
                }
            }
            Admission::Taken => {
                self.counters.control_in += 1;
                self.pool.recycle(packet.buf);
            }
            Admission::Reply(payload) => {
                self.counters.control_in += 1;
                self.counters.control_out += 1;
                self.counters.made += 1;
                let outer = packet.outer;
                self.pool.recycle(packet.buf);
                send_control(&payload, outer, CableId(0), &mut self.to_wire, &mut self.pool, &mut self.drops);
            }
            Admission::Refuse(reason) => self.drops.discard(packet, reason, &mut self.pool),
        }
    }

    /// Whether a lane exists, as far as this worker can tell: others' lanes are theirs to know.
    fn is_known(&self, lane: LaneId) -> bool {
        let owner = owner_of(lane);
        if owner == self.config.worker { self.lanes.contains(lane) } else { owner.0 < self.config.workers }
    }

    /// Gives a control message that has passed the gate to its lane.
    pub(crate) fn deliver_control(&mut self, packet: Packet, lane: LaneId, now: Instant) {
        let owner = owner_of(lane);
        if owner != self.config.worker {
            self.hand_over(Handoff { to: owner, kind: HandoffKind::Control(lane), packet });
            return;
        }
        let before = self.drops.total();
        let Some(slot) = self.lanes.find(lane) else {
            self.drops.discard(packet, DropReason::UnknownPeer, &mut self.pool);
            return;
        };
        slot.tunnel.handle_datagram(packet.bytes(), &packet.outer, now, &mut self.drops);
        if self.drops.total() == before {
            self.counters.control_in += 1;
        }
        self.pool.recycle(packet.buf);
        self.service(lane, now);
    }
}
