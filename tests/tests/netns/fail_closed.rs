//! Fail closed: what one cluster says to another is never on the underlay in clear, whatever dies.
//!
//! ```text
//!   east pod ──▶ east gateway node ══ WAN bridge (tcpdump looks for the marker) ══ west gateway node ──▶ west pod
//! ```

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use trieste_tests::capture::{Capture, Frames};
use trieste_tests::flow::Flow;
use trieste_tests::guard::root_test;
use trieste_tests::pair::{CONNECT_TIMEOUT, Pair};
use trieste_tests::topology::Families;
use trieste_tests::traffic::{self, Responder};
use trieste_tests::wait::eventually;

const MARKER: &[u8] = b"nobody-but-the-west-may-read-this";
const INTERVAL: Duration = Duration::from_millis(5);
/// Inner addresses of both clusters, in tcpdump's words.
const INNER: &str = "net 10.1.0.0/16 or net 10.2.0.0/16 or net fd00:1::/48 or net fd00:2::/48";

#[test]
fn a_killed_gateway_leaks_nothing_and_is_back_without_broker_or_operator() {
    let test = "a_killed_gateway_leaks_nothing_and_is_back_without_broker_or_operator";
    let Some(_turn) = root_test(test) else { return };
    let mut pair = Pair::connected(Families::V4).unwrap();
    let responder = Responder::start(pair.pod_namespace("west")).unwrap();
    let targets: Vec<_> =
        pair.pod("west").ips().into_iter().map(|ip| SocketAddr::new(ip, responder.port())).collect();
    let wire = Capture::start(&pair.lab, &pair.plan.wan, "br0", "").unwrap();
    let [from, at] = ["east", "west"].map(|cluster| pair.pod_namespace(cluster).clone());
    let flows: Vec<_> = targets
        .iter()
        .map(|target| Flow::start(&from, (&at, target.ip()), MARKER, INTERVAL).unwrap())
        .collect();
    std::thread::sleep(Duration::from_millis(500));

    // The broker first, so that the restart has to do without.
    let broker = pair.lab.directory().join("broker");
    std::fs::rename(&broker, pair.lab.directory().join("broker-is-away")).unwrap();
    pair.east.kill_gateway().unwrap();
    std::thread::sleep(Duration::from_secs(2));
    let refused = traffic::send_udp(pair.pod_namespace("east"), targets[0], MARKER, Duration::ZERO);
    assert!(refused.is_err(), "there is no gateway, and yet an answer");
    pair.east.start_gateway().unwrap();
    let restarted = Instant::now();
    for target in &targets {
        traffic::send_udp(pair.pod_namespace("east"), *target, MARKER, CONNECT_TIMEOUT)
            .unwrap()
            .check(MARKER)
            .unwrap();
    }
    eprintln!("traffic is back {:?} after the restart", restarted.elapsed());
    std::thread::sleep(Duration::from_millis(500));

    for flow in flows {
        let seen = flow.finish();
        assert!(seen.answered() > 100 && seen.longest() > Duration::from_secs(2), "{seen:?}");
    }
    assert_nothing_in_clear(&wire.finish().unwrap());
}

#[test]
fn without_a_gateway_pods_are_told_so_at_once() {
    let Some(_turn) = root_test("without_a_gateway_pods_are_told_so_at_once") else { return };
    let mut pair = Pair::connected(Families::V4).unwrap();
    pair.east.kill_gateway().unwrap();
    let wire = Capture::start(&pair.lab, &pair.plan.wan, "br0", "").unwrap();

    for address in pair.pod("west").ips() {
        let run =
            pair.pod_namespace("east").run("ping").args(["-n", "-c", "2", "-W", "2", &address.to_string()]);
        let said = run.output().unwrap().stdout;
        assert!(said.contains("nreachable") || said.contains("No route"), "{said}");
    }

    assert_nothing_in_clear(&wire.finish().unwrap());
}

