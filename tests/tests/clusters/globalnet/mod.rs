//! Real clusters with the same pods and services, installed the way users install them: GN-1..12 of upstream's end-to-end
//! tests with kube-proxy behind the gateway, in both of its modes.
//!
//! ```text
//!  east (kube-proxy on iptables)                    west (kube-proxy on nftables)
//!  pods 10.10.0.0/16, services 10.11.0.0/16         pods 10.10.0.0/16, services 10.11.0.0/16
//!  known as 242.0.0.0/16 ─── encrypted cable ────── known as 242.1.0.0/16
//! ```

use std::time::{Duration, Instant};

use trieste_tests::capture::{Cable, Capture};
use trieste_tests::clusters::{ClusterSet, ClusterShape, ProxyMode, globalnet_site};
use trieste_tests::globalnet::{Site, rows};
use trieste_tests::guard::root_test;
use trieste_tests::lab::Lab;
use trieste_tests::table::Table;
use trieste_tests::topology::Families;
use trieste_tests::wait::eventually;

/// How long the first packet may take to find its way.
const FIRST_PACKET: Duration = Duration::from_secs(60);

#[test]
fn pods_of_clusters_with_the_same_addresses_reach_services_and_headless_pods_of_each_other() {
    let name = "pods_of_clusters_with_the_same_addresses_reach_services_and_headless_pods_of_each_other";
    let Some(_turn) = root_test(name) else { return };
    let clock = Instant::now();
    let lab = Lab::new().unwrap();
    let shape = |name: &str| ClusterShape::new(name, 1).with_families(Families::V4);
    let set =
        ClusterSet::bare(&lab, &[shape("east").with_proxy(ProxyMode::Iptables), shape("west")]).unwrap();
    set.deploy_broker_with(&["--globalnet"]).unwrap();
    for cluster in set.clusters.all() {
        let said = set.join(cluster).unwrap();
        assert!(said.contains("Allocated global CIDR 242."), "{said}");
    }
    eprintln!("joined after {:.1?}", clock.elapsed());
    let build = |name: &str| globalnet_site(set.clusters.cluster(name)).unwrap();
    let (east, west) = std::thread::scope(|scope| {
        let east = scope.spawn(|| build("east"));
        let west = build("west");
        (east.join().unwrap(), west)
    });
    first_packets(&east, &west);
    eprintln!("all addresses given, connected after {:.1?}", clock.elapsed());

    let wires: Vec<_> = set
        .clusters
        .all()
        .iter()
        .map(|cluster| {
            // What nodes of one cluster give one another for the other is in clear, as everything between them.
            let filter = "udp port 4500 or net 242.0.0.0/8";
            Capture::start(&lab, set.clusters.fabric(), &cluster.bridge(), filter).unwrap()
        })
        .collect();
    let table = Table::default();
    for row in rows(&east, &west) {
        table.row(row.id, row.what, || Ok(format!("seen as {}", row.check(&lab)?)));
    }

    eprintln!("all checked after {:.1?}:\n{table}", clock.elapsed());
    for wire in wires {
        let (sealed, _, other) = wire.finish().unwrap().kinds_with(Cable::WireGuard, 4500);
        assert!(sealed > 1000 && other == 0, "{sealed} frames of the cable, {other} others");
    }
    table.assert_no_failure();
}

/// Cables, routes and translation need a moment after the objects are there.
fn first_packets(east: &Site, west: &Site) {
    for (from, to) in [(east, west), (west, east)] {
        for server in [&to.gateway.server, &to.worker.server] {
            eventually("the first answer", FIRST_PACKET, || from.worker.plain.tcp(server.service, 64))
                .unwrap();
            eventually("the first answer", FIRST_PACKET, || from.worker.plain.tcp(server.headless, 64))
                .unwrap();
        }
    }
}
