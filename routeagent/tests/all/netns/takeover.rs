//! Nodes on which Submariner's own programs have run, as they were recorded: what is there goes, and nothing of what flows is
//! lost.

use std::collections::BTreeSet;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::between_nodes::plan;
use super::cluster::{NODES, cluster, everything, talk};
use super::lab::{Ends, Lab, finish};

/// What `iptables-save` printed on a gateway node; the own cluster there has 10.2.0.0/16.
const GATEWAY: &str = include_str!("../../data/submariner/gateway.iptables");
const GLOBALNET: &str = include_str!("../../data/submariner/globalnet.iptables");
/// Between two datagrams of nodes that move over.
const PROBE_EVERY: Duration = Duration::from_millis(2);

/// A node of `cluster`: namespace, host name, third and last octet of its address.
pub(crate) type Node = (&'static str, &'static str, u8, u8);

/// Returns a recording with this lab's networks, and without what is not Submariner's. Its jumps come first, as its own
/// programs put them.
fn recorded(text: &str, pod_gateway: &str) -> String {
    let is_submariners =
        |line: &&str| !line.starts_with('-') || line.contains("SUBMARINER") || line.contains("SM-GN");
    let text = text.replace("10.2.1.1\n", &format!("{pod_gateway}\n"));
    let text = text
        .replace("10.2.0.0/16", "OWN")
        .replace("10.1.0.0/16", "10.2.0.0/16")
        .replace("OWN", "10.1.0.0/16");
    let text = text.replace("100.1.0.0/16", "100.66.0.0/16");
    let lines = text.lines().filter(is_submariners).map(|line| {
        ["INPUT", "FORWARD", "OUTPUT", "PREROUTING", "POSTROUTING"]
            .iter()
            .find_map(|base| {
                line.strip_prefix(&format!("-A {base} ")).map(|rule| format!("-I {base} 1 {rule}\n"))
            })
            .unwrap_or_else(|| format!("{line}\n"))
    });
    lines.filter(|line| !line.starts_with(':') || line.contains(" - ")).collect()
}

/// Puts on a node what upstream's route agent has on it, without the device's name of the gateway.
pub(crate) fn as_upstreams_agent(lab: &Lab, (place, _, net, host): Node, restore: &str) {
    for set in ["SUBMARINER-LOCALCIDRS", "SUBMARINER-REMOTECIDRS"] {
        lab.run(place, "ipset", &["create", set, "hash:net"]);
    }
    lab.run(place, "ipset", &["add", "SUBMARINER-LOCALCIDRS", "10.1.0.0/16"]);
    lab.run(place, "ipset", &["add", "SUBMARINER-REMOTECIDRS", "10.2.0.0/16"]);
    lab.feed_with(place, &[restore, "--noflush"], &recorded(GATEWAY, &format!("10.1.{net}.1")));
    let peer = if place == "gw1" { "" } else { "remote 172.31.1.11 " };
    // The kernel takes any other: states are compared.
    let address = format!("address ce:00:00:00:{net:02x}:{host:02x}");
    let link = format!("link add vx-submariner {address} type vxlan id 100 {peer}dstport 4800 nolearning");
    lab.ip(place, &link.split(' ').collect::<Vec<_>>());
    lab.address(place, "vx-submariner", &[&format!("240.31.{net}.{host}/8")]);
    lab.run(place, "sysctl", &["-qw", "net.ipv4.conf.vx-submariner.rp_filter=2"]);
    if place == "gw1" {
        for (_, _, net, host) in NODES {
            let entry = format!("fdb append 00:00:00:00:00:00 dev vx-submariner dst 172.31.{net}.{host}");
            lab.run(place, "bridge", &entry.split(' ').collect::<Vec<_>>());
        }
        lab.ip(place, &["rule", "add", "lookup", "150", "priority", "150", "protocol", "0"]);
        let out = "route add 10.2.0.0/16 dev submariner src 10.1.1.1 table 150 proto static scope link";
        lab.ip(place, &out.split(' ').collect::<Vec<_>>());
    } else {
        let route = "route add 10.2.0.0/16 via 240.31.1.11 dev vx-submariner proto static";
        lab.ip(place, &route.split(' ').collect::<Vec<_>>());
    }
}

/// Lets through what upstream's programs hand to the network plugin: its answers to other nodes' pods take that way.
pub(crate) fn open(lab: &Lab, place: &str) {
    lab.run(place, "sysctl", &["-qw", "net.ipv4.conf.all.rp_filter=2"]);
    for chain in ["INPUT", "FORWARD"] {
        lab.run(place, "iptables-nft", &["-P", chain, "ACCEPT"]);
    }
}

