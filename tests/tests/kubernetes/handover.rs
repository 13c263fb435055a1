//! What a change of a cluster's active gateway costs in traffic: a datagram every 10 ms from a worker's pod in one
//! cluster to a worker's pod in the other, answered from there.

use std::time::{Duration, Instant};

use trieste_tests::cluster::BROKER_NAMESPACE;
use trieste_tests::guard::root_test;
use trieste_tests::kubernetes::{Fleet, Place, objects, rbac};
use trieste_tests::traffic::Probes;
use trieste_tests::wait::eventually;

/// How long anything but a measured gap may take.
const TIMEOUT: Duration = Duration::from_secs(45);
/// Upstream's lease duration, which gateways have when nobody says otherwise.
const LEASE: Duration = Duration::from_secs(15);
/// The bar for a planned stop and for a process that comes back, on a machine that does nothing else.
const SECOND: Duration = Duration::from_secs(1);
/// What other tests on the same processors may add.
const BUSY: Duration = Duration::from_secs(1);
/// Datagrams that may be under way when a prober ends; they count as lost.
const IN_FLIGHT: u64 = 2;

#[test]
fn a_change_of_the_active_gateway_costs_about_a_second_and_a_lost_node_its_lease() {
    let name = "a_change_of_the_active_gateway_costs_about_a_second_and_a_lost_node_its_lease";
    let Some(_turn) = root_test(name) else { return };
    let mut fleet = Fleet::connected().unwrap();
    let mut missed = Vec::new();
    let mut bar = |what: &str, probes: Probes, bar: Duration| {
        if probes.longest_gap > bar + BUSY {
            missed.push(format!(
                "{what}: {:?} without traffic, the bar is {bar:?} and {BUSY:?}",
                probes.longest_gap
            ));
        }
    };

    bar("planned stop", planned_stop(&mut fleet), SECOND);
    bar("second leadership", second_leadership(&mut fleet), SECOND);
    bar("killed and back", killed_and_back(&mut fleet), SECOND);
    let (there, gone) = late_deletion(&mut fleet);
    bar("the old Endpoint is there still", there, 3 * SECOND);
    bar("the old Endpoint goes late", gone, SECOND);
    let probes = without_api(&fleet);
    bar("without the API", probes, SECOND);
    assert!(probes.sent - probes.answered <= IN_FLIGHT, "{probes:?} without the API");
    bar("the leader alone without the API", leader_without_api(&fleet), SECOND);
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
    let before = second.status().unwrap().pid;
    let mut again = None;
    let probes = measure(fleet, "killed and back", || {
        second.kill().unwrap();
        again = Some(fleet.lab.spawn_gateway_with("east", 1, &settings).unwrap());
        std::thread::sleep(2 * SECOND);
    });
    fleet.put("east", 1, again.unwrap());
    fleet.wait_active("east", 1).unwrap();
    assert_ne!(fleet.gateway("east", 1).status().unwrap().pid, before);
    probes
}

/// East's leader changes while its old Endpoint cannot be deleted from the broker: for a while the other cluster
/// knows both, as with upstream's gateways, and then the old one goes.
fn late_deletion(fleet: &mut Fleet) -> (Probes, Probes) {
    let (leader, other) = leader_and_other(fleet);
    may_delete(fleet, false);
    let stopped = fleet.take("east", leader);
    let there = measure(fleet, "the old Endpoint is there still", || {
        assert!(stopped.stop().unwrap(), "the gateway did not end by itself");
        fleet.wait_active("east", other).unwrap();
        let both = || anyhow::Ok(fleet.endpoints("east", Place::Cluster("west"))?.len());
        eventually("west to know both", TIMEOUT, || {
            anyhow::ensure!(both()? == 2, "there are {}", both()?);
            Ok(())
        })
        .unwrap();
    });
    let gone = measure(fleet, "the old Endpoint goes late", || {
        may_delete(fleet, true);
        fleet.wait_endpoint("east", other, Place::Cluster("west")).unwrap();
    });
    fleet.start("east", leader).unwrap();
    fleet.wait_gateway("east", leader, |status| status["haStatus"] == "passive").unwrap();
    (there, gone)
}

