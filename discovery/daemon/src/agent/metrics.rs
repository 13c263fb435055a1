//! The Prometheus page: upstream's two metrics under their names, the controller's, and the process's own.

use jiff::Timestamp;
use trieste_control::exposition::{Family, Kind, Page};
use trieste_control::process::{self, ProcessStats};
use trieste_control::runner::{self, MetricsSnapshot};
use trieste_discovery_agent::AgentStatus;

/// What the page is about.
#[derive(Debug)]
pub struct Snapshot<'s> {
    /// How far the agent is.
    pub status: &'s AgentStatus,
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
    let gauge = |name, help| Family::new(Kind::Gauge, name, help);
    let mut page = Page::default();
    let labels = |direction, name| [("direction", direction), ("operation", "create"), ("syncer_name", name)];
    let status = snapshot.status;
    let mut exports = gauge("submariner_service_export", "Count of exported services");
    exports.set(&labels("localToRemote", "Local ServiceImport"), status.exports as u64);
    let mut imports = gauge("submariner_service_import", "Count of imported services");
    imports.set(&labels("remoteToLocal", "Remote ServiceImport"), status.imports as u64);
    let mut build = gauge("trieste_build_info", "Version of the program.");
    build.set(&[("version", env!("CARGO_PKG_VERSION"))], 1u64);
    let refused =
        gauge("trieste_discovery_refused_objects", "Objects of other clusters that are left alone.");
    let settled = gauge("trieste_discovery_settled", "Whether nothing is left to be written.");
    let settled = settled.with(u64::from(status.is_settled));
    let refused = refused.with(status.refused.len() as u64);
    [exports, imports, build, refused, settled].into_iter().for_each(|family| page.add(family));
    runner::render(&mut page, &[snapshot.controller]);
    if let Some(stats) = &snapshot.process {
        process::render(&mut page, stats, snapshot.started);
    }
    page.into_text()
}
