//! The VXLAN between the nodes of a cluster.

use trieste_vxlan::{Forward, Mac};

use super::*;

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
