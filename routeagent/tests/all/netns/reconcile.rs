//! Installing, repairing, following and removing.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use nix::sys::socket::{setsockopt, sockopt};

use super::lab::{eventually, finish, lab};

#[test]
fn a_gateway_node_gets_upstreams_routes_and_a_second_run_plans_nothing() {
    let lab = lab!();
    lab.join();

    lab.agent_once(&["--once"]);

    assert_eq!(
        lab.ip("node", &["rule"]),
        "0:\tfrom all lookup local\n140:\tfrom all fwmark 0x540000/0xff0000 iif lo lookup main proto 150\n\
         150:\tfrom all lookup 150 proto 150\n32766:\tfrom all lookup main\n32767:\tfrom all lookup default\n"
    );
    assert_eq!(
        lab.ip("node", &["route", "show", "table", "150"]),
        "10.2.0.0/16 dev submariner proto static scope link src 10.1.1.1 dead linkdown \n\
         unreachable 10.2.0.0/16 proto static metric 4278198272 \n\
         100.66.0.0/16 dev submariner proto static scope link src 10.1.1.1 dead linkdown \n\
         unreachable 100.66.0.0/16 proto static metric 4278198272 \n"
    );
    assert_eq!(
        lab.ip("node", &["-6", "route", "show", "table", "150"]),
        "fd00:2::/48 dev submariner proto static src fd00:1::1 metric 1024 dead linkdown mtu 1420 pref medium\n\
         unreachable fd00:2::/48 dev lo proto static metric 4278198272 pref medium\n"
    );
    for (setting, value) in
        [("accept_local", 1), ("rp_filter", 0), ("forwarding", 1), ("ignore_routes_with_linkdown", 1)]
    {
        let text = lab.run("node", "sysctl", &["-n", &format!("net.ipv4.conf.submariner.{setting}")]);
        assert_eq!(text.trim(), value.to_string(), "{setting}");
    }
    assert_eq!(lab.plan(), "nothing to change\n");
}

#[test]
fn uninstalling_leaves_everything_of_others_byte_for_byte() {
    let lab = lab!();
    lab.join();
    foreign_state(&lab);
    let before = lab.everything();

    lab.agent_once(&["--once"]);
    let installed = lab.everything();
    for line in before.lines() {
        assert!(installed.contains(line), "`{line}` is gone while installed");
    }
    assert_eq!(lab.plan(), "nothing to change\n");
    lab.uninstall();

    assert_eq!(lab.everything(), before);
    lab.uninstall();
    assert_eq!(lab.everything(), before);
}

/// Things that look like ours in one respect or another.
fn foreign_state(lab: &super::lab::Lab) {
    for family in ["-4", "-6"] {
        lab.ip(
            "node",
            &[family, "rule", "add", "pref", "140", "fwmark", "0x540000/0xff0000", "lookup", "100"],
        );
        lab.ip("node", &[family, "rule", "add", "pref", "150", "iif", "eth0", "lookup", "150"]);
        lab.ip("node", &[family, "rule", "add", "pref", "149", "lookup", "149"]);
    }
    for route in [
        // Another author's, in the gateway table and at our metric in the main table.
        &["192.0.2.0/24", "dev", "eth0", "table", "150", "proto", "bird"][..],
        &["unreachable", "192.0.2.0/24", "metric", "4278198272", "proto", "bird"],
        // Our protocol, but not our metric, kind or table.
        &["unreachable", "10.2.0.0/16", "metric", "7", "proto", "static"],
        &["blackhole", "10.3.0.0/16", "metric", "4278198272", "proto", "static"],
        &["unreachable", "10.2.0.0/16", "metric", "4278198272", "proto", "static", "table", "100"],
        &["unreachable", "fd00:2::/48", "metric", "7", "proto", "static"],
        &["unreachable", "fd00:9::/48", "metric", "4278198272", "proto", "ra"],
    ] {
        lab.ip("node", &[&["route", "add"], route].concat());
    }
    lab.nft(
        "node",
        "
table inet other {
    set remote4 { type ipv4_addr; }
    chain source-guard { type filter hook prerouting priority raw; ip saddr @remote4 drop; }
}
table ip trieste {
    chain c { ip saddr 10.2.0.0/16 counter; }
}
",
    );
}

