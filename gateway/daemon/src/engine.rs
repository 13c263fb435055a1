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

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use tokio::sync::watch;
use trieste_cables::{CableKind, LaneConfig};
use trieste_control::admin::RefusedCluster;
use trieste_control::connection_status::StatusMachine;
use trieste_control::members::{Member, Target};
use trieste_io::Offloads;
use trieste_nat::Record;
use trieste_packet::{CableId, GatewayKey, LaneId};
use trieste_pipeline::health::Watch;
use trieste_pipeline::{Board, Fleet, LaneCommand, LaneReport, Tables, owner_of};

use crate::ike::IkeHandle;
use crate::paths::Paths;
use crate::tables::{self, Choice, Choices, Far, Lane, Local, Peer, Reader, Role, Row, Rows};
use crate::worker::{Command, WorkerHandle};
use numbers::Numbers;

mod connections;
mod drain;
mod globalnet;
mod ipsec;
mod numbers;

/// How long a lane that was cut or replaced still opens what is under way.
const DRAIN: Duration = Duration::from_secs(3);
/// How long to wait for workers to carry out commands before tables are published all the same.
const SETTLE: Duration = Duration::from_millis(200);

/// One cable.
struct Cable {
    peer: Arc<Peer>,
    choice: Choice,
    lane: Lane,
    /// How its path is probed, if it is.
    watch: Option<Watch>,
    machine: StatusMachine,
    last: Option<LaneReport>,
    established: Option<i64>,
}

/// A cable that was cut.
struct Leaving {
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

/// What tables were last published for.
#[derive(PartialEq, Eq)]
struct Published {
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
    tables: Arc<ArcSwap<Tables>>,
    workers: Vec<WorkerHandle>,
    /// What the workers know of the cables' paths.
    paths: Paths,
    /// What the workers know of the other gateways of this cluster.
    fleet: Arc<Fleet>,
    numbers: Numbers,
    reader: Reader,
    is_active: bool,
    /// Whether what it is told is from the process before.
    resumes: bool,
    /// What the newest Endpoints are.
    admitted: tables::Admitted,
    leader: Option<String>,
    /// The newest choice for each, by cable name: while discovery looks anew, the old one stays.
    choices: Choices,
    /// Of the remote ones in `admitted`, those that overlap nobody who comes before them.
    wanted: Vec<Arc<Peer>>,
    /// By cable name: another object that says the same of a gateway changes nothing.
    cables: BTreeMap<String, Cable>,
    by_lane: BTreeMap<LaneId, String>,
    by_row: BTreeMap<CableId, String>,
    leaving: Vec<Leaving>,
    refused: Vec<RefusedCluster>,
    epoch: u64,
    published: Option<Published>,
    knows_addresses: bool,
    /// Translated sessions of the process before, until there are rules for them.
    sessions: Vec<Record>,
}

impl Engine {
    /// An active engine without cables. `first_lane` is random, so that datagrams for lanes of an earlier process meet
    /// none of ours.
    #[must_use]
    pub fn new(
        local: Local,
        kind: Arc<dyn CableKind>,
        tables: Arc<ArcSwap<Tables>>,
        workers: Vec<WorkerHandle>,
        first_lane: u16,
    ) -> Self {
        let fleet = Fleet::new(GatewayKey::of(&local.site.cable_name), 0, Instant::now());
        Self {
            local,
            kind,
            ike: None,
            raw_esp: Offloads::NONE,
            tables,
            numbers: Numbers::new(workers.iter().map(|worker| worker.id), first_lane),
            workers,
            paths: Paths::default(),
            fleet,
            reader: Reader::default(),
            is_active: true,
            resumes: false,
            admitted: tables::Admitted::default(),
            leader: None,
            choices: Choices::new(),
            wanted: Vec::new(),
            cables: BTreeMap::new(),
            by_lane: BTreeMap::new(),
            by_row: BTreeMap::new(),
            leaving: Vec::new(),
            refused: Vec::new(),
            epoch: 0,
            published: None,
            knows_addresses: false,
            sessions: Vec::new(),
        }
    }

