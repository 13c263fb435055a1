use super::*;
use crate::hostnet::METRIC_FAIL_CLOSED;
use crate::state::{DeviceAddress, Node};

#[test]
fn a_gateway_routes_every_remote_network_as_upstream_does() {
    let desired = KubeProxy.desired(&gateway(&["10.2.0.0/16", "100.2.0.0/16"]));
    let rules: Vec<String> = desired.hostnet.rules.iter().map(ToString::to_string).collect();
    assert_eq!(
        rules,
        [
            "IPv4 rule pref 90 fwmark 0x540000/0xff0000 iif lo lookup main",
            "IPv6 rule pref 90 fwmark 0x540000/0xff0000 iif lo lookup main",
            "IPv4 rule pref 150 lookup 150",
            "IPv6 rule pref 150 lookup 150",
        ]
    );
    assert_eq!(
        routes(&desired),
        [
            "10.2.0.0/16 dev submariner src 10.1.1.1 table 150",
            "unreachable 10.2.0.0/16 table 150 metric 4278198272",
            "100.2.0.0/16 dev submariner src 10.1.1.1 table 150",
            "unreachable 100.2.0.0/16 table 150 metric 4278198272",
            "unreachable 10.2.0.0/16 table main metric 4278198272",
            "unreachable 100.2.0.0/16 table main metric 4278198272",
        ]
    );
    assert!(desired.conditions.is_empty());
}

#[test]
fn ipv6_networks_are_routed_with_an_ipv6_source_from_the_pod_network() {
    let mut state = gateway(&["fd00:2::/48"]);
    assert_eq!(routes(&KubeProxy.desired(&state))[0], "fd00:2::/48 dev submariner table 150");
    state.node.pod_networks.push("fd00:1::/48".parse().unwrap());
    for (device, network) in [("cni0", "fd00:1::1/64"), ("eth0", "fd31::11/64")] {
        state.addresses.insert(DeviceAddress { device: device.into(), network: network.parse().unwrap() });
    }
    let desired = KubeProxy.desired(&state);
    assert_eq!(routes(&desired)[0], "fd00:2::/48 dev submariner src fd00:1::1 table 150");
    assert_eq!(desired.hostnet.sysctls[&Sysctl::of(Family::V6, "submariner", "disable_ipv6")], 0);
}

#[test]
fn any_other_node_only_fails_closed() {
    let mut state = gateway(&["10.2.0.0/16"]);
    state.node.hostname = "a-w1".into();
    let desired = KubeProxy.desired(&state);
    assert_eq!(routes(&desired), ["unreachable 10.2.0.0/16 table main metric 4278198272"]);
    assert!(desired.hostnet.rules.is_empty() && desired.hostnet.sysctls.is_empty());
    assert_eq!(desired.hostnet.guard.unwrap().remote.len(), 1);
}

#[test]
fn a_cluster_whose_gateway_is_gone_is_failed_closed_but_not_routed() {
    let mut state = gateway(&[]);
    state.clusters.push(crate::state::Cluster {
        id: "b".into(),
        created: 0,
        networks: vec!["10.2.0.0/16".parse().unwrap()],
    });
    assert_eq!(
        routes(&KubeProxy.desired(&state)),
        [
            "unreachable 10.2.0.0/16 table 150 metric 4278198272",
            "unreachable 10.2.0.0/16 table main metric 4278198272",
        ]
    );
}

#[test]
fn the_published_device_wins_over_the_configured_one() {
    let mut state = gateway(&["10.2.0.0/16"]);
    state.endpoints[0].interface = Some("cable7".into());
    let desired = KubeProxy.desired(&state);
    assert!(routes(&desired)[0].contains("dev cable7"));
    assert!(desired.hostnet.sysctls.keys().all(|sysctl| sysctl.device == "cable7"));
    assert!(desired.hostnet.guard.unwrap().inlets.contains("cable7"));
}

