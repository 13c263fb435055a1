//! The gateway's state as one document, put together twice a second.

use std::time::Instant;

use jiff::Timestamp;
use trieste_control::admin::{
    BrokerStatus, CableStatus, Condition, Conservation, DrainStatus, DropCount, ElectionStatus, EventRecord,
    GatewayStatus, IoCapability, RefusedCluster, WorkerState, WorkerStatus,
};
use trieste_control::api::{EndpointSpec, HaStatus, PublishedStatus};

use crate::engine::Engine;
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

/// Puts the document together.
#[must_use]
pub fn document(fixed: &Fixed, engine: &Engine, live: Live, now: Instant) -> GatewayStatus {
    let published: Vec<(&WorkerHandle, Published)> =
        engine.workers().iter().map(|worker| (worker, worker.published())).collect();
    let unix_ms = Timestamp::now().as_millisecond();
    let ha_status = ha_status(&live);
    let mut refused = live.refused;
    let from_sync = refused.len();
    for entry in engine.refused() {
        if !refused[..from_sync].contains(entry) {
            refused.push(entry.clone());
        }
    }
    let mut connections = engine.connections(now, unix_ms);
    connections.extend(engine.pending());
    GatewayStatus {
        version: VERSION.to_owned(),
        pid: std::process::id(),
        started: fixed.started,
        cluster: fixed.cluster.clone(),
        hostname: fixed.hostname.clone(),
        ha_status,
        failure: live.failure,
        workers: published.iter().map(|(handle, view)| worker(handle, view, now)).collect(),
        io: fixed.io.clone(),
        endpoint: live.endpoint,
        connections,
        siblings: engine.sibling_connections(now, unix_ms),
        drops: published.iter().flat_map(|(handle, view)| drops(engine, handle, view)).collect(),
        refused,
        broker: live.broker,
        store: live.store,
        election: Some(live.election),
        drain: live.drain,
        conditions: live.conditions,
        events: live.events,
        conservation: conservation(&published),
    }
}

/// Returns whether this gateway carries traffic: all do, or the leader does. A new leader does once its Endpoint stands for the
/// cluster; a reader of an active Gateway finds its Endpoint (measured §3: the Endpoint is added first).
fn ha_status(live: &Live) -> HaStatus {
    if live.is_announced || live.is_multi { HaStatus::Active } else { HaStatus::Passive }
}

fn worker(handle: &WorkerHandle, view: &Published, now: Instant) -> WorkerStatus {
    let counters = &view.counters;
    WorkerStatus {
        id: u32::from(handle.id.0),
        cpu: handle.cpu.and_then(|cpu| u32::try_from(cpu).ok()),
        state: if view.is_stopped { WorkerState::Stopped } else { WorkerState::Running },
        packets: counters.tun_in + counters.wire_in,
        restarts: view.restarts,
        stalls: view.stalls.0,
        stalled_s: view.stalls.1.as_secs_f64(),
        silent_s: handle.silence(now).as_secs_f64(),
        last_error: view.last_error.clone(),
    }
}

fn drops(engine: &Engine, handle: &WorkerHandle, view: &Published) -> Vec<DropCount> {
    view.drops
        .iter()
        .map(|&(cable, reason, packets)| DropCount {
            reason: reason.as_str().to_owned(),
            cable: engine.cable_name(cable).map(str::to_owned),
            worker: u32::from(handle.id.0),
            packets,
        })
        .collect()
}

fn conservation(published: &[(&WorkerHandle, Published)]) -> Conservation {
    let mut sum = Conservation::default();
    for (_, view) in published {
        let balance = view.counters.conservation();
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
    let is_connected = |cable: &&CableStatus| is_active && !cable.connection.using_ip.is_empty();
    PublishedStatus {
        version: status.version.clone(),
        ha_status: status.ha_status,
        local_endpoint: status.endpoint.clone(),
        status_failure: status.failure.clone(),
        connections: status
            .connections
            .iter()
            .filter(is_connected)
            .map(|cable| cable.connection.clone())
            .collect(),
        extra: Default::default(),
    }
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
