//! A whole cluster: workers, their gateway, and what other programs on the nodes do about it.

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use super::cluster::{NODES, cluster, connect_remote, everything, install, put_gateway, talk};
use super::lab::{Ends, Lab, SEEN, eventually, finish};

#[test]
fn pods_services_and_nodes_reach_each_other_with_their_own_sources_through_everybodys_filters() {
    let Some(lab) = cluster() else { return };
    install(&lab);

    for (place, _, net, _) in NODES {
        let pod = format!("pod-{place}");
        let (v4, v6) = (format!("10.1.{net}.10"), format!("fd00:1:0:{net}::10"));
        // Out, to a pod and to a service over there.
        assert_eq!(talk(&lab, &pod, "remote", "10.2.0.9:80", "10.2.0.9:80").unwrap().to_string(), v4);
        assert_eq!(talk(&lab, &pod, "remote", "100.66.0.9:80", "100.66.0.9:80").unwrap().to_string(), v4);
        assert_eq!(talk(&lab, &pod, "remote", "[fd00:2::9]:80", "[fd00:2::9]:80").unwrap().to_string(), v6);
        // In.
        let to = |address: &str| format!("{address}:80");
        assert_eq!(talk(&lab, "remote", &pod, &to(&v4), &to(&v4)).unwrap().to_string(), "10.2.0.9");
        let v6 = format!("[{v6}]");
        assert_eq!(talk(&lab, "remote", &pod, &to(&v6), &to(&v6)).unwrap().to_string(), "fd00:2::9");
        // The node itself is known over there by its address in the pod network.
        let seen = talk(&lab, place, "remote", "10.2.0.9:80", "10.2.0.9:80").unwrap();
        assert_eq!(seen.to_string(), format!("10.1.{net}.1"));
        let seen = talk(&lab, place, "remote", "[fd00:2::9]:80", "[fd00:2::9]:80").unwrap();
        assert_eq!(seen.to_string(), format!("fd00:1:0:{net}::1"));
    }
    // A service of this cluster whose pod is on another node than the gateway.
    let seen = talk(&lab, "remote", "pod-w2", "10.1.4.10:8080", "100.65.0.10:80").unwrap();
    assert_eq!(seen.to_string(), "10.2.0.9");
    assert_eq!(lab.leaked(), (0, 0));
}

#[test]
fn a_cluster_that_a_node_has_not_heard_of_gets_no_answer_in_clear() {
    let Some(lab) = cluster() else { return };
    lab.delete_endpoint("b");
    install(&lab);
    // A veth pair stands for the gateway's device: its questions for the next hop have to pass the node's strict filter.
    lab.run("remote", "sysctl", &["-qw", "net.ipv4.conf.all.arp_announce=2"]);
    let ways = [("10.1.1.10", "10.1.3.10"), ("fd00:1:0:1::10", "fd00:1:0:3::10")];
    let reaches = |pod: &str| {
        let ping = ["-c", "2", "-i", "0.2", "-W", "1", pod];
        lab.command("remote", "ping").args(ping).output().unwrap().status.success()
    };
    let unclosed = |place| ["unclosed4", "unclosed6"].map(|name| lab.counter(place, "trieste", name));

    // The gateway lets the new cluster's packets in before its own node has heard of it,
    for (near, far) in ways {
        assert!(!reaches(near) && !reaches(far), "{near} and {far}");
    }
    assert!(unclosed("gw1").iter().all(|packets| *packets > 0), "{:?}", unclosed("gw1"));
    // or before another node has,
    lab.put_endpoint("b", "b-gw1", &["100.66.0.0/16", "10.2.0.0/16", "fd00:2::/48"], "203.0.113.21", "");
    finish(&mut lab.agent_on("gw1", "a-gw1", &["--once"]));
    for (near, far) in ways {
        assert!(reaches(near) && !reaches(far), "{near} and {far}");
    }
    // Without a remote network of IPv6 the device between nodes does not take IPv6 at all.
    assert!(unclosed("w1")[0] > 0, "{:?}", unclosed("w1"));
    // until that has closed its networks.
    finish(&mut lab.agent_on("w1", "a-w1", &["--once"]));
    for (near, far) in ways {
        assert!(reaches(near) && reaches(far), "{near} and {far}");
    }
    assert_eq!(lab.leaked(), (0, 0));
}

