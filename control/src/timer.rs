//! The clock of timers, and waiting for a time that may never come.

use std::future::pending;
use std::time::{Duration, Instant};

/// Returns the time of the monotonic clock that timers follow, which tests may stop.
#[must_use]
pub fn clock() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// Returns how long to rest after work that took so long: so many times as long, but no longer than `longest`, so that it has
/// its share of a core.
#[must_use]
pub fn rest_after(took: Duration, times: u32, longest: Duration) -> Duration {
    took.saturating_mul(times).min(longest)
}

/// Waits until a time; for ever without one. Can be cancelled.
pub async fn sleep_until(time: Option<impl Into<tokio::time::Instant>>) {
    match time {
        Some(time) => tokio::time::sleep_until(time.into()).await,
        None => pending().await,
    }
}
