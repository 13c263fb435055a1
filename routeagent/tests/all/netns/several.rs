//! A cluster with several active gateways: `gw1` and `w2` of `cluster.rs`, each with a device to the remote cluster, and
//! a third that is only known.
//!
//! ```text
//!   gw1 ── submariner ── tun0 ┌────────┐
//!                             │ remote │   counts by which gateway each flow comes
//!   w2  ── submariner ── tun1 └────────┘
//! ```

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, UdpSocket};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use trieste_control::notice::State;

use super::between_nodes::{plan, settled};
use super::cluster::{NODES, cluster, everything, install, talk};
use super::lab::{Lab, Process, SEEN, eventually};
use super::voices::{self, Voice};

const FIRST: &str = "submariner-cable-a";
const SECOND: &str = "submariner-cable-a-second";
const THIRD: &str = "submariner-cable-a-third";
/// Flows are told apart by their destination: that is what the kernel's choice goes by unless it is told otherwise.
const FLOWS: u8 = 200;

/// Makes the cluster with its gateways' objects, or ends the test where it is known that there is no root.
macro_rules! several {
    () => {
        match several() {
            Some(lab) => lab,
            None => return,
        }
    };
}

#[test]
fn a_notice_moves_the_flows_of_a_dead_gateway_and_no_others() {
    let lab = several!();
    // Nobody is on the third one's node: its flows are not seen.
    lab.put_member(THIRD, "a-w9", "172.31.9.99", "", None);
    let (_agents, first, second) = run(&lab);
    let before = flows(&lab);
    assert!(before.iter().all(|flows| flows.len() > 20), "{before:?}");
    assert!(before[0].is_disjoint(&before[1]));

    second.say_of(FIRST, State::Down);
    eventually("the first is left out", || members(&lab, "w1").len() == 2);
    let after = flows(&lab);
    assert_eq!(after[0], BTreeSet::new());
    assert!(before[1].is_subset(&after[1]), "a flow of a live gateway has moved");
    let moved: BTreeSet<u8> = after[1].difference(&before[1]).copied().collect();
    assert!(!moved.is_empty() && moved.is_subset(&before[0]), "{moved:?}");
    // What `show` and the RouteAgent object say.
    eventually("it is told", || {
        lab.agent_log_on("w1").contains("gateway a-gw1 gets no packets from this node")
    });

    // Buckets move when nothing has passed for two seconds; those that never saw a packet would move first.
    std::thread::sleep(Duration::from_secs(4));
    second.say_of(FIRST, State::Up);
    eventually("it is used again", || members(&lab, "w1").len() == 3);
    eventually("it has its share again", || {
        std::thread::sleep(Duration::from_secs(4));
        let again = flows(&lab);
        again[0].len() > 20 && again[1].is_subset(&after[1])
    });
    // A gateway that falls silent without anybody's word.
    drop(first);
    eventually("the first is missed", || members(&lab, "w1").len() == 2);
}

#[test]
fn a_notice_is_in_the_kernel_within_milliseconds() {
    let lab = several!();
    let (_agents, _first, second) = run(&lab);
    let mut monitor = lab.command("w1", "ip");
    let mut monitor = monitor.args(["-ts", "monitor", "nexthop"]).stdout(Stdio::piped()).spawn().unwrap();
    let group = format!("id {} group", 0x5452_0000_u32 + 4);
    let lines = Arc::new(Mutex::new(String::new()));
    let (output, into) = (BufReader::new(monitor.stdout.take().unwrap()), Arc::clone(&lines));
    std::thread::spawn(move || {
        for line in output.lines().map_while(Result::ok) {
            into.lock().unwrap().extend([line.as_str(), "\n"]);
        }
    });
    std::thread::sleep(Duration::from_millis(300));
    let mut told = Vec::new();
    for round in 0..40 {
        told.push(SystemTime::now().duration_since(UNIX_EPOCH).unwrap());
        let (state, left) = if round % 2 == 0 { (State::Down, 1) } else { (State::Up, 2) };
        second.say_of(FIRST, state);
        eventually("it is in the kernel", || members(&lab, "w1").len() == left);
    }
    // It may be behind: what it has not printed when it ends is lost.
    let last = *told.last().unwrap();
    eventually("the monitor has the last change", || {
        let lines = lines.lock().unwrap();
        lines.lines().rev().find(|line| line.contains(&group)).and_then(stamp).is_some_and(|at| at > last)
    });
    monitor.kill().unwrap();
    monitor.wait().unwrap();
    let lines = lines.lock().unwrap().clone();
    let mut groups: Vec<(&str, Duration)> =
        lines.lines().filter_map(|line| Some((line.split_once(&group)?.1, stamp(line)?))).collect();
    // The pass that follows may have looked at the kernel before it was told: it says the same once more then.
    groups.dedup_by_key(|(members, _)| *members);
    let changed: Vec<Duration> = groups.into_iter().map(|(_, at)| at).collect();
    let mut took: Vec<Duration> = told
        .iter()
        .map(|told| {
            let next = changed.iter().find(|changed| *changed > told).expect("each notice changes the group");
            *next - *told
        })
        .collect();
    took.sort();
    eprintln!("from a gateway's word to a worker's kernel: median {:?}, longest {:?}", took[20], took[39]);
    assert_eq!(changed.len(), 40, "{lines}");
    // On a machine that has time for it; others have their turns in between.
    assert!(took[0] < Duration::from_millis(20), "{took:?}");
}

