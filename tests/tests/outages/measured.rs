//! The instruments of failover tests: the prober sees exactly the outage that there was, the faults are what they say, and
//! who carried a flow is known.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use trieste_tests::daemon::Daemon;
use trieste_tests::fault::Fault;
use trieste_tests::flow::{Conversations, Echo, FlowSpec, Outages, Probing};
use trieste_tests::guard::root_test;
use trieste_tests::lab::Lab;
use trieste_tests::mesh::strain::{Spikes, Stalls};
use trieste_tests::topology::{Families, Plan, Topology};

const PORT: u16 = 7777;
const MOMENT: Duration = Duration::from_millis(300);

#[test]
fn an_outage_is_measured_as_long_as_it_was() {
    let Some(_turn) = root_test("an_outage_is_measured_as_long_as_it_was") else { return };
    let (lab, plan) = two_nodes();
    let far = &plan.cluster("east").nodes[1];
    let _echo = Echo::start(&far.pods[0].namespace, PORT).unwrap();

    let mut lasted = Duration::ZERO;
    let outages = probed(&plan, || {
        // The filter goes on and off at some moment of each command.
        let start = Instant::now();
        let fault = Fault::around(&plan.wan, far.wan_port(), "counter drop", "counter drop").unwrap();
        std::thread::sleep(MOMENT);
        drop(fault);
        lasted = start.elapsed();
    });

    eprintln!("{} for an outage between {MOMENT:?} and {lasted:?}", outages.line());
    for flow in &outages.flows {
        let longest = Duration::from_micros(flow.longest_us.into());
        let own = Duration::from_micros(outages.own_stall_us.into());
        assert!(longest >= MOMENT && longest <= lasted + own + Duration::from_millis(20), "{flow:?}");
        assert!(flow.lost > 100 && flow.sent > flow.lost + 100, "{flow:?}");
        assert_eq!((flow.duplicates, flow.reordered), (0, 0), "{flow:?}");
    }
    lab.remove().unwrap();
}

#[test]
fn late_packets_are_a_silence_without_a_loss_and_connections_survive() {
    let Some(_turn) = root_test("late_packets_are_a_silence_without_a_loss_and_connections_survive") else {
        return;
    };
    let (_lab, plan) = two_nodes();
    let (near, far) = (&plan.cluster("east").nodes[0].pods[0], &plan.cluster("east").nodes[1]);
    let pod = &far.pods[0];
    let _echo = Echo::start(&pod.namespace, PORT).unwrap();
    let address = pod.v4().unwrap();
    let talks =
        Conversations::start(&near.namespace, &pod.namespace, |port| SocketAddr::new(address, port), 3)
            .unwrap();
    let spikes = Spikes::on(&plan.wan, far.wan_port()).unwrap();

    let outages = probed(&plan, || {
        spikes.hold(MOMENT).unwrap();
    });

    eprintln!("{}", outages.line());
    assert_eq!(outages.lost(), 0, "{outages:?}");
    assert!(outages.longest() >= MOMENT / 2 && outages.longest() < 4 * MOMENT, "{}", outages.line());
    for talk in talks.finish().unwrap() {
        assert!(talk.answers > 10 && talk.longest >= MOMENT / 2, "{talk:?}");
    }
}

#[test]
fn a_stalled_process_stands_still_and_goes_on() {
    let Some(_turn) = root_test("a_stalled_process_stands_still_and_goes_on") else { return };
    let lab = Lab::new().unwrap();
    let namespace = lab.namespace("alone").unwrap();
    let busy = Daemon::start(&lab, "busy", &namespace.run("sh").args(["-c", "while :; do :; done"])).unwrap();

    let still = Duration::from_millis(50);
    let stalls = Stalls::start(busy.id(), still, still);
    let before = busy.id().cpu_seconds().unwrap();
    std::thread::sleep(Duration::from_secs(1));
    let used = busy.id().cpu_seconds().unwrap() - before;

    assert!(stalls.finish().times >= 5);
    assert!(used < 0.75, "{used} s of CPU time in a second");
    busy.check().unwrap();
}

/// One cluster of two nodes: their pods reach each other without any gateway.
fn two_nodes() -> (Lab, Plan) {
    let lab = Lab::new().unwrap();
    let mut topology = Topology::two_clusters().with_underlay(Families::V4).with_nodes(1, 1).with_pods(1);
    topology.clusters.truncate(1);
    let plan = lab.build(&topology).unwrap();
    (lab, plan)
}

/// Four flows from the first node's pod to the second's while something happens.
fn probed(plan: &Plan, happening: impl FnOnce()) -> Outages {
    let nodes = &plan.cluster("east").nodes;
    let to = SocketAddr::new(nodes[1].pods[0].v4().unwrap(), PORT);
    let from = nodes[0].pods[0].namespace.clone();
    let flow =
        |number: u16| FlowSpec { name: number.to_string(), from: from.clone(), to, port: 20_000 + number };
    let probing = Probing::start(&(0..4).map(flow).collect::<Vec<_>>()).unwrap();
    std::thread::sleep(MOMENT);
    probing.mark();
    std::thread::sleep(MOMENT);
    happening();
    std::thread::sleep(2 * MOMENT);
    probing.finish()
}
