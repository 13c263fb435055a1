//! The last answer and how it changes with remote clusters: only what a change concerns is sorted and routed again, by the
//! functions that the whole answer is made with.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use trieste_control::network_map::NetworkMap;

use super::claimants::Claimants;
use super::refusals::fail_closed;
use trieste_reconcile::Difference;

use crate::admit::{Admission, Basis, Claims, admit, admit_some, carved};
use crate::condition::Condition;
use crate::constants::{TABLE_GATEWAY, TABLE_MAIN};
use crate::driver::{Desired, Memory};
use crate::family::Family;
use crate::grace::Turnover;
use crate::hostnet::Route;
use crate::networks::disjoint;
use crate::services::DesiredServices;
use crate::state::{Cluster, ClusterState, Endpoint};
use crate::view::ClusterView;
use crate::zone::{Hops, Zone};

/// Routes to networks of remote clusters, and why there are none.
pub(super) type Routes = (Vec<Route>, Option<Condition>);

/// The parts of a driver that a change of remote clusters concerns.
#[derive(Debug, Clone, Copy)]
pub(super) struct Parts {
    /// Returns the routes to networks of remote clusters, once the rest is desired, and why there are none.
    pub(super) routes: fn(&Desired, &ClusterState, &Admission) -> Routes,
    /// Returns `true` if the node has a table of its own for routes to remote networks, which therefore refuses them as well.
    pub(super) has_table: fn(&ClusterState) -> bool,
    /// Returns where packets go that only pass through this node.
    pub(super) onward: fn(&ClusterState, &Admission) -> BTreeSet<IpNet>,
    /// Returns the way to the gateway by the plugin's database, if this node is to write it there.
    pub(super) hops: fn(&ClusterState) -> Option<Hops>,
}

/// A memory of drivers whose routes to a network depend on that network and its cluster alone.
#[derive(Debug)]
pub(super) struct Remembered {
    parts: Parts,
    /// The state but for remote clusters and networks that nobody claims.
    state: ClusterState,
    /// Remote Endpoints, in the store's order.
    endpoints: Vec<Endpoint>,
    /// Remote Cluster objects, in the store's order.
    clusters: Vec<Cluster>,
    basis: Basis,
    claimants: Claimants,
    /// Claims, sorted; without networks that nobody claims.
    admission: Admission,
    /// Networks that are closed although nobody claims them.
    lingering: BTreeSet<IpNet>,
    vanished: BTreeSet<IpNet>,
    /// All networks that are closed, and whether they are routed.
    remote: NetworkMap<bool>,
    /// Addresses of remote gateways, and how many Endpoints have them.
    addresses: BTreeMap<IpAddr, usize>,
    gateways: BTreeSet<IpAddr>,
    shape: Shape,
    desired: Desired,
    /// What has changed since the answer was right.
    changed: Changed,
}

#[derive(Debug, Default)]
struct Changed {
    networks: BTreeSet<IpNet>,
    addresses: BTreeSet<IpAddr>,
}

/// What parts of the answer depend on that are not about single networks.
#[derive(Debug, PartialEq, Eq)]
struct Shape {
    /// First and last family of accepted networks.
    accepted: Option<(Family, Family)>,
    /// First and last family of what is closed.
    closed: Option<(Family, Family)>,
    carved: BTreeSet<IpNet>,
    /// Whether the main table refuses anything of a remote cluster.
    is_closing: bool,
}

