//! Handing flows over before a stop.

use std::time::Instant;

use trieste_pipeline::LaneCommand;

use super::Engine;
use crate::worker::Command;

impl Engine {
    /// Hands translated connections to siblings, once they know them, or takes them again.
    pub fn set_draining(&self, is_draining: bool) {
        self.fleet.set_draining(is_draining, Instant::now());
    }

    /// Has every probe say that others are to be preferred, or that they are not any more: far ends move their flows at
    /// once. What still arrives is carried as before.
    pub fn decline(&self, declines: bool) {
        for worker in &self.workers {
            worker.command(Command::Lane(LaneCommand::Draining(declines)));
        }
    }

    /// How many packets were carried since the start, both ways: from and to the TUN device.
    #[must_use]
    pub fn carried(&self) -> u64 {
        let counters = self.workers.iter().map(|worker| worker.published().counters);
        counters.map(|counters| counters.tun_in + counters.tun_out).sum()
    }
}
