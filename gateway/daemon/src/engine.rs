//! From remote Endpoints to lanes and tables: which cables there are, who owns them, and what their state is.
//!
//! ```text
//!   gateways ─▶ read ──┐
//!   choices (NAT) ─────┼▶ difference to the cables there are ─▶ commands to workers, settled ─▶ tables published
//!   active or passive ─┘
//!   workers' views ─▶ status machines ─▶ connections
//! ```
//!
//! Level-driven: every change recomputes everything, and a second run does nothing. So the order in which changes
//! arrive has no say: a late deletion of an old Endpoint cannot remove what a newer one brought. A burst of changes
//! costs one run, on its final state.

mod cable_states;
mod cables;
mod connections;
mod converge;
mod drain;
mod globalnet;
mod ipsec;
mod numbers;
mod publish;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use arc_swap::ArcSwap;
use ipnet::IpNet;
use tokio::sync::watch;
use trieste_cables::CableKind;
use trieste_control::admin::RefusedCluster;
use trieste_control::members::{Member, Target};
use trieste_io::Offloads;
use trieste_nat::Record;
use trieste_packet::{CableId, GatewayKey};
use trieste_pipeline::{Board, Fleet, Tables};

use crate::ike::IkeHandle;
use crate::paths::Paths;
use crate::tables::{self, Choices, Far, Lane, Local, Networks, Peer, Reader, Rows};
use crate::worker::WorkerHandle;
pub use cable_states::CableStates;
use cables::{Cable, Cables, Standing};
use numbers::Numbers;

/// A cable that was cut.
struct CutCable {
    far: Far,
    lane: Lane,
    /// Whether what is under way is still opened and let in.
    opens: bool,
    /// Until when nobody else gets its numbers.
    until: Instant,
}

/// The gateways that there are besides this one.
#[derive(Debug, Clone, Copy, Default)]
pub struct Gateways<'a> {
    /// Of remote clusters.
    pub targets: &'a [Target],
    /// Of our own cluster.
    pub siblings: &'a [Member],
    /// The cable name of our own cluster's sole Endpoint: who leads, as far as is known.
    pub leader: Option<&'a str>,
}

/// The input of the last published tables.
#[derive(PartialEq, Eq)]
struct Published {
    /// The networks of the own cluster.
    subnets: Vec<IpNet>,
    rows: Rows,
    icmp_sources: Vec<IpAddr>,
    /// The number of the rules for translation.
    rules: Option<u64>,
}

/// The control side of the packet path.
pub struct Engine {
    local: Local,
    kind: Arc<dyn CableKind>,
    /// The slow half that all cables share, where there is one.
    ike: Option<IkeHandle>,
    raw_esp: Offloads,
    /// The subnets that our Endpoint publishes, those that it has for longest first.
    subnets_by_age: Vec<IpNet>,
    tables: Arc<ArcSwap<Tables>>,
    workers: Vec<WorkerHandle>,
    /// The states of the cables' paths, which workers write.
    paths: Paths,
    /// The state shared with the other gateways of this cluster.
    membership: Arc<Fleet>,
    numbers: Numbers,
    reader: Reader,
    is_active: bool,
    /// Whether its input is remembered from the last process.
    resumes: bool,
    /// The newest Endpoints.
    admitted: tables::Admitted,
    leader: Option<String>,
    /// The newest choice for each, by cable name: while discovery runs again, the old one stays.
    choices: Choices,
    /// Which remote clusters overlap others.
    networks: Networks,
    /// Of the remote ones in `admitted`, those that overlap nobody who comes before them.
    wanted: Vec<Arc<Peer>>,
    cables: Cables,
    /// The cables and gateways that the status is about, until either changes.
    standing: OnceLock<Standing>,
    /// How often it was determined which cables are wanted.
    pass: u64,
    /// Grows whenever a cable is made or cut.
    cable_set: u64,
    /// Grows whenever a cable has come up.
    established_set: u64,
    cut: Vec<CutCable>,
    refused: Arc<[RefusedCluster]>,
    epoch: u64,
    published: Option<Published>,
    has_icmp_sources: bool,
    /// Translated sessions of the process before, until there are rules for them.
    sessions: Vec<Record>,
}

impl Engine {
    /// Returns an active engine without cables. `first_lane` is random, so that datagrams for lanes of the last process match
    /// none of ours.
    #[must_use]
    pub fn new(
        local: Local,
        kind: Arc<dyn CableKind>,
        tables: Arc<ArcSwap<Tables>>,
        workers: Vec<WorkerHandle>,
        first_lane: u16,
    ) -> Self {
        let membership = Fleet::new(GatewayKey::of(&local.site.cable_name), 0, Instant::now());
        let subnets_by_age = local.site.subnets.clone();
        Self {
            local,
            kind,
            ike: None,
            raw_esp: Offloads::NONE,
            subnets_by_age,
            tables,
            numbers: Numbers::new(workers.iter().map(|worker| worker.id), first_lane),
            workers,
            paths: Paths::default(),
            membership,
            reader: Reader::default(),
            is_active: true,
            resumes: false,
            admitted: tables::Admitted::default(),
            leader: None,
            choices: Choices::new(),
            networks: Networks::default(),
            wanted: Vec::new(),
            cables: Cables::default(),
            standing: OnceLock::new(),
            pass: 0,
            cable_set: 0,
            established_set: 0,
            cut: Vec::new(),
            refused: Arc::default(),
            epoch: 0,
            published: None,
            has_icmp_sources: false,
            sessions: Vec::new(),
        }
    }

