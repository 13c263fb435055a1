//! Reconciles cables with the gateways: which are cut, which are made, and the commands to workers.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use trieste_cables::LaneConfig;
use trieste_control::admin::RefusedCluster;
use trieste_control::connection_status::StatusMachine;
use trieste_io::Offloads;
use trieste_packet::LaneId;
use trieste_pipeline::health::Watch;
use trieste_pipeline::{LaneCommand, owner_of};

use super::cables::Cable;
use super::{CutCable, Engine, Gateways, numbers};
use crate::tables::{Before, Choice, Choices, Far, Peer, Role};
use crate::worker::{Command, WorkerHandle};

/// How long a lane that was cut or replaced still opens what is under way.
pub(super) const DRAIN: Duration = Duration::from_secs(3);
/// How long to wait for workers to carry out commands before tables are published all the same.
const SETTLE: Duration = Duration::from_millis(200);

impl Engine {
    /// Makes the cables fit the gateways that there are and the addresses that were chosen for them, by cable name.
    /// One gets its cable when it has a choice; one that had a choice before keeps it until there is another. Siblings
    /// need none.
    pub async fn reconcile(&mut self, gateways: &Gateways<'_>, choices: &Choices, now: Instant) {
        self.admit(gateways, |name| choices.get(name).copied());
        self.converge(now).await;
    }

    /// Takes the gateways that there are, with the addresses that are chosen for them so far; their cables follow with
    /// [`Engine::converge`]. What costs much is done for those that have changed.
    pub fn admit(&mut self, gateways: &Gateways<'_>, chosen: impl Fn(&str) -> Option<Choice>) {
        let Gateways { targets, siblings, leader } = *gateways;
        self.admitted = self.reader.read(targets, siblings, &self.local, &*self.kind);
        if self.leader.as_deref() != leader {
            self.leader = leader.map(str::to_owned);
        }
        self.choose(chosen);
        self.want();
    }

    /// Takes the newest addresses for the gateways that there are; their cables follow with [`Engine::converge`].
    pub fn choose(&mut self, chosen: impl Fn(&str) -> Option<Choice>) {
        self.standing = OnceLock::new();
        let mut kept = 0;
        for peer in self.admitted.peers.iter().chain(&self.admitted.siblings) {
            let name = peer.facts.cable_name.as_str();
            let newest = peer.own_choice().or_else(|| chosen(name));
            match (self.choices.get_mut(name), newest) {
                (Some(known), newest) => {
                    *known = newest.unwrap_or(*known);
                    kept += 1;
                }
                (None, Some(newest)) => {
                    self.choices.insert(name.to_owned(), newest);
                    kept += 1;
                }
                (None, None) => {}
            }
        }
        if self.choices.len() > kept {
            let admitted = self.admitted.peers.iter().chain(&self.admitted.siblings);
            let names: BTreeSet<&str> = admitted.map(|peer| peer.facts.cable_name.as_str()).collect();
            self.choices.retain(|name, _| names.contains(name.as_str()));
        }
    }

    /// Determines which of the remote gateways overlap nobody who comes before them.
    fn want(&mut self) {
        self.standing = OnceLock::new();
        let (peers, choices) = (&self.admitted.peers, &self.choices);
        // Refusals for an overlap do not depend on the lanes of cables.
        self.networks.follow(&self.local, peers, |peer| choices.contains_key(&peer.facts.cable_name));
        let refused = self.networks.refused();
        if refused.is_empty() {
            self.wanted.clone_from(peers);
            return;
        }
        let refused: BTreeSet<&str> = refused.iter().map(|entry| entry.cluster.as_str()).collect();
        let is_wanted = |peer: &&Arc<Peer>| !refused.contains(peer.facts.cluster_id.as_str());
        self.wanted = peers.iter().filter(is_wanted).cloned().collect();
    }

    /// Follows the addresses of this node. An Endpoint may have one of them, a private one where two sites number alike
    /// or a public one behind the same NAT; but a cable to it would end at ourselves.
    pub async fn set_node_addresses(&mut self, addresses: BTreeSet<IpAddr>, now: Instant) {
        if self.local.node_addresses != addresses {
            self.local.node_addresses = addresses;
            self.converge(now).await;
        }
    }

