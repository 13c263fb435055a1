//! The documents of the gateway's admin socket: HTTP/1.1 over a unix socket, shared by the gateway and the command.
//!
//! | request | answer |
//! |---|---|
//! | `GET /v1/status` | [`GatewayStatus`] as JSON |
//! | `GET /v1/gateway` | the Gateway object ([`crate::api::Gateway`]) as JSON |
//! | `GET /v1/capture?…` | pcapng until the client closes; the query is a [`CaptureRequest`] |
//! | `GET /v1/globalnet` | [`GlobalnetStatus`] as JSON |
//! | `GET /v1/trace?…` | [`TraceAnswer`] as JSON; the query is a [`TraceRequest`] |
//! | `GET /v1/secrets` | [`CaptureSecrets`] as JSON: the keys of all SAs, for captures that are to be read |
//! | `GET /metrics` | Prometheus text |
//! | `GET /healthz`, `GET /readyz` | 200, or 503 and a line that says why |
//!
//! A request that cannot be served is answered with a 4xx or 5xx status and an [`ErrorBody`]. Readers must accept
//! unknown fields: a gateway may be newer than the command.

mod cables;
mod capture;
mod globalnet;
mod ipsec;
mod secrets;
mod trace;
mod xdp;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::api::{EndpointSpec, HaStatus};

pub use cables::{CableStatus, DiscoveryStatus, HealthStatus, LaneStatus, PathHealth};
pub use capture::{CapturePoint, CaptureProtocol, CaptureRequest, UnknownWord};
pub use globalnet::{
    AllocationStatus, ControllersStatus, EgressStatus, FailureCount, GlobalnetStatus, IngressStatus,
    MAX_ROWS, NatWorkerStatus, PoolStatus, PortUse, RefusedRule, SharingStatus, SnapshotStatus,
};
pub use ipsec::{ChildSaStatus, IkeSaStatus, IpsecStatus};
pub use secrets::CaptureSecrets;
pub use trace::{TraceAnswer, TraceDirection, TracePacket, TraceProtocol, TraceRequest, TraceStep};
pub use xdp::{XdpStatus, XdpStep, XdpWorker};

/// Where the gateway's admin socket is unless configured otherwise.
pub const DEFAULT_SOCKET: &str = "/run/trieste/gateway.sock";

/// Path of the status document.
pub const STATUS_PATH: &str = "/v1/status";
/// Path of the Gateway object.
pub const GATEWAY_PATH: &str = "/v1/gateway";
/// Path of the capture stream.
pub const CAPTURE_PATH: &str = "/v1/capture";
/// Path of the state of Globalnet.
pub const GLOBALNET_PATH: &str = "/v1/globalnet";
/// Path of what becomes of a packet.
pub const TRACE_PATH: &str = "/v1/trace";
/// Path of the keys of all SAs.
pub const SECRETS_PATH: &str = "/v1/secrets";
/// Path of the metrics page.
pub const METRICS_PATH: &str = "/metrics";
/// Path that answers 200 while the process works, and 503 with a reason when it should be restarted.
pub const LIVE_PATH: &str = "/healthz";
/// Path that answers 200 once the process can carry traffic, and 503 with a reason before.
pub const READY_PATH: &str = "/readyz";
/// Content type of the capture stream.
pub const PCAPNG_CONTENT_TYPE: &str = "application/x-pcapng";

