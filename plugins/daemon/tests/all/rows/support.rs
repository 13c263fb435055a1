//! What is wanted in tests, and carrying it out.

use std::net::IpAddr;

use ipnet::IpNet;
use trieste_ovn::condition::Condition;
use trieste_ovn::wanted::{Input, RouteKind, RouteObject, Topology, Zone};
use trieste_ovn::{Wanted, plan, uninstall};

use crate::rows::ovn::Ovn;

/// What decides, as owned values.
#[derive(Debug, Clone)]
pub(crate) struct Facts {
    pub(crate) topology: Topology,
    pub(crate) zone: Zone,
    pub(crate) routes: Vec<RouteObject>,
    pub(crate) closed: Vec<IpNet>,
    pub(crate) own: Vec<IpNet>,
    pub(crate) gateway_node: Option<String>,
    pub(crate) management_port: Vec<IpAddr>,
    pub(crate) is_complete: bool,
}

impl Facts {
    /// The proposal's example: one remote cluster, node1 the gateway.
    pub(crate) fn proposal() -> Self {
        Self {
            topology: Topology::SubmarinerRouter,
            zone: Zone::Gateway,
            routes: vec![route("east", RouteKind::Gateway, &[], &["10.132.0.0/14", "172.31.0.0/16"])],
            closed: Vec::new(),
            own: networks(&["10.128.0.0/14", "172.30.0.0/16"]),
            gateway_node: Some("node1".to_owned()),
            management_port: Vec::new(),
            is_complete: true,
        }
    }

    /// Upstream's topology in the gateway's zone: the same remote cluster, both families.
    pub(crate) fn upstream() -> Self {
        let next_hops = ["10.128.0.2", "fd00:10:128::2"];
        let remote = ["10.132.0.0/14", "172.31.0.0/16", "fd00:10:132::/48"];
        Self {
            topology: Topology::ClusterRouter,
            routes: vec![route("east", RouteKind::Gateway, &next_hops, &remote)],
            own: networks(&["10.128.0.0/14", "172.30.0.0/16", "fd00:10:128::/48"]),
            management_port: next_hops.iter().map(|text| text.parse().unwrap()).collect(),
            ..Self::proposal()
        }
    }

    pub(crate) fn wanted(&self) -> Wanted {
        Wanted::new(&Input {
            topology: self.topology,
            zone: self.zone,
            routes: &self.routes,
            is_complete: self.is_complete,
            closed: &self.closed,
            own: &self.own,
            protected: &[],
            gateway_node: self.gateway_node.as_deref(),
            management_port: &self.management_port,
            version: "v0.1.0",
        })
    }
}

pub(crate) fn networks(texts: &[&str]) -> Vec<IpNet> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

pub(crate) fn route(
    cluster: &str,
    kind: RouteKind,
    next_hops: &[&str],
    remote_cidrs: &[&str],
) -> RouteObject {
    let owned = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
    RouteObject {
        cluster: cluster.to_owned(),
        kind,
        next_hops: owned(next_hops),
        remote_cidrs: owned(remote_cidrs),
    }
}

/// Carries out one plan; returns how many transactions it had, and the conditions.
pub(crate) fn apply(ovn: &Ovn, facts: &Facts) -> (usize, Vec<Condition>) {
    let plan = plan(&facts.wanted(), &ovn.rows(), &ovn.chassis());
    for transaction in &plan.transactions {
        ovn.transact(transaction).unwrap();
    }
    (plan.transactions.len(), plan.conditions.iter().collect())
}

/// Carries out a plan without conditions, and looks that a second one is empty.
pub(crate) fn converge(ovn: &Ovn, facts: &Facts) {
    assert_eq!(apply(ovn, facts).1, [], "conditions");
    assert_eq!(apply(ovn, facts), (0, Vec::new()), "the second pass");
    ovn.sync();
}

/// Removes everything of ours; returns the number of transactions.
pub(crate) fn remove_all(ovn: &Ovn) -> usize {
    let plan = uninstall(&ovn.rows());
    plan.transactions.iter().for_each(|transaction| ovn.transact(transaction).unwrap());
    plan.transactions.len()
}