    /// Makes the gateway active or passive towards clusters that support one gateway of ours; with those that support several
    /// it has cables all the time. A passive one has none of these cables: packets for such a cluster go to a sibling or
    /// are dropped, and packets in flight are still delivered. Active again, new cables are made.
    /// Losing leadership alone is no reason to call it: traffic goes on until somebody else takes over.
    pub async fn set_active(&mut self, is_active: bool, now: Instant) {
        if self.is_active == is_active {
            return;
        }
        tracing::info!(is_active, "gateway becomes active or passive");
        self.is_active = is_active;
        self.converge(now).await;
    }

    /// Makes cables and tables fit the gateways and addresses that were taken last.
    pub async fn converge(&mut self, now: Instant) {
        self.release(now);
        self.want();
        let mut refused = self.admitted.refused.clone();
        refused.extend_from_slice(self.networks.refused());

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
        if *self.refused != *refused {
            self.report_refused(&refused);
            self.refused = refused.into();
        }
        self.settle().await;
        self.publish();
        // Only when no table seals with them any more.
        for (lane, until) in drains {
            self.kind.disconnect(lane);
            self.send(lane, LaneCommand::Drain { lane, until });
        }
    }

    /// Returns the address that was chosen for a cable, if it is one of this node.
    fn own_address(&self, cable_name: &str) -> Option<IpAddr> {
        let chosen = self.choices.get(cable_name)?.ip;
        self.local.node_addresses.contains(&chosen).then_some(chosen)
    }

    /// Returns `true` if this gateway has to have a cable to another.
    pub(super) fn has_cable_to(&self, peer: &Peer) -> bool {
        has_cable_to(self.is_active, peer)
    }

    /// Returns `true` if ESP to this address has to use UDP for want of a raw socket.
    fn needs_udp(&self, address: SocketAddr) -> bool {
        let raw = if address.is_ipv4() { Offloads::RAW_ESP4 } else { Offloads::RAW_ESP6 };
        !self.raw_esp.contains(raw)
    }

    fn report_refused(&self, refused: &[RefusedCluster]) {
        fn key(entry: &RefusedCluster) -> (&str, Option<&str>, &str) {
            (&entry.cluster, entry.endpoint.as_deref(), &entry.reason)
        }
        let reported: BTreeSet<_> = self.refused.iter().map(key).collect();
        for entry in refused.iter().filter(|entry| !reported.contains(&key(entry))) {
            let endpoint = entry.endpoint.as_deref().unwrap_or("all its Endpoints");
            tracing::warn!(cluster = %entry.cluster, %endpoint, reason = %entry.reason, "not connecting to a cluster");
        }
    }

    /// Frees the numbers of cables that were cut long ago.
    pub(super) fn release(&mut self, now: Instant) {
        for cut in self.cut.extract_if(.., |cut| cut.until <= now) {
            self.numbers.release(cut.lane);
        }
        if self.cut.is_empty() {
            self.cut = Vec::new();
        }
    }

    /// Cuts the cables that are not to be; returns their lanes and until when these may still open.
    fn cut_unwanted(&mut self, now: Instant) -> Vec<(LaneId, Instant)> {
        self.pass += 1;
        let (pass, is_active) = (self.pass, self.is_active);
        let own = self.wanted.iter().filter(|peer| has_cable_to(is_active, peer));
        let mut kept = 0;
        for peer in own.chain(&self.admitted.siblings) {
            let name = peer.facts.cable_name.as_str();
            let Some(cable) = self.cables.get_mut(name) else { continue };
            let is_same = Arc::ptr_eq(peer, &cable.peer) || !is_another(peer, &cable.peer);
            let chosen = self.choices.get(name);
            if is_same
                && !cable.is_outdated
                && chosen.is_none_or(|choice| !self.local.node_addresses.contains(&choice.ip))
            {
                cable.pass = pass;
                kept += 1;
            }
        }
        if self.cables.len() == kept {
            return Vec::new();
        }
        let ends: BTreeSet<Far> = self.wanted.iter().chain(self.siblings()).map(|peer| far(peer)).collect();
        let gone = self.cables.iter().filter(|cable| cable.pass != pass);
        let gone: Vec<String> = gone.map(|cable| cable.peer.facts.cable_name.clone()).collect();
        self.note_cables_changed();
        let mut drains = Vec::new();
        for name in gone {
            let Some(cable) = self.cables.remove(&name) else { continue };
            let (lane, far) = (cable.lane, far(&cable.peer));
            self.numbers.cut(lane);
            // While the far end is there, what it sealed a moment ago is welcome.
            let opens = ends.contains(&far);
            tracing::info!(cable = %name, drains = opens, "cable removed");
            drains.push((lane.lane, if opens { now + DRAIN } else { now }));
            // Its number and its counters' row are not given to another one while anybody may look at them.
            self.cut.push(CutCable { far, lane, opens, until: now + DRAIN });
        }
        drains
    }

