//! The gateway's state as one document. What it says is taken twice a second; it is put together when somebody reads it,
//! so that many cables cost little while nobody does.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use trieste_control::admin::{
    BrokerStatus, CableStatus, Condition, Conservation, DrainStatus, DropCount, ElectionStatus, EventRecord,
    GatewayStatus, HealthStatus, IoCapability, IpsecStatus, RefusedCluster, WorkerState, WorkerStatus,
    XdpStatus,
};
use trieste_control::api::{Connection, EndpointSpec, HaStatus, PublishedStatus};
use trieste_control::health::{self, PingResults};
use trieste_control::publish::StatusReading;
use trieste_packet::{CableId, DropReason};
use trieste_pipeline::Counters;

use crate::engine::{CableStates, Engine};
use crate::natdiscovery::DiscoveryReader;
use crate::rings;
use crate::worker::{Published, WorkerHandle};

/// The version that objects and answers carry.
pub const VERSION: &str = concat!("v", env!("CARGO_PKG_VERSION"));

/// Fields that do not change while the gateway runs.
#[derive(Debug, Clone)]
pub struct Fixed {
    /// When it started.
    pub started: Timestamp,
    /// Its cluster.
    pub cluster: String,
    /// Its host name.
    pub hostname: String,
    /// Offloads of the devices.
    pub io: Vec<IoCapability>,
    /// Why AF_XDP was wanted and could not be had; what the workers have goes before it.
    pub xdp: Option<XdpStatus>,
}

/// Fields that change while the gateway runs, without the packet path.
#[derive(Debug, Clone, Default)]
pub struct Live {
    /// Its Endpoint.
    pub endpoint: EndpointSpec,
    /// The broker.
    pub broker: BrokerStatus,
    /// Objects that the broker's syncer refuses.
    pub refused: Vec<RefusedCluster>,
    /// The cluster's own store.
    pub store: BrokerStatus,
    /// The election.
    pub election: ElectionStatus,
    /// The conditions.
    pub conditions: Vec<Condition>,
    /// The events.
    pub events: Vec<EventRecord>,
    /// Whether all gateways of this cluster are active.
    pub is_multi: bool,
    /// Whether this gateway leads, and is its cluster's Endpoint in the own store.
    pub is_announced: bool,
    /// How far this gateway has handed its flows over.
    pub drain: Option<DrainStatus>,
    /// Why the gateway cannot work; empty if it can.
    pub failure: String,
}

/// Everything that a status document is put together from, at one moment. Taking it is cheap.
pub struct Source {
    fixed: Fixed,
    live: Live,
    cables: CableStates,
    workers: Vec<WorkerReport>,
    /// Clusters and Endpoints that are not connected to.
    refused: Arc<[RefusedCluster]>,
    /// Names of cables, by counter row.
    names: Arc<BTreeMap<u16, String>>,
    /// What is known of peers beside their cables.
    peers: Option<Peers>,
}

/// What is known of peers beside their cables.
pub struct Peers {
    /// How their addresses were found.
    pub discovery: DiscoveryReader,
    /// What the health check says; `None` if there is none.
    pub pinged: Option<Arc<PingResults>>,
}

/// A worker at one moment.
struct WorkerReport {
    id: u32,
    cpu: Option<usize>,
    silence: Duration,
    published: Published,
}

impl Source {
    /// Takes everything as it is now, without what is known of peers beside their cables.
    #[must_use]
    pub fn of(fixed: &Fixed, engine: &Engine, live: Live, now: Instant) -> Self {
        let worker = |handle: &WorkerHandle| WorkerReport {
            id: u32::from(handle.id.0),
            cpu: handle.cpu,
            silence: handle.silence(now),
            published: handle.numbers(),
        };
        Self {
            fixed: fixed.clone(),
            live,
            cables: engine.cable_states(now, Timestamp::now().as_millisecond()),
            workers: engine.workers().iter().map(worker).collect(),
            refused: Arc::clone(engine.refused()),
            names: Arc::default(),
            peers: None,
        }
    }

    /// Sets the names of cables, by counter row, and what is known of peers.
    #[must_use]
    pub fn with_peers(mut self, names: Arc<BTreeMap<u16, String>>, peers: Peers) -> Self {
        self.names = names;
        self.peers = Some(peers);
        self
    }

    /// Returns the cables.
    #[must_use]
    pub fn cables(&self) -> &CableStates {
        &self.cables
    }

    /// Returns a worker's counters, by its number.
    pub fn counters(&self) -> impl Iterator<Item = (u32, Counters)> {
        self.workers.iter().map(|worker| (worker.id, worker.published.counters))
    }

