use proptest::collection::vec;
use proptest::prelude::*;

use trieste_control::claims::Allowed;

use super::*;
use crate::state::{Cluster, ClusterNode, DeviceAddress, Endpoint, Node};

#[test]
fn a_network_of_the_own_cluster_is_refused_and_the_others_of_that_cluster_are_not() {
    let state = state(&[remote("b", 1, &["10.1.128.0/17", "100.66.0.0/16"])]);
    let admission = admit(&state);
    assert_eq!(accepted(&admission), ["100.66.0.0/16 b"]);
    assert_eq!(
        reasons(&admission),
        ["network 10.1.128.0/17 of cluster b is refused: it overlaps 10.1.0.0/16 of this cluster; give the \
          clusters different networks or use globalnet"]
    );
}

#[test]
fn of_two_clusters_with_the_same_network_the_one_that_came_first_has_it() {
    let state = state(&[remote("b", 20, &["10.2.0.0/16"]), remote("c", 10, &["10.2.0.0/15", "10.9.0.0/16"])]);
    let admission = admit(&state);
    assert_eq!(accepted(&admission), ["10.2.0.0/15 c", "10.9.0.0/16 c"]);
    assert!(reasons(&admission)[0].contains("10.2.0.0/15 of cluster c, which comes first"));
}

#[test]
fn the_oldest_endpoint_decides_who_comes_first_and_a_missing_time_is_the_oldest() {
    let state = state(&[remote("b", 20, &["10.2.0.0/16"]), remote("c", i128::MIN, &["10.2.0.0/16"])]);
    assert_eq!(accepted(&admit(&state)), ["10.2.0.0/16 c"]);
}

#[test]
fn a_cluster_object_takes_nothing_from_a_cluster_with_an_endpoint() {
    let mut state = state(&[remote("b", 90, &["10.2.0.0/16"])]);
    let networks = nets(&["10.2.0.0/16", "10.2.3.0/24", "10.2.0.0/15", "10.7.0.0/16"]);
    state.clusters.push(Cluster { id: "c".into(), created: 10, networks });
    let admission = admit(&state);
    assert_eq!(accepted(&admission), ["10.2.0.0/16 b", "10.7.0.0/16 c"]);
    assert_eq!(routed(&admission), nets(&["10.2.0.0/16"]));
    // The narrower one would shadow the route of b, which closes it as well.
    assert_eq!(admission.closed, nets(&["10.2.0.0/15"]).into_iter().collect());
}

#[test]
fn a_cluster_that_the_gateway_refuses_is_closed_and_takes_nothing_from_a_later_one() {
    let state = state(&[
        remote("b", 1, &["10.2.0.0/16"]),
        remote("c", 2, &["10.2.0.0/15", "10.9.0.0/16"]),
        remote("d", 3, &["10.8.0.0/15"]),
    ]);
    let admission = admit(&state);
    assert_eq!(routed(&admission), nets(&["10.2.0.0/16", "10.8.0.0/15"]));
    assert_eq!(admission.closed, nets(&["10.2.0.0/15"]).into_iter().collect());
}

#[test]
fn of_several_endpoints_the_newest_says_what_is_routed_and_the_others_are_closed() {
    let mut newest = remote("b", 9, &["10.2.0.0/16"]);
    newest.name = "newest".into();
    let admission =
        admit(&state(&[remote("b", 1, &["10.4.0.0/16"]), newest, remote("c", 5, &["10.4.0.0/15"])]));
    assert_eq!(routed(&admission), nets(&["10.2.0.0/16", "10.4.0.0/15"]));
    let without_newest = admit(&state(&[remote("b", 1, &["10.4.0.0/16"]), remote("c", 5, &["10.4.0.0/15"])]));
    assert_eq!(routed(&without_newest)[0], nets(&["10.4.0.0/16"])[0], "the older one counts again");
}

