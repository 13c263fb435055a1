use super::*;
use crate::state::{Cluster, DeviceAddress, Endpoint, Node};

#[test]
fn a_network_of_the_own_cluster_is_refused_and_the_others_of_that_cluster_are_not() {
    let state = state(&[remote("b", 1, &["10.1.128.0/17", "100.2.0.0/16"])]);
    let admission = admit(&state);
    assert_eq!(accepted(&admission), ["100.2.0.0/16 b"]);
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
    assert!(reasons(&admission)[0].contains("10.2.0.0/15 of cluster c, which joined earlier"));
}

#[test]
fn the_cluster_object_decides_who_came_first_whatever_its_gateways_do() {
    let mut state = state(&[remote("b", 90, &["10.2.0.0/16"]), remote("c", 20, &["10.2.0.0/16"])]);
    state.clusters.push(Cluster { id: "b".into(), created: 10, networks: Vec::new() });
    assert_eq!(accepted(&admit(&state)), ["10.2.0.0/16 b"]);
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
        assert!(reasons(&admission)[0].contains("this node's own address"), "{network}");
    }
}

#[test]
fn the_nodes_own_subnet_is_carved_out_of_a_wider_remote_network() {
    let admission = admit(&state(&[remote("b", 1, &["172.16.0.0/12"])]));
    assert_eq!(accepted(&admission), ["172.16.0.0/12 b"]);
    assert_eq!(admission.carved, nets(&["172.31.1.0/24"]).into_iter().collect());
}

#[test]
fn a_part_of_the_nodes_subnet_without_its_address_is_accepted() {
    let admission = admit(&state(&[remote("b", 1, &["172.31.1.128/25"])]));
    assert_eq!(accepted(&admission), ["172.31.1.128/25 b"]);
    assert!(admission.carved.is_empty());
}

#[test]
fn host_bits_do_not_matter() {
    assert_eq!(accepted(&admit(&state(&[remote("b", 1, &["10.2.3.4/16"])]))), ["10.2.0.0/16 b"]);
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
        },
        endpoints: remotes.to_vec(),
        clusters: Vec::new(),
        addresses: [
            address("lo", "127.0.0.1/8"),
            address("eth0", "172.31.1.11/24"),
            address("eth1", "192.168.7.7/32"),
            address("submariner", "10.2.0.1/32"),
        ]
        .into(),
    }
}

fn remote(cluster: &str, created: i64, subnets: &[&str]) -> Endpoint {
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