    /// Puts the document together.
    #[must_use]
    pub fn document(&self) -> GatewayStatus {
        let mut connections = self.cables.connections();
        connections.extend(self.cables.pending());
        if let Some(peers) = &self.peers {
            connections.iter_mut().for_each(|cable| peers.complete(cable));
        }
        let Self { fixed, live, workers, refused, .. } = self;
        let (fixed, live) = (fixed.clone(), live.clone());
        GatewayStatus {
            version: VERSION.to_owned(),
            pid: std::process::id(),
            started: fixed.started,
            cluster: fixed.cluster,
            hostname: fixed.hostname,
            ha_status: ha_status(&live),
            failure: live.failure,
            workers: workers.iter().map(worker).collect(),
            io: fixed.io,
            xdp: xdp(fixed.xdp.as_ref(), workers),
            endpoint: live.endpoint,
            connections,
            siblings: self.cables.siblings(),
            drops: workers.iter().flat_map(|worker| drops(&self.names, worker)).collect(),
            refused: all_refused(live.refused, refused),
            broker: live.broker,
            store: live.store,
            election: Some(live.election),
            drain: live.drain,
            conditions: live.conditions,
            events: live.events,
            conservation: conservation(workers),
        }
    }

    /// Puts the content of the Gateway object together: what [`published`] takes of the document, without the rest.
    fn published(&self) -> PublishedStatus {
        let Self { live, .. } = self;
        let ha_status = ha_status(live);
        let mut cables = if ha_status == HaStatus::Active { self.cables.connections() } else { Vec::new() };
        if let Some(peers) = &self.peers {
            cables.iter_mut().for_each(|cable| peers.merge(cable));
        }
        PublishedStatus {
            version: VERSION.to_owned(),
            ha_status,
            local_endpoint: live.endpoint.clone(),
            status_failure: live.failure.clone(),
            connections: cables.into_iter().map(|cable| cable.connection).filter(has_address).collect(),
            extra: Default::default(),
        }
    }
}

impl StatusReading for Source {
    fn ha_status(&self) -> HaStatus {
        ha_status(&self.live)
    }

    fn published(&self) -> PublishedStatus {
        Self::published(self)
    }

    fn is_unchanged_since(&self, before: &Self) -> bool {
        let (now, then) = (&self.live, &before.live);
        let pinged = |source: &Self| source.peers.as_ref().and_then(|peers| peers.pinged.clone());
        ha_status(now) == ha_status(then)
            && now.endpoint == then.endpoint
            && now.failure == then.failure
            && (ha_status(now) != HaStatus::Active
                || self.cables.are_unchanged_since(&before.cables)
                    && are_alike(pinged(self).as_deref(), pinged(before).as_deref()))
    }
}

/// Returns `true` if health checks say the same but for how many there were and how long they took.
fn are_alike(now: Option<&PingResults>, before: Option<&PingResults>) -> bool {
    match (now, before) {
        (Some(now), Some(before)) => {
            let is_same = now.iter().zip(before).all(|((name, now), (known, before))| {
                (name, now.status, now.ip, &now.message) == (known, before.status, before.ip, &before.message)
            });
            now.len() == before.len() && is_same
        }
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    }
}

impl Peers {
    /// Adds what is known of a cable's peer.
    fn complete(&self, cable: &mut CableStatus) {
        let cable_name = &cable.connection.endpoint.cable_name;
        cable.discovery = self.discovery.status(cable_name);
        let view = self.pinged.as_ref().and_then(|pinged| pinged.get(cable_name));
        cable.health = view.map(HealthStatus::from);
        self.merge(cable);
    }

    /// Merges what is known of a cable's peer into its connection.
    fn merge(&self, cable: &mut CableStatus) {
        if let Some(pinged) = &self.pinged {
            let view = pinged.get(&cable.connection.endpoint.cable_name);
            health::merge(&mut cable.connection, view);
        }
        // A peer that answers pings may lack the SA of another pair of subnets all the same.
        if cable.connection.status_message.is_empty()
            && let Some(remark) = cable.ipsec.as_ref().and_then(IpsecStatus::remark)
        {
            cable.connection.status_message = remark;
        }
    }
}

/// Returns what the broker's syncer refuses, and what the engine does beside.
fn all_refused(mut refused: Vec<RefusedCluster>, by_engine: &[RefusedCluster]) -> Vec<RefusedCluster> {
    let from_sync = refused.len();
    for entry in by_engine {
        if !refused[..from_sync].contains(entry) {
            refused.push(entry.clone());
        }
    }
    refused
}

/// A status document, which is put together when somebody reads it for the first time.
pub enum Document {
    /// Of everything that was taken.
    Taken(Box<Source>, OnceLock<Arc<GatewayStatus>>),
    /// As somebody has made it.
    Ready(Arc<GatewayStatus>),
}

impl Document {
    /// Returns the document of everything that was taken.
    #[must_use]
    pub fn of(source: Source) -> Self {
        Self::Taken(Box::new(source), OnceLock::new())
    }

    /// Returns this one.
    #[must_use]
    pub fn ready(status: GatewayStatus) -> Self {
        Self::Ready(Arc::new(status))
    }

