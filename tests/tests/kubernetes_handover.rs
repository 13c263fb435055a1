//! What a change of a cluster's active gateway costs in traffic: a datagram every 10 ms from a worker's pod in one
//! cluster to a worker's pod in the other, answered from there.
#![expect(clippy::unwrap_used, reason = "helpers of tests: what cannot go on has failed")]

use std::time::{Duration, Instant};

use trieste_tests::guard::root_test;
use trieste_tests::kubernetes::{Fleet, Place, objects};
use trieste_tests::traffic::Probes;

/// Upstream's lease duration, which gateways have when nobody says otherwise.
const LEASE: Duration = Duration::from_secs(15);
/// The bar for a planned stop and for a process that comes back.
const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_change_of_the_active_gateway_costs_less_than_a_second_and_a_lost_node_its_lease() {
    let name = "a_change_of_the_active_gateway_costs_less_than_a_second_and_a_lost_node_its_lease";
    let Some(_turn) = root_test(name) else { return };
    let mut fleet = Fleet::connected().unwrap();
    let mut missed = Vec::new();
    let mut bar = |what: &str, probes: Probes, bar: Duration| {
        if probes.longest_gap > bar {
            missed.push(format!("{what}: {:?} without traffic, the bar is {bar:?}", probes.longest_gap));
        }
    };

    bar("planned stop", planned_stop(&mut fleet), SECOND);
    bar("second leadership", second_leadership(&mut fleet), SECOND);
    bar("killed and back", killed_and_back(&mut fleet), SECOND);
    bar("without the API", without_api(&fleet), Duration::from_millis(100));
    bar("node cut off", node_cut_off(&fleet), LEASE + SECOND);

    assert!(missed.is_empty(), "{missed:#?}");
}

/// East's first gateway leads and is asked to end; the second takes over. Afterwards both run and the second leads.
fn planned_stop(fleet: &mut Fleet) -> Probes {
    let first = fleet.take("east", 0);
    let probes = measure(fleet, "planned stop", || {
        assert!(first.stop().unwrap(), "the gateway did not end by itself");
        fleet.wait_active("east", 1).unwrap();
    });
    fleet.wait_endpoint("east", 1, Place::Cluster("west")).unwrap();
    fleet.start("east", 0).unwrap();
    fleet.wait_gateway("east", 0, |status| status["haStatus"] == "passive").unwrap();
    probes
}

/// East's second gateway, which leads, is no gateway node for a while: the first takes over. Then that is asked to
/// end, and the second process leads again.
fn second_leadership(fleet: &mut Fleet) -> Probes {
    let server = fleet.lab.cluster("east").server.client().clone();
    let node = fleet.lab.gateway_node("east", 1).name.clone();
    let there = measure(fleet, "label removed", || {
        objects::label_gateway(&server, &node, None).unwrap();
        fleet.wait_active("east", 0).unwrap();
        fleet.wait_endpoint("east", 0, Place::Cluster("west")).unwrap();
    });
    objects::label_gateway(&server, &node, Some("true")).unwrap();
    fleet.wait_gateway("east", 1, |status| status["haStatus"] == "passive").unwrap();
    let first = fleet.take("east", 0);
    let back = measure(fleet, "the same process leads again", || {
        assert!(first.stop().unwrap(), "the gateway did not end by itself");
        fleet.wait_active("east", 1).unwrap();
        fleet.wait_endpoint("east", 1, Place::Cluster("west")).unwrap();
    });
    fleet.start("east", 0).unwrap();
    fleet.wait_gateway("east", 0, |status| status["haStatus"] == "passive").unwrap();
    if there.longest_gap > back.longest_gap { there } else { back }
}

/// East's second gateway, which leads, is killed and started again at once.
fn killed_and_back(fleet: &mut Fleet) -> Probes {
    let settings = fleet.lab.settings("east", 1).unwrap();
    let second = fleet.take("east", 1);
    let mut again = None;
    let probes = measure(fleet, "killed and back", || {
        second.kill().unwrap();
        again = Some(fleet.lab.spawn_gateway_with("east", 1, &settings).unwrap());
        std::thread::sleep(Duration::from_secs(2));
    });
    fleet.put("east", 1, again.unwrap());
    fleet.wait_active("east", 1).unwrap();
    probes
}

/// East's API server does not answer for longer than leadership lasts without it.
fn without_api(fleet: &Fleet) -> Probes {
    let server = &fleet.lab.cluster("east").server;
    let probes = measure(fleet, "without the API", || {
        server.pause().unwrap();
        std::thread::sleep(Duration::from_secs(13));
        assert!(!fleet.gateway("east", 1).status().unwrap().election.unwrap().is_leader);
        server.resume().unwrap();
        std::thread::sleep(Duration::from_secs(3));
    });
    probes
}

/// The node of east's leader, whichever that is, is cut off.
fn node_cut_off(fleet: &Fleet) -> Probes {
    let leads = |index| fleet.gateway("east", index).status().unwrap().election.unwrap().is_leader;
    let (leader, other) = if leads(0) { (0, 1) } else { (1, 0) };
    let node = fleet.lab.gateway_node("east", leader);
    let mut isolation = None;
    let probes = measure(fleet, "node cut off", || {
        isolation = Some(fleet.lab.isolate(node).unwrap());
        fleet.wait_active("east", other).unwrap();
        fleet.wait_endpoint("east", other, Place::Cluster("west")).unwrap();
        std::thread::sleep(Duration::from_secs(1));
    });
    drop(isolation);
    fleet.wait_gateway("east", leader, |status| status["haStatus"] == "passive").unwrap();
    probes
}

/// Probes while `change` happens, and a second before and after it.
fn measure(fleet: &Fleet, what: &str, change: impl FnOnce()) -> Probes {
    let (_responder, target) = fleet.respond("west").unwrap();
    let prober = fleet.probe("east", target).unwrap();
    std::thread::sleep(SECOND);
    let start = Instant::now();
    change();
    let took = start.elapsed();
    std::thread::sleep(SECOND);
    let probes = prober.finish();
    eprintln!(
        "{what}: {} ms without traffic, {} of {} datagrams lost; the change took {} ms",
        probes.longest_gap.as_millis(),
        probes.sent - probes.answered,
        probes.sent,
        took.as_millis()
    );
    probes
}