    /// Sets the slow half that all cables share, and the families of which ESP can be sent without UDP.
    #[must_use]
    pub fn with_ike(mut self, ike: Option<IkeHandle>, raw_esp: Option<Offloads>) -> Self {
        self.ike = ike;
        self.raw_esp = raw_esp.unwrap_or(Offloads::NONE);
        self
    }

    /// Sets the path table and the shared state that the workers use.
    #[must_use]
    pub fn with_paths(mut self, paths: Paths, membership: Arc<Fleet>) -> Self {
        self.paths = paths;
        self.membership = membership;
        self
    }

    /// Returns the states of the cables' paths, which workers write.
    #[must_use]
    pub fn paths(&self) -> &Arc<Board> {
        &self.paths.table
    }

    /// Returns the path table with its changes.
    #[must_use]
    pub fn watched_paths(&self) -> Paths {
        self.paths.clone()
    }

    /// Subscribes to the generation of the path table, which grows when the state or the MTU of a path changes.
    #[must_use]
    pub fn path_changes(&self) -> watch::Receiver<u64> {
        self.paths.changed.subscribe()
    }

    /// Returns the state shared with the other gateways of this cluster, for translation.
    #[must_use]
    pub fn membership(&self) -> &Arc<Fleet> {
        &self.membership
    }

    /// Returns the slow half that all cables share, where there is one.
    #[must_use]
    pub fn ike(&self) -> Option<&IkeHandle> {
        self.ike.as_ref()
    }

    /// Returns the workers.
    #[must_use]
    pub fn workers(&self) -> &[WorkerHandle] {
        &self.workers
    }

    /// Sets whether the gateways of further calls are those remembered from the last process, which have not noticed its end.
    pub fn set_resumes(&mut self, resumes: bool) {
        self.resumes = resumes;
    }

    /// Returns `true` if there are cables to clusters that support one gateway of ours only.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.is_active
    }

    /// Returns the remote gateways that some gateway of ours has to connect to: oldest cluster first, within a cluster the
    /// newest first.
    #[must_use]
    pub fn peers(&self) -> &[Arc<Peer>] {
        &self.wanted
    }

    /// Returns the remote gateways that this gateway has to connect to.
    pub fn own_peers(&self) -> impl Iterator<Item = &Arc<Peer>> {
        self.wanted.iter().filter(|peer| self.has_cable_to(peer))
    }

    /// Returns the other gateways of our own cluster, by cable name.
    #[must_use]
    pub fn siblings(&self) -> &[Arc<Peer>] {
        &self.admitted.siblings
    }

    /// Returns the lane and the row of counters and states of a cable, by its name.
    #[must_use]
    pub fn lane(&self, cable_name: &str) -> Option<Lane> {
        self.cables.get(cable_name).map(|cable| cable.lane)
    }

    /// Returns how often remote Endpoints were parsed since the start: once for each version.
    #[must_use]
    pub fn endpoint_reads(&self) -> u64 {
        self.reader.reads()
    }

    /// Returns clusters and Endpoints that are not connected to.
    #[must_use]
    pub fn refused(&self) -> &Arc<[RefusedCluster]> {
        &self.refused
    }

    /// Returns the name of the cable that a counter row belongs to.
    #[must_use]
    pub fn cable_name(&self, cable: CableId) -> Option<&str> {
        Some(self.cables.at(cable)?.peer.facts.cable_name.as_str())
    }

    /// Returns the cables to the other gateways of this cluster, by name, and the cables to gateways of other clusters.
    #[must_use]
    pub fn far_ends(&self) -> (BTreeMap<&str, CableId>, BTreeSet<CableId>) {
        let is_near = |entry: &&Cable| entry.peer.facts.cluster_id == self.local.cluster_id;
        let (near, far): (Vec<&Cable>, Vec<&Cable>) = self.cables.iter().partition(is_near);
        let named = near.into_iter().map(|entry| (entry.peer.facts.cable_name.as_str(), entry.lane.cable));
        (named.collect(), far.into_iter().map(|entry| entry.lane.cable).collect())
    }

    /// Returns the cables to each remote cluster.
    #[must_use]
    pub fn cables_by_cluster(&self) -> BTreeMap<String, BTreeSet<CableId>> {
        let mut clusters: BTreeMap<String, BTreeSet<CableId>> = BTreeMap::new();
        for entry in self.cables.iter().filter(|entry| entry.peer.facts.cluster_id != self.local.cluster_id) {
            clusters.entry(entry.peer.facts.cluster_id.clone()).or_default().insert(entry.lane.cable);
        }
        clusters
    }

    /// Names of all cables, by counter row.
    #[must_use]
    pub fn cable_names(&self) -> BTreeMap<u16, String> {
        self.cables.iter().map(|entry| (entry.lane.cable.0, entry.peer.facts.cable_name.clone())).collect()
    }

    /// Returns a number that grows whenever a cable is made or cut.
    #[must_use]
    pub fn cable_set(&self) -> u64 {
        self.cable_set
    }

    /// Returns numbers that grow whenever [`Engine::established`] may say something else.
    #[must_use]
    pub fn established_set(&self) -> (u64, u64) {
        (self.cable_set, self.established_set)
    }

    /// Returns when each cable came up, as cable name and Unix seconds.
    #[must_use]
    pub fn established(&self) -> Vec<(String, i64)> {
        let up = |cable: &Cable| Some((cable.peer.facts.cable_name.clone(), cable.established?));
        self.cables.iter().filter_map(up).collect()
    }
}

#[cfg(test)]
mod tests;