#[test]
fn what_lingers_is_closed_unless_it_became_local() {
    let mut state = state(&[]);
    state.lingering = nets(&["10.1.4.0/24", "172.31.1.0/24", "10.2.0.0/16"]).into_iter().collect();
    assert_eq!(admit(&state).closed, nets(&["10.2.0.0/16"]).into_iter().collect());
}

/// What a hostile member tried with a running set: neighbours, other nodes, the API server, a resolver, the broker, public
/// space, and blocks that are wider than anybody's cluster.
#[test]
fn hostile_claims_are_neither_routed_nor_closed_and_do_not_linger() {
    let claims = [
        "172.31.1.0/25",
        "172.31.1.12/32",
        "172.31.9.9/32",
        "10.50.0.0/24",
        "10.60.0.53/32",
        "10.70.0.0/16",
        "10.80.0.0/24",
        "fd00:80::/64",
        "8.8.8.0/24",
        "172.16.0.0/12",
        "2.0.0.0/7",
        "128.0.0.0/1",
        "0.0.0.0/0",
        "2000::/3",
        "fc00::/7",
    ];
    for claim in claims {
        let mut state = state(&[remote("b", 1, &["10.2.0.0/16"]), remote("c", 2, &[claim])]);
        let address = |text: &str| text.parse().unwrap();
        let node = ClusterNode {
            name: "far".into(),
            addresses: [address("172.31.9.9")].into(),
            ..ClusterNode::default()
        };
        state.nodes = vec![node];
        state.servers = [address("10.50.0.10")].into();
        let protected = [("10.60.0.53", "a name server"), ("10.70.1.1", "the broker")];
        state.node.protected = protected.map(|(text, whose)| (address(text), whose.to_owned())).into();
        let named = [("10.80.0.1", "the broker (b.example)"), ("fd00:80::1", "the broker (b.example)")];
        state.named = named.map(|(text, whose)| (address(text), whose.to_owned())).into();
        // Claimed by an Endpoint, by a Cluster, by both; and a moment ago.
        state.clusters.push(Cluster { id: "d".into(), created: 3, networks: nets(&[claim]) });
        state.lingering = nets(&[claim]).into_iter().collect();
        let admission = admit(&state);
        assert_eq!(accepted(&admission), ["10.2.0.0/16 b"], "{claim}");
        assert_eq!(admission.closed, BTreeSet::new(), "{claim}");
        let reasons = reasons(&admission);
        for cluster in ["c", "d"] {
            let said = format!("network {claim} of cluster {cluster} is refused: ");
            assert!(reasons.iter().any(|reason| reason.starts_with(&said)), "{reasons:?}");
        }
        if claim.contains("80") {
            assert!(
                reasons.iter().all(|reason| reason.contains("1, the broker (b.example);")),
                "{reasons:?}"
            );
        }
    }
}

#[test]
fn of_a_cluster_that_the_gateway_refuses_over_one_claim_the_others_are_closed() {
    let admission = admit(&state(&[remote("b", 1, &["10.2.0.0/16", "8.8.8.0/24"])]));
    assert_eq!(routed(&admission), Vec::new());
    assert_eq!(admission.remote().copied().collect::<Vec<_>>(), nets(&["10.2.0.0/16"]));
    let mut open = state(&[remote("b", 1, &["10.2.0.0/16", "8.8.8.0/24"])]);
    open.node.allowed = Allowed::of(nets(&["10.0.0.0/8", "8.8.8.0/24"]));
    assert_eq!(routed(&admit(&open)).len(), 2, "who names it may have it");
}