/// Names of everything of Submariner's that a node has.
fn submariners(lab: &Lab, place: &str) -> BTreeSet<String> {
    let listings = ["iptables-nft-save", "iptables-legacy-save"].map(|save| lab.run(place, save, &[]));
    let sets = lab.run(place, "ipset", &["list", "-n"]);
    let rules = lab.ip(place, &["rule"]);
    let is_theirs = |line: &&str| {
        let is_named = line.contains("SUBMARINER") || line.contains("SM-GN");
        let is_ours = line.contains("comment trieste") || line.starts_with(':') && is_shared(line);
        let is_rule = line.ends_with("lookup 150") || line.ends_with("lookup 100");
        (is_named && !is_ours) || is_rule
    };
    let all = listings.iter().map(String::as_str).chain([&*sets, &*rules]).flat_map(str::lines);
    all.filter(is_theirs).map(|line| line.split(" [").next().unwrap().to_owned()).collect()
}

/// Returns `true` for a chain whose name ours has too.
fn is_shared(line: &str) -> bool {
    line.contains("SUBMARINER-INPUT") || line.contains("SUBMARINER-FORWARD")
}

/// Sends a datagram at an interval while `work` runs, each of which is to be answered; returns how many were sent and answered,
/// and the longest time without an answer.
pub(crate) fn answered_meanwhile(
    lab: &Lab,
    from: &str,
    interval: Duration,
    work: impl FnOnce(),
) -> (usize, usize, Duration) {
    let server = lab.inside("remote", || UdpSocket::bind("10.2.0.9:7000")).unwrap();
    let client = lab.inside(from, || UdpSocket::bind("0.0.0.0:7001")).unwrap();
    for socket in [&server, &client] {
        socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    }
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _ends = Ends(&is_over);
        scope.spawn(|| {
            let mut buffer = [0; 64];
            loop {
                match server.recv_from(&mut buffer) {
                    Ok((length, from)) => drop(server.send_to(&buffer[..length], from)),
                    Err(_) if is_over.load(Ordering::Relaxed) => return,
                    Err(_) => {}
                }
            }
        });
        let receiver = scope.spawn(|| {
            let (mut longest, mut last, mut count, mut buffer) =
                (Duration::ZERO, Instant::now(), 0_usize, [0; 64]);
            loop {
                match client.recv_from(&mut buffer) {
                    Ok(_) => {
                        count += 1;
                        longest = longest.max(last.elapsed());
                        last = Instant::now();
                    }
                    Err(_) if is_over.load(Ordering::Relaxed) => return (count, longest),
                    Err(_) => {}
                }
            }
        });
        let sender = scope.spawn(|| {
            let mut count = 0_usize;
            while !is_over.load(Ordering::Relaxed) {
                // The node may refuse for a moment.
                let _ = client.send_to(b"probe", "10.2.0.9:7000");
                count += 1;
                thread::sleep(interval);
            }
            count
        });
        thread::sleep(Duration::from_millis(500));
        work();
        thread::sleep(Duration::from_millis(500));
        is_over.store(true, Ordering::Relaxed);
        let (sent, (answered, longest)) = (sender.join().unwrap(), receiver.join().unwrap());
        (sent, answered, longest)
    })
}

#[test]
fn nodes_move_from_upstreams_route_agent_to_ours_under_traffic() {
    for restore in ["iptables-nft-restore", "iptables-legacy-restore"] {
        let Some(lab) = cluster() else { return };
        NODES.iter().for_each(|(place, ..)| open(&lab, place));
        if restore.contains("legacy") {
            // Who masquerades does it in the same half of the kernel.
            let masquerade = "-t nat -A POSTROUTING -s 10.1.0.0/16 ! -d 10.1.0.0/16 -j MASQUERADE";
            for (place, ..) in NODES {
                lab.run(place, "iptables-nft", &["-t", "nat", "-F", "POSTROUTING"]);
                lab.run(place, "iptables-legacy", &masquerade.split(' ').collect::<Vec<_>>());
            }
        }
        // Upstream's programs make tables of iptables, which stay.
        let tables = [("nat", "POSTROUTING"), ("mangle", "POSTROUTING"), ("filter", "FORWARD")]
            .map(|(table, chain)| format!("*{table}\n-A {chain} -j RETURN\n-D {chain} -j RETURN\nCOMMIT\n"));
        for ((place, ..), table) in
            NODES.iter().flat_map(|node| tables.iter().map(move |table| (node, table)))
        {
            lab.feed_with(place, &[restore, "--noflush"], table);
        }
        let before: Vec<String> = NODES.iter().map(|(place, ..)| everything(&lab, place)).collect();
        for node in NODES {
            as_upstreams_agent(&lab, node, restore);
            assert!(submariners(&lab, node.0).len() > 9, "{restore}: {:?}", submariners(&lab, node.0));
        }
        talk(&lab, "pod-w1", "remote", "10.2.0.9:80", "10.2.0.9:80").unwrap();

        let (sent, answered, gap) = answered_meanwhile(&lab, "pod-w1", PROBE_EVERY, || {
            for (place, hostname, ..) in NODES {
                finish(&mut lab.agent_on(place, hostname, &["--once"]));
                // Longer than any pass: what another node's agent mends does not hide what this one has broken.
                thread::sleep(Duration::from_secs(1));
            }
        });

        eprintln!("{restore}: {answered} answers to {sent}, none for {gap:?} at most");
        for (place, hostname, ..) in NODES {
            assert!(submariners(&lab, place).is_empty(), "{restore} {place}: {:?}", submariners(&lab, place));
            assert_eq!(plan(&lab, place, hostname), "nothing to change\n", "{place}");
        }
        assert_eq!(
            talk(&lab, "pod-w1", "remote", "10.2.0.9:80", "10.2.0.9:80").unwrap().to_string(),
            "10.1.3.10"
        );
        // What is under way at the moment in which a device gets its other MAC address: at most one of each node.
        assert!(
            answered + NODES.len() >= sent && answered <= sent,
            "{restore}: {answered} answers to {sent}, none for {gap:?}"
        );
        for ((place, ..), before) in NODES.iter().zip(&before) {
            lab.uninstall_on(place);
            let after = everything(&lab, place);
            let more: Vec<&str> = after.lines().filter(|line| !before.contains(line)).collect();
            let less: Vec<&str> = before.lines().filter(|line| !after.contains(line)).collect();
            assert!(after == *before, "{restore} {place}: more: {more:#?}, less: {less:#?}");
        }
    }
}