/// Lets clusters delete their Endpoints from the broker, or not, and waits until that is so.
fn may_delete(fleet: &Fleet, may: bool) {
    let broker = fleet.lab.broker.client();
    let path = format!(
        "/apis/rbac.authorization.k8s.io/v1/namespaces/{BROKER_NAMESPACE}/roles/{}",
        rbac::BROKER_ROLE
    );
    let mut role = broker.get(&path).unwrap();
    for rule in role["rules"].as_array_mut().unwrap() {
        if rule["resources"].as_array().unwrap().iter().any(|kind| kind == "endpoints") {
            let verbs = rule["verbs"].as_array_mut().unwrap();
            verbs.retain(|verb| verb != "delete");
            if may {
                verbs.push("delete".into());
            }
        }
    }
    broker.put(&path, &role).unwrap();
    // The server's authorizer follows its roles; a second is plenty, also where it is short of time.
    std::thread::sleep(SECOND);
}

/// East's API server does not answer for longer than leadership lasts without it.
fn without_api(fleet: &Fleet) -> Probes {
    let server = &fleet.lab.cluster("east").server;
    let (leader, _) = leader_and_other(fleet);
    let probes = measure(fleet, "without the API", || {
        server.pause().unwrap();
        std::thread::sleep(13 * SECOND);
        assert!(!fleet.gateway("east", leader).status().unwrap().election.unwrap().is_leader);
        server.resume().unwrap();
        std::thread::sleep(3 * SECOND);
    });
    wait_leader(fleet);
    probes
}

/// East's leader cannot reach its API server and everybody else can: the other takes over when the Lease has expired.
fn leader_without_api(fleet: &Fleet) -> Probes {
    let (leader, other) = leader_and_other(fleet);
    let server = &fleet.lab.cluster("east").server;
    let mut cut = None;
    let probes = measure(fleet, "the leader alone without the API", || {
        cut = Some(fleet.lab.cut_api(server, fleet.lab.gateway_node("east", leader)).unwrap());
        fleet.wait_active("east", other).unwrap();
        fleet.wait_endpoint("east", other, Place::Cluster("west")).unwrap();
        std::thread::sleep(SECOND);
    });
    drop(cut);
    fleet.wait_gateway("east", leader, |status| status["haStatus"] == "passive").unwrap();
    probes
}

/// The node of east's leader, whichever that is, is cut off.
fn node_cut_off(fleet: &Fleet) -> Probes {
    let (leader, other) = leader_and_other(fleet);
    let node = fleet.lab.gateway_node("east", leader);
    let mut isolation = None;
    let probes = measure(fleet, "node cut off", || {
        isolation = Some(fleet.lab.isolate(node).unwrap());
        fleet.wait_active("east", other).unwrap();
        fleet.wait_endpoint("east", other, Place::Cluster("west")).unwrap();
        std::thread::sleep(SECOND);
    });
    drop(isolation);
    fleet.wait_gateway("east", leader, |status| status["haStatus"] == "passive").unwrap();
    probes
}

/// Waits until one of east's two gateways leads, and says which does and which does not.
fn leader_and_other(fleet: &Fleet) -> (usize, usize) {
    let leader = wait_leader(fleet);
    (leader, 1 - leader)
}

fn wait_leader(fleet: &Fleet) -> usize {
    let leads =
        |index| anyhow::Ok(fleet.gateway("east", index).status()?.election.is_some_and(|it| it.is_leader));
    eventually("one of east's gateways to lead", TIMEOUT, || {
        if leads(0)? {
            Ok(0)
        } else if leads(1)? {
            Ok(1)
        } else {
            anyhow::bail!("nobody does")
        }
    })
    .unwrap()
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