impl Remembered {
    /// Remembers the answer to a state.
    pub(super) fn new(parts: Parts, mut state: ClusterState, desired: Desired) -> Self {
        let lingering = std::mem::take(&mut state.lingering);
        let admission = admit(&state);
        let own = state.node.cluster.clone();
        let (of_own, endpoints) = state.endpoints.drain(..).partition(|one| one.cluster == own);
        state.endpoints = of_own;
        state.clusters.retain(|cluster| cluster.id != own);
        let clusters = std::mem::take(&mut state.clusters);
        let mut remote = NetworkMap::default();
        admission.remote().for_each(|network| remote.put(*network, is_routed(&admission, network)));
        let mut memory = Self {
            parts,
            basis: Basis::new(&state),
            claimants: Claimants::default(),
            lingering: BTreeSet::new(),
            vanished: BTreeSet::new(),
            addresses: BTreeMap::new(),
            gateways: desired.hostnet.guard.iter().flat_map(|guard| &guard.gateways).copied().collect(),
            shape: Shape { accepted: None, closed: None, carved: BTreeSet::new(), is_closing: false },
            changed: Changed::default(),
            state,
            endpoints,
            clusters,
            admission,
            remote,
            desired,
        };
        let claims = Claims {
            endpoints: memory.endpoints.iter().collect(),
            clusters: memory.clusters.iter().collect(),
        };
        memory.claimants = Claimants::of(&claims);
        for address in memory.endpoints.iter().flat_map(|endpoint| &endpoint.addresses) {
            *memory.addresses.entry(*address).or_default() += 1;
        }
        memory.linger(&lingering);
        memory.changed = Changed::default();
        memory.shape = memory.shape();
        memory
    }

    /// Sorts the claims of these clusters anew; `None` if too many others are concerned.
    fn sort(
        &mut self,
        clusters: &BTreeSet<String>,
        new: &Claims<'_>,
        (of_endpoints, of_clusters): (&Difference, &Difference),
    ) -> Option<Turnover> {
        let concerned = self.claimants.replace(clusters, &of_some(new, clusters))?;
        let old =
            Claims { endpoints: self.endpoints.iter().collect(), clusters: self.clusters.iter().collect() };
        let before = admit_some(&self.basis, &of_some(&old, &concerned));
        let after = admit_some(&self.basis, &of_some(new, &concerned));
        for endpoint in of_endpoints.gone(&self.endpoints) {
            for address in &endpoint.addresses {
                let count = self.addresses.entry(*address).or_default();
                *count = count.saturating_sub(1);
                if *count == 0 {
                    self.addresses.remove(address);
                }
                self.changed.addresses.insert(*address);
            }
        }
        for address in of_endpoints.come(&new.endpoints).flat_map(|endpoint| &endpoint.addresses) {
            *self.addresses.entry(*address).or_default() += 1;
            self.changed.addresses.insert(*address);
        }
        of_endpoints.apply(&mut self.endpoints, &new.endpoints);
        of_clusters.apply(&mut self.clusters, &new.clusters);
        Some(self.splice(&concerned, &before, after))
    }

    /// Replaces a part of the sorted claims.
    fn splice(&mut self, concerned: &BTreeSet<String>, before: &Admission, after: Admission) -> Turnover {
        let mut turnover = Turnover::default();
        let all: BTreeSet<IpNet> = before.remote().chain(after.remote()).copied().collect();
        for network in all {
            let [was, is] = [before, &after].map(|one| one.accepted.get(&network));
            let multipath = [before, &after].map(|one| is_multipath(one, &network));
            let [was_closed, is_closed] = [before, &after].map(|one| has(one, &network));
            if was != is || multipath[0] != multipath[1] || was_closed != is_closed {
                self.changed.networks.insert(network);
            }
            if is_closed && !was_closed {
                turnover.came.insert(network);
            } else if was_closed && !is_closed {
                turnover.gone.insert(network);
            }
        }
        let (sorted, conditions) = (&mut self.admission, &mut self.desired.conditions);
        for network in before.accepted.keys() {
            sorted.accepted.remove(network);
        }
        for network in &before.closed {
            sorted.closed.remove(network);
        }
        for refused in &before.refused {
            sorted.refused.remove(refused);
            conditions.remove(refused);
        }
        for cluster in concerned {
            sorted.multipath.remove(cluster);
        }
        conditions.extend(after.refused.iter().cloned());
        sorted.accepted.extend(after.accepted);
        sorted.closed.extend(after.closed);
        sorted.refused.extend(after.refused);
        sorted.multipath.extend(after.multipath);
        turnover
    }

