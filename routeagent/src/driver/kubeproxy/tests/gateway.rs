//! Rules and routes of the gateway's node.

use super::*;

#[test]
fn a_gateway_routes_every_remote_network_as_upstream_does() {
    let desired = KubeProxy.desired(&gateway(&["10.2.0.0/16", "100.66.0.0/16"]));
    let rules: Vec<String> = desired.hostnet.rules.iter().map(ToString::to_string).collect();
    assert_eq!(
        rules,
        [
            "IPv4 rule pref 140 fwmark 0x540000/0xff0000 iif lo lookup main",
            "IPv6 rule pref 140 fwmark 0x540000/0xff0000 iif lo lookup main",
            "IPv4 rule pref 150 lookup 150",
            "IPv6 rule pref 150 lookup 150",
        ]
    );
    assert_eq!(
        routes(&desired),
        [
            "10.2.0.0/16 dev submariner src 10.1.1.1 table 150",
            "unreachable 10.2.0.0/16 table 150 metric 4278198272",
            "100.66.0.0/16 dev submariner src 10.1.1.1 table 150",
            "unreachable 100.66.0.0/16 table 150 metric 4278198272",
            "unreachable 10.2.0.0/16 table main metric 4278198272",
            "unreachable 100.66.0.0/16 table main metric 4278198272",
        ]
    );
    assert!(desired.conditions.is_empty());
}

#[test]
fn an_ipsec_gateway_of_ours_has_a_device_and_leaves_less_than_wireguard() {
    let mut state = gateway(&["10.2.0.0/16", "fd00:2::/48"]);
    for endpoint in &mut state.endpoints {
        endpoint.backend = "libreswan".to_owned();
    }
    let into_cables = |state: &ClusterState| -> Vec<String> {
        let routes = routes(&KubeProxy.desired(state));
        routes.into_iter().filter(|route| route.contains(" dev ")).collect()
    };
    state.endpoints[0].interface = Some("submariner".to_owned());
    // Also while it changes to a driver that leaves more.
    for (backend, former) in [("wireguard", Some("libreswan")), ("libreswan", None)] {
        (state.endpoints[0].backend, state.endpoints[0].former_backend) =
            (backend.to_owned(), former.map(str::to_owned));
        assert_eq!(
            into_cables(&state),
            [
                "10.2.0.0/16 dev submariner src 10.1.1.1 table 150",
                "fd00:2::/48 dev submariner table 150 mtu 1415",
            ]
        );
    }
    // Upstream's has none: its packets are for the kernel's IPsec.
    state.endpoints[0].interface = None;
    assert!(into_cables(&state).iter().all(|route| !route.contains("submariner")));
}

#[test]
fn ipv6_networks_are_routed_with_an_ipv6_source_from_the_pod_network() {
    let mut state = gateway(&["fd00:2::/48"]);
    assert_eq!(routes(&KubeProxy.desired(&state))[0], "fd00:2::/48 dev submariner table 150 mtu 1420");
    state.node.pod_networks.push("fd00:1::/48".parse().unwrap());
    for (device, network) in [("cni0", "fd00:1::1/64"), ("eth0", "fd31::11/64")] {
        state.addresses.insert(address(device, network));
    }
    let desired = KubeProxy.desired(&state);
    assert_eq!(routes(&desired)[0], "fd00:2::/48 dev submariner src fd00:1::1 table 150 mtu 1420");
    assert_eq!(desired.hostnet.sysctls[&Sysctl::of(Family::V6, "submariner", "disable_ipv6")], 0);
}

#[test]
fn the_newest_endpoint_of_the_own_cluster_is_the_active_gateway() {
    let mut state = cluster("a-gw1", &["10.2.0.0/16"]);
    state.endpoints.push(newer());
    let desired = KubeProxy.desired(&state);
    assert!(desired.hostnet.rules.is_empty());
    assert!(routes(&desired)[0].contains("via 240.31.1.22"), "{:?}", routes(&desired));
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
fn the_nodes_own_network_inside_a_remote_one_is_thrown_back_to_the_main_table() {
    let desired = KubeProxy.desired(&gateway(&["172.24.0.0/13"]));
    assert!(routes(&desired).contains(&"throw 172.31.1.0/24 table 150".to_owned()));
    assert_eq!(desired.hostnet.guard.unwrap().node, ["172.31.1.0/24".parse().unwrap()].into());
}

#[test]
fn the_older_endpoint_of_the_own_cluster_counts_again_when_the_newest_goes() {
    let before = cluster("a-w1", &["10.2.0.0/16"]);
    let mut state = before.clone();
    state.endpoints.push(newer());
    assert_ne!(KubeProxy.desired(&state), KubeProxy.desired(&before));
    state.endpoints.pop();
    assert_eq!(KubeProxy.desired(&state), KubeProxy.desired(&before));
}

/// An Endpoint of the own cluster that is newer than the other, of another node.
fn newer() -> Endpoint {
    let mut newer = Endpoint::new("a-other", "a", "a-w2");
    newer.addresses = vec!["172.31.1.22".parse().unwrap()];
    newer.created = 5;
    newer
}
