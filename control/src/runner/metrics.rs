//! The counters of a runner, by the names of controller-runtime where the meaning is the same.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The upper bounds of the buckets of durations, in seconds.
pub const RECONCILE_BUCKETS: [f64; 8] = [0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 10.0];

/// The numbers of one controller. Cheap to clone; clones share them.
#[derive(Debug, Clone, Default)]
pub struct ControllerMetrics {
    shared: Arc<Mutex<Counts>>,
}

#[derive(Debug, Default)]
struct Counts {
    snapshot: MetricsSnapshot,
    oldest: Option<Instant>,
}

/// The numbers of one controller at a moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MetricsSnapshot {
    /// Keys that wait to be reconciled: `workqueue_depth`.
    pub depth: usize,
    /// How long the oldest of them has waited.
    pub oldest: Duration,
    /// Reconciliations: `controller_runtime_reconcile_total`.
    pub reconciles: u64,
    /// Writes that succeeded.
    pub writes: u64,
    /// Writes that failed, by reason: `controller_runtime_reconcile_errors_total`.
    pub errors: BTreeMap<&'static str, u64>,
    /// Durations of plans and of their writes together: `controller_runtime_reconcile_time_seconds`.
    pub duration: Histogram,
}

/// A histogram of durations.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Histogram {
    /// Observations up to each of [`RECONCILE_BUCKETS`], each with those of the buckets before.
    pub buckets: [u64; RECONCILE_BUCKETS.len()],
    /// The number of observations.
    pub count: u64,
    /// Their sum.
    pub sum: Duration,
}

impl Histogram {
    /// Adds a duration.
    pub fn observe(&mut self, duration: Duration) {
        self.count += 1;
        self.sum += duration;
        let seconds = duration.as_secs_f64();
        for (bucket, bound) in self.buckets.iter_mut().zip(RECONCILE_BUCKETS) {
            *bucket += u64::from(seconds <= bound);
        }
    }
}

/// The controllers of a process by name, for its metrics page. Cheap to clone; clones share them.
#[derive(Debug, Clone, Default)]
pub struct ControllerRegistry {
    shared: Arc<Mutex<BTreeMap<&'static str, ControllerMetrics>>>,
}

impl ControllerRegistry {
    /// Adds a controller, in place of one of the same name.
    pub fn add(&self, name: &'static str, metrics: ControllerMetrics) {
        self.lock().insert(name, metrics);
    }

    /// Returns the numbers of each controller at `now`, by name.
    pub fn snapshot(&self, now: Instant) -> Vec<(&'static str, MetricsSnapshot)> {
        self.lock().iter().map(|(name, metrics)| (*name, metrics.snapshot(now))).collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<&'static str, ControllerMetrics>> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ControllerMetrics {
    /// Returns the numbers at `now`.
    pub fn snapshot(&self, now: Instant) -> MetricsSnapshot {
        let counts = self.lock();
        let oldest = counts.oldest.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        MetricsSnapshot { oldest, ..counts.snapshot.clone() }
    }

    /// Records what is queued.
    pub(super) fn set_queue(&self, depth: usize, oldest: Option<Instant>) {
        let mut counts = self.lock();
        counts.snapshot.depth = depth;
        counts.oldest = oldest;
    }

    /// Records the end of a reconciliation.
    pub(super) fn reconciled(&self, duration: Duration) {
        let mut counts = self.lock();
        counts.snapshot.reconciles += 1;
        counts.snapshot.duration.observe(duration);
    }

    /// Records a write: what failed, if it did.
    pub(super) fn written(&self, failure: Option<&'static str>) {
        let mut counts = self.lock();
        match failure {
            None => counts.snapshot.writes += 1,
            Some(reason) => *counts.snapshot.errors.entry(reason).or_default() += 1,
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Counts> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
