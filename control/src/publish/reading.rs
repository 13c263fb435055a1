//! A gateway's status as the heartbeat reads it: most beats need no more of it than that it says what it said before.

use std::sync::Arc;

use crate::api::{HaStatus, PublishedStatus};

/// A gateway's status at one moment, which is long where there are many connections.
pub trait StatusReading {
    /// Returns whether this gateway carries traffic.
    fn ha_status(&self) -> HaStatus;

    /// Puts the status together.
    fn published(&self) -> PublishedStatus;

    /// Returns `true` if it says what `before` said, but for counters, round trips, times, and numbers in messages. May return
    /// `false` where it does: then the status is put together to be compared.
    fn is_unchanged_since(&self, before: &Self) -> bool;
}

impl StatusReading for PublishedStatus {
    fn ha_status(&self) -> HaStatus {
        self.ha_status
    }

    fn published(&self) -> PublishedStatus {
        self.clone()
    }

    fn is_unchanged_since(&self, _: &Self) -> bool {
        false
    }
}

impl<T: StatusReading> StatusReading for Arc<T> {
    fn ha_status(&self) -> HaStatus {
        T::ha_status(self)
    }

    fn published(&self) -> PublishedStatus {
        T::published(self)
    }

    fn is_unchanged_since(&self, before: &Self) -> bool {
        T::is_unchanged_since(self, before)
    }
}
