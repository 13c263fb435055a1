//! Handing flows over before a stop.

use std::time::Instant;

use trieste_pipeline::{Counters, LaneCommand};

use super::Engine;
use crate::worker::Command;

impl Engine {
    /// Hands translated connections to siblings, once they have copies, or takes them back.
    pub fn set_draining(&self, is_draining: bool) {
        self.membership.set_draining(is_draining, Instant::now());
    }

    /// Makes every probe announce that other gateways are preferred, or no longer: far ends move their flows at once. Packets
    /// that still arrive are carried as before.
    pub fn decline(&self, declines: bool) {
        for worker in &self.workers {
            worker.command(Command::Lane(LaneCommand::Draining(declines)));
        }
    }

    /// Returns how many packets were carried for others since the start, both ways: from and to the TUN device. Health checks go
    /// to a gateway as long as it is there.
    #[must_use]
    pub fn carried(&self) -> u64 {
        let counters = self.workers.iter().map(|worker| worker.counters());
        let carried = |all: Counters| (all.tun_in + all.tun_out).saturating_sub(all.health_checks);
        counters.map(carried).sum()
    }
}
