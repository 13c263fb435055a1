//! From remote Endpoints to lanes and tables: which cables there are, who owns them, and what their state is.
//!
//! ```text
//!   Endpoints ─▶ admit ─▶ difference to the cables there are ─▶ commands to workers, settled ─▶ tables published
//!   workers' views ─▶ status machines ─▶ connections
//! ```
//!
//! Level-driven: every change recomputes everything, and a second run does nothing.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use trieste_cables::{CableEvent, CableKind, LaneConfig};
use trieste_control::admin::{CableStatus, LaneStatus, RefusedCluster};
use trieste_control::api::{Connection, Endpoint, EndpointSpec};
use trieste_control::connection_status::{CableCounters, StatusMachine};
use trieste_packet::{CableId, LaneId};
use trieste_pipeline::{LaneCommand, LaneReport, Tables, owner_of};

use crate::tables::{self, Lane, Local, Peer};
use crate::worker::{Command, WorkerHandle};

/// How long a replaced lane still opens what is under way.
const DRAIN: Duration = Duration::from_secs(3);
/// How long to wait for workers to carry out commands before tables are published all the same.
const SETTLE: Duration = Duration::from_millis(200);

/// One cable.
struct Cable {
    peer: Peer,
    lane: Lane,
    machine: StatusMachine,
    last: Option<LaneReport>,
    established: Option<i64>,
}

/// The control side of the packet path.
pub struct Engine {
    local: Local,
    kind: Arc<dyn CableKind>,
    tables: Arc<ArcSwap<Tables>>,
    workers: Vec<WorkerHandle>,
    cables: BTreeMap<String, Cable>,
    draining: Vec<(Lane, Instant)>,
    order: Vec<String>,
    refused: Vec<RefusedCluster>,
    next_lane: u32,
    epoch: u64,
    knows_addresses: bool,
}

impl Engine {
    /// An engine without cables. `first_lane` is random, so that datagrams for lanes of an earlier process meet none
    /// of ours.
    #[must_use]
    pub fn new(
        local: Local,
        kind: Arc<dyn CableKind>,
        tables: Arc<ArcSwap<Tables>>,
        workers: Vec<WorkerHandle>,
        first_lane: u16,
    ) -> Self {
        Self {
            local,
            kind,
            tables,
            workers,
            cables: BTreeMap::new(),
            draining: Vec::new(),
            order: Vec::new(),
            refused: Vec::new(),
            next_lane: u32::from(first_lane),
            epoch: 0,
            knows_addresses: false,
        }
    }

    /// The workers.
    #[must_use]
    pub fn workers(&self) -> &[WorkerHandle] {
        &self.workers
    }

    /// Makes the cables fit the Endpoints that there are.
    pub async fn reconcile(&mut self, endpoints: &[Endpoint], now: Instant) {
        let admitted = tables::admit(endpoints, &self.local, &*self.kind);
        let mut refused = admitted.refused;
        // Who is refused for an overlap does not depend on lanes.
        let dummies: Vec<_> = admitted
            .peers
            .iter()
            .cloned()
            .map(|peer| (peer, Lane { lane: LaneId(0), cable: CableId(0) }))
            .collect();
        let (_, overlapping) = tables::build(0, &self.local, &dummies);
        let is_wanted =
            |peer: &&Peer| overlapping.iter().all(|refused| refused.cluster != peer.facts.cluster_id);
        let wanted: Vec<Peer> = admitted.peers.iter().filter(is_wanted).cloned().collect();
        refused.extend(overlapping.iter().cloned());
        self.say_refused(&refused);
        self.refused = refused;
        self.draining.retain(|(_, until)| *until > now);
        let drains = self.remove_unwanted(&wanted, now);
        for peer in &wanted {
            self.connect(peer, now);
        }
        self.order = wanted.into_iter().map(|peer| peer.name).collect();
        self.settle().await;
        self.publish();
        // Only when no table names them any more.
        for (lane, until) in drains {
            self.tell(lane, LaneCommand::Drain { lane, until });
        }
    }

    /// Follows our own addresses inside the published subnets: a network plugin may assign them long after the
    /// gateway has started.
    pub fn set_icmp_sources(&mut self, sources: Vec<IpAddr>) {
        if self.knows_addresses && self.local.icmp_sources == sources {
            return;
        }
        self.knows_addresses = true;
        let wants = |is_v4: bool| self.local.subnets.iter().any(|subnet| subnet.addr().is_ipv4() == is_v4);
        for (is_v4, family) in [(true, "IPv4"), (false, "IPv6")] {
            if wants(is_v4) && sources.iter().all(|source| source.is_ipv4() != is_v4) {
                tracing::warn!(
                    family,
                    "this node has no address inside the cluster's CIDRs: packets that are too big for a path are \
                     dropped without an answer to their sender; set health-check-ip, or give an interface such an address"
                );
            }
        }
        tracing::info!(?sources, "ICMP errors are sent from");
        self.local.icmp_sources = sources;
        self.publish();
    }

