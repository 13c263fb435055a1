//! The controllers of this process, by the names of controller-runtime where the meaning is the same.

use super::{Histogram, MetricsSnapshot, RECONCILE_BUCKETS};
use crate::exposition::{Family, Kind, Page, Value};

/// Writes the numbers of each controller on a page for Prometheus.
pub fn render(page: &mut Page, controllers: &[(&'static str, MetricsSnapshot)]) {
    let gauge = |name, help| Family::new(Kind::Gauge, name, help);
    let counter = |name, help| Family::new(Kind::Counter, name, help);
    let mut depth = gauge("workqueue_depth", "Keys that wait to be reconciled");
    let mut oldest = gauge(
        "trieste_controller_oldest_key_seconds",
        "For how long the oldest of the keys that wait to be reconciled has waited",
    );
    let mut total = counter("controller_runtime_reconcile_total", "Reconciliations");
    let mut errors = counter(
        "controller_runtime_reconcile_errors_total",
        "Writes of reconciliations that failed, by reason",
    );
    let mut writes = counter("trieste_controller_writes_total", "Writes of reconciliations that succeeded");
    let mut time = Family::new(
        Kind::Histogram,
        "controller_runtime_reconcile_time_seconds",
        "How long reconciliations took, with their writes",
    );
    for (controller, numbers) in controllers {
        let labels = [("controller", *controller)];
        depth.set(&[("name", controller)], numbers.depth as u64);
        oldest.set(&labels, numbers.oldest.as_secs_f64());
        total.set(&labels, numbers.reconciles);
        writes.set(&labels, numbers.writes);
        for reason in ["conflict", "refused", "unavailable"] {
            let count = numbers.errors.get(reason).copied().unwrap_or_default();
            errors.set(&[labels[0], ("reason", reason)], count);
        }
        let Histogram { buckets, count, sum } = &numbers.duration;
        let buckets: Vec<(f64, u64)> = RECONCILE_BUCKETS.into_iter().zip(*buckets).collect();
        time.observe(&labels, &buckets, *count, Value::Real(sum.as_secs_f64()));
    }
    [depth, oldest, total, errors, writes, time].into_iter().for_each(|family| page.add(family));
}