#[test]
fn plugin_cilium_marked_sockets_reach_the_nodes_own_addresses_and_the_rule_of_an_earlier_version_goes() {
    let lab = lab!();
    lab.join();
    // Cilium's proxy needs rules before the local table's.
    for family in ["-4", "-6"] {
        lab.ip("node", &[family, "rule", "add", "pref", "100", "lookup", "local"]);
        lab.ip("node", &[family, "rule", "delete", "pref", "0"]);
        let former = ["fwmark", "0x540000/0xff0000", "iif", "lo", "lookup", "main", "protocol", "150"];
        lab.ip("node", &[&[family, "rule", "add", "pref", "90"], &former[..]].concat());
    }
    let reaches = || {
        let own = ["172.31.1.11:7777", "[fd31::11]:7777"].map(|text| text.parse::<SocketAddr>().unwrap());
        lab.inside("node", || own.map(|own| marked(own).is_ok()))
    };
    assert_eq!(reaches(), [false, false], "an earlier version's rule comes first");

    lab.agent_once(&["--once"]);

    assert_eq!(reaches(), [true, true]);
    assert!(!lab.ip("node", &["rule"]).contains("90:"));
}

/// Has a socket with our mark send to an address of this node, and another one wait for that.
fn marked(own: SocketAddr) -> std::io::Result<()> {
    let server = UdpSocket::bind(own)?;
    server.set_read_timeout(Some(Duration::from_millis(500)))?;
    let client = UdpSocket::bind(SocketAddr::new(own.ip(), 0))?;
    setsockopt(&client, sockopt::Mark, &0x54_0000)?;
    client.send_to(b"x", own)?;
    server.recv_from(&mut [0; 8]).map(drop)
}

#[test]
fn drift_is_repaired_within_seconds() {
    let lab = lab!();
    lab.join();
    let _agent = lab.start_agent();
    eventually("everything is installed", || lab.plan() == "nothing to change\n");

    let damage: [&[&str]; 6] = [
        &["route", "del", "10.2.0.0/16", "dev", "submariner", "table", "150"],
        &["route", "del", "unreachable", "100.66.0.0/16", "metric", "4278198272"],
        &[
            "route",
            "replace",
            "100.66.0.0/16",
            "dev",
            "eth0",
            "table",
            "150",
            "proto",
            "static",
            "scope",
            "link",
        ],
        &["-6", "route", "flush", "table", "150"],
        &["rule", "del", "pref", "150"],
        &["-6", "rule", "add", "pref", "150", "lookup", "150", "protocol", "boot"],
    ];
    for arguments in damage {
        lab.ip("node", arguments);
        eventually(&format!("{arguments:?} is repaired"), || lab.plan() == "nothing to change\n");
    }
    lab.run("node", "sysctl", &["-qw", "net.ipv4.conf.submariner.ignore_routes_with_linkdown=0"]);
    lab.run("node", "nft", &["flush", "chain", "inet", "trieste", "source-guard"]);
    lab.run("node", "nft", &["add", "element", "inet", "trieste", "gateways4", "{ 10.2.9.9 }"]);
    eventually("settings and filter are repaired", || lab.plan() == "nothing to change\n");
    assert!(!lab.agent_log().contains("ERROR"), "{}", lab.agent_log());
}

