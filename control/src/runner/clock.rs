//! The clock of timers.

use std::time::Instant;

/// Returns the time of the monotonic clock that timers follow, which tests may stop.
pub(super) fn clock() -> Instant {
    tokio::time::Instant::now().into_std()
}
