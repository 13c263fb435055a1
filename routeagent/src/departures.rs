//! Clusters that change their leader. Pure.
//!
//! Of a cluster with several gateways upstream's one Endpoint is the leader's. While the gateways agree on another one
//! there is none, and packets go on by the cables of all of them: the network is routed on as it was. Only while its
//! Cluster object is there: a cluster that leaves takes it along.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::reconcile::ClusterView;
use crate::state::{Endpoint, active_endpoint};

/// Ours: how long a cluster may be without its Endpoint. An election takes 20 s where the last leader crashed.
const LEADERLESS_FOR: Duration = Duration::from_secs(60);

/// The Endpoints that were there last, and since when they are not.
#[derive(Debug, Default)]
pub struct Departures {
    last: BTreeMap<String, (Endpoint, Option<Instant>)>,
}

impl Departures {
    /// Takes note of what is there, and puts back what is only changing hands.
    pub fn update(&mut self, own: &str, view: &mut ClusterView, now: Instant) {
        let is_member = |view: &ClusterView, id: &str| view.clusters.iter().any(|cluster| cluster.id == id);
        self.last.retain(|id, (_, gone)| {
            let since = gone.get_or_insert(now);
            is_member(view, id) && now < *since + LEADERLESS_FOR
        });
        for cluster in view.clusters.iter().map(|cluster| cluster.id.as_str()).filter(|id| *id != own) {
            match active_endpoint(&view.endpoints, cluster) {
                Some(endpoint) if endpoint.knows_paths => {
                    self.last.insert(cluster.to_owned(), (endpoint.clone(), None));
                }
                // It has gone back to one gateway.
                Some(_) => drop(self.last.remove(cluster)),
                None => {}
            }
        }
        let gone = self.last.values().filter(|(_, gone)| gone.is_some());
        view.endpoints.extend(gone.map(|(endpoint, _)| endpoint.clone()));
    }

    /// When the next one is given up.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.last.values().filter_map(|(_, gone)| *gone).min().map(|since| since + LEADERLESS_FOR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::Cluster;

    #[test]
    fn a_cluster_without_leader_is_routed_on_for_a_minute_and_one_that_leaves_is_not() {
        let (mut departures, start) = (Departures::default(), Instant::now());
        let mut routed = |endpoint: Option<bool>, is_member: bool, at: u64| {
            let mut view = view(endpoint, is_member);
            departures.update("a", &mut view, start + Duration::from_secs(at));
            (view.endpoints.len(), departures.poll_timeout().is_some())
        };
        assert_eq!(routed(Some(true), true, 0), (1, false));
        assert_eq!(routed(None, true, 10), (1, true));
        assert_eq!(routed(None, true, 69), (1, true));
        assert_eq!(routed(None, true, 70), (0, false));
        // Another leader, then it leaves.
        assert_eq!(routed(Some(true), true, 80), (1, false));
        assert_eq!(routed(None, true, 90), (1, true));
        assert_eq!(routed(Some(true), true, 95), (1, false));
        assert_eq!(routed(None, false, 96), (0, false));
        // Upstream's has one gateway: without Endpoint there is no way.
        assert_eq!(routed(Some(false), true, 100), (1, false));
        assert_eq!(routed(None, true, 101), (0, false));
    }

    fn view(endpoint: Option<bool>, is_member: bool) -> ClusterView {
        let cluster = Cluster { id: "b".to_owned(), created: 0, networks: Vec::new() };
        let endpoint = endpoint.map(|knows_paths| Endpoint { knows_paths, ..Endpoint::new("e", "b", "gw") });
        ClusterView {
            endpoints: endpoint.into_iter().collect(),
            clusters: if is_member { vec![cluster] } else { Vec::new() },
            ..ClusterView::default()
        }
    }
}