    /// Reads what the slow half that all cables share says of them. `raw_esp` are the families of which ESP can be sent
    /// without UDP.
    #[must_use]
    pub fn with_ike(mut self, ike: Option<IkeHandle>, raw_esp: Option<Offloads>) -> Self {
        self.ike = ike;
        self.raw_esp = raw_esp.unwrap_or(Offloads::NONE);
        self
    }

    /// Follows what these workers know of paths.
    #[must_use]
    pub fn with_paths(mut self, paths: Paths, fleet: Arc<Fleet>) -> Self {
        self.paths = paths;
        self.fleet = fleet;
        self
    }

    /// What the workers know of the cables' paths.
    #[must_use]
    pub fn paths(&self) -> &Arc<Board> {
        &self.paths.board
    }

    /// The board's generation, told whenever the state or the MTU of a path has changed.
    #[must_use]
    pub fn path_changes(&self) -> watch::Receiver<u64> {
        self.paths.changed.subscribe()
    }

    /// What the workers know of the other gateways of this cluster, for translation.
    #[must_use]
    pub fn fleet(&self) -> &Arc<Fleet> {
        &self.fleet
    }

    /// Whether ESP to this address has to go through UDP for want of another socket.
    fn needs_udp(&self, address: SocketAddr) -> bool {
        let raw = if address.is_ipv4() { Offloads::RAW_ESP4 } else { Offloads::RAW_ESP6 };
        !self.raw_esp.contains(raw)
    }

    /// The slow half that all cables share, where there is one.
    #[must_use]
    pub fn ike(&self) -> Option<&IkeHandle> {
        self.ike.as_ref()
    }

    /// The workers.
    #[must_use]
    pub fn workers(&self) -> &[WorkerHandle] {
        &self.workers
    }

    /// Makes the cables fit the gateways that there are and the addresses that were chosen for them, by cable name.
    /// One gets its cable when it has a choice; one that had a choice before keeps it until there is another. Siblings
    /// need none.
    pub async fn reconcile(&mut self, gateways: &Gateways<'_>, choices: &Choices, now: Instant) {
        let Gateways { targets, siblings, leader } = *gateways;
        self.admitted = self.reader.read(targets, siblings, &self.local, &*self.kind);
        self.leader = leader.map(str::to_owned);
        let mut known = std::mem::take(&mut self.choices);
        for peer in self.admitted.peers.iter().chain(&self.admitted.siblings) {
            let name = &peer.facts.cable_name;
            let newest = peer.own_choice().or_else(|| choices.get(name).copied());
            if let Some(choice) = newest.or_else(|| known.remove(name)) {
                self.choices.insert(name.clone(), choice);
            }
        }
        self.converge(now).await;
    }

    /// Follows the addresses of this node. An Endpoint may have one of them, a private one where two sites number alike
    /// or a public one behind the same NAT; but whoever is looked for there would be ourselves.
    pub async fn set_node_addresses(&mut self, addresses: BTreeSet<IpAddr>, now: Instant) {
        if self.local.node_addresses != addresses {
            self.local.node_addresses = addresses;
            self.converge(now).await;
        }
    }

    /// Returns the address that was chosen for a cable, if it is one of this node.
    fn own_address(&self, cable_name: &str) -> Option<IpAddr> {
        let chosen = self.choices.get(cable_name)?.ip;
        self.local.node_addresses.contains(&chosen).then_some(chosen)
    }

    /// Makes the gateway active or passive towards clusters that know one gateway of ours; with those that know of several
    /// it has cables all the time. A passive one has none of these cables: packets for such a cluster go to a sibling or
    /// are dropped, and what peers have sent a moment ago is still delivered. Active again, these cables are made anew.
    /// Losing leadership alone is no reason to call it: traffic goes on until somebody else takes over.
    pub async fn set_active(&mut self, is_active: bool, now: Instant) {
        if self.is_active == is_active {
            return;
        }
        tracing::info!(is_active, "the gateway's cables are wanted or not");
        self.is_active = is_active;
        self.converge(now).await;
    }

    /// Says whether the gateways that it is told of from here on are those of the process before, which are unaware of its
    /// end.
    pub fn set_resumes(&mut self, resumes: bool) {
        self.resumes = resumes;
    }

