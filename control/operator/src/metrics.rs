//! The Prometheus page: Fabrics, passes, repairs, the controller's counters, and the process's own.

use jiff::Timestamp;
use trieste_control::exposition::{Family, Kind, Page};
use trieste_control::process::{self, ProcessStats};
use trieste_control::runner::{self, MetricsSnapshot};

use crate::controller::OperatorStatus;
use crate::worker::Counts;

/// What the page is about.
#[derive(Debug)]
pub struct Snapshot<'s> {
    /// How far the operator is.
    pub status: &'s OperatorStatus,
    /// The worker's counters.
    pub counts: &'s Counts,
    /// The controller's name and counters.
    pub controller: (&'static str, MetricsSnapshot),
    /// The process; `None` where it cannot be read.
    pub process: Option<ProcessStats>,
    /// When the process started.
    pub started: Timestamp,
}

/// Renders the page.
#[must_use]
pub fn render(snapshot: Snapshot<'_>) -> String {
    let mut page = Page::default();
    let mut build = Family::new(Kind::Gauge, "trieste_build_info", "Version of the program.");
    build.set(&[("version", env!("CARGO_PKG_VERSION"))], 1u64);
    let mut fabrics = Family::new(Kind::Gauge, "trieste_operator_fabrics", "Fabrics, by phase.");
    for (phase, count) in &snapshot.status.phases {
        fabrics.set(&[("phase", phase)], *count);
    }
    let help = "Times that a part was carried out, by outcome.";
    let mut passes = Family::new(Kind::Counter, "trieste_operator_passes_total", help);
    for ((part, outcome), count) in &snapshot.counts.passes {
        passes.set(&[("outcome", outcome), ("part", part)], *count);
    }
    let help = "Objects that somebody else had changed, and that are again as they should be.";
    let repairs = Family::new(Kind::Counter, "trieste_operator_repairs_total", help);
    let repairs = repairs.with(snapshot.counts.repairs);
    [build, fabrics, passes, repairs].into_iter().for_each(|family| page.add(family));
    runner::render(&mut page, &[snapshot.controller]);
    if let Some(stats) = &snapshot.process {
        process::render(&mut page, stats, snapshot.started);
    }
    page.into_text()
}
