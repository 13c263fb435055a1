//! A worker's published state, ten times a second.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use trieste_io::PacketIo;

use super::Worker;

/// How often counters are published, and the longest wait.
const PUBLISH_INTERVAL: Duration = Duration::from_millis(100);

impl<T: PacketIo, W: PacketIo> Worker<T, W> {
    pub(super) fn publish(&mut self, now: Instant, is_stopped: bool) {
        self.next_publish = now + PUBLISH_INTERVAL;
        let mut guard = self.view.published.lock().unwrap_or_else(PoisonError::into_inner);
        // The lists are as long as there are lanes: in place, unless somebody reads them.
        let published = Arc::make_mut(&mut guard);
        let counters = self.pipeline.publish(&mut published.lanes, now);
        debug_assert!(counters.conservation().holds(), "packets are lost unseen: {counters:?}");
        if published.counters.dropped != counters.dropped {
            published.drops.clear();
            published.drops.extend(self.pipeline.drops.iter());
        }
        published.counters = counters;
        published.sessions = self.sessions.publish(&self.pipeline, now);
        published.restarts = self.restarts;
        published.stalls = self.pipeline.stalls();
        published.last_error.clone_from(&self.last_error);
        published.rings = self.wire.rings();
        published.is_stopped = is_stopped;
        drop(guard);
        let mut events = self.view.events.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(event) = self.pipeline.poll_event() {
            events.push(event);
        }
    }
}
