//! Clusters: our own global CIDR and networks, and others' that are the same.

use ipnet::{IpNet, Ipv4Net};

use super::config::GlobalnetConfig;
use super::objects::Objects;
use super::state::Problem;
use super::writing::Writing;
use crate::api::{ApiError, Cluster, ClusterFacts, Kind, Resource};

/// Returns this cluster's networks; `None` if its Cluster is not there.
///
/// # Errors
/// [`ApiError`] if they cannot be read.
pub(super) fn own(config: &GlobalnetConfig, objects: &Objects) -> Result<Option<ClusterFacts>, ApiError> {
    let clusters = objects.inside(Kind::Cluster, &config.namespace);
    for object in clusters.filter(|object| object.metadata.origin().is_none()) {
        let Ok(cluster) = Cluster::from_object(object) else { continue };
        if cluster.spec.cluster_id == config.cluster_id {
            return cluster.spec.parse().map(Some);
        }
    }
    Ok(None)
}

/// Returns the networks of a cluster's pods and services, ascending.
pub(super) fn inside(cluster: &ClusterFacts) -> Vec<Ipv4Net> {
    let nets = cluster.cluster_cidr.iter().chain(&cluster.service_cidr);
    let mut inside: Vec<Ipv4Net> = nets
        .filter_map(|net| match net {
            IpNet::V4(net) => Some(*net),
            IpNet::V6(_) => None,
        })
        .collect();
    inside.sort_unstable();
    inside.dedup();
    inside
}

/// Returns why no addresses can be given out: our global CIDR overlaps our own networks.
pub(super) fn overlap_with_own(own: &ClusterFacts) -> Option<String> {
    let global = own.global_cidr.first()?;
    let net = overlap(&[own.cluster_cidr.as_slice(), &own.service_cidr].concat(), global)?;
    Some(format!(
        "the global CIDR {global} overlaps {net}, which is this cluster's own: choose another global CIDR"
    ))
}

/// Reports the other clusters whose networks our global CIDR overlaps: one of the two has to change, and which one is not
/// for us to say.
pub(super) fn report_overlaps(
    config: &GlobalnetConfig,
    own: &ClusterFacts,
    objects: &Objects,
    writing: &mut Writing,
) {
    let Some(global) = own.global_cidr.first() else { return };
    for object in objects.inside(Kind::Cluster, &config.namespace) {
        let Ok(other) = Cluster::from_object(object) else { continue };
        // A broken one is told of by who copied it.
        let Ok(facts) = other.spec.parse() else { continue };
        if facts.cluster_id == own.cluster_id {
            continue;
        }
        let theirs = [facts.global_cidr.as_slice(), &facts.cluster_cidr, &facts.service_cidr].concat();
        if let Some(net) = overlap(&theirs, global) {
            writing.problem(Problem {
                name: "GlobalCidrOverlap",
                subject: object.key().to_string(),
                message: format!(
                    "the global CIDR {global} overlaps {net} of cluster {}: packets between the two go astray; choose \
                     another global CIDR for one of them",
                    facts.cluster_id
                ),
            });
        }
    }
}

fn overlap(nets: &[IpNet], global: &IpNet) -> Option<IpNet> {
    nets.iter().copied().find(|net| net.contains(global) || global.contains(net))
}
