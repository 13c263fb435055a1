//! Packets for services.

use std::sync::Arc;

use super::*;
use crate::services::{DesiredServices, ServiceRules};
use crate::state::Services;

const REMOTE: &[&str] = &["10.2.0.0/16"];

/// Services as a node wants them, in a cluster with several gateways or one.
fn known(is_asymmetric: bool) -> Services {
    Services { is_wanted: true, is_asymmetric, here: Some(Arc::default()) }
}

fn rules(state: &ClusterState) -> Option<(String, ServiceRules)> {
    match KubeProxy.desired(state).hostnet.services {
        DesiredServices::Rules { at, rules } => Some((at.to_string(), rules)),
        DesiredServices::Absent | DesiredServices::AsItIs => None,
    }
}

fn texts<T: ToString>(values: &BTreeSet<T>) -> Vec<String> {
    values.iter().map(T::to_string).collect()
}

#[test]
fn with_one_gateway_answers_of_services_alone_are_not_tracked() {
    for (node, address, inlets) in [
        ("a-gw1", "172.31.1.11", &["submariner", "vx-submariner"][..]),
        ("a-w1", "172.31.1.21", &["vx-submariner"]),
    ] {
        let state = ClusterState { services: known(false), ..cluster(node, REMOTE) };
        let (at, rules) = rules(&state).unwrap();
        assert_eq!(
            (at.as_str(), texts(&rules.inlets)),
            (address, inlets.iter().map(ToString::to_string).collect())
        );
        assert_eq!(texts(&rules.own), ["100.65.0.0/16"], "{node}");
        assert!(rules.relayed.is_empty(), "{node}: {:?}", rules.relayed);
    }
}

#[test]
fn with_several_what_only_passes_through_is_not_tracked() {
    let state = ClusterState { services: known(true), ..cluster("a-gw1", REMOTE) };
    let (_, rules) = rules(&state).unwrap();
    assert_eq!(texts(&rules.own), ["10.1.0.0/16", "100.65.0.0/16", "fd00:1::/48"]);
    assert_eq!(texts(&rules.relayed), ["10.1.3.0/24", "10.1.4.0/24"]);
}

#[test]
fn a_gateway_on_the_only_node_serves_too_and_a_worker_without_a_gateway_waits() {
    let mut state = ClusterState { services: known(false), ..cluster("a-gw1", REMOTE) };
    state.nodes.truncate(1);
    let (at, rules) = rules(&state).unwrap();
    assert!(KubeProxy.desired(&state).hostnet.vxlan.is_none());
    assert_eq!((at.as_str(), rules.inlets.contains("submariner")), ("172.31.1.11", true));

    let mut state = ClusterState { services: known(false), ..cluster("a-w1", REMOTE) };
    state.endpoints.remove(0);
    state.nodes.retain(|node| node.name == "a-w1");
    assert_eq!(KubeProxy.desired(&state).hostnet.services, DesiredServices::AsItIs);
}

#[test]
fn a_table_stays_as_it_is_while_services_are_not_known() {
    let services = Services { here: None, ..known(false) };
    let state = ClusterState { services, ..cluster("a-gw1", REMOTE) };
    assert_eq!(KubeProxy.desired(&state).hostnet.services, DesiredServices::AsItIs);
    let state = cluster("a-gw1", REMOTE);
    assert_eq!(KubeProxy.desired(&state).hostnet.services, DesiredServices::Absent);
}
