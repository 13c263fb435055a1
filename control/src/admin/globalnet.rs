//! The status of a gateway's Globalnet: addresses, rules, sessions and problems.

use std::net::Ipv4Addr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::Condition;

/// Most allocations, rules and ports that one document lists; what is beyond is counted.
pub const MAX_ROWS: usize = 4_096;

/// A gateway's Globalnet.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GlobalnetStatus {
    /// Whether this cluster has a global CIDR.
    pub is_enabled: bool,
    /// The allocator of addresses.
    #[serde(default)]
    pub controllers: ControllersStatus,
    /// Where addresses are taken from; the first alone is allocated of, as upstream does.
    #[serde(default)]
    pub pools: Vec<PoolStatus>,
    /// Which object has which addresses, by kind, namespace and name; at most [`MAX_ROWS`].
    #[serde(default)]
    pub allocations: Vec<AllocationStatus>,
    /// The sources of packets to other clusters: the first rule that a source is in counts.
    #[serde(default)]
    pub egress: Vec<EgressStatus>,
    /// The targets of the global addresses of this cluster.
    #[serde(default)]
    pub ingress: Vec<IngressStatus>,
    /// Rows of the three lists above that were left out.
    #[serde(default)]
    pub left_out: usize,
    /// Rules that the objects ask for and that cannot be.
    #[serde(default)]
    pub refused_rules: Vec<RefusedRule>,
    /// Live sessions and mappings, by worker.
    #[serde(default)]
    pub workers: Vec<NatWorkerStatus>,
    /// Ports in use, by external address and protocol; at most [`MAX_ROWS`].
    #[serde(default)]
    pub ports: Vec<PortUse>,
    /// Packets that could not be translated, by reason; since start.
    #[serde(default)]
    pub failures: Vec<FailureCount>,
    /// The state that this gateway shares with others of its cluster; `None` where it is alone.
    #[serde(default)]
    pub sharing: Option<SharingStatus>,
    /// The sessions that a restart would begin with.
    #[serde(default)]
    pub snapshot: SnapshotStatus,
    /// The present problems of Globalnet.
    #[serde(default)]
    pub conditions: Vec<Condition>,
}

/// A gateway that translates together with others.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharingStatus {
    /// Whether it has been told the sessions that are its.
    pub is_ready: bool,
    /// Whether it has left its sessions to the others.
    pub is_draining: bool,
    /// How many of the 64 parts of all connections are its.
    pub buckets: u32,
    /// Which eighths of the outside ports it gives out.
    pub slots: Vec<u8>,
    /// Other gateways that it can reach.
    pub siblings_up: u32,
    /// The number of them that translate.
    pub siblings_ready: u32,
    /// Parts that it took over from others; since start.
    pub adopted: u64,
    /// Changes of sessions told to others; since start.
    pub told: u64,
    /// Changes of sessions taken from others; since start.
    pub taken: u64,
    /// Sessions of others that could not be kept; since start.
    pub refused: u64,
    /// Messages said again; since start.
    pub repeated: u64,
    /// How often another one fell behind; since start.
    pub lost: u64,
    /// Messages that others have not heard yet.
    pub backlog: u64,
    /// Ports that wait until others know that they are free.
    pub quarantined: u64,
}

/// Whether this gateway allocates addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControllersStatus {
    /// Whether they run here: they do on the gateway that leads, under a Lease of their own.
    pub is_running: bool,
    /// Their state: `starting`, `off`, `standby`, `writing` or `settled`.
    #[serde(default)]
    pub phase: String,
    /// The Lease's holder as far as is known; empty when nobody holds it.
    #[serde(default)]
    pub holder: String,
    /// Why they cannot do their work; absent when they do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Whether the rules in use are those of the process before this one, because no store has answered yet.
    #[serde(default)]
    pub is_remembered: bool,
    /// Whether a process of Globalnet's own, on this node, does the work.
    #[serde(default)]
    pub is_process: bool,
}