proptest! {
    #[test]
    fn routes_are_what_the_gateway_connects_and_everything_claimed_is_closed(
        endpoints in vec((0..4_u8, 0..3_u8, vec(networks(), 1..3)), 0..7),
        clusters in vec((0..5_u8, 0..3_u8, vec(networks(), 1..3)), 0..4),
    ) {
        let id = |number: u8| char::from(b'b' + number).to_string();
        let mut state = state(&[]);
        for (at, (cluster, created, subnets)) in endpoints.into_iter().enumerate() {
            let mut endpoint = Endpoint::new(&format!("e{at}"), &id(cluster), "gw");
            (endpoint.created, endpoint.subnets) = (created.into(), subnets);
            state.endpoints.push(endpoint);
        }
        for (cluster, created, networks) in clusters {
            state.clusters.push(Cluster { id: id(cluster), created: created.into(), networks });
        }
        let admission = admit(&state);
        let routes: BTreeSet<IpNet> = admission.routed().copied().collect();
        prop_assert_eq!(&routes, &gateways(&state.endpoints));

        let remote: BTreeSet<IpNet> = admission.remote().copied().collect();
        let endpoints = state.endpoints.iter().flat_map(|endpoint| &endpoint.subnets);
        for claim in endpoints.chain(state.clusters.iter().flat_map(|cluster| &cluster.networks)) {
            prop_assert!(
                remote.contains(claim) || routes.iter().any(|route| route.contains(claim)), "{} is open", claim
            );
        }
        for net in remote.difference(&routes) {
            prop_assert!(!routes.iter().any(|route| route.contains(net)), "{} shadows a route", net);
        }
    }
}

/// What the gateway connects, by the words of its own decision.
fn gateways(endpoints: &[Endpoint]) -> BTreeSet<IpNet> {
    let age = |cluster: &str| endpoints.iter().filter(|e| e.cluster == cluster).map(|e| e.created).min();
    let mut order: Vec<&Endpoint> = endpoints.iter().collect();
    order.sort_by_key(|e| (age(&e.cluster), &e.cluster, std::cmp::Reverse(e.created), &e.name));
    order.dedup_by_key(|e| &e.cluster);
    let mut connected: BTreeSet<IpNet> = BTreeSet::new();
    for endpoint in order {
        if !endpoint.subnets.iter().any(|net| connected.iter().any(|other| overlaps(net, other))) {
            connected.extend(&endpoint.subnets);
        }
    }
    connected
}

fn networks() -> impl Strategy<Value = IpNet> {
    prop::sample::select(nets(&["10.2.0.0/16", "10.2.0.0/15", "10.2.3.0/24", "10.3.0.0/16", "10.4.0.0/16"]))
}

fn routed(admission: &Admission) -> Vec<IpNet> {
    admission.routed().copied().collect()
}

#[test]
fn a_cluster_without_a_gateway_still_claims_its_networks() {
    let mut state = state(&[]);
    state.clusters.push(Cluster { id: "b".into(), created: 10, networks: nets(&["10.2.0.0/16"]) });
    let admission = admit(&state);
    assert_eq!(accepted(&admission), ["10.2.0.0/16 b"]);
    assert!(admission.accepted.values().all(|accepted| !accepted.has_gateway));
}

#[test]
fn default_routes_and_reserved_addresses_are_refused() {
    let odd = ["0.0.0.0/0", "::/0", "127.0.0.0/8", "240.1.0.0/16", "fe80::/64", "224.0.0.0/3", "128.0.0.0/1"];
    let admission = admit(&state(&[remote("b", 1, &odd)]));
    assert_eq!(accepted(&admission), [""; 0]);
    assert_eq!(admission.refused.len(), odd.len());
}

#[test]
fn networks_of_one_cluster_may_nest() {
    let admission = admit(&state(&[remote("b", 1, &["10.2.0.0/16", "10.2.3.0/24"])]));
    assert_eq!(accepted(&admission), ["10.2.0.0/16 b", "10.2.3.0/24 b"]);
}

#[test]
fn a_network_that_would_cut_the_node_off_is_refused() {
    // The node's own subnet, a part of it that holds its address, and a host address of the node.
    for network in ["172.31.1.0/24", "172.31.1.0/28", "192.168.7.0/24"] {
        let admission = admit(&state(&[remote("b", 1, &[network])]));
        assert_eq!(accepted(&admission), [""; 0], "{network}");
        assert!(reasons(&admission)[0].contains("which this node reaches directly, on eth"), "{network}");
    }
}