#[test]
fn a_workers_state_is_upstreams_and_a_second_run_plans_nothing() {
    let Some(lab) = cluster() else { return };
    install(&lab);

    let routes = lab.ip("w1", &["route", "show", "proto", "static"]);
    let bridge = "unreachable 10.1.3.0/24 metric 4278198272 \n";
    assert_eq!(
        routes.strip_prefix(bridge).unwrap(),
        "10.2.0.0/16 via 240.31.1.11 dev vx-submariner src 10.1.3.1 mtu 1420 \n\
         unreachable 10.2.0.0/16 metric 4278198272 \n\
         100.66.0.0/16 via 240.31.1.11 dev vx-submariner src 10.1.3.1 mtu 1420 \n\
         unreachable 100.66.0.0/16 metric 4278198272 \n"
    );
    let delivery = lab.ip("gw1", &["route", "show", "table", "149"]);
    assert!(delivery.contains("10.1.3.0/24 via 240.31.3.21 dev vx-submariner proto static"), "{delivery}");
    assert!(lab.ip("gw1", &["rule"]).contains("149:\tfrom all iif submariner lookup 149"));
    let link = lab.ip("w1", &["-d", "link", "show", "vx-submariner"]);
    for part in
        ["vxlan id 100 local 172.31.3.21", "dstport 4800", "nolearning", "mtu 1450", "02:54:ac:1f:03:15"]
    {
        assert!(link.contains(part), "{part}: {link}");
    }
    assert!(lab.ip("w1", &["address", "show", "vx-submariner"]).contains("240.31.3.21/8"));
    let forwards = lab.run("w1", "bridge", &["fdb", "show", "dev", "vx-submariner"]);
    for entry in [
        "00:00:00:00:00:00 dst 172.31.1.11 self permanent",
        "02:54:ac:1f:01:0b dst 172.31.1.11 self permanent",
    ] {
        assert!(forwards.contains(entry), "{forwards}");
    }
    assert_eq!(setting(&lab, "w1", "vx-submariner"), "2");
    assert_eq!(setting(&lab, "w1", "cni0"), "0", "nothing of ours enters by it");
    for (place, hostname, ..) in NODES {
        assert_eq!(plan(&lab, place, hostname), "nothing to change\n", "{place}");
    }
}

#[test]
fn whatever_is_removed_or_altered_is_seen_and_back() {
    let Some(lab) = cluster() else { return };
    let _agents: Vec<_> =
        NODES.iter().map(|(place, hostname, ..)| lab.start_agent_on(place, hostname)).collect();
    settled(&lab);

    let damage = [
        "ip route del 10.2.0.0/16 via 240.31.1.11",
        "ip route del unreachable 10.2.0.0/16 metric 4278198272",
        "ip -6 route del fd00:2::/48 dev vx-submariner",
        "bridge fdb del 00:00:00:00:00:00 dev vx-submariner dst 172.31.1.11",
        "bridge fdb append 00:00:00:00:00:00 dev vx-submariner dst 172.31.1.99",
        "bridge fdb replace 02:54:ac:1f:01:0b dev vx-submariner dst 172.31.1.99",
        "ip -6 neigh del fe80::54:acff:fe1f:10b dev vx-submariner",
        "ip address del 240.31.3.21/8 dev vx-submariner",
        "ip link set vx-submariner down",
        "ip link set vx-submariner mtu 1400",
        "ip link set vx-submariner address 02:00:00:00:00:01",
        "ip link del vx-submariner",
        "sysctl -qw net.ipv4.conf.vx-submariner.rp_filter=1",
        "nft flush chain inet trieste keep-source",
        "nft delete rule inet trieste mss handle RULE",
        "nft add element inet trieste nodes4 { 192.0.2.1 }",
        "iptables-nft -D FORWARD 1",
        "iptables-nft -I FORWARD 1 -j DROP",
        "iptables-nft -F SUBMARINER-FORWARD",
        "ip6tables-nft -F INPUT",
        "nft flush ruleset",
    ];
    for line in damage {
        let mss = lab.run("w1", "nft", &["-a", "list", "chain", "inet", "trieste", "mss"]);
        let handle =
            mss.lines().find_map(|l| l.contains("tcp").then(|| l.rsplit(' ').next().unwrap())).unwrap();
        let line = line.replace("RULE", handle);
        let words: Vec<&str> = line.split(' ').collect();
        lab.run("w1", words[0], &words[1..]);
        let since = Instant::now();
        eventually(&format!("`{line}` is repaired"), || plan(&lab, "w1", "a-w1") == "nothing to change\n");
        assert!(since.elapsed() < SEEN, "`{line}` took {:?}", since.elapsed());
        if line == "iptables-nft -I FORWARD 1 -j DROP" {
            lab.run("w1", "iptables-nft", &["-D", "FORWARD", "-j", "DROP"]);
        }
    }
    assert_eq!(
        talk(&lab, "pod-w1", "remote", "10.2.0.9:80", "10.2.0.9:80").unwrap().to_string(),
        "10.1.3.10"
    );
}