/// A CIDR of global addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolStatus {
    /// The CIDR.
    pub cidr: String,
    /// Addresses that can be allocated.
    pub size: u64,
    /// Addresses that are.
    pub allocated: u64,
    /// Addresses that are not.
    pub available: u64,
    /// Of those allocated, the ones of ClusterGlobalEgressIPs.
    #[serde(default)]
    pub cluster_egress: u64,
    /// Of those allocated, the ones of GlobalEgressIPs.
    #[serde(default)]
    pub egress: u64,
    /// Of those allocated, the ones of GlobalIngressIPs.
    #[serde(default)]
    pub ingress: u64,
    /// Of those allocated, the ones of gateways.
    #[serde(default)]
    pub gateways: u64,
}

/// Which object has which addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllocationStatus {
    /// The object's kind, such as `GlobalEgressIP`.
    pub kind: String,
    /// Its namespace; empty for kinds without.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its addresses, in order.
    #[serde(default)]
    pub addresses: Vec<Ipv4Addr>,
}

/// A rule for packets to other clusters.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EgressStatus {
    /// Its class: `pods`, `headless-pod`, `headless-endpoints`, `namespace` or `cluster`, in the order in which they
    /// come before one another.
    pub class: String,
    /// The object that it is of, `namespace/name`, or a name alone.
    pub name: String,
    /// Source addresses that it gives.
    pub addresses: Vec<Ipv4Addr>,
    /// Sources that it is for, as addresses and CIDRs.
    pub members: Vec<String>,
    /// Live sessions.
    #[serde(default)]
    pub sessions: u64,
}

/// The target of a global address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IngressStatus {
    /// Its class: `service`, `headless-pod`, `headless-endpoints` or `gateway`.
    pub class: String,
    /// The object that it is of, `namespace/name`.
    pub name: String,
    /// The global address.
    pub global: Ipv4Addr,
    /// The object that it stands for.
    pub inside: Ipv4Addr,
    /// Live sessions; a service's are not followed, because its translation needs no state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sessions: Option<u64>,
}

/// A rule that the objects ask for and that cannot be.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedRule {
    /// The object, `namespace/name`.
    pub name: String,
    /// The problem.
    pub reason: String,
}

/// The present translation of a worker.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NatWorkerStatus {
    /// The worker.
    pub worker: u32,
    /// Live sessions.
    pub sessions: u64,
    /// Most sessions that it may have.
    pub max_sessions: u64,
    /// Live mappings.
    pub mappings: u64,
    /// Of these, those that share their port with another.
    #[serde(default)]
    pub shared_ports: u64,
    /// Sessions begun since start.
    #[serde(default)]
    pub begun: u64,
    /// Sessions ended since start.
    #[serde(default)]
    pub ended: u64,
}

/// Ports of an external address that are taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortUse {
    /// The address.
    pub address: Ipv4Addr,
    /// The protocol: `tcp`, `udp` or `icmp`.
    pub protocol: String,
    /// Ports, or ICMP identifiers, that are taken.
    pub used: u64,
    /// How many there are.
    pub of: u64,
}

/// Packets that could not be translated for one reason.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureCount {
    /// The reason, as in the metrics.
    pub reason: String,
    /// How many packets.
    pub packets: u64,
}

/// The state of the sessions on disk.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotStatus {
    /// Sessions in the newest whole snapshot.
    pub sessions: u64,
    /// Changes written after it.
    pub changes: u64,
    /// Bytes on disk, snapshot and changes.
    pub bytes: u64,
    /// When something was last written; absent before the first time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written: Option<Timestamp>,
    /// Changes that were lost on the way because there were too many; the next whole snapshot has them.
    #[serde(default)]
    pub lost: u64,
    /// Sessions that this process began with.
    #[serde(default)]
    pub restored: u64,
    /// Sessions of the process before that this one could not take over.
    #[serde(default)]
    pub not_restored: u64,
}

impl GlobalnetStatus {
    /// Counts the live sessions of all workers.
    #[must_use]
    pub fn sessions(&self) -> u64 {
        self.workers.iter().map(|worker| worker.sessions).sum()
    }
}
