//! Clusters with global addresses.

use super::*;

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
fn beside_upstreams_gateway_with_globalnet_sources_are_left_to_that() {
    let leaves = |node: &str, is_triestes: bool, has_globalnet: bool| {
        let mut state = cluster(node, &["242.2.0.0/16"]);
        state.node.has_globalnet = has_globalnet;
        state.endpoints.iter_mut().for_each(|endpoint| endpoint.is_triestes = is_triestes);
        KubeProxy.desired(&state).hostnet.guard.unwrap().is_translated_elsewhere
    };
    assert!(leaves("a-gw1", false, true));
    assert!(!leaves("a-gw1", true, true) && !leaves("a-gw1", false, false) && !leaves("a-w1", false, true));
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
