//! Gateways as pods of two clusters with an API server each, two gateways in every cluster, and one broker.
#![expect(clippy::unwrap_used, reason = "helpers of tests: what cannot go on has failed")]

use std::time::Duration;

use trieste_tests::guard::root_test;
use trieste_tests::kubernetes::{Fleet, Place};
use trieste_tests::traffic;
use trieste_tests::wait::eventually;

const TIMEOUT: Duration = Duration::from_secs(45);

#[test]
fn pods_of_two_clusters_reach_one_another_over_one_cable() {
    let Some(_turn) = root_test("pods_of_two_clusters_reach_one_another_over_one_cable") else { return };
    let fleet = Fleet::connected().unwrap();

    // Each place knows exactly one Endpoint of each cluster: the active gateway's.
    for cluster in ["east", "west"] {
        for place in [Place::Cluster("east"), Place::Cluster("west"), Place::Broker] {
            fleet.wait_endpoint(cluster, 0, place).unwrap();
        }
    }
    for (from, to) in [("east", "west"), ("west", "east")] {
        let pod = &fleet.worker_pod(from).namespace;
        let (_responder, target) = fleet.respond(to).unwrap();
        eventually("pings to pass", TIMEOUT, || {
            let ping = traffic::ping(pod, target.ip(), 5, &[])?;
            anyhow::ensure!(ping.received == ping.sent, "{ping:?}");
            Ok(())
        })
        .unwrap();
        let text: Vec<u8> = (0..300_000_u32).map(|number| number.to_le_bytes()[0]).collect();
        traffic::send_tcp(pod, target, &text, TIMEOUT).unwrap().check(&text).unwrap();
        traffic::send_udp(pod, target, b"hello", TIMEOUT).unwrap().check(b"hello").unwrap();
    }
}