/// One gateway in detail.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GatewayStatus {
    /// The gateway's version.
    pub version: String,
    /// Its process ID.
    pub pid: u32,
    /// When it started.
    pub started: Timestamp,
    /// Its cluster's ID.
    pub cluster: String,
    /// Its host name.
    pub hostname: String,
    /// Whether it carries traffic.
    #[serde(rename = "haStatus")]
    pub ha_status: HaStatus,
    /// Why it cannot work; empty if it can.
    #[serde(default)]
    pub failure: String,
    /// One entry per worker, by ID.
    #[serde(default)]
    pub workers: Vec<WorkerStatus>,
    /// The kernel's features for packet I/O, and the missing ones.
    #[serde(default)]
    pub io: Vec<IoCapability>,
    /// AF_XDP; absent where it is not to be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub xdp: Option<XdpStatus>,
    /// The gateway's own endpoint, as published.
    pub endpoint: EndpointSpec,
    /// One entry per cable.
    #[serde(default)]
    pub connections: Vec<CableStatus>,
    /// One entry per cable to another gateway of this cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub siblings: Vec<CableStatus>,
    /// Dropped packets, by reason, cable and worker. Entries of no packets are left out.
    #[serde(default)]
    pub drops: Vec<DropCount>,
    /// Clusters that are not connected to, and why.
    #[serde(default)]
    pub refused: Vec<RefusedCluster>,
    /// The state of the broker.
    #[serde(default)]
    pub broker: BrokerStatus,
    /// The state of this cluster's own store.
    #[serde(default)]
    pub store: BrokerStatus,
    /// The leader of this cluster's gateways; absent where nobody is elected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub election: Option<ElectionStatus>,
    /// How far this gateway has handed its flows over; absent where it has not been asked to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<DrainStatus>,
    /// The present problems, and other conditions worth knowing, by name and subject.
    #[serde(default)]
    pub conditions: Vec<Condition>,
    /// The newest things that happened, oldest first; at most [`MAX_EVENTS`].
    #[serde(default)]
    pub events: Vec<EventRecord>,
    /// Where every packet went.
    #[serde(default)]
    pub conservation: Conservation,
}

/// A worker: one thread with its own queues.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkerStatus {
    /// The worker's number, from 0.
    pub id: u32,
    /// The CPU it is pinned to; `None` when it is not pinned.
    pub cpu: Option<u32>,
    /// Its state.
    pub state: WorkerState,
    /// Packets taken in since start, both directions; a segment of a train counts as one.
    pub packets: u64,
    /// How often it was restarted after a panic.
    pub restarts: u64,
    /// How often it came more than 5 ms late for its probes of paths: stopped, out of quota, or with too much to do.
    #[serde(default)]
    pub stalls: u64,
    /// For how long it has been late in all, in seconds.
    #[serde(default)]
    pub stalled_s: f64,
    /// How long ago it last began a turn, in seconds; never more than a good second while it works.
    #[serde(default)]
    pub silent_s: f64,
    /// The newest panic's message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}

/// The state of a worker.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum WorkerState {
    /// It is being set up.
    #[default]
    Starting,
    /// It carries packets.
    Running,
    /// It panicked and is being set up again.
    Restarting,
    /// It has ended.
    Stopped,
}

impl WorkerState {
    /// Returns the name that the document has for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Restarting => "restarting",
            Self::Stopped => "stopped",
        }
    }
}

/// How far a gateway has handed its flows over to others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DrainStatus {
    /// Since when it does.
    pub since: Timestamp,
    /// Whether nothing comes any more: it may be stopped.
    pub is_done: bool,
}

/// A feature of packet I/O.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoCapability {
    /// Its name, such as `tun-uso` or `udp-gro`.
    pub feature: String,
    /// Whether it is in use.
    pub state: FeatureState,
    /// Why it is off; empty when it is on.
    #[serde(default)]
    pub reason: String,
}

/// Whether a feature is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FeatureState {
    /// In use.
    On,
    /// Not offered, or switched off; the fallback works.
    Off,
}

/// Most events that a document carries.
pub const MAX_EVENTS: usize = 100;

/// A leader election, as one candidate sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ElectionStatus {
    /// The Lease, `namespace/name`.
    pub lease: String,
    /// This candidate's identity.
    pub identity: String,
    /// The Lease's holder as far as is known; empty when nobody holds it.
    pub holder: String,
    /// Whether this candidate leads.
    pub is_leader: bool,
    /// How often the Lease has changed hands: the term's number.
    pub term: i64,
    /// Since when this candidate has led or not led; absent before the first answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Why the Lease could not be read or written the last time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Something that is wrong, or worth knowing, for as long as it is so.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Condition {
    /// Its name, in CamelCase, such as `UnknownNodeSetting`.
    pub name: String,
    /// How bad it is.
    pub severity: Severity,
    /// The subject: an object such as `Node gw1`, a cluster, an address; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub subject: String,
    /// The problem and its remedy, in a sentence.
    pub message: String,
    /// Since when it has been so.
    pub since: Timestamp,
}

