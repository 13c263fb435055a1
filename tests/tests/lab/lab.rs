//! The lab itself: what it builds works without any gateway, and what it made is gone afterwards.

use std::path::Path;
use std::time::Duration;

use trieste_tests::capture::Capture;
use trieste_tests::daemon::Daemon;
use trieste_tests::fault::Fault;
use trieste_tests::guard::root_test;
use trieste_tests::lab::Lab;
use trieste_tests::topology::{Families, Topology};
use trieste_tests::traffic::{self, Responder};

#[test]
fn a_dropped_lab_leaves_nothing() {
    let Some(_turn) = root_test("a_dropped_lab_leaves_nothing") else { return };
    let lab = Lab::new().unwrap();
    let plan = lab.build(&Topology::two_clusters()).unwrap();
    let pod = &plan.cluster("east").pod(0).namespace;
    let sleeper = Daemon::start(&lab, "sleeper", &pod.run("sleep").arg("600")).unwrap();
    let process = sleeper.id();
    let (id, directory) = (lab.id().to_owned(), lab.directory().to_owned());
    assert!(process.is_running() && Path::new("/run/netns").join(pod.name()).exists());
    // The lab goes first here, as it does when a test panics in between: it ends what still runs.
    let removed = lab.remove().unwrap();

    assert_eq!((removed.processes, removed.namespaces), (1, 7));
    assert!(!process.is_running());
    assert!(!directory.exists());
    let left = std::fs::read_dir("/run/netns").unwrap().chain(std::fs::read_dir("/run/trieste-lab").unwrap());
    assert_eq!(
        left.filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().contains(&id)).count(),
        0
    );
}

#[test]
fn pods_of_one_node_and_nodes_of_the_wan_reach_each_other() {
    let Some(_turn) = root_test("pods_of_one_node_and_nodes_of_the_wan_reach_each_other") else { return };
    for underlay in [Families::Dual, Families::V6] {
        let lab = Lab::new().unwrap();
        let mut topology = Topology::two_clusters().with_underlay(underlay);
        topology.clusters[0].nodes = 2;
        let plan = lab.build(&topology).unwrap();
        let (east, west) = (plan.cluster("east"), plan.cluster("west"));

        let pairs = [
            (&east.pod(0).namespace, east.pod(1).v4().unwrap()),
            (&east.pod(0).namespace, east.pod(1).v6().unwrap()),
            (&east.pod(0).namespace, east.nodes[1].pods[0].v4().unwrap()),
            (&east.pod(0).namespace, east.nodes[1].pods[0].v6().unwrap()),
            (&east.gateway().namespace, west.gateway().underlay_address()),
        ];
        for (from, to) in pairs {
            let ping = traffic::ping(from, to, 2, &[]).unwrap();
            assert_eq!(ping.received, 2, "{} to {to}, {underlay:?}", from.name());
        }
        let stranger = traffic::ping(&east.pod(0).namespace, west.pod(0).v4().unwrap(), 2, &[]).unwrap();
        assert_eq!(stranger.received, 0, "clusters must not reach each other without a gateway");
    }
}

#[test]
fn the_responder_tells_how_it_sees_its_clients() {
    let Some(_turn) = root_test("the_responder_tells_how_it_sees_its_clients") else { return };
    let lab = Lab::new().unwrap();
    let plan = lab.build(&Topology::two_clusters()).unwrap();
    let (client, server) = (plan.cluster("east").pod(0), plan.cluster("east").pod(1));
    let responder = Responder::start(&server.namespace).unwrap();
    let bytes: Vec<u8> = (0..200_000_u32).map(|n| n.to_le_bytes()[0] ^ n.to_le_bytes()[1]).collect();

    for address in server.ips() {
        let to = (address, responder.port()).into();
        traffic::send_tcp(&client.namespace, to, &bytes, Duration::from_secs(30))
            .unwrap()
            .check(&bytes)
            .unwrap();
        traffic::send_udp(&client.namespace, to, &bytes[..1200], Duration::from_secs(30))
            .unwrap()
            .check(&bytes[..1200])
            .unwrap();
    }
}

#[test]
fn faults_break_the_underlay_and_end_when_dropped() {
    let Some(_turn) = root_test("faults_break_the_underlay_and_end_when_dropped") else { return };
    let lab = Lab::new().unwrap();
    let plan = lab.build(&Topology::two_clusters()).unwrap();
    let (east, west) = (plan.cluster("east").gateway(), plan.cluster("west").gateway());
    let lost = || {
        let ping = traffic::ping(&east.namespace, west.underlay_address(), 20, &[]).unwrap();
        ping.sent - ping.received
    };
    let large =
        || traffic::ping(&east.namespace, west.underlay_address(), 2, &["-s", "1400"]).unwrap().received;
    assert_eq!(lost(), 0);

    let fault =
        Fault::ingress(&west.namespace, "eth0", "ip protocol icmp numgen inc mod 4 == 0 counter drop")
            .unwrap();
    assert_eq!(lost(), 5);
    assert_eq!(fault.hits().unwrap(), 5);
    drop(fault);
    let fault = Fault::black_hole_above(&west.namespace, "eth0", 1300).unwrap();
    assert_eq!((lost(), large()), (0, 0));
    drop(fault);
    let fault = Fault::link_down(&west.namespace, "eth0").unwrap();
    assert_eq!(lost(), 20);
    drop(fault);

    assert_eq!(large(), 2);
}

#[test]
fn a_capture_holds_all_that_came_before_its_end() {
    let Some(_turn) = root_test("a_capture_holds_all_that_came_before_its_end") else { return };
    let lab = Lab::new().unwrap();
    let plan = lab.build(&Topology::two_clusters()).unwrap();
    let (east, west) = (plan.cluster("east").gateway(), plan.cluster("west").gateway());
    let capture = Capture::start(&lab, &plan.wan, "br0", "icmp or icmp6").unwrap();
    // As on a machine that has no time for it while the packets come.
    capture.program().pause().unwrap();
    let ping = traffic::ping(&east.namespace, west.underlay_address(), 20, &["-i", "0.002"]).unwrap();
    assert_eq!(ping.received, 20);
    capture.program().resume().unwrap();
    let echoes = "icmp[icmptype] == icmp-echo or icmp6[icmp6type] == icmp6-echo";
    assert_eq!(capture.finish().unwrap().count(echoes).unwrap(), 20);
}
