//! How a gateway leaves: it gives the lead away, and ends what must end in order.

use std::time::{Duration, Instant};

use trieste_control::admin::Severity;
use trieste_control::members::Shutdown;

use super::Control;
use crate::engine::Engine;

/// How long a planned stop waits for the Lease to be given back.
const RELEASE: Duration = Duration::from_millis(300);
/// How long a gateway that gave the lead away waits for a successor, and since it was asked to stop at the most. Upstream's
/// pods have a second from being asked to being killed.
const LINGER: Duration = Duration::from_millis(500);
const LINGER_UNTIL: Duration = Duration::from_millis(600);

impl Control<'_> {
    /// Releases the Lease before a planned stop. Returns until when to wait for a successor; `None` if there is nothing to wait
    /// for.
    pub(super) async fn step_down(&mut self, engine: &Engine) -> Option<Instant> {
        let latest = Instant::now() + LINGER_UNTIL;
        let is_relieved = self.drain_to_stop(engine);
        let was_leader = self.candidate.is_leader(Instant::now());
        let is_released = self.candidate.release(RELEASE).await;
        if was_leader {
            let message = if is_released {
                "the lead is given away before a stop"
            } else {
                "the Lease could not be given back in time"
            };
            self.recorder.record(Severity::Info, "SteppingDown", message);
        }
        // Nobody else can take over a Lease that was not given back.
        (is_relieved || (was_leader && is_released)).then(|| latest.min(Instant::now() + LINGER))
    }

    /// Returns how this gateway ends: for good if its node has lost the gateway label.
    pub(crate) fn shutdown(&self) -> Shutdown {
        let is_gateway = self.state.found.settings.is_gateway || !self.state.was_gateway;
        if is_gateway { Shutdown::Restart } else { Shutdown::Removal }
    }

    /// Ends what must end in order. Who leaves for good has ended its workers before.
    pub(crate) async fn stop(self, within: Duration) {
        let shutdown = self.shutdown();
        let mut memory = self.memory;
        let is_for_good = shutdown == Shutdown::Removal;
        if is_for_good && let Some(memory) = memory.take() {
            // First, or a restart would begin with shares that are somebody else's.
            memory.clear_slots();
            memory.stop(within).await;
        }
        let memory = async {
            if let Some(memory) = memory {
                memory.stop(within).await;
            }
        };
        // Saving the results of discovery gets a bounded time.
        let discovery = tokio::time::timeout(within, self.discovery.stop());
        let globalnet = async {
            if let Some(controllers) = &self.globalnet.controllers {
                controllers.release(within).await;
            }
        };
        // Siblings remove what stays behind, so that a store that is slow costs no more than half of it; shares of the outside
        // ports that are given up are worth all of it.
        let within = if is_for_good { within } else { within / 2 };
        let _ = tokio::join!(memory, discovery, globalnet, self.peers.handle.stop(shutdown, within));
    }
}