    /// Makes a peer's cable, or has the one there is follow its Endpoint.
    fn connect(&mut self, peer: &Arc<Peer>, choice: Choice, now: Instant) -> Result<(), String> {
        let name = &peer.facts.cable_name;
        let known = self.cables.get_mut(name);
        // Nothing else that follows changes while the gateway runs.
        if known.as_ref().is_some_and(|known| Arc::ptr_eq(&known.peer, peer) && known.choice == choice) {
            return Ok(());
        }
        let address = peer.address(choice);
        let before = known.as_ref().map_or_else(Before::default, |known| Before {
            watch: known.watch,
            local: &self.subnets_by_age,
            remote: &known.peer.facts.subnets,
        });
        let watch = peer.watch(&self.local, &before);
        if known.is_some() {
            self.follow(peer, choice, address, watch);
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
        self.send(lane.lane, LaneCommand::Add { lane: lane.lane, cable: lane.cable, tunnel, watch });
        let machine = StatusMachine::new(now);
        let (last, established, pass) = (None, None, self.pass);
        let (peer, is_outdated) = (Arc::clone(peer), false);
        let cable = Cable { peer, choice, lane, watch, machine, last, established, pass, is_outdated };
        self.cables.insert(cable);
        self.note_cables_changed();
        Ok(())
    }

    /// Has the cable of a peer follow what is new about its Endpoint.
    fn follow(&mut self, peer: &Arc<Peer>, choice: Choice, address: SocketAddr, watch: Option<Watch>) {
        let Some(cable) = self.cables.get_mut(&peer.facts.cable_name) else { return };
        let lane = cable.lane.lane;
        let has_moved = cable.peer.address(cable.choice) != address;
        let has_other_networks = cable.peer.facts.subnets != peer.facts.subnets;
        cable.peer = Arc::clone(peer);
        cable.choice = choice;
        let is_watched_otherwise = std::mem::replace(&mut cable.watch, watch) != watch;
        if has_other_networks {
            tracing::info!(endpoint = %peer.name, "the peer's Endpoint has other networks");
            cable.set_networks(&*self.kind, &self.local.site);
        }
        if is_watched_otherwise {
            self.send(lane, LaneCommand::Watch { lane, watch });
        }
        if has_moved {
            tracing::info!(endpoint = %peer.name, peer = %address, "the peer's Endpoint has another address");
            self.kind.set_peer(lane, address);
            self.send(lane, LaneCommand::SetPeer { lane, peer: Some(address) });
        }
    }

    /// Notes that a cable is made or cut.
    fn note_cables_changed(&mut self) {
        self.cable_set += 1;
        self.standing = OnceLock::new();
    }

    /// Begins a new handshake on every cable.
    pub fn rekey_all(&self) {
        for cable in self.cables.iter() {
            let lane = cable.lane.lane;
            self.kind.rekey(lane);
            self.send(lane, LaneCommand::Rekey { lane });
        }
    }

    pub(super) fn send(&self, lane: LaneId, command: LaneCommand) {
        let owner = owner_of(lane);
        if let Some(worker) = self.workers.iter().find(|worker| worker.id == owner) {
            worker.command(Command::Lane(command));
        }
    }

    /// Waits until the workers have the lanes that the next tables will name.
    pub(super) async fn settle(&self) {
        let start = tokio::time::Instant::now();
        while !self.workers.iter().all(WorkerHandle::is_settled) && start.elapsed() < SETTLE {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

/// Returns `true` if an active or passive gateway has to have a cable to another.
fn has_cable_to(is_active: bool, peer: &Peer) -> bool {
    is_active || peer.role != Role::Sole
}

/// Returns `true` if a gateway's Endpoint has become one that its cable cannot follow.
fn is_another(peer: &Peer, before: &Peer) -> bool {
    peer.identity != before.identity || peer.driver != before.driver || far(peer) != far(before)
}

/// Returns the far end of a cable to a gateway.
fn far(peer: &Peer) -> Far {
    match peer.role {
        Role::Sibling => Far::Sibling(peer.facts.cable_name.clone()),
        Role::Member | Role::Sole => Far::Cluster(peer.facts.cluster_id.clone()),
    }
}
