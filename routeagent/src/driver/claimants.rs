//! Remote clusters by the networks that they claim: which of them a change can concern. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ipnet::IpNet;
use trieste_control::network_map::NetworkMap;

use crate::admit::Claims;

/// Ours: most clusters that are looked at for one change; beyond it all of them are.
const MOST_CONCERNED: usize = 256;

/// Who claims which networks. A network is listed as often as it is claimed.
#[derive(Debug, Default)]
pub(super) struct Claimants {
    by_network: NetworkMap<Vec<Arc<str>>>,
    by_cluster: BTreeMap<Arc<str>, Vec<IpNet>>,
}

impl Claimants {
    /// Returns who claims what.
    pub(super) fn of(claims: &Claims<'_>) -> Self {
        let mut all = Self::default();
        claimed(claims).into_iter().for_each(|(cluster, networks)| all.put(cluster, networks));
        all
    }

    /// Replaces everything that these clusters claim; returns all clusters whose networks were or are sorted together with
    /// theirs, these included: those with a network that overlaps one of them, and so on. `None` if those are too many.
    pub(super) fn replace(
        &mut self,
        clusters: &BTreeSet<String>,
        claims: &Claims<'_>,
    ) -> Option<BTreeSet<String>> {
        let claimed = claimed(claims);
        let mut concerned = clusters.clone();
        let before = clusters.iter().filter_map(|cluster| self.by_cluster.get(cluster.as_str())).flatten();
        let mut networks: Vec<IpNet> = before.chain(claimed.values().flatten()).copied().collect();
        while let Some(network) = networks.pop() {
            for cluster in self.by_network.overlapping(network).flat_map(|(_, clusters)| clusters) {
                if !concerned.contains(&**cluster) {
                    concerned.insert((**cluster).to_owned());
                    networks.extend(self.by_cluster.get(cluster).into_iter().flatten());
                }
            }
            if concerned.len() > MOST_CONCERNED {
                return None;
            }
        }
        clusters.iter().for_each(|cluster| self.remove(cluster));
        claimed.into_iter().for_each(|(cluster, networks)| self.put(cluster, networks));
        Some(concerned)
    }

    fn put(&mut self, cluster: &str, networks: Vec<IpNet>) {
        let cluster: Arc<str> = cluster.into();
        for network in &networks {
            match self.by_network.get_mut(network) {
                Some(clusters) => clusters.push(Arc::clone(&cluster)),
                None => self.by_network.put(*network, vec![Arc::clone(&cluster)]),
            }
        }
        self.by_cluster.insert(cluster, networks);
    }

    fn remove(&mut self, cluster: &str) {
        for network in self.by_cluster.remove(cluster).unwrap_or_default() {
            let Some(clusters) = self.by_network.get_mut(&network) else { continue };
            if let Some(at) = clusters.iter().position(|one| **one == *cluster) {
                clusters.swap_remove(at);
            }
            if clusters.is_empty() {
                self.by_network.remove(&network);
            }
        }
    }
}

/// Returns the networks of each cluster, without host bits.
fn claimed<'a>(claims: &Claims<'a>) -> BTreeMap<&'a str, Vec<IpNet>> {
    let mut all: BTreeMap<&str, Vec<IpNet>> = BTreeMap::new();
    let endpoints = claims.endpoints.iter().map(|endpoint| (endpoint.cluster.as_str(), &endpoint.subnets));
    let clusters = claims.clusters.iter().map(|cluster| (cluster.id.as_str(), &cluster.networks));
    for (cluster, networks) in endpoints.chain(clusters) {
        all.entry(cluster).or_default().extend(networks.iter().map(IpNet::trunc));
    }
    all
}
