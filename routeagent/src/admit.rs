//! Decides which networks of remote clusters this node accepts.
//!
//! What is routed is decided exactly as the gateway decides what it connects to: by Endpoints alone. Whatever else
//! remote clusters claim is failed closed and guarded, whoever claims it; nothing of it may leave in clear. What
//! is the own cluster's, the node's or nobody's to claim, or no member's to have (`trieste_control::claims`), is left alone
//! entirely: it is neither routed nor closed, and does not linger either.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use ipnet::IpNet;
use trieste_control::claims::{Allowed, Surroundings};
use trieste_control::network_map::NetworkMap;
use trieste_vxlan::VX_PREFIX;

use crate::condition::{Condition, Refusal};
use crate::state::{Cluster, ClusterState, Endpoint, active_endpoints};

/// Networks that are never behind a cable, regardless of claims.
const RESERVED: [(&str, &str); 10] = [
    ("0.0.0.0/8", "addresses of this network"),
    ("127.0.0.0/8", "loopback"),
    ("169.254.0.0/16", "link-local addresses"),
    ("224.0.0.0/4", "multicast"),
    (VX_PREFIX, "the intra-cluster VXLAN"),
    ("255.255.255.255/32", "broadcast"),
    ("::/127", "the unspecified and loopback addresses"),
    ("::ffff:0:0/96", "IPv4-mapped addresses"),
    ("fe80::/10", "link-local addresses"),
    ("ff00::/8", "multicast"),
];

/// The same, parsed.
static RESERVED_NETWORKS: LazyLock<[(IpNet, &str); 10]> = LazyLock::new(|| {
    RESERVED.map(|(text, name)| (text.parse().expect("the networks above are well-formed"), name))
});

/// Networks of remote clusters, sorted out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Admission {
    /// Accepted networks and who they belong to. Networks of one cluster may nest, those of two never overlap.
    pub accepted: BTreeMap<IpNet, Accepted>,
    /// Networks that are nobody's to use but are failed closed all the same: refused because of an overlap, or
    /// vanished from the store a short while ago.
    pub closed: BTreeSet<IpNet>,
    /// Conditions: refused claims, and why.
    pub refused: BTreeSet<Condition>,
    /// Networks of this node strictly inside a remote network: they stay reachable.
    pub carved: BTreeSet<IpNet>,
    /// Clusters whose packets go by any of this cluster's gateways, since they take several.
    pub multipath: BTreeSet<String>,
}

impl Admission {
    /// Returns every network that is failed closed, of any owner.
    pub fn remote(&self) -> impl Iterator<Item = &IpNet> {
        self.accepted.keys().chain(&self.closed)
    }

    /// Returns the networks that a gateway of their cluster offers, as the gateway connects them.
    pub fn routed(&self) -> impl Iterator<Item = &IpNet> {
        self.accepted.iter().filter(|(_, accepted)| accepted.has_gateway).map(|(network, _)| network)
    }
}

/// An accepted network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accepted {
    /// The cluster that it belongs to.
    pub cluster: String,
    /// Whether the cluster's newest Endpoint offers it; otherwise it is only claimed, and it is failed closed.
    pub has_gateway: bool,
}

/// The networks that every claim is compared with, whoever else claims what.
#[derive(Debug, Clone)]
pub(crate) struct Basis {
    allowed: Allowed,
    around: Surroundings,
    /// The own cluster's networks, and those that its gateways publish, with their rank: the first that overlaps is named.
    own: NetworkMap<usize>,
    /// Those of them that a gateway does not connect a cluster for.
    unconnectable: NetworkMap<usize>,
}

/// The objects by which remote clusters claim networks: all of them, or those of some clusters.
#[derive(Debug, Default)]
pub(crate) struct Claims<'a> {
    /// Their Endpoints, in the store's order.
    pub(crate) endpoints: Vec<&'a Endpoint>,
    /// Their Cluster objects, in the store's order.
    pub(crate) clusters: Vec<&'a Cluster>,
}

