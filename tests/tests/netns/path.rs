//! The whole path, two Trieste gateways: pods reach pods, by every mix of IPv4 and IPv6 inside and outside.

use std::net::SocketAddr;
use std::time::Duration;

use trieste_tests::capture::Capture;
use trieste_tests::guard::{is_alone, root_test};
use trieste_tests::pair::Pair;
use trieste_tests::topology::Families;
use trieste_tests::traffic::{self, Responder};

const TIMEOUT: Duration = Duration::from_secs(30);

#[test]
fn pods_reach_pods_over_ipv4() {
    reach("pods_reach_pods_over_ipv4", Families::V4);
}

#[test]
fn pods_reach_pods_over_ipv6() {
    reach("pods_reach_pods_over_ipv6", Families::V6);
}

fn reach(test: &str, underlay: Families) {
    let Some(_turn) = root_test(test) else { return };
    let pair = Pair::connected(underlay).unwrap();
    let wire = Capture::start(&pair.lab, &pair.plan.wan, "br0", "").unwrap();
    let marker = b"pods-talk-to-pods-and-nobody-listens";
    let bytes = marker.repeat(3 << 20 >> 5);

    for (from, to) in [("east", "west"), ("west", "east")] {
        let (from, to) = (pair.pod(from), pair.pod(to));
        let responder = Responder::start(&to.namespace).unwrap();
        for address in to.ips() {
            assert_eq!(
                traffic::ping(&from.namespace, address, 5, &[]).unwrap().received,
                5,
                "ping {address}"
            );
            let target = SocketAddr::new(address, responder.port());
            traffic::send_tcp(&from.namespace, target, &bytes, TIMEOUT).unwrap().check(&bytes).unwrap();
            for size in [0, 1, 512, 1372, 4000, 60_000] {
                let receipt = traffic::send_udp(&from.namespace, target, &bytes[..size], TIMEOUT).unwrap();
                receipt
                    .check(&bytes[..size])
                    .unwrap_or_else(|error| panic!("{size} bytes to {target}: {error}"));
            }
        }
    }

    let frames = wire.finish().unwrap();
    let kinds = frames.kinds(4500);
    assert!(kinds.cable > 100 && kinds.others.is_empty(), "{kinds}");
    assert_eq!(frames.count_with(marker), 0);
    for cluster in [&pair.east, &pair.west] {
        let status = cluster.status().unwrap();
        assert!(status.conservation.holds(), "{:?}", status.conservation);
        assert!(status.refused.is_empty(), "{:?}", status.refused);
    }
}

#[test]
fn tables_of_the_command_show_the_connection() {
    let Some(_turn) = root_test("tables_of_the_command_show_the_connection") else { return };
    let pair = Pair::connected(Families::V4).unwrap();

    pair.east.wait_connected(1, Duration::from_secs(20)).unwrap();
    let connections = pair.east.trieste(&["show", "connections"]).unwrap().stdout().unwrap();
    let gateways = pair.east.trieste(&["show", "gateways"]).unwrap().stdout().unwrap();
    let json = pair.east.trieste(&["show", "connections", "--output", "json"]).unwrap().stdout().unwrap();

    let row = connections.lines().find(|line| line.contains("west-gw1")).expect(&connections);
    for cell in ["west", "172.31.2.1", "no", "wireguard", "connected"] {
        assert!(row.contains(cell), "{cell} is missing in:\n{connections}");
    }
    assert!(
        gateways.contains("east-gw1") && gateways.contains("All connections (1) are established"),
        "{gateways}"
    );
    serde_json::from_str::<serde_json::Value>(&json).expect(&json);
}

#[test]
fn two_workers_carry_four_streams() {
    let Some(_turn) = root_test("two_workers_carry_four_streams") else { return };
    let topology = trieste_tests::topology::Topology::two_clusters().with_underlay(Families::V4);
    let pair = Pair::connected_with(&topology, &["workers: 2"]).unwrap();
    let (east, west) = (pair.pod("east"), pair.pod("west"));
    // A sign that all of it flows, and no figure: beside whole clusters a stream may get no processor for most of its time.
    let least = if is_alone() { 0.01 } else { 0.001 };

    for address in west.ips() {
        let target = (&west.namespace, address);
        let gbit_s = traffic::iperf3(&pair.lab, &east.namespace, target, 2, &["-P", "4"]).unwrap();
        assert!(gbit_s > least, "{gbit_s} Gbit/s to {address}");
        let gbit_s = traffic::iperf3(&pair.lab, &east.namespace, target, 2, &["-P", "4", "-R"]).unwrap();
        assert!(gbit_s > least, "{gbit_s} Gbit/s from {address}");
    }

    let status = pair.east.status().unwrap();
    assert_eq!(status.workers.len(), 2);
    assert!(status.workers.iter().all(|worker| worker.restarts == 0), "{:?}", status.workers);
    assert!(status.conservation.holds(), "{:?}", status.conservation);
}
