//! Numbers of the Prometheus page beyond the status document.

use std::time::Duration;

use jiff::Timestamp;
use trieste_control::admin::GlobalnetStatus;
use trieste_control::natdiscovery;
use trieste_control::process::ProcessStats;
use trieste_control::recorder::EventCounts;
use trieste_control::runner::MetricsSnapshot;
use trieste_control::store::kube::Requests;
use trieste_control::sync::SyncStats;
use trieste_pipeline::Counters;

use crate::ike::IkeNumbers;
use crate::notice::NoticeNumbers;

/// Numbers of the page beyond the status document.
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
    /// Counters of this process's syncers.
    pub sync: SyncStats,
    /// Counters of this process's controllers, by name.
    pub controllers: Vec<(&'static str, MetricsSnapshot)>,
    /// Counters of NAT discovery.
    pub discovery: natdiscovery::Counters,
    /// Counters of notices to route agents.
    pub notices: NoticeNumbers,
    /// How often what happened.
    pub events: EventCounts,
    /// Whether there were Endpoints to start from before any store had answered.
    pub started_from_memory: bool,
    /// Globalnet, in clusters that have it.
    pub globalnet: Option<GlobalnetStatus>,
    /// Counters of IKE, where cables are IPsec's.
    pub ike: Option<IkeNumbers>,
}