/// The networks that claims are compared with.
struct Claimed<'a> {
    basis: &'a Basis,
    /// Networks of the clusters that the gateway connects, with the cluster and its rank.
    connected: NetworkMap<(usize, &'a str)>,
    /// Whose the accepted networks are.
    owners: NetworkMap<&'a str>,
}

/// Sorts the claims of all remote clusters.
#[must_use]
pub fn admit(state: &ClusterState) -> Admission {
    let basis = Basis::new(state);
    let clusters = state.clusters.iter().filter(|cluster| cluster.id != state.node.cluster).collect();
    let claims = Claims { endpoints: state.remote_endpoints().collect(), clusters };
    let mut admission = sort(&basis, &claims);
    for network in state.lingering.iter().filter(|network| basis.protection(network).is_none()) {
        admission.closed.insert(*network);
    }
    for network in own_global(state) {
        let own = Accepted { cluster: state.node.cluster.clone(), has_gateway: true };
        admission.accepted.entry(network).or_insert(own);
    }
    drop_shadows(&mut admission);
    let own = state.active_endpoint().filter(|own| own.has_multipath);
    admission.multipath.extend(own.map(|own| own.cluster.clone()));
    let remote: NetworkMap<()> = admission.remote().copied().collect();
    admission.carved = carved(state, &remote);
    admission
}

/// Sorts the claims of some remote clusters that overlap no others, as [`admit`] does among all: nobody's networks but those
/// that overlap decide about a claim.
pub(crate) fn admit_some(basis: &Basis, claims: &Claims<'_>) -> Admission {
    let mut admission = sort(basis, claims);
    drop_shadows(&mut admission);
    admission
}

/// Sorts claims, without regard to what lies inside of what is routed.
fn sort(basis: &Basis, claims: &Claims<'_>) -> Admission {
    let mut admission = Admission::default();
    let (connected, owners) = (NetworkMap::default(), NetworkMap::default());
    let mut claimed = Claimed { basis, connected, owners };
    for (rank, carrier) in carriers(&claims.endpoints).into_iter().enumerate() {
        claimed.connect(rank, carrier, &mut admission);
    }
    for (cluster, network) in claims.all() {
        claimed.claim(&mut admission, cluster, network);
    }
    let active = active_endpoints(claims.endpoints.iter().copied()).into_values();
    admission.multipath = active.filter(|e| e.has_multipath).map(|e| e.cluster.clone()).collect();
    admission
}

/// Returns the own cluster's global networks: a pod that asks for a global IP of its own cluster is led to the gateway as
/// well, which turns the packet round (RFC 4787 section 6), and not by the default route in clear. Services answer
/// before any route is asked, by their external IPs. Upstream's gateways, which name no interface, turn nothing round.
fn own_global(state: &ClusterState) -> BTreeSet<IpNet> {
    let own = state.active_endpoint().filter(|own| state.node.has_globalnet && own.interface.is_some());
    let published = own.into_iter().flat_map(|own| &own.subnets).map(IpNet::trunc);
    let is_inside = |network: &IpNet| state.local_networks().any(|local| overlaps(local, network));
    published.filter(|network| !is_inside(network)).collect()
}

/// Returns the newest Endpoint of every remote cluster, the cluster with the oldest Endpoint first, ties by cluster id:
/// the Endpoints that carry traffic, in the order in which the gateway connects them (`gateway/daemon/src/tables.rs`).
fn carriers<'a>(endpoints: &[&'a Endpoint]) -> Vec<&'a Endpoint> {
    let mut clusters: BTreeMap<&str, (i128, &Endpoint)> = BTreeMap::new();
    for endpoint in endpoints.iter().copied().filter(|endpoint| !endpoint.subnets.is_empty()) {
        let (oldest, newest) = clusters.entry(&endpoint.cluster).or_insert((endpoint.created, endpoint));
        *oldest = endpoint.created.min(*oldest);
        if (endpoint.created, &newest.name) > (newest.created, &endpoint.name) {
            *newest = endpoint;
        }
    }
    let mut order: Vec<(i128, &Endpoint)> = clusters.into_values().collect();
    order.sort_by_key(|(oldest, newest)| (*oldest, &newest.cluster));
    order.into_iter().map(|(_, newest)| newest).collect()
}

