//! Packets with a decision, to their lanes: sealed here, or handed to the worker that owns the lane.

use std::time::Instant;

use trieste_cables::Jobs;
use trieste_packet::{DropReason, LaneId};

use crate::owner::{Handoff, HandoffKind};
use crate::pipeline::Pipeline;
use crate::watching::is_data;

impl Pipeline {
    /// Seals what is in `ready`, one call per run of packets for the same lane.
    pub(crate) fn seal_ready(&mut self, now: Instant) {
        // Most batches are for one lane of ours: then nothing has to be moved.
        if let Some(first) = self.ready.first().map(|packet| packet.decision)
            && first.owner == self.config.worker
            && self.ready.iter().all(|packet| packet.decision.lane == first.lane)
        {
            std::mem::swap(&mut self.ready, &mut self.group);
            self.seal_group(Some(first.lane), now);
            return;
        }
        let mut ready = std::mem::take(&mut self.ready);
        let mut current: Option<LaneId> = None;
        for packet in ready.drain(..) {
            if packet.decision.owner != self.config.worker {
                self.hand_over(Handoff { to: packet.decision.owner, kind: HandoffKind::Seal, packet });
                continue;
            }
            if current != Some(packet.decision.lane) {
                self.seal_group(current, now);
                current = Some(packet.decision.lane);
            }
            self.group.push(packet);
        }
        self.seal_group(current, now);
        self.ready = ready;
    }

    fn seal_group(&mut self, lane: Option<LaneId>, now: Instant) {
        let Some(lane) = lane else { return };
        let Some(slot) = self.lanes.find(lane) else {
            for packet in self.group.drain(..) {
                self.drops.discard(packet, DropReason::NoLane, &mut self.pool);
            }
            return;
        };
        let is_used = slot.watching.is_some() && self.group.iter().any(|packet| is_data(packet.bytes()));
        let mut jobs = Jobs {
            input: &mut self.group,
            output: &mut self.to_wire,
            pool: &mut self.pool,
            drops: &mut self.drops,
            consumed: &mut self.counters.control_in,
        };
        slot.tunnel.seal(&mut jobs, now);
        if let Some(watching) = slot.watching.as_deref_mut().filter(|_| is_used) {
            watching.saw_sealed(self.schedule.awake.time(now));
            self.schedule.hasten(lane, watching, now);
        }
        self.service(lane, now);
    }

    /// Queues a packet for its owner.
    pub(crate) fn hand_over(&mut self, handoff: Handoff) {
        if handoff.to.0 >= self.config.workers {
            self.drops.discard(handoff.packet, DropReason::NoLane, &mut self.pool);
            return;
        }
        self.to_workers.push(handoff);
    }
}