#[test]
fn a_health_check_address_of_another_node_is_not_used_as_source() {
    let mut state = gateway(&["10.2.0.0/16"]);
    state.endpoints[0].health_check = Some("10.1.2.1".parse().unwrap());
    let desired = KubeProxy.desired(&state);
    assert_eq!(routes(&desired)[0], "10.2.0.0/16 dev submariner src 10.1.1.1 table 150");
    assert_eq!(desired.conditions, [Condition::ForeignHealthCheck("10.1.2.1".parse().unwrap())].into());
}

#[test]
fn a_remote_gateway_inside_its_own_network_stays_reachable_for_marked_sockets() {
    let mut state = gateway(&["10.2.0.0/16", "100.2.0.0/16"]);
    state.endpoints[1].addresses = vec!["10.2.0.21".parse().unwrap(), "198.51.100.1".parse().unwrap()];
    let desired = KubeProxy.desired(&state);
    let main: Vec<String> = routes(&desired).into_iter().filter(|route| route.contains("main")).collect();
    assert_eq!(main, ["unreachable 100.2.0.0/16 table main metric 4278198272"]);
    assert!(routes(&desired).contains(&"unreachable 10.2.0.0/16 table 150 metric 4278198272".to_owned()));
    let guard = desired.hostnet.guard.unwrap();
    assert_eq!(guard.gateways, ["10.2.0.21".parse().unwrap()].into());
    assert_eq!(guard.ports, [4500, 4490].into());
}

#[test]
fn the_nodes_own_network_inside_a_remote_one_is_thrown_back_to_the_main_table() {
    let desired = KubeProxy.desired(&gateway(&["172.16.0.0/12"]));
    assert!(routes(&desired).contains(&"throw 172.31.1.0/24 table 150".to_owned()));
    assert_eq!(desired.hostnet.guard.unwrap().node, ["172.31.1.0/24".parse().unwrap()].into());
}

#[test]
fn nested_networks_are_merged_for_the_guard() {
    let guard = KubeProxy.desired(&gateway(&["10.2.0.0/16", "10.2.3.0/24"])).hostnet.guard.unwrap();
    assert_eq!(guard.remote, ["10.2.0.0/16".parse().unwrap()].into());
}

#[test]
fn every_fail_closed_route_loses_against_any_other() {
    let desired = KubeProxy.desired(&gateway(&["10.2.0.0/16", "fd00:2::/48"]));
    for route in desired.hostnet.routes {
        assert_eq!(route.hop == Hop::Unreachable, route.metric == METRIC_FAIL_CLOSED, "{route}");
    }
}

/// A gateway of cluster `a` that knows cluster `b` with these networks.
fn gateway(remote: &[&str]) -> ClusterState {
    let mut own = Endpoint::new("a-cable", "a", "a-gw1");
    own.health_check = Some("10.1.1.1".parse().unwrap());
    let mut other = Endpoint::new("b-cable", "b", "b-gw1");
    other.subnets = remote.iter().map(|text| text.parse().unwrap()).collect();
    let address =
        |device: &str, net: &str| DeviceAddress { device: device.into(), network: net.parse().unwrap() };
    ClusterState {
        node: Node {
            cluster: "a".into(),
            hostname: "a-gw1".into(),
            pod_networks: vec!["10.1.0.0/16".parse().unwrap()],
            service_networks: Vec::new(),
            tun: "submariner".into(),
            plugin: "generic".into(),
            has_globalnet: false,
        },
        endpoints: vec![own, other],
        clusters: Vec::new(),
        nodes: Vec::new(),
        addresses: [address("eth0", "172.31.1.11/24"), address("cni0", "10.1.1.1/24")].into(),
        lingering: BTreeSet::new(),
    }
}

fn routes(desired: &Desired) -> Vec<String> {
    desired.hostnet.routes.iter().map(ToString::to_string).collect()
}