    /// Whether there are to be cables to clusters that know one gateway of ours.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.is_active
    }

    /// The remote gateways that somebody of ours is to be connected to, whether we are or not: oldest cluster first, within
    /// a cluster the newest first.
    #[must_use]
    pub fn peers(&self) -> &[Arc<Peer>] {
        &self.wanted
    }

    /// Those that this gateway is to have a cable to, whether it has yet or not.
    pub fn own_peers(&self) -> impl Iterator<Item = &Arc<Peer>> {
        self.wanted.iter().filter(|peer| self.has_cable_to(peer))
    }

    /// The other gateways of our own cluster, by cable name.
    #[must_use]
    pub fn siblings(&self) -> &[Arc<Peer>] {
        &self.admitted.siblings
    }

    /// The lane and the row of counters and states of a cable, by its name.
    #[must_use]
    pub fn lane(&self, cable_name: &str) -> Option<Lane> {
        self.cables.get(cable_name).map(|cable| cable.lane)
    }

    /// Whether this gateway is to have a cable to another.
    fn has_cable_to(&self, peer: &Peer) -> bool {
        self.is_active || peer.role != Role::Sole
    }

    /// How often a remote Endpoint was read since the start: once for each of its versions.
    #[must_use]
    pub fn endpoint_reads(&self) -> u64 {
        self.reader.reads()
    }