#[test]
fn after_a_reboot_the_route_agent_alone_keeps_traffic_in() {
    let Some(_turn) = root_test("after_a_reboot_the_route_agent_alone_keeps_traffic_in") else { return };
    let mut pair = Pair::connected(Families::V4).unwrap();
    pair.east.kill_gateway().unwrap();
    pair.east.kill_route_agent().unwrap();
    let node = &pair.east.node().namespace;
    // What a reboot does to the kernel; the directory on disk stays.
    let forget = "ip link del submariner; for family in -4 -6; do ip $family route flush type unreachable; \
                  ip $family route flush table 150; ip $family rule del pref 150; done";
    node.run("sh").args(["-c", forget]).stdout().unwrap();
    node.run("nft").args(["flush", "ruleset"]).stdout().unwrap();
    pair.east.start_route_agent().unwrap();
    let wire = Capture::start(&pair.lab, &pair.plan.wan, "br0", "").unwrap();

    for address in pair.pod("west").ips() {
        let node = &pair.east.node().namespace;
        eventually("an unreachable route", Duration::from_secs(5), || {
            let said = node.run("ip").args(["route", "get", &address.to_string()]).output()?;
            anyhow::ensure!(!said.status.success() || said.stdout.contains("unreachable"), "{}", said.stdout);
            Ok(())
        })
        .unwrap();
    }
    for address in pair.pod("west").ips() {
        let ping = traffic::ping(pair.pod_namespace("east"), address, 3, &["-p", "6d61726b6572"]).unwrap();
        assert_eq!(ping.received, 0);
    }

    assert_nothing_in_clear(&wire.finish().unwrap());
}

#[test]
fn a_remote_source_from_outside_of_the_cable_is_dropped() {
    let Some(_turn) = root_test("a_remote_source_from_outside_of_the_cable_is_dropped") else { return };
    let pair = Pair::connected(Families::Dual).unwrap();
    let (east, wan) = (pair.plan.cluster("east"), &pair.plan.wan);
    // An impostor on the WAN with an address of west's pods, and a neighbour with an address of nobody's.
    wan.ip("addr add 10.2.1.99/32 dev br0\naddr add fd00:2:0:1::99/128 dev br0 nodad\n\
         addr add 192.0.2.99/32 dev br0\nroute add 10.1.0.0/16 via 172.31.1.1\n\
         route add fd00:1::/48 via fd00:31::1:1")
        .unwrap();
    let inside = Capture::start(&pair.lab, &east.gateway().namespace, "cni0", "").unwrap();

    for (source, target) in [("10.2.1.99", east.pod(0).v4()), ("fd00:2:0:1::99", east.pod(0).v6())] {
        traffic::ping(wan, target.unwrap(), 3, &["-I", source]).unwrap();
    }
    traffic::ping(wan, east.pod(0).v4().unwrap(), 3, &["-I", "192.0.2.99"]).unwrap();

    let frames = inside.finish().unwrap();
    assert_eq!(frames.count("host 10.2.1.99 or host fd00:2:0:1::99").unwrap(), 0);
    assert!(frames.count("host 192.0.2.99").unwrap() > 0, "the guard must not touch other sources");
}

#[test]
fn uninstalling_leaves_the_node_as_it_was() {
    let Some(_turn) = root_test("uninstalling_leaves_the_node_as_it_was") else { return };
    let mut pair = Pair::connected(Families::Dual).unwrap();
    let node = pair.east.node().namespace.clone();
    let shown = |words: &[&str]| node.run(words[0]).args(&words[1..]).stdout().unwrap();
    assert!(shown(&["ip", "link"]).contains("submariner"));
    pair.east.stop().unwrap();

    pair.east.uninstall().unwrap();

    assert!(!shown(&["ip", "link"]).contains("submariner"));
    for words in
        [&["ip", "route", "show", "table", "all"][..], &["ip", "-6", "route", "show", "table", "all"]]
    {
        let routes = shown(words);
        assert!(!routes.contains("10.2.0.0/16") && !routes.contains("fd00:2::/48"), "{routes}");
        assert!(routes.contains("default via"), "the node's own routes must stay:\n{routes}");
    }
    for words in [&["ip", "rule"][..], &["ip", "-6", "rule"]] {
        assert_eq!(shown(words).lines().count(), if words.len() == 2 { 3 } else { 2 }, "{}", shown(words));
    }
    assert!(!shown(&["nft", "list", "ruleset"]).contains("trieste"));
}

fn assert_nothing_in_clear(frames: &Frames) {
    assert_eq!(frames.count_with(MARKER), 0, "the marker was seen on the underlay");
    assert_eq!(frames.count(INNER).unwrap(), 0, "packets with inner addresses were seen on the underlay");
}