#[test]
fn a_flushed_filter_is_back_before_a_pass_has_begun() {
    // A pass begins no earlier than this after an event (`schedule.rs`).
    const BEFORE_A_PASS: Duration = Duration::from_millis(100);
    let lab = lab!();
    lab.join();
    let _agent = lab.start_agent();
    eventually("everything is installed", || lab.plan() == "nothing to change\n");
    let before = lab.run("node", "nft", &["-s", "list", "table", "inet", "trieste"]);

    // Until once it was as quick as that, of some: others use the machine, too.
    let mut times = Vec::new();
    while times.len() < 15 && times.iter().all(|took| *took >= BEFORE_A_PASS) {
        // More often than once a second is left to passes.
        std::thread::sleep(Duration::from_millis(1200));
        lab.run("node", "nft", &["flush", "ruleset"]);
        let flushed = Instant::now();
        while !lab.run("node", "nft", &["list", "tables"]).contains("inet trieste") {
            assert!(flushed.elapsed() < Duration::from_secs(15), "{}", lab.agent_log());
        }
        times.push(flushed.elapsed());
    }

    eprintln!("the filter is back after {times:?}");
    assert!(times.iter().min().is_some_and(|best| *best < BEFORE_A_PASS), "{times:?}");
    assert_eq!(lab.run("node", "nft", &["-s", "list", "table", "inet", "trieste"]), before);
    eventually("nothing else is missing", || lab.plan() == "nothing to change\n");
}

#[test]
fn clusters_that_come_and_go_are_followed() {
    let lab = lab!();
    lab.join();
    let _agent = lab.start_agent();
    eventually("b is routed", || routed(&lab, "10.2.0.0/16"));

    lab.put_endpoint("c", "c-gw1", &["10.3.0.0/16"], "203.0.113.31", "");
    eventually("c is routed", || routed(&lab, "10.3.0.0/16"));
    lab.delete_endpoint("c");
    eventually("c is gone", || !lab.everything().contains("10.3.0.0/16"));
    assert!(routed(&lab, "10.2.0.0/16"));
}

#[test]
fn a_cluster_that_vanishes_stays_closed_for_a_while_also_across_a_restart() {
    let lab = lab!();
    lab.join();
    let grace = ["--once", "--close-grace=600"];
    lab.agent_once(&grace);
    lab.delete_endpoint("b");

    for _ in 0..2 {
        let text = lab.agent_once(&grace);
        assert!(text.contains("network 10.2.0.0/16 has vanished from the store"), "{text}");
        assert!(!routed(&lab, "10.2.0.0/16"));
        for table in ["main", "150"] {
            let routes = lab.ip("node", &["route", "show", "table", table]);
            assert!(routes.contains("unreachable 10.2.0.0/16"), "{routes}");
        }
        assert!(lab.run("node", "nft", &["list", "table", "inet", "trieste"]).contains("10.2.0.0/16"));
    }
    lab.agent_once(&["--once"]);
    assert!(!lab.everything().contains("10.2.0.0/16"));
}

#[test]
fn a_cluster_stays_closed_while_its_gateway_fails_over() {
    let lab = lab!();
    lab.join();
    lab.put_cluster("b", &["100.66.0.0/16", "10.2.0.0/16"]);
    let _agent = lab.start_agent();
    eventually("b is routed", || routed(&lab, "10.2.0.0/16"));

    lab.delete_endpoint("b");
    eventually("b is not routed", || !routed(&lab, "10.2.0.0/16"));

    let main = lab.ip("node", &["route", "show", "table", "main"]);
    assert!(main.contains("unreachable 10.2.0.0/16"), "{main}");
}

#[test]
fn a_node_that_stops_being_a_gateway_loses_rules_and_routes_and_stays_closed() {
    let lab = lab!();
    lab.join();
    let _agent = lab.start_agent();
    eventually("b is routed", || routed(&lab, "10.2.0.0/16"));

    lab.delete_endpoint("a");
    eventually("the rules are gone", || !lab.ip("node", &["rule"]).contains("150"));
    eventually("table 150 is empty", || !lab.everything().contains("table 150"));

    assert!(lab.ip("node", &["route", "show", "table", "main"]).contains("unreachable 10.2.0.0/16"));
}

#[test]
fn a_device_that_appears_later_is_used() {
    let lab = lab!();
    lab.join();
    lab.ip("node", &["link", "del", "submariner"]);
    let _agent = lab.start_agent();
    eventually("it is missed", || lab.agent_log().contains("device submariner does not exist"));

    lab.add_tun();

    eventually("b is routed", || routed(&lab, "10.2.0.0/16"));
    let is_resolved = || {
        let log = lab.agent_log();
        log.lines().any(|line| line.contains("condition resolved") && line.contains("device submariner"))
    };
    eventually("its end is logged", is_resolved);
}

