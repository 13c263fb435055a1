use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;

use super::*;
use crate::condition::Condition;
use crate::constants::METRIC_FAIL_CLOSED;
use crate::hostnet::{Delivery, Hop, Route, Rule, Sysctl};
use crate::state::{ClusterNode, DeviceAddress, Endpoint, Node, ResolvedRoute};
use crate::vxlan::{Forward, Mac};

#[test]
fn a_gateway_routes_every_remote_network_as_upstream_does() {
    let desired = KubeProxy.desired(&gateway(&["10.2.0.0/16", "100.66.0.0/16"]));
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
        state.addresses.insert(DeviceAddress { device: device.into(), network: network.parse().unwrap() });
    }
    let desired = KubeProxy.desired(&state);
    assert_eq!(routes(&desired)[0], "fd00:2::/48 dev submariner src fd00:1::1 table 150 mtu 1420");
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
        let address = DeviceAddress { device: device.into(), network: network.parse().unwrap() };
        other.addresses.insert(address);
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
fn a_worker_sends_to_its_gateway_over_the_vxlan_as_upstream_does() {
    let desired = KubeProxy.desired(&cluster("a-w1", &["10.2.0.0/16", "fd00:2::/48"]));
    assert_eq!(
        routes(&desired),
        [
            "10.2.0.0/16 via 240.31.1.11 dev vx-submariner src 10.1.3.1 table main mtu 8920",
            "unreachable 10.2.0.0/16 table main metric 4278198272",
            "fd00:2::/48 via fe80::54:acff:fe1f:10b dev vx-submariner table main mtu 8920",
            "unreachable fd00:2::/48 table main metric 4278198272",
        ]
    );
    let vxlan = desired.hostnet.vxlan.unwrap();
    assert_eq!((vxlan.address().unwrap().to_string().as_str(), vxlan.mtu), ("240.31.1.21/8", 8950));
    let gateway = "172.31.1.11".parse().unwrap();
    let forwards = [Mac::ANY, Mac::of_node(gateway)].map(|mac| Forward { mac, to: gateway });
    assert_eq!(vxlan.forwards, forwards.into());
    assert_eq!(vxlan.neighbours.len(), 1);
    assert!(desired.hostnet.rules.is_empty());
    assert_eq!(desired.hostnet.sysctls[&Sysctl::of(Family::V4, "vx-submariner", "rp_filter")], 2);
    assert!(desired.conditions.is_empty(), "{:?}", desired.conditions);
}

#[test]
fn a_gateway_hands_what_comes_from_remote_clusters_to_the_other_nodes() {
    let desired = KubeProxy.desired(&cluster("a-gw1", &["10.2.0.0/16", "fd00:2::/48"]));
    let delivery: Vec<String> = routes(&desired).into_iter().filter(|route| route.contains("149")).collect();
    assert_eq!(
        delivery,
        [
            "10.1.3.0/24 via 240.31.1.21 dev vx-submariner table 149",
            "10.1.4.0/24 via 240.31.1.22 dev vx-submariner table 149",
            "fd00:1:0:3::/64 via fe80::54:acff:fe1f:115 dev vx-submariner table 149",
            "fd00:1:0:4::/64 via fe80::54:acff:fe1f:116 dev vx-submariner table 149",
        ]
    );
    assert!(desired.hostnet.rules.contains(&Rule::delivery(Family::V6, "submariner")));
    let vxlan = desired.hostnet.vxlan.unwrap();
    let any: Vec<_> = vxlan.forwards.iter().filter(|entry| entry.mac == Mac::ANY).collect();
    assert_eq!(any.len(), 2, "one for each other node");
    let guard = desired.hostnet.guard.unwrap();
    assert_eq!((guard.nodes.len(), guard.vxlan), (3, [4800].into()));
    assert_eq!(guard.delivery, Delivery::Inlets);
}