    async fn converge(&mut self, now: Instant) {
        self.release(now);
        // Who is refused for an overlap does not depend on which lane a cable has.
        let dummy = Lane { lane: LaneId(0), cable: CableId(0) };
        let lane_of = |peer: &Peer| self.choices.contains_key(&peer.facts.cable_name).then_some(dummy);
        let peers = &self.admitted.peers;
        let remote = peers.iter().map(|peer| Row { peer: Arc::clone(peer), lane: lane_of(peer) }).collect();
        let (_, overlapping) = tables::build(0, &self.local, &Rows { remote, ..Rows::default() });
        let is_refused: BTreeSet<&str> = overlapping.iter().map(|entry| entry.cluster.as_str()).collect();
        let is_wanted = |peer: &&Arc<Peer>| !is_refused.contains(peer.facts.cluster_id.as_str());
        self.wanted = peers.iter().filter(is_wanted).cloned().collect();
        let mut refused = self.admitted.refused.clone();
        refused.extend(overlapping);

        let drains = self.cut_unwanted(now);
        let own = self.own_peers().chain(self.siblings()).cloned().collect::<Vec<_>>();
        for peer in own {
            let name = &peer.facts.cable_name;
            let outcome = match (self.own_address(name), self.choices.get(name)) {
                (Some(ip), _) => Err(format!("its cable would end at {ip}, an address of this node itself")),
                (None, Some(&choice)) => self.connect(&peer, choice, now),
                (None, None) => Ok(()),
            };
            if let Err(reason) = outcome {
                let (cluster, endpoint) = (peer.facts.cluster_id.clone(), Some(peer.name.clone()));
                refused.push(RefusedCluster { cluster, endpoint, reason });
            }
        }
        self.say_refused(&refused);
        self.refused = refused;
        self.settle().await;
        self.publish();
        // Only when no table seals with them any more.
        for (lane, until) in drains {
            self.kind.disconnect(lane);
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
        let wants =
            |is_v4: bool| self.local.site.subnets.iter().any(|subnet| subnet.addr().is_ipv4() == is_v4);
        for (is_v4, family) in [(true, "IPv4"), (false, "IPv6")] {
            if wants(is_v4) && sources.iter().all(|source| source.is_ipv4() != is_v4) {
                tracing::warn!(
                    family,
                    "this node has no address to send ICMP errors from: packets that are too big for a path are dropped \
                     without an answer to their sender; give an interface an address of this family"
                );
            }
        }
        tracing::info!(?sources, "ICMP errors are sent from, and probes answered at");
        self.local.icmp_sources = sources;
        self.publish();
    }

    fn say_refused(&self, refused: &[RefusedCluster]) {
        fn key(entry: &RefusedCluster) -> (&str, Option<&str>, &str) {
            (&entry.cluster, entry.endpoint.as_deref(), &entry.reason)
        }
        let said: BTreeSet<_> = self.refused.iter().map(key).collect();
        for entry in refused.iter().filter(|entry| !said.contains(&key(entry))) {
            let endpoint = entry.endpoint.as_deref().unwrap_or("all its Endpoints");
            tracing::warn!(cluster = %entry.cluster, %endpoint, reason = %entry.reason, "not connecting to a cluster");
        }
    }

    /// Gives back the numbers of cables that were cut long ago.
    fn release(&mut self, now: Instant) {
        for leaving in self.leaving.extract_if(.., |leaving| leaving.until <= now) {
            self.numbers.release(leaving.lane);
        }
    }

    /// Cuts the cables that are not to be; returns their lanes and until when these may still open.
    fn cut_unwanted(&mut self, now: Instant) -> Vec<(LaneId, Instant)> {
        let own = self.own_peers().chain(self.siblings());
        let own: BTreeMap<&str, &Peer> = own.map(|peer| (peer.facts.cable_name.as_str(), &**peer)).collect();
        let ends: BTreeSet<Far> = self.wanted.iter().chain(self.siblings()).map(|peer| far(peer)).collect();
        let is_gone = |name: &str, cable: &Cable| {
            own.get(name).is_none_or(|peer| is_another(peer, &cable.peer)) || self.own_address(name).is_some()
        };
        let gone: Vec<String> = self
            .cables
            .iter()
            .filter(|(name, cable)| is_gone(name, cable))
            .map(|(name, _)| name.clone())
            .collect();
        let mut drains = Vec::new();
        for name in gone {
            let Some(cable) = self.cables.remove(&name) else { continue };
            let (lane, far) = (cable.lane, far(&cable.peer));
            self.by_lane.remove(&lane.lane);
            self.by_row.remove(&lane.cable);
            self.numbers.cut(lane);
            // While the far end is there, what it sealed a moment ago is welcome.
            let opens = ends.contains(&far);
            tracing::info!(cable = %name, drains = opens, "cable removed");
            drains.push((lane.lane, if opens { now + DRAIN } else { now }));
            // Its number and its counters' row are not given to another one while anybody may look at them.
            self.leaving.push(Leaving { far, lane, opens, until: now + DRAIN });
        }
        drains
    }

    /// Makes a peer's cable, or has the one there is follow its Endpoint.
    fn connect(&mut self, peer: &Arc<Peer>, choice: Choice, now: Instant) -> Result<(), String> {
        let (address, name) = (peer.address(choice), &peer.facts.cable_name);
        let watch = peer.watch(&self.local);
        if let Some(cable) = self.cables.get_mut(name) {
            let lane = cable.lane.lane;
            let has_moved = cable.peer.address(cable.choice) != address;
            cable.peer = Arc::clone(peer);
            cable.choice = choice;
            let is_watched_otherwise = std::mem::replace(&mut cable.watch, watch) != watch;
            if is_watched_otherwise {
                self.tell(lane, LaneCommand::Watch { lane, watch });
            }
            if has_moved {
                tracing::info!(endpoint = %peer.name, peer = %address, "the peer's Endpoint has another address");
                self.kind.set_peer(lane, address);
                self.tell(lane, LaneCommand::SetPeer { lane, peer: Some(address) });
            }
            return Ok(());
        }
        let lane = self.numbers.allocate().ok_or_else(|| {
            format!("all {} cables that a gateway can have are in use or were a moment ago", numbers::MOST)
        })?;
        let config = LaneConfig {
            lane: lane.lane,
            cable: lane.cable,
            peer: Some(address),
            local: peer.near(&self.local.site),
            remote: peer.site(),
            uses_nat: choice.use_nat || self.needs_udp(address),
            resumes: self.resumes,
        };
        let tunnel = self.kind.connect(&config, now).map_err(|error| {
            self.numbers.cut(lane);
            self.numbers.release(lane);
            error.to_string()
        })?;
        tracing::info!(endpoint = %peer.name, cluster = %peer.facts.cluster_id, peer = %address, worker = owner_of(lane.lane).0, "Successfully installed Endpoint cable {:?}", peer.facts.cable_name);
        self.tell(lane.lane, LaneCommand::Add { lane: lane.lane, cable: lane.cable, tunnel, watch });
        self.by_lane.insert(lane.lane, name.clone());
        self.by_row.insert(lane.cable, name.clone());
        let machine = StatusMachine::new(now);
        let cable =
            Cable { peer: Arc::clone(peer), choice, lane, watch, machine, last: None, established: None };
        self.cables.insert(name.clone(), cable);
        Ok(())
    }

    fn tell(&self, lane: LaneId, command: LaneCommand) {
        let owner = owner_of(lane);
        if let Some(worker) = self.workers.iter().find(|worker| worker.id == owner) {
            worker.command(Command::Lane(command));
        }
    }

    /// Waits until the workers have the lanes that the next tables will name.
    async fn settle(&self) {
        let start = tokio::time::Instant::now();
        while !self.workers.iter().all(WorkerHandle::is_settled) && start.elapsed() < SETTLE {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Publishes tables, if they are others than before: new ones make every flow decide again.
    fn publish(&mut self) {
        let next = Published {
            rows: self.rows(),
            icmp_sources: self.local.icmp_sources.clone(),
            rules: self.local.translation.as_ref().map(|translation| translation.rules.epoch()),
        };
        if self.published.as_ref() == Some(&next) {
            return;
        }
        self.epoch += 1;
        let (tables, _) = tables::build(self.epoch, &self.local, &next.rows);
        self.tables.store(Arc::new(tables));
        self.published = Some(next);
    }

    /// The gateways that there are with their cables.
    fn rows(&self) -> Rows {
        let row = |peer: &Arc<Peer>| Row { peer: Arc::clone(peer), lane: self.lane(&peer.facts.cable_name) };
        let leaving = self.leaving.iter().filter(|leaving| leaving.opens);
        Rows {
            remote: self.wanted.iter().map(row).collect(),
            siblings: self.siblings().iter().map(row).collect(),
            leaving: leaving.map(|leaving| (leaving.far.clone(), leaving.lane.lane)).collect(),
            leader: self.leader.clone(),
        }
    }

    /// Begins a new handshake on every cable.
    pub fn rekey_all(&self) {
        for cable in self.cables.values() {
            let lane = cable.lane.lane;
            self.kind.rekey(lane);
            self.tell(lane, LaneCommand::Rekey { lane });
        }
    }

    /// Clusters and Endpoints that are not connected to.
    #[must_use]
    pub fn refused(&self) -> &[RefusedCluster] {
        &self.refused
    }

    /// The name of the cable that a counter row belongs to.
    #[must_use]
    pub fn cable_name(&self, cable: CableId) -> Option<&str> {
        self.by_row.get(&cable).map(String::as_str)
    }

    /// The cables to the other gateways of this cluster, by the names of those, and the cables to gateways of other clusters.
    #[must_use]
    pub fn far_ends(&self) -> (BTreeMap<&str, CableId>, BTreeSet<CableId>) {
        let is_near = |entry: &&Cable| entry.peer.facts.cluster_id == self.local.cluster_id;
        let (near, far): (Vec<&Cable>, Vec<&Cable>) = self.cables.values().partition(is_near);
        let named = near.into_iter().map(|entry| (entry.peer.facts.cable_name.as_str(), entry.lane.cable));
        (named.collect(), far.into_iter().map(|entry| entry.lane.cable).collect())
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

/// Says whether a gateway's Endpoint has become one that its cable cannot follow.
fn is_another(peer: &Peer, before: &Peer) -> bool {
    peer.identity != before.identity || peer.driver != before.driver || far(peer) != far(before)
}

/// What is at the far end of a cable to a gateway.
fn far(peer: &Peer) -> Far {
    match peer.role {
        Role::Sibling => Far::Sibling(peer.facts.cable_name.clone()),
        Role::Member | Role::Sole => Far::Cluster(peer.facts.cluster_id.clone()),
    }
}

#[cfg(test)]
mod tests;
