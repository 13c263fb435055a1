//! Gateways die, stand still, are cut off, drained, started again; and some only look as if.

use std::time::{Duration, Instant};

use trieste_tests::guard::root_test;
use trieste_tests::mesh::scenario::Scenario;
use trieste_tests::mesh::strain::{Spikes, Stalls};

use super::{BAR, Bed, TRIES, WAIT, lost, probe, watch_waits};

/// What two busy cores add to a flap.
const SLACK: Duration = Duration::from_millis(150);
/// How long a starved gateway stands still, and packets are held.
const STALL: Duration = Duration::from_millis(50);
const SPIKE: Duration = Duration::from_millis(100);

#[test]
fn the_loss_of_a_gateway_costs_its_flows_less_than_two_seconds_and_others_nothing() {
    let name = "the_loss_of_a_gateway_costs_its_flows_less_than_two_seconds_and_others_nothing";
    let Some(_turn) = root_test(name) else { return };
    let mut bed = Bed::start(&[]);
    let talks = bed.converse(6);
    let mut failed = Vec::new();

    let scenarios = [Scenario::Kill, Scenario::Stop, Scenario::Cut, Scenario::Deaf, Scenario::Mute];
    for (turn, scenario) in scenarios.into_iter().enumerate() {
        let cluster = if turn % 2 == 0 { "east" } else { "west" };
        failed.extend(bed.undisturbed(|bed| {
            let trial = bed.trial(scenario, cluster, turn / 2 % 2);
            assert!(trial.affected().count() > 0, "{scenario}: nobody used that gateway: {trial:?}");
            let slow = trial.affected().filter(|flow| flow.longest() > BAR);
            let others = trial.others().filter(|flow| flow.lost > 0);
            let slow = slow.map(|flow| format!("{scenario}: {flow:?}"));
            slow.chain(others.map(|flow| format!("{scenario}, other: {flow:?}"))).collect()
        }));
    }

    assert!(failed.is_empty(), "{failed:#?}");
    for talk in talks.finish().unwrap() {
        assert!(talk.answers > 100, "{talk:?}");
    }
}

#[test]
fn a_gateway_that_is_drained_or_started_again_costs_other_nodes_no_packet() {
    let Some(_turn) = root_test("a_gateway_that_is_drained_or_started_again_costs_other_nodes_no_packet")
    else {
        return;
    };
    let mut bed = Bed::start(&[]);
    let talks = bed.converse(6);

    // Whether anybody would take the flows is asked of objects that gateways write some seconds after their start.
    let trials =
        [(Scenario::Restart, "west", 1), (Scenario::Drain, "east", 0), (Scenario::Restart, "east", 0)];
    for (scenario, cluster, gateway) in trials {
        let node = bed.mesh.side(cluster).gateway_node(gateway).name.clone();
        let restarted = (scenario == Scenario::Restart).then_some(node.as_str());
        let failed = bed.undisturbed(|bed| {
            let trial = bed.trial(scenario, cluster, gateway);
            assert!(trial.affected().count() > 0, "nobody used that gateway: {trial:?}");
            lost(&trial.outages, restarted).into_iter().map(|flow| format!("{scenario}: {flow}")).collect()
        });
        assert!(failed.is_empty(), "{failed:#?}");
    }
    talks.finish().unwrap();
}

#[test]
fn a_link_that_is_down_for_300_ms_costs_little_more() {
    let Some(_turn) = root_test("a_link_that_is_down_for_300_ms_costs_little_more") else { return };
    let mut bed = Bed::start(&[]);

    let failed = bed.undisturbed(|bed| {
        let trial = bed.trial(Scenario::Flap, "east", 1);
        let bar = Duration::from_millis(320) + SLACK;
        let slow = trial.affected().filter(|flow| flow.longest() >= bar);
        let others = trial.others().filter(|flow| flow.lost > 0);
        slow.chain(others).map(|flow| format!("{flow:?}")).collect()
    });
    assert!(failed.is_empty(), "{failed:#?}");
}

#[test]
fn a_starved_gateway_and_packets_that_are_late_are_no_death() {
    let Some(_turn) = root_test("a_starved_gateway_and_packets_that_are_late_are_no_death") else { return };

    for attempt in 1.. {
        // Gateways learn from what they have gone through: another try takes others.
        let mut bed = Bed::start(&[]);
        let waits = watch_waits(&bed.mesh);
        let strained = strain(&mut bed);
        let waited = waits.finish();
        eprintln!("{strained:?}; workers waited for at most {waited:?}");
        if strained.changes == 0 && strained.lost == 0 {
            return;
        }
        let is_as_meant = strained.stall < STALL * 3 / 2 && strained.spike < SPIKE * 3 / 2 && waited < WAIT;
        assert!(
            !is_as_meant && attempt < TRIES,
            "a path was taken for dead: {strained:?}; workers waited for at most {waited:?}"
        );
    }
}

/// What gateways went through, and what came of it.
#[derive(Debug)]
struct Strained {
    /// The longest time for which a process stood still, and for which packets were held.
    stall: Duration,
    spike: Duration,
    /// Paths' changes of state, and datagrams that were lost.
    changes: u64,
    lost: u32,
}

/// Lets one gateway stand still again and again, and packets to another one be late, for six seconds.
fn strain(bed: &mut Bed) -> Strained {
    let flows = bed.flows();
    let starved = bed.mesh.side("east").gateway(0).unwrap().id();
    let port = bed.mesh.side("west").gateway_node(1).wan_port().to_owned();
    let spikes = Spikes::on(&bed.mesh.plan.wan, &port).unwrap();
    let before = changes(bed);

    let probing = probe(&flows);
    let stalls = Stalls::start(starved, STALL, Duration::from_millis(200));
    let start = Instant::now();
    let mut spike = Duration::ZERO;
    while start.elapsed() < Duration::from_secs(6) {
        spike = spike.max(spikes.hold(SPIKE).unwrap());
        std::thread::sleep(Duration::from_millis(400));
    }
    let stalled = stalls.finish();
    assert!(stalled.times > 10, "{stalled:?}");
    let lost = probing.finish().lost();
    Strained { stall: stalled.longest, spike, changes: changes(bed) - before, lost }
}

/// How often any path of any gateway has changed its state.
fn changes(bed: &Bed) -> u64 {
    let sides = bed.mesh.sides.iter();
    let gateways =
        sides.flat_map(|side| (0..side.plan().gateways().len()).map(move |gateway| (side, gateway)));
    gateways.map(|(side, gateway)| side.path_changes(gateway).unwrap()).sum()
}