#[test]
fn a_gateway_that_moves_takes_the_traffic_along_and_nothing_leaves_in_clear() {
    let Some(lab) = cluster() else { return };
    let _agents: Vec<_> =
        NODES.iter().map(|(place, hostname, ..)| lab.start_agent_on(place, hostname)).collect();
    settled(&lab);
    let works = || {
        ["pod-gw1", "pod-w1", "pod-w2"]
            .iter()
            .all(|pod| talk(&lab, pod, "remote", "10.2.0.9:80", "10.2.0.9:80").is_ok())
    };
    assert!(works());
    // Every millisecond, from the two nodes whose role changes, all the while.
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _ends = Ends(&over);
        for pod in ["pod-gw1", "pod-w1", "pod-w2"] {
            let (lab, over) = (&lab, &over);
            scope.spawn(move || {
                let socket = lab.inside(pod, || UdpSocket::bind("0.0.0.0:0")).unwrap();
                while !over.load(std::sync::atomic::Ordering::Relaxed) {
                    // Refused is as good as sent.
                    let _ = socket.send_to(b"marker", "10.2.0.9:9");
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
        }
        for (place, hostname, address, health) in
            [("w1", "a-w1", "172.31.3.21", "10.1.3.1"), ("gw1", "a-gw1", "172.31.1.11", "10.1.1.1")]
        {
            lab.delete_endpoint("a");
            std::thread::sleep(Duration::from_millis(300));
            connect_remote(&lab, place);
            put_gateway(&lab, hostname, address, health);
            settled(&lab);
            eventually("traffic is back", works);
        }
    });
    assert!(!lab.ip("w1", &["rule"]).contains("150"));
    assert_eq!(lab.leaked(), (0, 0));
}

#[test]
fn uninstalling_leaves_no_difference_on_any_node() {
    let Some(lab) = cluster() else { return };
    lab.run("w1", "iptables-legacy", &["-P", "FORWARD", "DROP"]);
    // Neighbours and connections that the kernel learns by itself are there before.
    let before: Vec<String> = NODES.iter().map(|(place, ..)| everything(&lab, place)).collect();
    for _ in 0..2 {
        install(&lab);
    }
    assert!(talk(&lab, "pod-w1", "remote", "10.2.0.9:80", "10.2.0.9:80").is_ok());

    for (place, ..) in NODES {
        lab.uninstall_on(place);
    }

    for ((place, ..), before) in NODES.iter().zip(before) {
        let after = everything(&lab, place);
        for line in after.lines().filter(|line| !before.contains(line)) {
            eprintln!("{place} more: {line}");
        }
        assert_eq!(after, before, "{place}");
    }
}

#[test]
fn where_the_plugin_delivers_its_device_is_loosened_and_given_back_its_setting() {
    let Some(lab) = cluster() else { return };
    let mut agent = lab.agent_on("w1", "a-w1", &["--once"]);
    agent.env("SUBMARINER_NETWORKPLUGIN", "calico");
    let text = finish(&mut agent);
    assert!(text.contains("reach this node by the network plugin"), "{text}");
    assert_eq!(setting(&lab, "w1", "cni0"), "2", "the node's setting is strict");
    lab.uninstall_on("w1");
    assert_eq!(setting(&lab, "w1", "cni0"), "0");
}

#[test]
fn a_worker_takes_what_the_network_delivers_while_upstreams_agent_is_on_the_gateways_node() {
    let Some(lab) = cluster() else { return };
    // As upstream's agent leaves it: workers send to the gateway's node, which sends by the network.
    let vxlan = "link add vx-submariner type vxlan id 100 dstport 4800 nolearning";
    lab.ip("gw1", &vxlan.split(' ').collect::<Vec<_>>());
    lab.address("gw1", "vx-submariner", &["240.31.1.11/8"]);
    let to_worker = "fdb append 00:00:00:00:00:00 dev vx-submariner dst 172.31.4.22";
    lab.run("gw1", "bridge", &to_worker.split(' ').collect::<Vec<_>>());
    let out = "route add 10.2.0.0/16 via 169.254.9.2 dev submariner table 150";
    lab.ip("gw1", &out.split(' ').collect::<Vec<_>>());
    lab.ip("gw1", &["rule", "add", "lookup", "150", "priority", "150"]);
    lab.run("gw1", "iptables-nft", &["-t", "nat", "-F", "POSTROUTING"]);
    for place in ["gw1", "w2"] {
        lab.run(place, "sysctl", &["-qw", "net.ipv4.conf.all.rp_filter=0"]);
        for chain in ["INPUT", "FORWARD"] {
            lab.run(place, "iptables-nft", &["-P", chain, "ACCEPT"]);
        }
    }
    let delivered = || talk(&lab, "remote", "pod-w2", "10.1.4.10:80", "10.1.4.10:80");

    let agent = || finish(&mut lab.agent_on("w2", "a-w2", &["--once"]));
    agent();
    talk(&lab, "pod-w2", "remote", "10.2.0.9:80", "10.2.0.9:80").unwrap_err();
    lab.put_upstreams_agent("a-gw1");
    let text = agent();
    assert!(text.contains("another route agent than Trieste's"), "{text}");
    assert_eq!(delivered().unwrap().to_string(), "10.2.0.9");
    talk(&lab, "pod-w2", "remote", "10.2.0.9:80", "10.2.0.9:80").unwrap();

    // Once ours is there its object says so, or there is none.
    lab.delete_agent("a-gw1");
    agent();
    delivered().unwrap_err();
    assert_eq!(lab.leaked(), (0, 0));
}

#[test]
fn packets_pass_where_the_older_half_of_the_kernel_drops_them() {
    let Some(lab) = cluster() else { return };
    let places = [("iptables-legacy", "w1"), ("ip6tables-legacy", "w1"), ("iptables-legacy", "gw1")];
    for (program, place) in places {
        lab.run(place, program, &["-P", "FORWARD", "DROP"]);
    }
    install(&lab);
    let text = finish(&mut lab.agent_on("w1", "a-w1", &["--once"]));
    assert!(text.contains("IPv4 packets are filtered by iptables-legacy too"), "{text}");
    for to in ["10.2.0.9:80", "[fd00:2::9]:80"] {
        talk(&lab, "pod-w1", "remote", to, to).unwrap();
    }
    talk(&lab, "remote", "pod-w1", "10.1.3.10:80", "10.1.3.10:80").unwrap();
    assert_eq!(lab.leaked(), (0, 0));
}

#[test]
fn upstreams_device_is_replaced_and_upstreams_agents_on_other_nodes_are_served() {
    let Some(lab) = cluster() else { return };
    // As upstream's agent leaves it: a peer instead of entries, a random MAC address.
    for place in ["w1", "w2"] {
        let net = if place == "w1" { "3.21" } else { "4.22" };
        let link = "link add vx-submariner type vxlan id 100 remote 172.31.1.11 dstport 4800 nolearning";
        lab.ip(place, &link.split(' ').collect::<Vec<_>>());
        lab.address(place, "vx-submariner", &[&format!("240.31.{net}/8")]);
        let route = "route add 10.2.0.0/16 via 240.31.1.11 dev vx-submariner proto static";
        lab.ip(place, &route.split(' ').collect::<Vec<_>>());
    }
    for chain in ["INPUT", "FORWARD"] {
        lab.run("w2", "iptables-nft", &["-P", chain, "ACCEPT"]);
    }
    lab.run("w2", "sysctl", &["-qw", "net.ipv4.conf.all.rp_filter=0"]);
    lab.run("w2", "iptables-nft", &["-t", "nat", "-F", "POSTROUTING"]);
    for (place, hostname, ..) in &NODES[..2] {
        finish(&mut lab.agent_on(place, hostname, &["--once"]));
        assert_eq!(plan(&lab, place, hostname), "nothing to change\n");
    }

    for pod in ["pod-w1", "pod-w2"] {
        talk(&lab, pod, "remote", "10.2.0.9:80", "10.2.0.9:80").unwrap();
    }
    talk(&lab, "remote", "pod-w2", "10.1.4.10:80", "10.1.4.10:80").unwrap();
    assert_eq!(lab.leaked(), (0, 0));
}

#[test]
fn a_foreign_device_of_that_name_is_told_and_the_node_stays_closed() {
    let Some(lab) = cluster() else { return };
    lab.pair("w1", "vx-submariner", "wan", "strange");
    lab.ip("w1", &["link", "set", "vx-submariner", "up"]);

    let text = finish(&mut lab.agent_on("w1", "a-w1", &["--once"]));

    assert!(text.contains("a device vx-submariner exists that is not the VXLAN"), "{text}");
    assert!(talk(&lab, "pod-w1", "remote", "10.2.0.9:80", "10.2.0.9:80").is_err());
    lab.uninstall_on("w1");
    assert!(lab.ip("w1", &["link"]).contains("vx-submariner"));
    assert_eq!(lab.leaked(), (0, 0));
}

#[test]
fn firewalld_and_a_chain_that_nobody_can_help_are_told_apart() {
    let Some(lab) = cluster() else { return };
    lab.nft(
        "w1",
        "
table inet firewalld {
    chain filter_FORWARD { type filter hook forward priority 10; policy accept; ct state established accept; reject; }
    chain filter_INPUT { type filter hook input priority 10; policy accept; tcp dport 22 accept; udp dport 4800 reject; }
}
table inet corporate {
    chain onward { type filter hook forward priority 20; policy drop; meta mark 0 accept; }
}
",
    );
    let before = everything(&lab, "w1");
    install(&lab);
    let text = finish(&mut lab.agent_on("w1", "a-w1", &["--once"]));
    assert!(text.contains("chain onward of nftables table inet corporate drops"), "{text}");
    assert_eq!(plan(&lab, "w1", "a-w1").lines().next(), Some("nothing to change"));
    talk(&lab, "pod-w1", "remote", "10.2.0.9:80", "10.2.0.9:80").unwrap();
    talk(&lab, "remote", "pod-w1", "10.1.3.10:80", "10.1.3.10:80").unwrap();
    lab.uninstall_on("w1");
    assert_eq!(everything(&lab, "w1"), before);
}

#[test]
fn a_table_that_firewalld_owns_is_told_and_the_pass_is_good() {
    let Some(lab) = cluster() else { return };
    let mut owner = lab.command("w1", "nft").arg("-i").stdin(std::process::Stdio::piped()).spawn().unwrap();
    let table = "add table inet firewalld { flags owner; }\n\
        add chain inet firewalld filter_FORWARD { type filter hook forward priority 10; policy accept; }\n\
        add chain inet firewalld filter_INPUT { type filter hook input priority 10; policy accept; }\n";
    std::io::Write::write_all(owner.stdin.as_mut().unwrap(), table.as_bytes()).unwrap();
    eventually("the table is there", || lab.run("w1", "nft", &["list", "chains"]).contains("filter_INPUT"));

    install(&lab);
    let text = finish(&mut lab.agent_on("w1", "a-w1", &["--once"]));

    assert!(text.contains("NftablesTableOwner=no") && !text.contains("cannot apply"), "{text}");
    assert_eq!(plan(&lab, "w1", "a-w1"), "nothing to change\n");
    owner.kill().unwrap();
    owner.wait().unwrap();
}

fn setting(lab: &Lab, place: &str, device: &str) -> String {
    lab.run(place, "sysctl", &["-n", &format!("net.ipv4.conf.{device}.rp_filter")]).trim().to_owned()
}

/// What a pass would change, without the notes.
pub(crate) fn plan(lab: &Lab, place: &str, hostname: &str) -> String {
    let output = lab.agent_on(place, hostname, &["--dry-run"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().filter(|line| !line.starts_with("note: ")).map(|line| format!("{line}\n")).collect()
}

pub(crate) fn settled(lab: &Lab) {
    for (place, hostname, ..) in NODES {
        eventually(&format!("{place} is settled: {}", plan(lab, place, hostname)), || {
            plan(lab, place, hostname) == "nothing to change\n"
        });
    }
}