    /// Closes networks that nobody claims, as far as nothing else closes them and they may be closed.
    fn linger(&mut self, lingering: &BTreeSet<IpNet>) {
        for network in &self.changed.networks {
            match has(&self.admission, network) {
                true => self.remote.put(*network, is_routed(&self.admission, network)),
                false => self.remote.remove(network),
            }
        }
        let is_shadowed = |network: &IpNet| {
            self.remote.covering(*network).any(|(wider, is_routed)| wider != *network && *is_routed)
        };
        let closed: BTreeSet<IpNet> = lingering
            .iter()
            .filter(|network| !has(&self.admission, network) && self.basis.protection(network).is_none())
            .filter(|network| !is_shadowed(network))
            .copied()
            .collect();
        for network in self.lingering.difference(&closed).filter(|network| !has(&self.admission, network)) {
            self.remote.remove(network);
        }
        closed.iter().for_each(|network| self.remote.put(*network, false));
        self.changed.networks.extend(self.lingering.symmetric_difference(&closed));
        self.vanished = closed.difference(&self.state.unplugged).copied().collect();
        self.lingering = closed;
    }

    fn shape(&self) -> Shape {
        let families = |first: Option<&IpNet>, last: Option<&IpNet>| {
            first.zip(last).map(|(first, last)| (Family::of_net(first), Family::of_net(last)))
        };
        let accepted = &self.admission.accepted;
        let closed = &self.admission.closed;
        let all = [
            (accepted.keys().next(), accepted.keys().next_back()),
            (closed.first(), closed.last()),
            (self.lingering.first(), self.lingering.last()),
        ];
        let first = all.iter().filter_map(|(first, _)| *first).min();
        let last = all.iter().filter_map(|(_, last)| *last).max();
        let is_closing = self.admission.remote().any(|network| !self.has_gateway_inside(network));
        Shape {
            accepted: families(accepted.keys().next(), accepted.keys().next_back()),
            closed: families(first, last),
            carved: carved(&self.state, &self.remote),
            is_closing,
        }
    }

    fn has_gateway_inside(&self, network: &IpNet) -> bool {
        self.gateways.range(network.network()..=network.broadcast()).next().is_some()
    }

    /// Finds which addresses of remote gateways are inside a remote network now.
    fn renew_gateways(&mut self) {
        if self.state.own_endpoint().is_none() {
            return;
        }
        let mut candidates = std::mem::take(&mut self.changed.addresses);
        for network in &self.changed.networks {
            let inside = self.addresses.range(network.network()..=network.broadcast());
            candidates.extend(inside.map(|(address, _)| *address));
            let known = self.gateways.range(network.network()..=network.broadcast());
            candidates.extend(known);
        }
        for address in candidates {
            let is_inside = self.addresses.contains_key(&address) && self.remote.contains(address);
            if is_inside != self.gateways.contains(&address) {
                // The routes of all networks around it depend on that.
                let around = self.remote.covering(IpNet::from(address));
                self.changed.networks.extend(around.map(|(network, _)| network));
                if !self.gateways.remove(&address) {
                    self.gateways.insert(address);
                }
            }
        }
    }

    /// Makes the routes to some networks anew; returns what stands in the way.
    fn renew_routes(&mut self, networks: &BTreeSet<IpNet>) -> Option<Condition> {
        let mut part = Admission::default();
        let hostnet = &mut self.desired.hostnet;
        for network in networks {
            for table in [TABLE_GATEWAY, TABLE_MAIN] {
                let routes: Vec<Route> = hostnet.routes_to(table, *network).cloned().collect();
                for route in &routes {
                    hostnet.routes.remove(route);
                }
            }
            if let Some(accepted) = self.admission.accepted.get(network) {
                part.accepted.insert(*network, accepted.clone());
            } else if self.admission.closed.contains(network) || self.lingering.contains(network) {
                part.closed.insert(*network);
            }
        }
        part.multipath = std::mem::take(&mut self.admission.multipath);
        fail_closed(hostnet, &part, (self.parts.has_table)(&self.state), &self.gateways);
        let (routes, condition) = (self.parts.routes)(&self.desired, &self.state, &part);
        self.desired.hostnet.routes.extend(routes);
        self.admission.multipath = part.multipath;
        condition
    }