    fn say_refused(&self, refused: &[RefusedCluster]) {
        for entry in refused.iter().filter(|entry| !self.refused.contains(entry)) {
            let endpoint = entry.endpoint.as_deref().unwrap_or("all its Endpoints");
            tracing::warn!(cluster = %entry.cluster, %endpoint, reason = %entry.reason, "not connecting to a cluster");
        }
    }

    /// Forgets cables; returns their lanes and until when these may still open.
    fn remove_unwanted(&mut self, wanted: &[Peer], now: Instant) -> Vec<(LaneId, Instant)> {
        let gone: Vec<String> = self
            .cables
            .iter()
            .filter(|(name, cable)| {
                wanted.iter().all(|peer| peer.name != **name || peer.identity != cable.peer.identity)
            })
            .map(|(name, _)| name.clone())
            .collect();
        let mut drains = Vec::new();
        for name in gone {
            let Some(cable) = self.cables.remove(&name) else { continue };
            // A new key under the same name: what the old one sealed may still be under way.
            let is_replaced = wanted.iter().any(|peer| peer.name == name);
            let until = if is_replaced { now + DRAIN } else { now };
            tracing::info!(endpoint = %name, replaced = is_replaced, "cable removed");
            drains.push((cable.lane.lane, until));
            // Its number and its counters' row are not given to another one while anybody may look at them.
            self.draining.push((cable.lane, now + DRAIN));
        }
        drains
    }

    fn connect(&mut self, peer: &Peer, now: Instant) {
        if let Some(cable) = self.cables.get_mut(&peer.name) {
            let lane = cable.lane.lane;
            let has_moved = cable.peer.address != peer.address;
            cable.peer = peer.clone();
            if has_moved {
                self.tell(lane, LaneCommand::SetPeer { lane, peer: Some(peer.address) });
            }
            return;
        }
        let Some(lane) = self.allocate() else {
            tracing::error!(endpoint = %peer.name, "no lane is free for a cable");
            return;
        };
        let config = LaneConfig {
            lane: lane.lane,
            cable: lane.cable,
            peer: Some(peer.address),
            backend_config: peer.spec.backend_config.clone(),
        };
        match self.kind.connect(&config, now) {
            Ok(tunnel) => {
                tracing::info!(endpoint = %peer.name, cluster = %peer.facts.cluster_id, peer = %peer.address, worker = owner_of(lane.lane).0, "cable added");
                self.tell(lane.lane, LaneCommand::Add { lane: lane.lane, cable: lane.cable, tunnel });
                let machine = StatusMachine::new(now);
                let cable = Cable { peer: peer.clone(), lane, machine, last: None, established: None };
                self.cables.insert(peer.name.clone(), cable);
            }
            Err(error) => self.refused.push(RefusedCluster {
                cluster: peer.facts.cluster_id.clone(),
                endpoint: Some(peer.name.clone()),
                reason: error.to_string(),
            }),
        }
    }

    /// A lane on the worker with the fewest, and the lowest counter row that is free.
    fn allocate(&mut self) -> Option<Lane> {
        let load = |id: u16| self.cables.values().filter(|cable| owner_of(cable.lane.lane).0 == id).count();
        let worker = self.workers.iter().map(|worker| worker.id.0).min_by_key(|id| load(*id))?;
        let in_use = |cable: CableId| {
            self.cables
                .values()
                .map(|cable| cable.lane)
                .chain(self.draining.iter().map(|(lane, _)| *lane))
                .any(|lane| lane.cable == cable)
        };
        let cable = (1..=u16::MAX).map(CableId).find(|cable| !in_use(*cable))?;
        for _ in 0..=u16::MAX {
            self.next_lane = (self.next_lane + 1) & 0xffff;
            let lane = LaneId((self.next_lane << 8) | u32::from(worker));
            let is_taken = self.cables.values().any(|cable| cable.lane.lane == lane);
            if !is_taken && self.draining.iter().all(|(other, _)| other.lane != lane) {
                return Some(Lane { lane, cable });
            }
        }
        None
    }

    fn tell(&self, lane: LaneId, command: LaneCommand) {
        let owner = owner_of(lane);
        if let Some(worker) = self.workers.iter().find(|worker| worker.id == owner) {
            worker.command(Command::Lane(command));
        }
    }