impl<'a> Claims<'a> {
    /// Returns what is claimed by more than the Endpoints that carry traffic: by Cluster objects, the oldest first, and by
    /// older Endpoints. It is failed closed and takes nothing from anyone.
    fn all(&self) -> Vec<(&'a str, IpNet)> {
        let mut clusters = self.clusters.clone();
        clusters.sort_by_key(|cluster| (cluster.created, &cluster.id));
        let objects = clusters.into_iter().map(|cluster| (cluster.id.as_str(), &cluster.networks));
        let endpoints = self.endpoints.iter().map(|endpoint| (endpoint.cluster.as_str(), &endpoint.subnets));
        let claims = endpoints.chain(objects);
        claims.flat_map(|(cluster, nets)| nets.iter().map(move |net| (cluster, net.trunc()))).collect()
    }
}

impl Basis {
    /// Collects them.
    pub(crate) fn new(state: &ClusterState) -> Self {
        let ranked = |networks: &mut dyn Iterator<Item = &IpNet>| {
            let mut all = NetworkMap::default();
            networks.enumerate().for_each(|(rank, network)| all.add(network.trunc(), rank));
            all
        };
        let own = ranked(&mut state.local_networks().chain(published(state)));
        // With globalnet the published networks are global ones, and those behind them are ours as well.
        let inside = state.local_networks().filter(|_| state.node.has_globalnet);
        let unconnectable = ranked(&mut published(state).chain(inside));
        Self { allowed: state.node.allowed.clone(), around: surroundings(state), own, unconnectable }
    }

    /// Returns why a network must be neither routed nor refused.
    pub(crate) fn protection(&self, network: &IpNet) -> Option<Refusal> {
        if network.prefix_len() == 0 {
            return Some(Refusal::Everything);
        }
        if let Some((_, name)) = RESERVED_NETWORKS.iter().find(|(net, _)| overlaps(net, network)) {
            return Some(Refusal::Reserved(name));
        }
        if let Some(local) = first(&self.own, network) {
            return Some(Refusal::Local(local));
        }
        self.allowed.check(network).and_then(|()| self.around.check(network)).err().map(Refusal::Forbidden)
    }
}

impl<'a> Claimed<'a> {
    /// Sorts the networks of a cluster's newest Endpoint. The gateway connects to all of a cluster or to nothing of it.
    fn connect(&mut self, rank: usize, carrier: &'a Endpoint, admission: &mut Admission) {
        let networks: Vec<IpNet> = carrier.subnets.iter().map(IpNet::trunc).collect();
        let conflicts: Vec<Option<Refusal>> = networks.iter().map(|net| self.conflict(net)).collect();
        let is_refused = conflicts.iter().any(Option::is_some)
            || networks.iter().any(|net| self.basis.allowed.check(net).is_err());
        for (network, conflict) in networks.iter().zip(conflicts) {
            let protection = self.basis.protection(network);
            if protection.is_none() && is_refused {
                admission.closed.insert(*network);
            }
            let why = protection.or(conflict).or_else(|| is_refused.then_some(Refusal::Whole));
            let (cluster, network) = (carrier.cluster.clone(), *network);
            match why {
                Some(why) => {
                    admission.refused.insert(Condition::Refused { cluster, network, why });
                }
                None => {
                    self.owners.add(network, &carrier.cluster);
                    admission.accepted.insert(network, Accepted { cluster, has_gateway: true });
                }
            }
        }
        if !is_refused {
            networks.into_iter().for_each(|net| self.connected.add(net, (rank, &carrier.cluster)));
        }
    }

