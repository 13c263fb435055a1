//! The Prometheus page: what upstream's gateway says under upstream's names, and what is ours under `trieste_…`.
//!
//! A pure function of the status document and a few numbers beside it; the counters themselves belong to the
//! workers. `docs/operations/metrics.md` describes every metric, and a test compares it with what is rendered.
//!
//! * [`exposition`] — the text format. * `upstream` — names that are API. * `cluster` — stores, election, discovery,
//!   health, conditions. * `globalnet` — addresses and translation. * `ipsec` — IKE and SAs. * `ours` — the packet path and the rest.

pub mod exposition;
pub mod process;

mod cluster;
mod globalnet;
mod ipsec;
mod ours;
mod paths;
mod upstream;

use std::time::Duration;

use jiff::Timestamp;
use trieste_control::admin::{GatewayStatus, GlobalnetStatus};
use trieste_control::natdiscovery;
use trieste_control::recorder::EventCounts;
use trieste_control::store::kube::Requests;
use trieste_control::sync::SyncStats;
use trieste_pipeline::Counters;

use crate::capture::CaptureCounters;
use crate::notice::NoticeNumbers;
pub use exposition::CONTENT_TYPE;
use exposition::Page;
pub use ipsec::IkeNumbers;
pub use process::ProcessStats;

/// What the page says beyond the status document.
#[derive(Debug, Clone, Default)]
pub struct MetricsExtra {
    /// How often the gateway has written its `Gateway` object.
    pub sync_iterations: u64,
    /// Per cable name, when it was last connected; time since 1970.
    pub established: Vec<(String, Duration)>,
    /// Per worker number, its pipeline's counters.
    pub workers: Vec<(u32, Counters)>,
    /// The process; see [`ProcessStats::read`].
    pub process: Option<ProcessStats>,
    /// The time that it is.
    pub now: Timestamp,
    /// Requests to API servers, `local` and `broker`; directories have none.
    pub requests: Vec<(&'static str, Requests)>,
    /// What the syncers of this process have done.
    pub sync: SyncStats,
    /// What NAT discovery has counted.
    pub discovery: natdiscovery::Counters,
    /// What notices to route agents have counted.
    pub notices: NoticeNumbers,
    /// How often what happened.
    pub events: EventCounts,
    /// Whether there were Endpoints to start from before any store had answered.
    pub started_from_memory: bool,
    /// Globalnet, in clusters that have it.
    pub globalnet: Option<GlobalnetStatus>,
    /// What IKE counts, where cables are IPsec's.
    pub ike: Option<IkeNumbers>,
}

/// Renders the page. `refused` are connections to the metrics port that found no slot.
#[must_use]
pub fn render(
    status: &GatewayStatus,
    extra: &MetricsExtra,
    captures: CaptureCounters,
    refused: u64,
) -> String {
    let mut page = Page::default();
    upstream::render(&mut page, status, extra);
    ours::gateway(&mut page, status);
    cluster::stores(&mut page, status, extra);
    cluster::election(&mut page, status, extra);
    cluster::sync(&mut page, &extra.sync);
    cluster::discovery(&mut page, status, &extra.discovery);
    cluster::notices(&mut page, extra.notices);
    cluster::health(&mut page, status);
    cluster::state(&mut page, status, extra);
    ours::workers(&mut page, status, extra);
    ours::cables(&mut page, status);
    paths::render(&mut page, status);
    if let Some(status) = &extra.globalnet {
        globalnet::render(&mut page, status);
    }
    if let Some(ike) = &extra.ike {
        ipsec::ike(&mut page, ike);
        ipsec::cables(&mut page, status);
    }
    ours::packets(&mut page, status);
    ours::captures(&mut page, captures);
    ours::server(&mut page, refused);
    if let Some(process) = &extra.process {
        process::render(&mut page, process, status.started);
    }
    page.into_text()
}

#[cfg(test)]
mod recorded;
#[cfg(test)]
mod tests;
