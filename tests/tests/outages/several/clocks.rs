//! Nodes whose clocks are ten minutes off, and are put right while traffic flows.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use trieste_tests::guard::root_test;
use trieste_tests::lab::Lab;
use trieste_tests::mesh::Mesh;
use trieste_tests::mesh::scenario::Scenario;

use super::{Bed, lost, probe, slow, topology};

/// Nodes, and by how many seconds their clocks are off: gateways of one cluster and of both, and a worker.
const CLOCKS: [(&str, i64); 4] =
    [("east-gw1", 600), ("east-gw2", -600), ("west-gw1", -600), ("west-worker3", 600)];
/// How long flows are watched after a clock was set.
const WATCHED: Duration = Duration::from_secs(3);

#[test]
fn clocks_that_are_ten_minutes_off_and_are_set_right_cost_nothing() {
    let Some(_turn) = root_test("clocks_that_are_ten_minutes_off_and_are_set_right_cost_nothing") else {
        return;
    };
    let lab = Lab::new().unwrap();
    let mut bed = Bed::around(Mesh::start_at(&lab, &topology(), &CLOCKS).unwrap());
    for (gateway, seconds) in [(0, 600), (1, -600)] {
        let started = bed.mesh.side("east").status(gateway).unwrap().started;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let off = started.as_second() - i64::try_from(now).unwrap();
        assert!((seconds - 120..=seconds).contains(&off), "it has started {off} s from now");
    }
    let talks = bed.converse(4);
    gateways_come_and_go(&mut bed);

    // Back by ten minutes, ahead by twenty, ahead by ten, and the worker back.
    let failed = bed.undisturbed(|bed| {
        let flows = bed.flows();
        let probing = probe(&flows);
        for (cluster, node, seconds) in [("east", 0, 0), ("east", 1, 600), ("west", 0, 0), ("west", 2, 0)] {
            bed.mesh.side(cluster).set_clock(node, seconds).unwrap();
        }
        std::thread::sleep(WATCHED);
        let outages = probing.finish();
        eprintln!("clocks are set: {}", outages.line());
        lost(&outages, None)
    });
    assert!(failed.is_empty(), "{failed:#?}");
    gateways_come_and_go(&mut bed);
    talks.finish().unwrap();
}

/// A gateway dies and comes back, and one is started again.
fn gateways_come_and_go(bed: &mut Bed) {
    let failed = bed.undisturbed(|bed| slow(&bed.trial(Scenario::Kill, "west", 0).outages));
    assert!(failed.is_empty(), "{failed:#?}");
    let failed =
        bed.undisturbed(|bed| lost(&bed.trial(Scenario::Restart, "east", 1).outages, Some("east-gw2")));
    assert!(failed.is_empty(), "{failed:#?}");
}