    /// Sorts what is only claimed.
    fn claim(&mut self, admission: &mut Admission, cluster: &'a str, network: IpNet) {
        let taken = || {
            let others = self.owners.overlapping(network).filter(|(_, owner)| **owner != cluster);
            let (network, owner) = others.min_by_key(|(net, _)| *net)?;
            Some(Refusal::Taken { network, cluster: (*owner).to_owned() })
        };
        let protection = self.basis.protection(&network);
        let is_closed = protection.is_none();
        match protection.or_else(taken) {
            Some(why) => {
                if is_closed {
                    admission.closed.insert(network);
                }
                let cluster = cluster.to_owned();
                admission.refused.insert(Condition::Refused { cluster, network, why });
            }
            None => {
                self.owners.add(network, cluster);
                let accepted = || Accepted { cluster: cluster.to_owned(), has_gateway: false };
                admission.accepted.entry(network).or_insert_with(accepted);
            }
        }
    }

    /// Returns why the gateway does not connect to the cluster that offers this network.
    fn conflict(&self, network: &IpNet) -> Option<Refusal> {
        if let Some(local) = first(&self.basis.unconnectable, network) {
            return Some(Refusal::Local(local));
        }
        let theirs = self.connected.overlapping(network.trunc());
        let (network, (_, cluster)) = theirs.min_by_key(|(_, (rank, _))| *rank)?;
        Some(Refusal::Taken { network, cluster: (*cluster).to_owned() })
    }
}

/// Returns the first of these, by rank, that overlaps a network.
fn first(all: &NetworkMap<usize>, network: &IpNet) -> Option<IpNet> {
    all.overlapping(network.trunc()).min_by_key(|(_, rank)| **rank).map(|(net, _)| net)
}

/// Drops refusals inside of a network that is routed: they would be more specific than its route. The network that is
/// routed closes them.
fn drop_shadows(admission: &mut Admission) {
    let routed: NetworkMap<()> = admission.routed().copied().collect();
    admission.accepted.retain(|net, accepted| accepted.has_gateway || !routed.is_inside_another(net));
    let accepted = &admission.accepted;
    admission.closed.retain(|net| !accepted.contains_key(net) && !routed.is_inside_another(net));
}

/// Returns what is around this node and no member's to have: what it reaches directly, the cluster's nodes and API servers, its
/// name servers. A network of the node that lies strictly inside of a member's is carved out.
fn surroundings(state: &ClusterState) -> Surroundings {
    let mut around = Surroundings::default();
    let is_of_the_cluster = |own: &IpNet| state.local_networks().any(|local| local.contains(own));
    for own in state.own_networks().filter(|own| !is_of_the_cluster(&own.network.trunc())) {
        around.connect(own.network, &own.device);
    }
    for node in &state.nodes {
        for address in &node.addresses {
            around.protect(*address, &format!("node {}", node.name));
        }
    }
    for address in &state.servers {
        around.protect(*address, "an API server of this cluster");
    }
    for (address, whose) in state.node.protected.iter().chain(&state.named) {
        around.protect(*address, whose);
    }
    around
}

/// Returns what the own cluster's gateways publish.
fn published(state: &ClusterState) -> impl Iterator<Item = &IpNet> {
    state.endpoints.iter().filter(|e| e.cluster == state.node.cluster).flat_map(|e| &e.subnets)
}

/// Returns the node's own networks strictly inside a remote one.
pub(crate) fn carved<T>(state: &ClusterState, remote: &NetworkMap<T>) -> BTreeSet<IpNet> {
    let own = state.own_networks().map(|own| own.network.trunc());
    own.filter(|own| own.prefix_len() < own.max_prefix_len() && remote.is_inside_another(own)).collect()
}

fn overlaps(a: &IpNet, b: &IpNet) -> bool {
    a.contains(b) || b.contains(a)
}

#[cfg(test)]
mod tests;
