//! The Prometheus page: upstream's two metrics under their names, the controller's, and the process's own.

use std::time::Instant;

use jiff::Timestamp;
use trieste_control::exposition::{Family, Kind, Page, Value};
use trieste_control::process::{self, ProcessStats};
use trieste_control::runner::{self, Histogram, MetricsSnapshot, RECONCILE_BUCKETS};
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
    /// The present moment.
    pub now: Instant,
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
    let [lag, waiting] = sync_lag(status, snapshot.now);
    [exports, imports, build, refused, settled, lag, waiting].into_iter().for_each(|family| page.add(family));
    runner::render(&mut page, &[snapshot.controller]);
    if let Some(stats) = &snapshot.process {
        process::render(&mut page, stats, snapshot.started);
    }
    page.into_text()
}

/// Returns how long changes took from one store to the other, and for how long the oldest waits of those that are not there.
fn sync_lag(status: &AgentStatus, now: Instant) -> [Family; 2] {
    let mut written = Family::new(
        Kind::Histogram,
        "trieste_discovery_sync_lag_seconds",
        "From the event in one store to the last write that follows from it in the other.",
    );
    let mut waiting = Family::new(
        Kind::Gauge,
        "trieste_discovery_sync_waiting_seconds",
        "For how long the oldest change waits that is not in the other store yet.",
    );
    for (direction, lag) in [("localToRemote", &status.to_broker), ("remoteToLocal", &status.to_cluster)] {
        let labels = [("direction", direction)];
        let Histogram { buckets, count, sum } = &lag.written;
        let buckets: Vec<(f64, u64)> = RECONCILE_BUCKETS.into_iter().zip(*buckets).collect();
        written.observe(&labels, &buckets, *count, Value::Real(sum.as_secs_f64()));
        let oldest = lag.oldest.map(|since| now.saturating_duration_since(since));
        waiting.set(&labels, oldest.unwrap_or_default().as_secs_f64());
    }
    [written, waiting]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use super::*;

    const DOCUMENTATION: &str = include_str!("../../../../docs/operations/discovery-agent.md");
    /// What is of every controller, and documented elsewhere.
    const OF_CONTROLLERS: &str = "trieste_controller_";

    #[test]
    fn the_documentation_names_every_metric_and_no_other() {
        let (mut status, controller) =
            (AgentStatus::default(), ("service-discovery", MetricsSnapshot::default()));
        (status.exports, status.imports) = (1, 1);
        let (started, now) = (Timestamp::now(), Instant::now());
        let page = render(Snapshot { status: &status, controller, process: None, started, now });
        let is_ours = |name: &&str| {
            (name.starts_with("submariner_") || name.starts_with("trieste_"))
                && !name.starts_with(OF_CONTROLLERS)
        };
        let rendered = page.lines().filter_map(|line| Some(line.strip_prefix("# TYPE ")?.split_once(' ')?.0));
        let documented =
            DOCUMENTATION.lines().filter_map(|line| Some(line.strip_prefix("| `")?.split_once('`')?.0));
        let rendered: BTreeSet<&str> = rendered.filter(is_ours).collect();
        let documented: BTreeSet<&str> = documented.filter(is_ours).collect();
        assert_eq!(rendered, documented);
    }

    #[test]
    fn lags_of_both_directions_are_on_the_page() {
        let now = Instant::now() + Duration::from_secs(10);
        let mut status = AgentStatus::default();
        status.to_broker.written.observe(Duration::from_millis(20));
        status.to_cluster.oldest = Some(now - Duration::from_secs(7));
        let controller = ("service-discovery", MetricsSnapshot::default());
        let page =
            render(Snapshot { status: &status, controller, process: None, started: Timestamp::now(), now });
        for line in [
            "trieste_discovery_sync_lag_seconds_bucket{direction=\"localToRemote\",le=\"0.005\"} 0",
            "trieste_discovery_sync_lag_seconds_bucket{direction=\"localToRemote\",le=\"0.025\"} 1",
            "trieste_discovery_sync_lag_seconds_sum{direction=\"localToRemote\"} 0.02",
            "trieste_discovery_sync_lag_seconds_count{direction=\"remoteToLocal\"} 0",
            "trieste_discovery_sync_waiting_seconds{direction=\"localToRemote\"} 0",
            "trieste_discovery_sync_waiting_seconds{direction=\"remoteToLocal\"} 7",
        ] {
            assert!(page.lines().any(|found| found == line), "{line} is not in:\n{page}");
        }
    }
}