    /// Makes the packet filters' sets of remote networks anew.
    fn renew_sets(&mut self) {
        let remote = disjoint(self.admission.remote().chain(&self.lingering));
        let hostnet = &mut self.desired.hostnet;
        if let DesiredServices::Rules { rules, .. } = &mut hostnet.services {
            rules.remote.clone_from(&remote);
        }
        let onward = (self.parts.onward)(&self.state, &self.admission);
        if let Some(guard) = &mut hostnet.guard {
            (guard.remote, guard.onward) = (remote, onward);
            guard.gateways.clone_from(&self.gateways);
        }
    }
}

impl Memory for Remembered {
    fn desired(&self) -> &Desired {
        &self.desired
    }

    fn vanished(&self) -> &BTreeSet<IpNet> {
        &self.vanished
    }

    fn zone(&self) -> Option<Zone> {
        let hops = (self.parts.hops)(&self.state)?;
        let mut accepted: BTreeMap<String, BTreeSet<IpNet>> = BTreeMap::new();
        for (network, one) in &self.admission.accepted {
            accepted.entry(one.cluster.clone()).or_default().insert(*network);
        }
        let closed = self.admission.closed.union(&self.lingering).copied().collect();
        Some(Zone { hops, accepted, closed })
    }

    fn follow(&mut self, state: &ClusterState, view: &ClusterView) -> Option<Turnover> {
        // Where the kernel's IPsec picks packets up, every route depends on all Endpoints.
        let has_device = state.own_endpoint().is_none() || state.tun().is_some();
        if *state != self.state || !has_device {
            return None;
        }
        let own = &self.state.node.cluster;
        let new = Claims {
            endpoints: view.endpoints.iter().filter(|endpoint| endpoint.cluster != *own).collect(),
            clusters: view.clusters.iter().filter(|cluster| cluster.id != *own).collect(),
        };
        let of_endpoints = Difference::between(&self.endpoints, &new.endpoints, Endpoint::in_order);
        let of_clusters = Difference::between(&self.clusters, &new.clusters, Cluster::in_order);
        if of_endpoints.is_empty() && of_clusters.is_empty() {
            return Some(Turnover::default());
        }
        let endpoints = of_endpoints.gone(&self.endpoints).chain(of_endpoints.come(&new.endpoints));
        let clusters = of_clusters.gone(&self.clusters).chain(of_clusters.come(&new.clusters));
        let changed = endpoints.map(|endpoint| &endpoint.cluster).chain(clusters.map(|cluster| &cluster.id));
        let changed: BTreeSet<String> = changed.cloned().collect();
        self.sort(&changed, &new, (&of_endpoints, &of_clusters))
    }

    fn close(&mut self, lingering: &BTreeSet<IpNet>) -> Option<BTreeSet<IpNet>> {
        self.linger(lingering);
        self.renew_gateways();
        let shape = self.shape();
        if shape != self.shape || !shape.is_closing {
            return None;
        }
        let changed = std::mem::take(&mut self.changed).networks;
        if changed.is_empty() {
            return Some(changed);
        }
        let condition = self.renew_routes(&changed);
        if condition.is_some() || self.desired.conditions.contains(&Condition::NoIpv4BetweenNodes) {
            return None;
        }
        self.renew_sets();
        Some(changed)
    }
}

/// Returns the objects of some clusters.
fn of_some<'a>(claims: &Claims<'a>, clusters: &BTreeSet<String>) -> Claims<'a> {
    let endpoints = claims.endpoints.iter().copied().filter(|one| clusters.contains(&one.cluster));
    let objects = claims.clusters.iter().copied().filter(|one| clusters.contains(&one.id));
    Claims { endpoints: endpoints.collect(), clusters: objects.collect() }
}

/// Returns `true` if a network is closed.
fn has(admission: &Admission, network: &IpNet) -> bool {
    admission.accepted.contains_key(network) || admission.closed.contains(network)
}

fn is_routed(admission: &Admission, network: &IpNet) -> bool {
    admission.accepted.get(network).is_some_and(|accepted| accepted.has_gateway)
}

fn is_multipath(admission: &Admission, network: &IpNet) -> bool {
    let accepted = admission.accepted.get(network);
    accepted.is_some_and(|accepted| admission.multipath.contains(&accepted.cluster))
}
