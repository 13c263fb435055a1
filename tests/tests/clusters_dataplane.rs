//! Pods of real clusters reach pods and services of another cluster, installed the way users install it.

use std::time::Instant;

use trieste_tests::clusters::{ClusterSet, ClusterShape, PodShape};
use trieste_tests::guard::root_test;
use trieste_tests::lab::Lab;

const SIZES: [usize; 4] = [64, 1400, 3000, 9000];

#[test]
fn pods_on_any_node_reach_pods_of_the_other_cluster() {
    let Some(_turn) = root_test("pods_on_any_node_reach_pods_of_the_other_cluster") else { return };
    let clock = Instant::now();
    let lab = Lab::new().unwrap();
    let set = ClusterSet::joined(&lab, &ClusterShape::two()).unwrap();
    eprintln!("joined after {:.1?}", clock.elapsed());
    let (east, west) = (set.clusters.cluster("east"), set.clusters.cluster("west"));
    let client = east.start_pod(PodShape::on(east.node(1), "client")).unwrap();
    let server = west.start_pod(PodShape::on(west.node(1), "server")).unwrap();
    for to in server.responders() {
        let from = client.address_like(to.ip()).unwrap();
        client.ping(to.ip(), 64).unwrap();
        client.exchange(to, &SIZES, from).unwrap();
    }
    eprintln!("done after {:.1?}", clock.elapsed());
}