#[test]
fn connections_whose_answers_come_by_another_gateway_pass_everybodys_filters() {
    let lab = several!();
    let (_agents, first, _second) = run(&lab);
    // What leaves goes by the second, what comes goes by the first.
    first.say(State::Draining);
    for (place, hostname, ..) in [NODES[0], NODES[1]] {
        eventually(&format!("{hostname} sends to the second"), || members(&lab, place).len() == 1);
    }
    for pod in ["pod-w1", "pod-gw1"] {
        let before = [counted(&lab, "out0"), counted(&lab, "out1")];
        for _ in 0..5 {
            talk(&lab, pod, "remote", "10.2.0.9:80", "10.2.0.9:80").unwrap();
        }
        let after = [counted(&lab, "out0"), counted(&lab, "out1")];
        assert_eq!(after[0], before[0], "{pod}");
        assert!(after[1] > before[1], "{pod}");
    }
    let seen = talk(&lab, "remote", "pod-w1", "10.1.3.10:80", "10.1.3.10:80").unwrap();
    assert_eq!(seen.to_string(), "10.2.0.9");
    assert_eq!(lab.leaked(), (0, 0));
}

#[test]
fn connections_whose_answers_come_by_another_gateway_pass_a_policy_by_connection_tracking() {
    let lab = several!();
    // The second has no other way to know the remote cluster's neighbour.
    lab.address("remote", "tun1", &["fd00:2::9/128"]);
    let (_agents, first, _second) = run(&lab);
    first.say(State::Draining);
    for (place, hostname, ..) in [NODES[0], NODES[1]] {
        eventually(&format!("{hostname} sends to the second"), || members(&lab, place).len() == 1);
    }
    let policy = |place: &str, also: &str| {
        let rules = "ct state established,related accept\nct state new tcp dport 80 accept\n";
        let chain = "chain pods {\ntype filter hook forward priority 0; policy accept;\n";
        let table = format!("table inet conduct {{\n{chain}{also}{rules}counter drop\n}}\n}}\n");
        lab.nft(place, &format!("table inet conduct\ndelete table inet conduct\n{table}"));
    };
    let remote = ["10.2.0.9:80", "[fd00:2::9]:80"];
    let to = |pod: &str, host: u8| {
        let there = [format!("10.1.{host}.10:80"), format!("[fd00:1:0:{host}::10]:80")];
        there.map(|address| talk(&lab, "remote", pod, &address, &address).map(drop))
    };
    let from = |pod: &str| remote.map(|address| talk(&lab, pod, "remote", address, address).map(drop));

    // A worker sees both halves of its pods' connections, whichever gateways they go by.
    policy("w1", "");
    let before = counted(&lab, "out1");
    assert_eq!((from("pod-w1"), to("pod-w1", 3)), ([Ok(()), Ok(())], [Ok(()), Ok(())]));
    assert!(counted(&lab, "out1") > before);
    let other = talk(&lab, "remote", "pod-w1", "10.1.3.10:81", "10.1.3.10:81");
    assert!(other.is_err(), "the policy is in force");

    // So does a gateway's node of those of its own.
    policy("gw1", "");
    assert_eq!((from("pod-gw1"), to("pod-gw1", 1)), ([Ok(()), Ok(())], [Ok(()), Ok(())]));
    // What only passes through it has no state there.
    policy("w2", "");
    assert!(from("pod-w1").iter().chain(&to("pod-w1", 3)).all(Result::is_err), "it is not tracked there");
    for place in ["gw1", "w2"] {
        policy(place, "ct state untracked accept\n");
    }
    for (pod, host) in [("pod-gw1", 1), ("pod-w1", 3), ("pod-w2", 4)] {
        assert_eq!((from(pod), to(pod, host)), ([Ok(()), Ok(())], [Ok(()), Ok(())]), "{pod}");
    }
    // Neither has one that is about their own pods' device alone.
    for place in ["gw1", "w2"] {
        policy(place, "iifname != cni0 oifname != cni0 accept\n");
    }
    assert_eq!((from("pod-w1"), to("pod-w1", 3)), ([Ok(()), Ok(())], [Ok(()), Ok(())]));
    assert_eq!(lab.leaked(), (0, 0));
}

