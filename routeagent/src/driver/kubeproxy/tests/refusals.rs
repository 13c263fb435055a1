//! What is closed, and where.

use super::*;
use crate::constants::METRIC_FAIL_CLOSED;

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
fn while_anything_is_closed_a_pods_own_network_never_follows_the_default_route() {
    let bridge = "unreachable 10.1.3.0/24 table main metric 4278198272";
    let closed = |state: &ClusterState| -> Vec<String> {
        let routes = KubeProxy.desired(state).hostnet.routes;
        let within =
            |route: &&Route| state.node.pod_networks.iter().any(|net| net.contains(&route.destination));
        let refusals = routes.iter().filter(within).filter(|route| route.hop == Hop::Unreachable);
        refusals.map(ToString::to_string).collect()
    };
    let mut state = cluster("a-w1", &["10.2.0.0/16"]);
    assert_eq!(closed(&state), [bridge]);

    // Nothing is closed where no cluster has joined.
    let alone = cluster("a-w1", &[]);
    assert_eq!(closed(&alone), Vec::<String>::new());

    // The bridge goes down, and its address goes with it.
    state.addresses.retain(|own| own.device != "cni0");
    assert_eq!(closed(&state), Vec::<String>::new());
    state.unplugged.insert("10.1.3.0/24".parse().unwrap());
    assert_eq!(closed(&state), [bridge]);
    state.unplugged.clear();

    for (device, network) in [
        ("cilium_host", "10.1.3.1/32"),
        ("eth0", "10.1.3.1/24"),
        ("lo", "10.1.3.1/24"),
        ("docker0", "172.17.0.1/16"),
    ] {
        let mut other = state.clone();
        other.addresses.insert(address(device, network));
        let way = ResolvedRoute { device: "eth0".into(), ..ResolvedRoute::default() };
        other.resolved_routes.insert("8.8.8.8".parse().unwrap(), way);
        assert_eq!(closed(&other), Vec::<String>::new(), "{device}");
    }
    // Pods and nodes share a network: others of either are on it.
    state.node.pod_networks.push("172.31.0.0/16".parse().unwrap());
    assert_eq!(closed(&state), Vec::<String>::new());
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
fn a_worker_without_a_gateway_keeps_the_device_and_stays_closed() {
    let mut state = cluster("a-w1", &["10.2.0.0/16"]);
    state.endpoints.remove(0);
    let desired = KubeProxy.desired(&state);
    assert_eq!(routes(&desired), ["unreachable 10.2.0.0/16 table main metric 4278198272"]);
    assert!(desired.hostnet.vxlan.unwrap().forwards.is_empty());
}

#[test]
fn a_remote_gateway_inside_its_own_network_stays_reachable_for_marked_sockets() {
    let mut state = gateway(&["10.2.0.0/16", "100.66.0.0/16"]);
    state.endpoints[1].addresses = vec!["10.2.0.21".parse().unwrap(), "198.51.100.1".parse().unwrap()];
    let desired = KubeProxy.desired(&state);
    let main: Vec<String> = routes(&desired).into_iter().filter(|route| route.contains("main")).collect();
    assert_eq!(main, ["unreachable 100.66.0.0/16 table main metric 4278198272"]);
    assert!(routes(&desired).contains(&"unreachable 10.2.0.0/16 table 150 metric 4278198272".to_owned()));
    let guard = desired.hostnet.guard.unwrap();
    assert_eq!(guard.gateways, ["10.2.0.21".parse().unwrap()].into());
    assert_eq!(guard.ports, [4500, 4490].into());
}

#[test]
fn every_fail_closed_route_loses_against_any_other() {
    let desired = KubeProxy.desired(&gateway(&["10.2.0.0/16", "fd00:2::/48"]));
    for route in desired.hostnet.routes {
        assert_eq!(route.hop == Hop::Unreachable, route.metric == METRIC_FAIL_CLOSED, "{route}");
    }
}
