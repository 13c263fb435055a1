//! Decides which networks of remote clusters this node accepts.
//!
//! Whatever is accepted is routed, guarded and failed closed; whatever is refused is left alone entirely, because
//! it belongs to someone else: the own cluster, a cluster that came first, or the node itself. One bad network
//! never costs a cluster its other ones.

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;

use crate::condition::{Condition, Refusal};
use crate::hostnet::VX_PREFIX;
use crate::state::ClusterState;

/// Networks that are never behind a cable, whoever claims them.
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

/// Networks of remote clusters, sorted out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Admission {
    /// Accepted networks and who they belong to. Networks of one cluster may nest, those of two never overlap.
    pub accepted: BTreeMap<IpNet, Accepted>,
    /// What was refused and why.
    pub refused: BTreeSet<Condition>,
    /// Networks of this node strictly inside an accepted network: they stay reachable.
    pub carved: BTreeSet<IpNet>,
}

/// An accepted network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accepted {
    /// The cluster that it belongs to.
    pub cluster: String,
    /// Whether a gateway offers it at present; otherwise only its Cluster object claims it, and it is failed closed.
    pub has_gateway: bool,
}

/// What a remote cluster claims, before anything is decided.
#[derive(Default)]
struct Claim {
    created: Option<i64>,
    networks: BTreeMap<IpNet, bool>,
}

/// Sorts the claims of all remote clusters, the oldest cluster first, ties by cluster id.
#[must_use]
pub fn admit(state: &ClusterState) -> Admission {
    let mut claims: Vec<(String, Claim)> = claims(state).into_iter().collect();
    claims.sort_by(|(a_id, a), (b_id, b)| (a.created, a_id).cmp(&(b.created, b_id)));
    let mut admission = Admission::default();
    for (cluster, claim) in claims {
        // The widest network first, so that the order within a cluster does not depend on its objects.
        let mut networks: Vec<(IpNet, bool)> = claim.networks.into_iter().collect();
        networks.sort_by_key(|(net, _)| (net.prefix_len(), *net));
        for (network, has_gateway) in networks {
            match refusal(state, &admission, &cluster, &network) {
                Some(why) => {
                    admission.refused.insert(Condition::Refused { cluster: cluster.clone(), network, why });
                }
                None => {
                    admission.accepted.insert(network, Accepted { cluster: cluster.clone(), has_gateway });
                }
            }
        }
    }
    admission.carved = carved(state, &admission);
    admission
}

/// Collects what every remote cluster claims: the networks of its Cluster object and of all its Endpoints.
fn claims(state: &ClusterState) -> BTreeMap<String, Claim> {
    let mut claims: BTreeMap<String, Claim> = BTreeMap::new();
    for cluster in state.clusters.iter().filter(|c| c.id != state.node.cluster) {
        let claim = claims.entry(cluster.id.clone()).or_default();
        // The Cluster object says since when a cluster is a member; its Endpoints come and go with its gateways.
        claim.created = Some(cluster.created);
        claim.networks.extend(cluster.networks.iter().map(|net| (net.trunc(), false)));
    }
    let members: BTreeSet<String> = claims.keys().cloned().collect();
    for endpoint in state.remote_endpoints() {
        let claim = claims.entry(endpoint.cluster.clone()).or_default();
        if !members.contains(&endpoint.cluster) {
            claim.created = Some(claim.created.map_or(endpoint.created, |at| at.min(endpoint.created)));
        }
        claim.networks.extend(endpoint.subnets.iter().map(|net| (net.trunc(), true)));
    }
    claims
}

/// Says why a network cannot be accepted.
fn refusal(state: &ClusterState, so_far: &Admission, cluster: &str, network: &IpNet) -> Option<Refusal> {
    if network.prefix_len() == 0 {
        return Some(Refusal::Everything);
    }
    if let Some((_, name)) = RESERVED.iter().find(|(net, _)| overlaps(&parsed(net), network)) {
        return Some(Refusal::Reserved(name));
    }
    if let Some(local) = state.local_networks().find(|local| overlaps(local, network)) {
        return Some(Refusal::Local(*local));
    }
    let own = state.endpoints.iter().filter(|e| e.cluster == state.node.cluster).flat_map(|e| &e.subnets);
    if let Some(local) = own.into_iter().find(|local| overlaps(local, network)) {
        return Some(Refusal::Local(*local));
    }
    let taken =
        so_far.accepted.iter().find(|(net, owner)| owner.cluster != cluster && overlaps(net, network));
    if let Some((net, owner)) = taken {
        return Some(Refusal::Taken { network: *net, cluster: owner.cluster.clone() });
    }
    // A network of the node that lies strictly inside is carved out; one that does not would be cut off.
    let node = state.own_networks().find(|own| {
        network.contains(&own.network.addr())
            && (own.network.prefix_len() <= network.prefix_len()
                || own.network.prefix_len() == own.network.max_prefix_len())
    });
    node.map(|own| Refusal::Node(own.clone()))
}

/// Returns the node's own networks strictly inside an accepted one.
fn carved(state: &ClusterState, admission: &Admission) -> BTreeSet<IpNet> {
    let own = state.own_networks().map(|own| own.network.trunc());
    own.filter(|own| {
        own.prefix_len() < own.max_prefix_len()
            && admission.accepted.keys().any(|net| net.contains(own) && net != own)
    })
    .collect()
}

fn overlaps(a: &IpNet, b: &IpNet) -> bool {
    a.contains(b) || b.contains(a)
}

fn parsed(text: &str) -> IpNet {
    text.parse().expect("the networks of the table above are well-formed")
}

#[cfg(test)]
mod tests;