    /// Waits until the workers have the lanes that the next tables will name.
    async fn settle(&self) {
        let start = Instant::now();
        while !self.workers.iter().all(WorkerHandle::is_settled) && start.elapsed() < SETTLE {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    fn publish(&mut self) {
        let peers: Vec<(Peer, Lane)> = self
            .order
            .iter()
            .filter_map(|name| self.cables.get(name))
            .map(|cable| (cable.peer.clone(), cable.lane))
            .collect();
        self.epoch += 1;
        let (tables, _) = tables::build(self.epoch, &self.local, &peers);
        self.tables.store(Arc::new(tables));
    }

    /// Begins a new handshake on every cable.
    pub fn rekey_all(&self) {
        for cable in self.cables.values() {
            let lane = cable.lane.lane;
            self.tell(lane, LaneCommand::Rekey { lane });
        }
    }

    /// Takes in what the workers say of lanes. `unix_seconds` is the wall clock.
    pub fn observe(&mut self, now: Instant, unix_seconds: i64) {
        for worker in &self.workers {
            for (lane, event) in worker.take_events() {
                let Some(cable) = self.cables.values_mut().find(|cable| cable.lane.lane == lane) else {
                    continue;
                };
                let cluster = &cable.peer.facts.cluster_id;
                match event {
                    CableEvent::LaneUp => {
                        tracing::info!(%cluster, "cable is up");
                        cable.established = Some(unix_seconds);
                    }
                    CableEvent::Roamed(peer) => tracing::info!(%cluster, %peer, "the peer's address is"),
                    CableEvent::Down => {
                        tracing::warn!(%cluster, "no answer from the peer for 90 s; trying on")
                    }
                }
            }
            for report in worker.published().lanes {
                let Some(cable) = self.cables.values_mut().find(|cable| cable.lane.lane == report.lane)
                else {
                    continue;
                };
                let last_handshake = report.stats.handshake_age.and_then(|age| now.checked_sub(age));
                let counters = CableCounters {
                    rx_bytes: report.stats.rx_bytes,
                    tx_bytes: report.stats.tx_bytes,
                    last_handshake,
                };
                cable.machine.judge(&counters, now);
                cable.last = Some(report);
            }
        }
    }

    /// Every cable's state, as published and in detail.
    #[must_use]
    pub fn connections(&self, now: Instant, unix_ms: i64) -> Vec<CableStatus> {
        self.order
            .iter()
            .filter_map(|name| self.cables.get(name))
            .map(|cable| self.connection(cable, now, unix_ms))
            .collect()
    }

    fn connection(&self, cable: &Cable, now: Instant, unix_ms: i64) -> CableStatus {
        let stats = cable.last.map(|report| report.stats).unwrap_or_default();
        let outer = stats.peer.unwrap_or(cable.peer.address);
        let (checked, rx, tx) = cable.machine.last_checked();
        let age_ms = i64::try_from(now.saturating_duration_since(checked).as_millis()).unwrap_or(i64::MAX);
        let mut endpoint: EndpointSpec = cable.peer.spec.clone();
        // Upstream's driver publishes its counters here (api §8.3).
        endpoint.backend_config.extend([
            ("ReceiveBytes".to_owned(), rx.to_string()),
            ("TransmitBytes".to_owned(), tx.to_string()),
            ("LastChecked".to_owned(), (unix_ms - age_ms).to_string()),
        ]);
        let connection = Connection {
            status: cable.machine.status(),
            status_message: cable.machine.message().to_owned(),
            endpoint,
            using_ip: outer.ip().to_canonical().to_string(),
            using_nat: cable.peer.using_nat,
            ..Connection::default()
        };
        let lane = LaneStatus {
            outer_address: Some(outer),
            worker: Some(u32::from(owner_of(cable.lane.lane).0)),
            last_handshake_age_s: stats.handshake_age.map(|age| age.as_secs_f64()),
            rx_bytes: stats.rx_bytes,
            tx_bytes: stats.tx_bytes,
            rx_packets: stats.rx_packets,
            tx_packets: stats.tx_packets,
            path_mtu_bytes: Some(u32::from(self.local.path_mtu)),
            held_packets: stats.held,
        };
        CableStatus { connection, lane, discovery: None }
    }

    /// Clusters and Endpoints that are not connected to.
    #[must_use]
    pub fn refused(&self) -> &[RefusedCluster] {
        &self.refused
    }

    /// The name of the cable that a counter row belongs to.
    #[must_use]
    pub fn cable_name(&self, cable: CableId) -> Option<&str> {
        let found = self.cables.values().find(|entry| entry.lane.cable == cable)?;
        Some(&found.peer.facts.cable_name)
    }

    /// Names of all cables, by counter row.
    #[must_use]
    pub fn cable_names(&self) -> BTreeMap<u16, String> {
        self.cables.values().map(|entry| (entry.lane.cable.0, entry.peer.facts.cable_name.clone())).collect()
    }

    /// When each cable came up, as cable name and Unix seconds.
    #[must_use]
    pub fn established(&self) -> Vec<(String, i64)> {
        let up = |cable: &Cable| Some((cable.peer.facts.cable_name.clone(), cable.established?));
        self.cables.values().filter_map(up).collect()
    }
}