#[test]
fn a_node_whose_gateway_process_is_dead_sends_by_the_others_and_two_dead_ones_do_not_go_round() {
    let lab = several!();
    install(&lab);
    talk(&lab, "pod-gw1", "remote", "10.2.0.9:80", "10.2.0.9:80").unwrap();
    // The device of a process that has died has no carrier.
    lab.ip("remote", &["link", "set", "tun0", "down"]);
    lab.ip("remote", &["route", "replace", "default", "via", "169.254.10.1", "src", "10.2.0.9"]);
    for pod in ["pod-gw1", "pod-w1", "pod-w2"] {
        talk(&lab, pod, "remote", "10.2.0.9:80", "10.2.0.9:80").unwrap();
    }
    assert_eq!(returned(&lab, "w2"), 0);

    lab.ip("remote", &["link", "set", "tun1", "down"]);
    let socket = lab.inside("pod-gw1", || UdpSocket::bind("0.0.0.0:0")).unwrap();
    // Ends of the connections before may come late and be counted as well.
    eventually("it comes to the second, which does not send it back", || {
        socket.send_to(b"marker", "10.2.0.9:9").unwrap();
        returned(&lab, "w2") > 0
    });
    assert_eq!((returned(&lab, "gw1"), lab.leaked()), (0, (0, 0)));
}

#[test]
fn next_hops_that_drift_are_repaired_others_stay_and_uninstalling_leaves_none() {
    let lab = several!();
    lab.ip("w1", &["nexthop", "add", "id", "77", "via", "172.31.3.1", "dev", "eth0"]);
    let before: Vec<String> = NODES.iter().map(|(place, ..)| everything(&lab, place)).collect();
    install(&lab);
    for (place, hostname, ..) in NODES {
        assert_eq!(plan(&lab, place, hostname), "nothing to change\n", "{place}");
    }
    let routes = lab.ip("w1", &["route", "show", "proto", "static"]);
    assert!(routes.contains("10.2.0.0/16 nhid 1414660100 src 10.1.3.1"), "{routes}");
    let group = lab.ip("w1", &["nexthop", "show", "id", "1414660100"]);
    assert!(group.contains("type resilient buckets 128"), "{group}");
    {
        let agents: Vec<_> =
            NODES.iter().map(|(place, hostname, ..)| lab.start_agent_on(place, hostname)).collect();
        settled(&lab);
        let one = *members(&lab, "w1").first().unwrap();
        for line in [
            "ip nexthop del id 1414660100".to_owned(),
            format!("ip nexthop del id {one}"),
            "ip nexthop flush proto 150".to_owned(),
            format!("ip nexthop replace id 1414660100 group {one} type resilient proto 150"),
            format!("ip nexthop replace id {one} via 240.31.7.7 dev vx-submariner proto 150"),
            "ip nexthop add id 1414660200 via 240.31.7.7 dev vx-submariner onlink proto 150".to_owned(),
            "ip link set vx-submariner down".to_owned(),
            "ip link del vx-submariner".to_owned(),
        ] {
            let words: Vec<&str> = line.split(' ').collect();
            lab.run("w1", words[0], &words[1..]);
            let since = Instant::now();
            eventually(&format!("`{line}` is repaired"), || {
                plan(&lab, "w1", "a-w1") == "nothing to change\n"
            });
            assert!(since.elapsed() < SEEN, "`{line}` took {:?}", since.elapsed());
        }
        talk(&lab, "pod-w1", "remote", "10.2.0.9:80", "10.2.0.9:80").unwrap();
        drop(agents);
    }
    for ((place, ..), before) in NODES.iter().zip(before) {
        lab.uninstall_on(place);
        let after = everything(&lab, place);
        assert_eq!(after, before, "{place}");
    }
    assert!(lab.ip("w1", &["nexthop"]).contains("id 77 via 172.31.3.1"));
}