#[test]
fn a_stopped_agent_exits_with_0_and_leaves_everything_in_place() {
    let lab = lab!();
    lab.join();
    let mut agent = lab.start_agent();
    eventually("everything is installed", || lab.plan() == "nothing to change\n");
    let before = lab.everything();

    agent.signal("TERM");

    assert_eq!(agent.wait(), Some(0));
    assert_eq!(lab.everything(), before);
}

#[test]
fn a_store_that_is_away_changes_nothing_also_across_a_restart() {
    let lab = lab!();
    lab.join();
    let mut agent = lab.start_agent();
    eventually("everything is installed", || lab.plan() == "nothing to change\n");
    let before = lab.everything();
    let elsewhere = lab.store().with_extension("away");

    std::fs::rename(lab.store(), &elsewhere).unwrap();
    eventually("it is told", || lab.agent_log().contains("the store is away"));
    agent.kill();
    let _agent = lab.start_agent();
    eventually("it is told again", || lab.agent_log().contains("the store is away"));

    assert_eq!(lab.everything(), before);
    let output = lab.agent(&["--once"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn without_nft_the_rest_is_applied_and_the_package_is_named() {
    let lab = lab!();
    lab.join();
    let mut command = lab.agent(&["--once"]);
    // `ip netns exec` is found by our PATH, the agent gets one without anything.
    let arguments: Vec<_> = command.get_args().map(std::ffi::OsStr::to_owned).collect();
    let (exec, agent) = arguments.split_at(3);
    command = std::process::Command::new("ip");
    command.args(exec).args(["/usr/bin/env", "PATH=/nonexistent"]).args(agent);

    let text = finish(&mut command);

    assert!(text.contains("install the package nftables"), "{text}");
    assert!(routed(&lab, "10.2.0.0/16"));
    assert!(!lab.run("node", "nft", &["list", "ruleset"]).contains("trieste"));
}

#[test]
fn networks_that_overlap_are_refused_for_the_later_cluster_and_told() {
    let lab = lab!();
    lab.join();
    lab.put_endpoint(
        "c",
        "c-gw1",
        &["10.2.128.0/17", "10.1.0.0/24", "0.0.0.0/0", "10.3.0.0/16"],
        "203.0.113.31",
        "",
    );

    let text = lab.agent_once(&["--once"]);

    assert!(
        text.contains("10.2.128.0/17 of cluster c is refused: it overlaps 10.2.0.0/16 of cluster b"),
        "{text}"
    );
    assert!(
        text.contains("10.1.0.0/24 of cluster c is refused: it overlaps 10.1.0.0/16 of this cluster"),
        "{text}"
    );
    assert!(text.contains("0.0.0.0/0 of cluster c is refused"), "{text}");
    // As the gateway does: it connects to none of a cluster that overlaps. What is not local stays closed.
    assert!(routed(&lab, "10.2.0.0/16") && !routed(&lab, "10.3.0.0/16") && !routed(&lab, "10.2.128.0/17"));
    assert!(lab.ip("node", &["route", "show", "table", "150"]).contains("unreachable 10.3.0.0/16"));
    assert!(lab.ip("node", &["route", "get", "198.51.100.1"]).contains("dev eth0"));
}

fn routed(lab: &super::lab::Lab, network: &str) -> bool {
    // A table that was never written to does not exist, and cannot be asked for.
    lab.everything().contains(&format!("{network} dev submariner table 150"))
}

#[test]
fn the_documented_removal_by_hand_removes_everything() {
    let lab = lab!();
    lab.join();
    foreign_state(&lab);
    let before = lab.everything();
    lab.agent_once(&["--once"]);
    let page = include_str!("../../../../docs/packet-filter.md");
    let (_, after_mark) = page.split_once("<!-- run by routeagent/tests/all/netns -->\n```sh\n").unwrap();
    let (commands, _) = after_mark.split_once("```").unwrap();

    lab.run("node", "sh", &["-ec", commands]);

    assert_eq!(lab.everything(), before);
}