#[test]
fn what_came_from_a_remote_cluster_leaves_by_no_uplink_unless_the_plugin_delivers() {
    let uplinks = |state: &ClusterState| KubeProxy.desired(state).hostnet.guard.unwrap().uplinks;
    let eth0: BTreeSet<String> = ["eth0".to_owned()].into();
    for node in ["a-gw1", "a-w1"] {
        let mut state = cluster(node, &["10.2.0.0/16"]);
        assert_eq!(uplinks(&state), eth0, "{node}: the device with the node's address");
        let default = ResolvedRoute { device: "eth1".into(), ..ResolvedRoute::default() };
        state.resolved_routes =
            state.lookup_addresses().into_iter().map(|address| (address, default.clone())).collect();
        assert!(uplinks(&state).contains("eth1"), "{node}: the default route's");

        state.resolved_routes.values_mut().for_each(|way| way.device = "cni0".into());
        assert_eq!(uplinks(&state), eth0, "{node}: pods are behind the other");

        state.node.plugin = "calico".into();
        assert!(uplinks(&state).is_empty(), "{node}");
    }
    // The gateway leaves to the plugin what is for a node whose pods Kubernetes does not know; that node alone lets it in.
    for (node, expected) in [("a-gw1", BTreeSet::new()), ("a-w1", eth0), ("a-w2", BTreeSet::new())] {
        let mut state = cluster(node, &["10.2.0.0/16"]);
        state.nodes[2].pod_networks.clear();
        assert_eq!(uplinks(&state), expected, "{node}");
    }
    let mut state = cluster("a-gw1", &["10.2.0.0/16"]);
    state.endpoints[0].backend = "libreswan".into();
    assert!(uplinks(&state).is_empty(), "IPsec's packets are the plugin's to deliver");
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
fn the_newest_endpoint_of_the_own_cluster_is_the_active_gateway() {
    let mut state = cluster("a-gw1", &["10.2.0.0/16"]);
    let mut newer = Endpoint::new("a-other", "a", "a-w2");
    newer.addresses = vec!["172.31.1.22".parse().unwrap()];
    newer.created = 5;
    state.endpoints.push(newer);
    let desired = KubeProxy.desired(&state);
    assert!(desired.hostnet.rules.is_empty());
    assert!(routes(&desired)[0].contains("via 240.31.1.22"), "{:?}", routes(&desired));
}

#[test]
fn pods_that_kubernetes_does_not_know_by_node_are_reached_by_the_plugin() {
    let mut state = cluster("a-w1", &["10.2.0.0/16"]);
    state.node.plugin = "calico".into();
    let desired = KubeProxy.desired(&state);
    assert_eq!(desired.hostnet.guard.unwrap().delivery, Delivery::Plugin);
    assert!(desired.conditions.iter().any(|c| matches!(c, Condition::PluginDelivers { .. })));

    let mut state = cluster("a-gw1", &["10.2.0.0/16"]);
    state.node.plugin = "calico".into();
    let desired = KubeProxy.desired(&state);
    assert!(!routes(&desired).iter().any(|route| route.contains("149")));
    assert_eq!(desired.hostnet.guard.unwrap().delivery, Delivery::Inlets);
}

#[test]
fn while_the_gateways_node_has_upstreams_agent_a_worker_takes_what_the_plugin_delivers() {
    let delivery = |hostname: &str| {
        let mut state = cluster(hostname, &["10.2.0.0/16"]);
        state.is_agent_foreign = true;
        let desired = KubeProxy.desired(&state);
        let why = desired.conditions.iter().find(|c| matches!(c, Condition::PluginDelivers { .. }));
        (desired.hostnet.guard.unwrap().delivery, why.map(ToString::to_string).unwrap_or_default())
    };
    let (worker, why) = delivery("a-w1");
    assert_eq!(worker, Delivery::Plugin);
    assert!(why.contains("another route agent than Trieste's"), "{why}");
    assert_eq!(delivery("a-gw1"), (Delivery::Inlets, String::new()));
}

#[test]
fn beside_upstreams_ipsec_gateway_packets_leave_by_the_default_device() {
    let mut state = cluster("a-gw1", &["10.2.0.0/16", "100.66.0.0/16"]);
    state.endpoints[0].backend = "libreswan".into();
    state.endpoints[1].addresses = vec!["192.168.7.7".parse().unwrap(), "10.2.0.21".parse().unwrap()];
    for address in state.lookup_addresses() {
        let way =
            ResolvedRoute { device: "eth0".into(), via: Some("172.31.1.1".parse().unwrap()), source: None };
        state.resolved_routes.insert(address, way);
    }
    let desired = KubeProxy.desired(&state);
    let routes = routes(&desired);
    // Where the remote gateway is inside: to its next hop, or the cable's own packets would be looked for on the link.
    assert!(
        routes.contains(&"10.2.0.0/16 via 172.31.1.1 dev eth0 src 10.1.1.1 table 150".to_owned()),
        "{routes:?}"
    );
    assert!(routes.contains(&"100.66.0.0/16 dev eth0 src 10.1.1.1 table 150".to_owned()));
    assert_eq!(desired.hostnet.guard.unwrap().delivery, Delivery::Ipsec);
    assert!(!desired.hostnet.rules.iter().any(|rule| rule.table == 149));
}

#[test]
fn beside_upstreams_vxlan_gateway_its_own_table_leads_and_ours_refuses() {
    let mut state = cluster("a-gw1", &["10.2.0.0/16"]);
    state.endpoints[0].backend = "vxlan".into();
    let desired = KubeProxy.desired(&state);
    let in_150: Vec<String> =
        routes(&desired).into_iter().filter(|route| route.contains("table 150")).collect();
    assert_eq!(in_150, ["unreachable 10.2.0.0/16 table 150 metric 4278198272"]);
    assert!(desired.hostnet.guard.unwrap().inlets.contains("vxlan-tunnel"));
    assert!(desired.hostnet.rules.contains(&Rule::delivery(Family::V4, "vxlan-tunnel")));
}

#[test]
fn of_clusters_with_the_same_networks_the_global_ones_are_routed_and_nothing_is_refused() {
    let seen_from = |node: &str| {
        let mut state = cluster(node, &["242.2.0.0/16"]);
        state.node.has_globalnet = true;
        state.endpoints[0].subnets = vec!["242.1.0.0/16".parse().unwrap()];
        state.endpoints[0].health_check = Some("242.1.255.254".parse().unwrap());
        state.clusters.push(crate::state::Cluster {
            id: "b".into(),
            created: 0,
            // What its object publishes: its pods and services, which are this cluster's too, are not among it.
            networks: vec!["242.2.0.0/16".parse().unwrap()],
        });
        KubeProxy.desired(&state)
    };

    let desired = seen_from("a-gw1");
    assert_eq!(desired.conditions, BTreeSet::new());
    let out: Vec<String> =
        routes(&desired).into_iter().filter(|route| !route.contains("vx-submariner")).collect();
    assert_eq!(
        out,
        [
            "242.2.0.0/16 dev submariner src 10.1.1.1 table 150",
            "unreachable 242.2.0.0/16 table 150 metric 4278198272",
            "unreachable 242.2.0.0/16 table main metric 4278198272",
        ],
        "the node's own packets have a source that the gateway translates"
    );
    let guard = desired.hostnet.guard.unwrap();
    assert_eq!(guard.remote, ["242.2.0.0/16".parse().unwrap()].into());
    assert!(
        guard.local.contains(&"10.1.0.0/16".parse().unwrap()),
        "nobody masquerades pods on the way there"
    );
    assert_eq!(guard.sources, ["10.1.1.1".parse().unwrap()].into());

    assert_eq!(
        routes(&seen_from("a-w1")),
        [
            "242.2.0.0/16 via 240.31.1.11 dev vx-submariner src 10.1.3.1 table main mtu 8920",
            "unreachable 242.2.0.0/16 table main metric 4278198272",
        ]
    );
}

#[test]
fn without_globalnet_a_health_check_address_of_another_node_is_told() {
    let mut state = gateway(&["242.2.0.0/16"]);
    state.endpoints[0].health_check = Some("242.1.255.254".parse().unwrap());
    let is_told = |state: &ClusterState| {
        let told = KubeProxy.desired(state).conditions;
        told.iter().any(|condition| matches!(condition, Condition::ForeignHealthCheck(_)))
    };
    assert!(is_told(&state));
    state.node.has_globalnet = true;
    assert!(!is_told(&state));
}

#[test]
fn with_global_addresses_the_segment_size_leaves_room_for_all_headers() {
    let mut state = cluster("a-w1", &["242.1.0.0/16"]);
    let clamp = |state: &ClusterState| KubeProxy.desired(state).hostnet.guard.unwrap().clamp;
    assert_eq!(clamp(&state), None);
    state.node.has_globalnet = true;
    assert_eq!(clamp(&state), Some(9000 - 120 - 40));
    state.endpoints[0].backend = "vxlan".into();
    assert_eq!(clamp(&state), Some(9000 - 50 - 40));
    state.nodes[1].clamp_mss = Some(1200);
    assert_eq!(clamp(&state), Some(1200));
}

#[test]
fn a_node_with_this_nodes_address_on_the_vxlan_is_left_out() {
    let mut state = cluster("a-gw1", &["10.2.0.0/16"]);
    let own = state.underlay_address().unwrap().to_string();
    let twin = format!("10.{}", own.split_once('.').unwrap().1);
    state.nodes[2].addresses = [twin.parse().unwrap()].into();
    let desired = KubeProxy.desired(&state);
    assert!(desired.conditions.iter().any(|c| matches!(c, Condition::SameVtep { .. })));
}

#[test]
fn a_pod_network_of_two_nodes_has_one_owner_and_is_told() {
    let mut state = cluster("a-gw1", &["10.2.0.0/16"]);
    let networks = state.nodes[1].pod_networks.clone();
    state.nodes[2].pod_networks = networks;
    let desired = KubeProxy.desired(&state);
    assert!(desired.conditions.iter().any(|c| matches!(c, Condition::SamePods { .. })));
    let places: Vec<_> =
        desired.hostnet.routes.iter().map(|route| (route.table, route.destination, route.metric)).collect();
    let unique: BTreeSet<_> = places.iter().collect();
    assert_eq!(unique.len(), places.len(), "{places:?}");
    let plan = crate::plan::plan(&desired.hostnet, &crate::observed::Observed::default());
    assert!(!plan.changes.is_empty());
}

#[test]
fn nodes_with_one_address_on_the_vxlan_are_told_apart() {
    let mut state = cluster("a-gw1", &["10.2.0.0/16"]);
    state.nodes[2].addresses = ["10.31.1.21".parse().unwrap()].into();
    let desired = KubeProxy.desired(&state);
    assert!(desired.conditions.iter().any(|c| matches!(c, Condition::SameVtep { .. })));
    assert!(routes(&desired).contains(&"10.1.3.0/24 via 240.31.1.21 dev vx-submariner table 149".to_owned()));
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
fn the_nodes_own_network_inside_a_remote_one_is_thrown_back_to_the_main_table() {
    let desired = KubeProxy.desired(&gateway(&["172.24.0.0/13"]));
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

#[test]
fn what_a_worker_wants_does_not_depend_on_the_order_in_which_it_learns_of_endpoints() {
    let remote_first = {
        let mut state = cluster("a-w1", &["10.2.0.0/16", "fd00:2::/48"]);
        state.endpoints.reverse();
        state.nodes.reverse();
        state
    };
    let own_first = cluster("a-w1", &["10.2.0.0/16", "fd00:2::/48"]);
    assert_eq!(KubeProxy.desired(&remote_first), KubeProxy.desired(&own_first));
}

#[test]
fn a_worker_whose_gateway_moves_forwards_to_the_new_one_alone() {
    let mut state = cluster("a-w1", &["10.2.0.0/16"]);
    let mut moved = state.endpoints[0].clone();
    (moved.name, moved.hostname, moved.created) = ("a-moved".into(), "a-w2".into(), 5);
    moved.addresses = vec!["172.31.1.22".parse().unwrap()];
    state.endpoints.push(moved);
    let while_both_are_there = KubeProxy.desired(&state);
    state.endpoints.remove(0);
    let desired = KubeProxy.desired(&state);
    assert_eq!(routes(&desired), routes(&while_both_are_there), "the older one has no say, also as it goes");
    assert_eq!(
        routes(&desired)[0],
        "10.2.0.0/16 via 240.31.1.22 dev vx-submariner src 10.1.3.1 table main mtu 8920"
    );
    let vxlan = desired.hostnet.vxlan.unwrap();
    let gateway: IpAddr = "172.31.1.22".parse().unwrap();
    assert!(vxlan.forwards.iter().all(|forward| forward.to == gateway), "{:?}", vxlan.forwards);
}

#[test]
fn the_older_endpoint_of_the_own_cluster_counts_again_when_the_newest_goes() {
    let before = cluster("a-w1", &["10.2.0.0/16"]);
    let mut state = before.clone();
    let mut newer = Endpoint::new("a-other", "a", "a-w2");
    newer.addresses = vec!["172.31.1.22".parse().unwrap()];
    newer.created = 5;
    state.endpoints.push(newer);
    assert_ne!(KubeProxy.desired(&state), KubeProxy.desired(&before));
    state.endpoints.pop();
    assert_eq!(KubeProxy.desired(&state), KubeProxy.desired(&before));
}

#[test]
fn a_node_that_comes_or_goes_changes_only_what_leads_to_it() {
    let mut state = cluster("a-gw1", &["10.2.0.0/16", "fd00:2::/48"]);
    let with_both = KubeProxy.desired(&state).hostnet;
    state.nodes.pop();
    let with_one = KubeProxy.desired(&state).hostnet;
    let (more, less) = (with_both.vxlan.unwrap(), with_one.vxlan.unwrap());
    let gone: IpAddr = "172.31.1.22".parse().unwrap();
    assert!(less.forwards.is_subset(&more.forwards));
    assert!(more.forwards.difference(&less.forwards).all(|forward| forward.to == gone));
    let lost: Vec<String> = with_both.routes.difference(&with_one.routes).map(ToString::to_string).collect();
    assert_eq!(
        lost,
        [
            "10.1.4.0/24 via 240.31.1.22 dev vx-submariner table 149",
            "fd00:1:0:4::/64 via fe80::54:acff:fe1f:116 dev vx-submariner table 149"
        ]
    );
    assert_eq!(with_both.rules, with_one.rules);
}

#[test]
fn every_node_keeps_the_sources_of_what_crosses_clusters_from_being_masqueraded() {
    for node in ["a-gw1", "a-w1"] {
        let guard = KubeProxy.desired(&cluster(node, &["10.2.0.0/16", "fd00:2::/48"])).hostnet.guard.unwrap();
        let own: BTreeSet<_> =
            ["10.1.0.0/16", "fd00:1::/48", "100.65.0.0/16"].map(|net| net.parse().unwrap()).into();
        assert!(guard.local.is_superset(&own), "{node}: {:?}", guard.local);
        assert_eq!(guard.remote.len(), 2, "{node}");
    }
}

/// A gateway of cluster `a` that knows cluster `b` with these networks.
pub(super) fn gateway(remote: &[&str]) -> ClusterState {
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
            notice_port: 4801,
            has_globalnet: false,
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
            is_tainted: false,
        })
        .collect();
    if seen_from != "a-gw1" {
        state.node.hostname = seen_from.into();
        let address =
            |device: &str, net: &str| DeviceAddress { device: device.into(), network: net.parse().unwrap() };
        state.addresses = [address("eth0", "172.31.1.21/24"), address("cni0", "10.1.3.1/24")].into();
    }
    state.mtus = [("eth0".to_owned(), 9000)].into();
    state
}

/// Returns the routes but those that close this node's own pods' networks.
pub(super) fn routes(desired: &Desired) -> Vec<String> {
    let pods: IpNet = "10.1.0.0/16".parse().unwrap();
    let is_of_bridge = |route: &&Route| route.hop == Hop::Unreachable && pods.contains(&route.destination);
    desired.hostnet.routes.iter().filter(|route| !is_of_bridge(route)).map(ToString::to_string).collect()
}