#[test]
fn the_nodes_own_subnet_is_carved_out_of_a_wider_remote_network() {
    let admission = admit(&state(&[remote("b", 1, &["172.24.0.0/13"])]));
    assert_eq!(accepted(&admission), ["172.24.0.0/13 b"]);
    assert_eq!(admission.carved, nets(&["172.31.1.0/24"]).into_iter().collect());
}

#[test]
fn host_bits_do_not_matter() {
    assert_eq!(accepted(&admit(&state(&[remote("b", 1, &["10.2.3.4/16"])]))), ["10.2.0.0/16 b"]);
}

#[test]
fn global_addresses_of_the_own_cluster_lead_to_its_gateway_if_that_turns_packets_round() {
    let mut own = remote("a", 1, &["242.1.0.0/16", "10.1.0.0/16"]);
    own.interface = Some("submariner".to_owned());
    let mut state = state(&[own, remote("b", 2, &["242.2.0.0/16"])]);
    assert_eq!(accepted(&admit(&state)), ["242.2.0.0/16 b"]);
    state.node.has_globalnet = true;
    let admission = admit(&state);
    assert_eq!(accepted(&admission), ["242.1.0.0/16 a", "242.2.0.0/16 b"]);
    assert_eq!(admission.routed().count(), 2);
    assert_eq!(reasons(&admission), [""; 0]);
    state.endpoints[0].interface = None;
    assert_eq!(accepted(&admit(&state)), ["242.2.0.0/16 b"]);
}

#[test]
fn with_globalnet_a_cluster_without_it_is_refused_for_networks_of_ours_inside() {
    let mut state = state(&[remote("b", 1, &["10.1.128.0/17", "10.9.0.0/16"])]);
    state.node.has_globalnet = true;
    let admission = admit(&state);
    assert_eq!(admission.routed().count(), 0);
    let reasons = reasons(&admission);
    assert!(reasons.iter().any(|reason| reason.contains("10.1.0.0/16 of this cluster")), "{reasons:?}");
    assert!(reasons.iter().any(|reason| reason.contains("does not connect")), "{reasons:?}");
}

/// Cluster `a`, 10.1.0.0/16, on a node with eth0 172.31.1.11/24, a host address 192.168.7.7/32 and the TUN.
fn state(remotes: &[Endpoint]) -> ClusterState {
    let address =
        |device: &str, net: &str| DeviceAddress { device: device.into(), network: net.parse().unwrap() };
    ClusterState {
        node: Node {
            cluster: "a".into(),
            hostname: "a-gw1".into(),
            pod_networks: nets(&["10.1.0.0/16"]),
            service_networks: Vec::new(),
            tun: "submariner".into(),
            plugin: "generic".into(),
            notice_port: 4801,
            has_globalnet: false,
            ..Node::default()
        },
        endpoints: remotes.to_vec(),
        addresses: [
            address("lo", "127.0.0.1/8"),
            address("eth0", "172.31.1.11/24"),
            address("eth1", "192.168.7.7/32"),
            address("submariner", "10.2.0.1/32"),
        ]
        .into(),
        ..ClusterState::default()
    }
}

fn remote(cluster: &str, created: i128, subnets: &[&str]) -> Endpoint {
    let mut endpoint = Endpoint::new(&format!("{cluster}-cable"), cluster, &format!("{cluster}-gw1"));
    endpoint.created = created;
    endpoint.subnets = nets(subnets);
    endpoint
}

fn nets(texts: &[&str]) -> Vec<IpNet> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn accepted(admission: &Admission) -> Vec<String> {
    admission.accepted.iter().map(|(net, accepted)| format!("{net} {}", accepted.cluster)).collect()
}

fn reasons(admission: &Admission) -> Vec<String> {
    admission.refused.iter().map(ToString::to_string).collect()
}
