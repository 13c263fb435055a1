//! Bridges short absences: of the Endpoint of a cluster that changes its leader, and of this node's own gateway while it
//! restarts. Pure.
//!
//! In a cluster with several gateways upstream's one Endpoint is the leader's. During an election there is none, while the
//! cables of all gateways go on working: routes to the network stay. This holds only while its Cluster object exists,
//! which a cluster that leaves removes.
//!
//! A node whose gateway is gone is treated as a node with a dead gateway for a while: its pods' packets go by the other
//! gateways either way, and changing it to a worker and back would lose packets.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::state::{Endpoint, active_endpoints};
use crate::view::ClusterView;

/// Ours: how long a cluster may be without its Endpoint. An election takes 20 s after the leader crashed.
const ELECTION_TIMEOUT: Duration = Duration::from_secs(60);

/// Ours: how long a node stays a gateway's node without its gateway. Replacing a pod takes about half of that.
const RESTART_TIMEOUT: Duration = Duration::from_secs(15);

/// The Endpoints that were present last, and since when they are missing.
#[derive(Debug, Default)]
pub struct Departures {
    last: BTreeMap<String, (Endpoint, Option<Instant>)>,
    /// This node's own gateway.
    own: Option<(Endpoint, Option<Instant>)>,
}

impl Departures {
    /// Records the present Endpoints, and adds those that only move or restart at the moment. `own` is this node's
    /// cluster.
    pub fn update(&mut self, own: &str, hostname: &str, view: &mut ClusterView, now: Instant) {
        self.update_own(hostname, view, now);
        let members: BTreeSet<&str> = view.clusters.iter().map(|cluster| cluster.id.as_str()).collect();
        self.last.retain(|id, (_, gone)| {
            let since = gone.get_or_insert(now);
            members.contains(id.as_str()) && now < *since + ELECTION_TIMEOUT
        });
        let active = active_endpoints(&view.endpoints);
        for cluster in members.into_iter().filter(|id| *id != own) {
            match active.get(cluster) {
                Some(endpoint) if endpoint.has_multipath => match self.last.get_mut(cluster) {
                    Some((known, gone)) if known == *endpoint => *gone = None,
                    Some(_) | None => {
                        self.last.insert(cluster.to_owned(), ((*endpoint).clone(), None));
                    }
                },
                // It went back to one gateway.
                Some(_) => drop(self.last.remove(cluster)),
                None => {}
            }
        }
        let gone = self.last.values().filter(|(_, gone)| gone.is_some());
        view.endpoints.extend(gone.map(|(endpoint, _)| endpoint.clone()));
    }

    fn update_own(&mut self, hostname: &str, view: &mut ClusterView, now: Instant) {
        if let Some(member) = view.members.iter().find(|member| member.hostname == hostname) {
            self.own = Some((member.clone(), None));
        } else if let Some((member, gone)) = &mut self.own {
            let since = *gone.get_or_insert(now);
            // Without other gateways there is nothing to preserve.
            if view.members.is_empty() || now >= since + RESTART_TIMEOUT {
                self.own = None;
            } else {
                view.members.push(member.clone());
            }
        }
    }

    /// Returns when the next departed Endpoint expires.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let leaderless =
            self.last.values().filter_map(|(_, gone)| *gone).map(|since| since + ELECTION_TIMEOUT);
        let own = self.own.as_ref().and_then(|(_, gone)| *gone).map(|since| since + RESTART_TIMEOUT);
        leaderless.chain(own).min()
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
            departures.update("a", "node", &mut view, start + Duration::from_secs(at));
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

    #[test]
    fn a_node_whose_gateway_is_gone_stays_its_node_for_a_while_if_there_are_others() {
        let (mut departures, start) = (Departures::default(), Instant::now());
        let mut members = |hostnames: &[&str], at: u64| {
            let member = |hostname: &&str| Endpoint::new(hostname, "a", hostname);
            let members = hostnames.iter().map(member).collect();
            let mut view = ClusterView { members, ..ClusterView::default() };
            departures.update("a", "node", &mut view, start + Duration::from_secs(at));
            let names: Vec<String> = view.members.into_iter().map(|member| member.hostname).collect();
            (names.join(" "), departures.poll_timeout().is_some())
        };
        let said = |names: &str, waits: bool| (names.to_owned(), waits);
        assert_eq!(members(&["other"], 0), said("other", false));
        assert_eq!(members(&["other", "node"], 1), said("other node", false));
        assert_eq!(members(&["other"], 2), said("other node", true));
        assert_eq!(members(&["other"], 16), said("other node", true));
        assert_eq!(members(&["other"], 17), said("other", false));
        // It comes back in time, and goes together with the others.
        assert_eq!(members(&["other", "node"], 20), said("other node", false));
        assert_eq!(members(&["other"], 21), said("other node", true));
        assert_eq!(members(&["other", "node"], 25), said("other node", false));
        assert_eq!(members(&[], 26), said("", false));
        assert_eq!(members(&["other"], 27), said("other", false));
    }

    fn view(endpoint: Option<bool>, is_member: bool) -> ClusterView {
        let cluster = Cluster { id: "b".to_owned(), created: 0, networks: Vec::new() };
        let endpoint =
            endpoint.map(|has_multipath| Endpoint { has_multipath, ..Endpoint::new("e", "b", "gw") });
        ClusterView {
            endpoints: endpoint.into_iter().collect(),
            clusters: if is_member { vec![cluster] } else { Vec::new() },
            ..ClusterView::default()
        }
    }
}
