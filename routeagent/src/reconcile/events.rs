//! Events for the driver's handler, if it has one.

use tracing::warn;

use super::Reconciler;
use crate::condition::Condition;
use crate::events::{Refusal, StartError};
use crate::state::ClusterState;

impl<H> Reconciler<H> {
    /// Starts the driver's handler of events, if it has one; belongs before the first pass.
    ///
    /// # Errors
    ///
    /// The handler's.
    pub fn start_handlers(&mut self) -> Result<(), StartError> {
        self.events.start()
    }

    /// Stops the driver's handler of events, after the last pass.
    pub fn stop_handlers(&mut self) {
        for Refusal { handler, event, error, .. } in self.events.stop() {
            warn!(handler, event, error, "event refused");
        }
    }

    /// Stops the driver's handler of events and has it remove everything of its own; returns what it could not do.
    pub(super) fn uninstall_handlers(&mut self) -> Vec<Condition> {
        self.events.uninstall().into_iter().map(Condition::from).collect()
    }

    /// Sends the events that lead to a state; returns what could not be done.
    pub(super) fn send_events(&mut self, state: Option<&ClusterState>) -> Vec<Condition> {
        let Some(state) = state else { return Vec::new() };
        let outcome = self.events.follow(state);
        for Refusal { handler, event, error, .. } in outcome.dropped {
            let dropped = self.events.dropped();
            warn!(handler, event, error, dropped, "event dropped after too many failures");
        }
        outcome.refused.into_iter().map(Condition::from).collect()
    }
}

impl From<Refusal> for Condition {
    fn from(Refusal { handler, event, error, is_dropped }: Refusal) -> Self {
        Self::EventRefused { handler, event, error, is_dropped }
    }
}