#[test]
fn what_upstreams_gateway_and_globalnet_have_left_goes_once_the_gateway_is_ours() {
    let Some(lab) = cluster() else { return };
    let place = "gw1";
    for set in ["SM-GN-HRPMITVCAUZHJWIHTKTKHSW2N", "SM-GN-NWZYHW74IWH7EXBVQJBJD2BVX"] {
        lab.run(place, "ipset", &["create", set, "hash:ip"]);
    }
    lab.feed_with(place, &["iptables-nft-restore", "--noflush"], &recorded(GLOBALNET, "10.1.1.1"));
    lab.ip(place, &["rule", "add", "lookup", "100", "priority", "100", "protocol", "0"]);
    let device = "link add vxlan-tunnel type vxlan id 1000 dstport 4500 nolearning udpcsum";
    lab.ip(place, &device.split(' ').collect::<Vec<_>>());
    lab.address(place, "vxlan-tunnel", &["241.31.1.11/8"]);
    let route = "route add 10.2.0.0/16 via 241.31.2.11 dev vxlan-tunnel src 10.1.1.1 metric 100 table 100";
    lab.ip(place, &route.split(' ').collect::<Vec<_>>());
    let policies = [
        ("10.1.0.0/16", "10.2.0.0/16", "out"),
        ("10.2.0.0/16", "10.1.0.0/16", "in"),
        ("10.2.0.0/16", "10.1.0.0/16", "fwd"),
    ];
    for (source, destination, direction) in policies {
        let ends = if direction == "out" {
            ["172.31.1.11", "203.0.113.21"]
        } else {
            ["203.0.113.21", "172.31.1.11"]
        };
        policy(&lab, place, (source, destination, direction), ends);
    }
    // Somebody else's, with one end of the same.
    policy(&lab, place, ("10.1.0.0/16", "192.0.2.0/24", "out"), ["172.31.1.11", "203.0.113.99"]);
    let xfrm = || lab.ip(place, &["xfrm", "policy"]);
    let all = |lab: &Lab| {
        let theirs = submariners(lab, place).len();
        let has_device = lab.ip(place, &["link"]).contains("vxlan-tunnel");
        (theirs, has_device, xfrm().matches("203.0.113.21").count())
    };
    let before = all(&lab);
    assert!(before.0 > 15 && before.1 && before.2 == 3, "{before:?}");

    // While the gateway on this node is upstream's nothing of it goes.
    finish(&mut lab.agent_on(place, "a-gw1", &["--once"]));
    assert_eq!(all(&lab), before);

    lab.tell_term("a");
    finish(&mut lab.agent_on(place, "a-gw1", &["--once"]));
    assert_eq!(all(&lab), (0, false, 0), "{:?} {}", submariners(&lab, place), xfrm());
    assert_eq!(xfrm().matches("203.0.113.99").count(), 1, "{}", xfrm());
    // What kube-proxy made for globalnet's services is Kubernetes' own.
    assert!(lab.run(place, "iptables-nft-save", &["-t", "nat"]).contains("MASQUERADE"));
    assert_eq!(plan(&lab, place, "a-gw1"), "nothing to change\n");
}

/// Adds a policy of IPsec as libreswan does.
fn policy(lab: &Lab, place: &str, (source, destination, direction): (&str, &str, &str), ends: [&str; 2]) {
    let request = if ends.contains(&"203.0.113.21") { "16389" } else { "7" };
    let [from, to] = ends;
    let command = format!(
        "xfrm policy add src {source} dst {destination} dir {direction} priority 1753280 tmpl src {from} dst {to} proto esp reqid {request} mode tunnel"
    );
    lab.ip(place, &command.split(' ').collect::<Vec<_>>());
}
