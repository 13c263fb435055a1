//! A worker's published state, ten times a second.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use trieste_io::PacketIo;

use super::Worker;
use super::handle::Published;

/// How often counters are published, and the longest wait.
const PUBLISH_INTERVAL: Duration = Duration::from_millis(100);

impl<T: PacketIo, W: PacketIo> Worker<T, W> {
    pub(super) fn publish(&mut self, now: Instant, is_stopped: bool) {
        self.next_publish = now + PUBLISH_INTERVAL;
        let counters = self.pipeline.snapshot(now);
        debug_assert!(counters.conservation().holds(), "packets are lost unseen: {counters:?}");
        let published = Published {
            counters,
            drops: self.pipeline.drops.iter().collect(),
            lanes: self.pipeline.reports(now).collect(),
            sessions: self.sessions.publish(&self.pipeline, now),
            restarts: self.restarts,
            stalls: self.pipeline.stalls(),
            last_error: self.last_error.clone(),
            is_stopped,
        };
        *self.view.published.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(published);
        let mut events = self.view.events.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(event) = self.pipeline.poll_event() {
            events.push(event);
        }
    }
}