fn several() -> Option<Lab> {
    let lab = cluster()?;
    lab.pair("w2", "submariner", "remote", "tun1");
    lab.address("w2", "submariner", &["169.254.10.1/24", "fd9a::1/64"]);
    lab.address("remote", "tun1", &["169.254.10.2/24", "fd9a::2/64"]);
    // Every address of the remote network is there.
    lab.ip("remote", &["route", "add", "local", "10.2.0.0/16", "dev", "lo"]);
    lab.nft(
        "remote",
        "table inet flows {
            set via0 { type ipv4_addr; flags dynamic; }
            set via1 { type ipv4_addr; flags dynamic; }
            counter out0 { }
            counter out1 { }
            chain in {
                type filter hook prerouting priority raw
                iifname tun0 counter name out0
                iifname tun1 counter name out1
                iifname tun0 udp dport 9 update @via0 { ip daddr }
                iifname tun1 udp dport 9 update @via1 { ip daddr }
            }
        }",
    );
    lab.tell_paths("a");
    lab.tell_paths("b");
    lab.put_member(FIRST, "a-gw1", "172.31.1.11", "10.1.1.1", Some(&voices::key(1)));
    lab.put_member(SECOND, "a-w2", "172.31.4.22", "10.1.4.1", Some(&voices::key(2)));
    Some(lab)
}

/// Starts the agents of all nodes and the voices of both gateways, and waits until they hear each other.
fn run(lab: &Lab) -> (Vec<Process>, Voice, Voice) {
    let first = Voice::start(lab, "gw1", "172.31.1.11", FIRST, 1);
    let second = Voice::start(lab, "w2", "172.31.4.22", SECOND, 2);
    let agents = NODES.iter().map(|(place, hostname, ..)| lab.start_agent_on(place, hostname)).collect();
    settled(lab);
    eventually("all agents listen", || first.agents() == NODES.len() && second.agents() == NODES.len());
    (agents, first, second)
}

/// The next hops that a node's packets for remote clusters are spread over.
fn members(lab: &Lab, place: &str) -> BTreeSet<u32> {
    let first = lab.try_ip(place, &["nexthop", "show", "id", "1414660098"]);
    let group = if first.contains("group") {
        first
    } else {
        lab.try_ip(place, &["nexthop", "show", "id", "1414660100"])
    };
    let list = group.split("group ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap_or_default();
    // Its own device is no other gateway.
    list.split('/').filter_map(|id| id.parse().ok()).filter(|id| *id != 0x5452_0000).collect()
}

/// Sends a datagram to each destination from the worker's pod; returns which came by which gateway.
fn flows(lab: &Lab) -> [BTreeSet<u8>; 2] {
    for set in ["via0", "via1"] {
        lab.run("remote", "nft", &["flush", "set", "inet", "flows", set]);
    }
    let socket = lab.inside("pod-w1", || UdpSocket::bind("0.0.0.0:0")).unwrap();
    for flow in 1..=FLOWS {
        // What is refused is sent all the same.
        let _ = socket.send_to(b"flow", (Ipv4Addr::new(10, 2, 1, flow), 9));
        let _ = socket.send_to(b"flow", (Ipv4Addr::new(10, 2, 1, flow), 9));
    }
    // Until no more come.
    let mut seen = arrived(lab);
    loop {
        std::thread::sleep(Duration::from_millis(200));
        let more = arrived(lab);
        if more == std::mem::replace(&mut seen, more.clone()) {
            return more;
        }
    }
}

/// Which datagrams came by which gateway.
fn arrived(lab: &Lab) -> [BTreeSet<u8>; 2] {
    ["via0", "via1"].map(|set| {
        let text = lab.run("remote", "nft", &["list", "set", "inet", "flows", set]);
        let addresses = text.split("10.2.1.").skip(1);
        addresses.filter_map(|rest| rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()).collect()
    })
}

fn counted(lab: &Lab, name: &str) -> u64 {
    lab.counter("remote", "flows", name)
}

fn returned(lab: &Lab, place: &str) -> u64 {
    lab.counter(place, "trieste", "returned")
}

/// The time at the beginning of a line of `ip -ts monitor`, since the Unix epoch.
fn stamp(line: &str) -> Option<Duration> {
    let text = line.strip_prefix('[')?.split(']').next()?;
    let (date, micros) = text.split_once('.')?;
    let output = Command::new("date").args(["-d", date, "+%s"]).output().ok()?;
    let seconds = String::from_utf8(output.stdout).ok()?.trim().parse().ok()?;
    Some(Duration::new(seconds, micros.parse::<u32>().ok()? * 1_000))
}
