mod between_nodes;
mod gateway;
mod globalnet;
mod guard;
mod refusals;
mod scale;
mod serve;
mod upstream;

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;

use super::*;
use crate::condition::Condition;
use crate::hostnet::{Delivery, Hop, Route, Rule, Sysctl};
use crate::state::{ClusterNode, DeviceAddress, Endpoint, Node, ResolvedRoute};

/// A gateway of cluster `a` that knows cluster `b` with these networks.
pub(super) fn gateway(remote: &[&str]) -> ClusterState {
    let mut own = Endpoint::new("a-cable", "a", "a-gw1");
    own.health_check = Some("10.1.1.1".parse().unwrap());
    let mut other = Endpoint::new("b-cable", "b", "b-gw1");
    other.subnets = remote.iter().map(|text| text.parse().unwrap()).collect();
    ClusterState {
        node: Node {
            cluster: "a".into(),
            hostname: "a-gw1".into(),
            pod_networks: vec!["10.1.0.0/16".parse().unwrap()],
            service_networks: Vec::new(),
            tun: "submariner".into(),
            plugin: "generic".into(),
            notice_port: 4801,
            has_globalnet: false,
            has_synchronizer: false,
            ..Node::default()
        },
        endpoints: vec![own, other],
        addresses: [address("eth0", "172.31.1.11/24"), address("cni0", "10.1.1.1/24")].into(),
        ..ClusterState::default()
    }
}

/// The same with two more nodes, seen from one of them by its host name.
pub(super) fn cluster(seen_from: &str, remote: &[&str]) -> ClusterState {
    let mut state = gateway(remote);
    state.endpoints[0].addresses = vec!["172.31.1.11".parse().unwrap()];
    state.node.pod_networks.push("fd00:1::/48".parse().unwrap());
    state.node.service_networks.push("100.65.0.0/16".parse().unwrap());
    state.nodes = [("a-gw1", 11, 1), ("a-w1", 21, 3), ("a-w2", 22, 4)]
        .iter()
        .map(|(name, host, pods)| ClusterNode {
            name: (*name).into(),
            hostname: (*name).into(),
            addresses: [format!("172.31.1.{host}").parse().unwrap()].into(),
            pod_networks: [format!("10.1.{pods}.0/24"), format!("fd00:1:0:{pods}::/64")]
                .iter()
                .map(|net| net.parse().unwrap())
                .collect(),
            clamp_mss: None,
            transit_addresses: BTreeSet::new(),
            is_tainted: false,
        })
        .collect();
    if seen_from != "a-gw1" {
        state.node.hostname = seen_from.into();
        state.addresses = [address("eth0", "172.31.1.21/24"), address("cni0", "10.1.3.1/24")].into();
    }
    state.mtus = [("eth0".to_owned(), 9000)].into();
    state
}

fn address(device: &str, network: &str) -> DeviceAddress {
    DeviceAddress { device: device.into(), network: network.parse().unwrap() }
}

/// Returns the routes but those that close this node's own pods' networks.
pub(super) fn routes(desired: &Desired) -> Vec<String> {
    let pods: IpNet = "10.1.0.0/16".parse().unwrap();
    let is_of_bridge = |route: &&Route| route.hop == Hop::Unreachable && pods.contains(&route.destination);
    desired.hostnet.routes.iter().filter(|route| !is_of_bridge(route)).map(ToString::to_string).collect()
}