    /// Reads it.
    #[must_use]
    pub fn read(&self) -> Arc<GatewayStatus> {
        match self {
            Self::Taken(source, document) => Arc::clone(document.get_or_init(|| Arc::new(source.document()))),
            Self::Ready(status) => Arc::clone(status),
        }
    }

    /// Reads the content of the Gateway object: [`published`]. Most documents have no reader but a heartbeat.
    #[must_use]
    pub fn published(&self) -> PublishedStatus {
        match self {
            Self::Taken(source, document) => match document.get() {
                Some(status) => published(status),
                None => source.published(),
            },
            Self::Ready(status) => published(status),
        }
    }
}

impl StatusReading for Document {
    fn ha_status(&self) -> HaStatus {
        match self {
            Self::Taken(source, _) => source.ha_status(),
            Self::Ready(status) => status.ha_status,
        }
    }

    fn published(&self) -> PublishedStatus {
        Self::published(self)
    }

    fn is_unchanged_since(&self, before: &Self) -> bool {
        match (self, before) {
            (Self::Taken(now, _), Self::Taken(before, _)) => now.is_unchanged_since(before),
            (Self::Taken(..) | Self::Ready(_), _) => false,
        }
    }
}

impl fmt::Debug for Document {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Document").finish_non_exhaustive()
    }
}

/// Returns whether this gateway carries traffic: all do, or the leader does. A new leader does once its Endpoint stands for the
/// cluster; a reader of an active Gateway finds its Endpoint (measured §3: the Endpoint is added first).
fn ha_status(live: &Live) -> HaStatus {
    if live.is_announced || live.is_multi { HaStatus::Active } else { HaStatus::Passive }
}

fn worker(worker: &WorkerReport) -> WorkerStatus {
    let view = &worker.published;
    let counters = &view.counters;
    WorkerStatus {
        id: worker.id,
        cpu: worker.cpu.and_then(|cpu| u32::try_from(cpu).ok()),
        state: if view.is_stopped { WorkerState::Stopped } else { WorkerState::Running },
        packets: counters.tun_in + counters.wire_in,
        restarts: view.restarts,
        stalls: view.stalls.0,
        stalled_s: view.stalls.1.as_secs_f64(),
        silent_s: worker.silence.as_secs_f64(),
        last_error: view.last_error.clone(),
    }
}

fn drops(names: &BTreeMap<u16, String>, worker: &WorkerReport) -> Vec<DropCount> {
    let drop = |&(cable, reason, packets): &(CableId, DropReason, u64)| DropCount {
        reason: reason.as_str().to_owned(),
        cable: names.get(&cable.0).cloned(),
        worker: worker.id,
        packets,
    };
    worker.published.drops.iter().map(drop).collect()
}

fn xdp(otherwise: Option<&XdpStatus>, workers: &[WorkerReport]) -> Option<XdpStatus> {
    let with_rings = workers.iter().filter_map(|worker| Some((worker.id, worker.published.rings.as_ref()?)));
    rings::status(otherwise, with_rings)
}

fn conservation(workers: &[WorkerReport]) -> Conservation {
    let mut sum = Conservation::default();
    for worker in workers {
        let balance = worker.published.counters.conservation();
        sum.received += balance.input;
        sum.made += balance.made;
        sum.out += balance.output;
        sum.held += balance.held;
        sum.dropped += balance.dropped;
    }
    sum
}

/// Returns the content of the Gateway object. A passive gateway publishes no connections, even if it still carries some;
/// nor are those published whose peer's address is not found yet (measured §2, behaviour §3.6).
#[must_use]
pub fn published(status: &GatewayStatus) -> PublishedStatus {
    let is_active = status.ha_status == HaStatus::Active;
    let connections = if is_active { &*status.connections } else { &[] };
    PublishedStatus {
        version: status.version.clone(),
        ha_status: status.ha_status,
        local_endpoint: status.endpoint.clone(),
        status_failure: status.failure.clone(),
        connections: connections
            .iter()
            .map(|cable| &cable.connection)
            .filter(|connection| has_address(connection))
            .cloned()
            .collect(),
        extra: Default::default(),
    }
}

/// Returns `true` once the address of a connection's peer has been found.
fn has_address(connection: &Connection) -> bool {
    !connection.using_ip.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gateway_is_active_once_its_endpoint_stands_for_the_cluster_or_where_all_are() {
        let status = |is_leader: bool, is_announced: bool, is_multi: bool| {
            let election = ElectionStatus { is_leader, ..ElectionStatus::default() };
            ha_status(&Live { election, is_announced, is_multi, ..Live::default() })
        };
        assert_eq!(status(false, false, false), HaStatus::Passive);
        assert_eq!(status(true, false, false), HaStatus::Passive, "its Endpoint is still to be written");
        assert_eq!(status(true, true, false), HaStatus::Active);
        assert_eq!(status(false, false, true), HaStatus::Active);
    }
}
