//! A cluster set changes from one cable driver to another, one gateway after the other.

use std::collections::BTreeSet;
use std::time::Duration;

use trieste_tests::cables;
use trieste_tests::guard::root_test;
use trieste_tests::lab::Lab;
use trieste_tests::mesh::Mesh;
use trieste_tests::mesh::scenario::{Scenario, Target};
use trieste_tests::topology::{Families, Topology};

use super::{Bed, lost, slow};

/// How long packets are counted from when a gateway is asked to end: it drains, ends, starts, and has its paths again.
const WATCHED: Duration = Duration::from_secs(4);

/// From the driver of `TRIESTE_CABLE` to the next. East changes, then west, then both end to offer the former one.
#[test]
fn a_set_changes_its_cable_driver_without_losing_a_packet() {
    let Some(_turn) = root_test("a_set_changes_its_cable_driver_without_losing_a_packet") else { return };
    let (former, newer) = (cables::driver(), cables::next_driver());
    let mut bed = Bed::start(&[]);
    let talks = bed.converse(6);
    let changing = [format!("cable-driver: {newer}"), format!("former-cable-driver: {former}")];
    let changing = changing.each_ref().map(String::as_str);

    change(&mut bed, &[("east", 0), ("east", 1)], &changing);
    assert_eq!(drivers(&bed, "east", "west"), former, "west has no other");
    assert_eq!(drivers(&bed, "west", "east"), former, "it has no other");
    change(&mut bed, &[("west", 0), ("west", 1)], &changing);
    for (from, to) in [("east", "west"), ("west", "east"), ("east", "east"), ("west", "west")] {
        assert_eq!(drivers(&bed, from, to), newer, "{from} with {to}: both have it");
    }
    change(&mut bed, &[("east", 1)], &changing[..1]);
    assert_eq!(drivers(&bed, "east", "west"), newer);

    for talk in talks.finish().unwrap() {
        assert!(talk.answers > 100, "{talk:?}");
    }
}

/// With one gateway each, its process is away for as long as a restart takes. East changes, west does, and back again.
#[test]
fn with_one_gateway_each_a_change_of_the_cable_driver_costs_less_than_two_seconds() {
    let name = "with_one_gateway_each_a_change_of_the_cable_driver_costs_less_than_two_seconds";
    let Some(_turn) = root_test(name) else { return };
    let (former, newer) = (cables::driver(), cables::next_driver());
    let lab = Lab::new().unwrap();
    let topology = Topology::two_clusters().with_underlay(Families::V4).with_nodes(1, 1);
    let mut bed = Bed::around(Mesh::start(&lab, &topology, &[]).unwrap());
    let lines = |driver: &str, other: &str| {
        [format!("cable-driver: {driver}"), format!("former-cable-driver: {other}")]
    };
    let (there, back) = (lines(newer, &former), lines(&former, newer));

    for (cluster, lines) in [("east", &there), ("west", &there), ("west", &back), ("east", &back)] {
        let lines = lines.each_ref().map(String::as_str);
        bed.mesh.configure(cluster, 0, &lines).unwrap();
        let target = Target { cluster: cluster.to_owned(), gateway: 0 };
        let slow = bed.undisturbed(|bed| {
            let flows = bed.flows_of(&[(1, 1)]);
            let trial = bed.mesh.trial(Scenario::Restart, &target, &flows, None, WATCHED).unwrap();
            eprintln!("{cluster} with {lines:?}: {}", trial.outages.line());
            bed.mesh.settle().unwrap();
            slow(&trial.outages)
        });
        assert!(slow.is_empty(), "{lines:?}: {slow:#?}");
    }
    assert_eq!(drivers(&bed, "east", "west"), former);
}

/// Starts gateways again with these lines, while all flows are probed.
fn change(bed: &mut Bed, gateways: &[(&str, usize)], lines: &[&str]) {
    for (cluster, gateway) in gateways {
        bed.mesh.configure(cluster, *gateway, lines).unwrap();
        let node = bed.mesh.side(cluster).gateway_node(*gateway).name.clone();
        let target = Target { cluster: (*cluster).to_owned(), gateway: *gateway };
        let failed = bed.undisturbed(|bed| {
            let flows = bed.flows();
            let trial =
                bed.mesh.trial(Scenario::Restart, &target, &flows, Some(&bed.carriers), WATCHED).unwrap();
            eprintln!("{cluster}-gw{} with {lines:?}: {}", gateway + 1, trial.line());
            bed.mesh.settle().unwrap();
            lost(&trial.outages, Some(&node))
        });
        assert!(failed.is_empty(), "{lines:?}: {failed:#?}");
    }
}

/// The drivers of the cables of all of a cluster's gateways to another cluster, or to each other.
fn drivers(bed: &Bed, from: &str, to: &str) -> String {
    let side = bed.mesh.side(from);
    let gateways = 0..side.plan().gateways().len();
    let cables = gateways.flat_map(|gateway| {
        let status = side.status(gateway).unwrap();
        status.connections.into_iter().chain(status.siblings)
    });
    let endpoints =
        cables.map(|cable| cable.connection.endpoint).filter(|endpoint| endpoint.cluster_id == to);
    let all: BTreeSet<String> = endpoints.map(|endpoint| endpoint.backend).collect();
    all.into_iter().collect::<Vec<_>>().join(" and ")
}
