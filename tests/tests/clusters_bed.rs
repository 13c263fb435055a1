//! The bed of the end-to-end tests: two real clusters of two nodes, one with kube-proxy on iptables, one on nftables, both
//! dual-stack. What a gateway and a route agent need of a node works here.

use std::net::SocketAddr;
use std::time::Instant;

use trieste_tests::clusters::{ClusterShape, Clusters, PodShape};
use trieste_tests::guard::root_test;
use trieste_tests::lab::Lab;

#[test]
fn two_real_clusters_do_what_a_gateway_needs() {
    let Some(_turn) = root_test("two_real_clusters_do_what_a_gateway_needs") else { return };
    let start = Instant::now();
    let lab = Lab::new().unwrap();
    let clusters = Clusters::up(&lab, &ClusterShape::two()).unwrap();
    eprintln!("two clusters ready after {:.1?}", start.elapsed());
    for cluster in clusters.all() {
        let pods = cluster
            .start_pods(&[PodShape::on(cluster.node(1), "client"), PodShape::on(cluster.node(2), "server")])
            .unwrap();
        eprintln!("pods {:.1?}", start.elapsed());
        let [client, server] = &pods[..] else { panic!() };
        for to in server.responders() {
            client.exchange(to, &[64, 1400, 3000, 9000], client.address_like(to.ip()).unwrap()).unwrap();
            client.ping(to.ip(), 3000).unwrap();
        }
        for ip in cluster.start_service("web", "server").unwrap() {
            client.exchange(SocketAddr::new(ip, 80), &[64, 9000], client.address_like(ip).unwrap()).unwrap();
        }
        eprintln!("{:.1?}", start.elapsed());
    }
}