/// How bad a condition is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Severity {
    /// Good to know.
    #[default]
    Info,
    /// Something works less well than it could.
    Warning,
    /// Something does not work.
    Error,
}

impl Severity {
    /// Returns the name that the document has for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventRecord {
    /// When it last happened.
    pub time: Timestamp,
    /// How bad it is.
    pub severity: Severity,
    /// Its name, in CamelCase, such as `LeadershipAcquired`.
    pub reason: String,
    /// The event, in a sentence.
    pub message: String,
    /// How often it happened in a row.
    pub count: u32,
}

/// Dropped packets of one reason, cable and worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DropCount {
    /// The reason, as in the metrics.
    pub reason: String,
    /// The cable's name; absent where no cable was found for the packet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cable: Option<String>,
    /// The worker.
    pub worker: u32,
    /// How many.
    pub packets: u64,
}

/// A cluster that is not connected to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedCluster {
    /// The cluster's ID.
    pub cluster: String,
    /// The Endpoint object's name; absent when the whole cluster is meant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Why.
    pub reason: String,
}

/// The state of the broker.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BrokerStatus {
    /// Whether it answers.
    pub state: BrokerLink,
    /// Since when that has been so; absent without a broker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Why it is away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// When it will be tried next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_try: Option<Timestamp>,
}

/// Whether the broker answers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum BrokerLink {
    /// No broker is configured.
    #[default]
    None,
    /// Not yet reached.
    Connecting,
    /// Both stores agree.
    Synced,
    /// It does not answer; cables stay up with what is known.
    Away,
    /// The cluster's active gateway talks to it; this one is passive.
    Standby,
}

impl BrokerLink {
    /// Returns the name that the document has for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Connecting => "connecting",
            Self::Synced => "synced",
            Self::Away => "away",
            Self::Standby => "standby",
        }
    }
}

/// Where every packet went: `in + made == out + held + dropped`. All in packets since start, but `held`, which is now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conservation {
    /// Packets received, from TUN and from peers.
    #[serde(rename = "in")]
    pub received: u64,
    /// Packets made here: ICMP errors.
    pub made: u64,
    /// Packets sent, to TUN and to peers.
    pub out: u64,
    /// Packets in a bounded queue at this moment.
    pub held: u64,
    /// Packets dropped, for all reasons.
    pub dropped: u64,
}

impl Conservation {
    /// Returns `true` if no packet is unaccounted for.
    pub fn holds(&self) -> bool {
        u128::from(self.received) + u128::from(self.made)
            == u128::from(self.out) + u128::from(self.held) + u128::from(self.dropped)
    }
}

/// The body of a refusal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// The problem and its remedy.
    pub error: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conservation_is_exact() {
        let mut sum = Conservation { received: 10, made: 1, out: 8, held: 1, dropped: 2 };
        assert!(sum.holds());
        sum.dropped = 3;
        assert!(!sum.holds());
        assert!(serde_json::to_string(&sum).unwrap().starts_with(r#"{"in":10,"made":1"#));
    }

    #[test]
    fn the_smallest_status_document_is_read() {
        let text = r#"{"version":"1","pid":7,"started":"2026-11-21T05:48:28Z","cluster":"a","hostname":"h",
            "haStatus":"active","from_the_future":1,"endpoint":{"cluster_id":"a","cable_name":"c","hostname":"h",
            "subnets":[],"private_ip":"10.0.0.1","backend":"wireguard"}}"#;
        let status: GatewayStatus = serde_json::from_str(text).unwrap();
        assert_eq!(status.broker.state, BrokerLink::None);
        let again: GatewayStatus = serde_json::from_value(serde_json::to_value(&status).unwrap()).unwrap();
        assert_eq!(again, status);
    }
}
