//! Real clusters with the same pods and services, installed the way users install them: GN-1..12 of upstream's end-to-end
//! tests with kube-proxy behind the gateway, in both of its modes, with one gateway and with several.
//!
//! ```text
//!  east (kube-proxy on iptables)                    west (kube-proxy on nftables)
//!  pods 10.10.0.0/16, services 10.11.0.0/16         pods 10.10.0.0/16, services 10.11.0.0/16
//!  known as 242.0.0.0/16 ─── encrypted cable ────── known as 242.1.0.0/16
//! ```

use trieste_tests::cables;
use trieste_tests::capture::Capture;
use trieste_tests::clusters::{MEMBER, globalnet_site};
use trieste_tests::globalnet::{Flow, Site, hairpins, rows};
use trieste_tests::lab::Lab;
use trieste_tests::table::Table;
use trieste_tests::wait::eventually;

use crate::several::{diagnosis, losses, matrix};
use crate::shared::{AT_ONCE, GLOBALNET, Lease, SOON, in_parallel, lease, without_proxy};
use crate::{named, outside};

/// The tests that share these clusters.
pub(crate) const TESTS: &[&str] = &[
    "globalnet::pods_of_clusters_with_the_same_addresses_reach_services_and_headless_pods_of_each_other",
    "globalnet::with_several_gateways_translated_connections_outlive_the_one_that_owns_them",
];

#[test]
fn pods_of_clusters_with_the_same_addresses_reach_services_and_headless_pods_of_each_other() {
    let Some(mut two) = lease(&GLOBALNET, TESTS[0]) else { return };
    let [east, west] = sites(&mut two);
    two.gateways(&[2]);
    first_packets(&east, &west);
    two.say("all addresses given, connected");

    // What nodes of one cluster give one another for the other is in clear, as everything between them.
    // Its gateway sends packets for services to nodes from the cable's port.
    let filter = "udp port 4500 and not dst port 4800 or net 242.0.0.0/8";
    let fabric = two.set.clusters.fabric();
    let wires = two.in_both(|cluster| Capture::start(&two.lab, fabric, &cluster.bridge(), filter).unwrap());
    let table = Table::default();
    go_through(&rows(&east, &west), &two.lab, &table);
    two.say("flows");
    without_proxy(&two.set.clusters.all()[1], || go_through(&to_services(&east, &west), &two.lab, &table));
    two.say("flows without kube-proxy");
    let frames = wires.into_iter().map(|wire| wire.finish().unwrap().kinds_with(cables::on_the_wire(), 4500));
    for kinds in frames {
        assert!(kinds.cable > 1000 && kinds.others.is_empty(), "{kinds}");
    }
    outside::of_sites(&two, [&east, &west], &table);
    // Its probes of the cable's port are none of the cable's frames.
    diagnosis::knows_global_ips(&two, &east, &west, &table);
    two.say("diagnosis");
    named::of_sites(&two, [&east, &west], &table);

    two.say(&format!("all checked:\n{table}"));
    table.assert_no_failure();
}

#[test]
fn with_several_gateways_translated_connections_outlive_the_one_that_owns_them() {
    let Some(mut two) = lease(&GLOBALNET, TESTS[1]) else { return };
    let [east, west] = sites(&mut two);
    two.gateways(&[2, 3]);
    two.settle().unwrap();
    share_ports(&two);
    first_packets(&east, &west);
    two.say("two gateways each");

    let table = Table::default();
    matrix::between_sites(&two, &[&east, &west], &two.carriers(), &table);
    two.say("matrix");
    // A service of the own cluster is kube-proxy's by its global IP too, which is its external one.
    let own = hairpins(&east).into_iter().filter(|row| row.is_headless);
    go_through(&rows(&east, &west).into_iter().chain(own).collect::<Vec<_>>(), &two.lab, &table);
    two.say("flows");
    diagnosis::knows_global_ips(&two, &east, &west, &table);
    two.say("diagnosis");
    losses::of_translations(&two, &east, &west, &table);

    two.say(&format!("all checked:\n{table}"));
    table.assert_no_failure();
}

/// East's pods ask for services of west.
fn to_services<'a>(east: &'a Site, west: &'a Site) -> Vec<Flow<'a>> {
    let servers = [&west.worker.server, &west.gateway.server];
    let is_of_west = |row: &Flow<'_>| servers.iter().any(|server| std::ptr::eq(*server, row.server));
    let services = rows(east, west).into_iter().filter(|row| !row.is_headless && is_of_west(row));
    services.map(|row| Flow { id: "SV-1", ..row }).collect()
}

/// Waits until every gateway has a share of the outside ports: one that has none yet owns no connection, so that none comes
/// back by it.
fn share_ports(two: &Lease) {
    for cluster in two.set.clusters.all() {
        let path = format!("/apis/submariner.io/v1/namespaces/{MEMBER}-paths/endpoints");
        let have_shares = || {
            let all = cluster.client().list(&path)?;
            let own = all.iter().filter(|endpoint| endpoint["spec"]["cluster_id"] == cluster.name());
            let slots: Vec<_> =
                own.map(|endpoint| &endpoint["spec"]["backend_config"]["trieste.nat-slot"]).collect();
            let gateways = cluster.nodes().len() - 1;
            anyhow::ensure!(
                slots.len() == gateways && slots.iter().all(|slot| slot.is_string()),
                "{slots:?}"
            );
            Ok(())
        };
        cluster.wait("shares of the outside ports", SOON, have_shares).unwrap();
    }
}

/// Joins the clusters and makes who asks and answers, unless both is done.
fn sites(two: &mut Lease) -> [Site; 2] {
    if two.sites.is_none() {
        for told in two.joined() {
            assert!(told.contains("Allocated global CIDR 242."), "{told}");
        }
        let made = two.in_both(|cluster| globalnet_site(cluster).unwrap());
        two.inhabit_all();
        two.sites = made.try_into().ok();
    }
    two.sites.clone().unwrap()
}

fn go_through(rows: &[Flow<'_>], lab: &Lab, table: &Table) {
    for some in rows.chunks(AT_ONCE) {
        in_parallel(some, |row| table.row(row.id, row.what, || Ok(format!("seen as {}", row.check(lab)?))));
    }
}

/// Cables, routes and translation need a moment after the objects are there.
fn first_packets(east: &Site, west: &Site) {
    for (from, to) in [(east, west), (west, east)] {
        for server in [&to.gateway.server, &to.worker.server] {
            for address in [server.service, server.headless] {
                eventually("the first answer", SOON, || from.worker.plain.tcp(address, 64)).unwrap();
            }
        }
        from.wait_translated(to).unwrap();
    }
}
