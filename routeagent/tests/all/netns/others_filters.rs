//! Nodes on which other programs translate and filter by nftables themselves: what comes before ours, firewalld's reload, and
//! policies by connection tracking.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::between_nodes::{plan, settled};
use super::cluster::{NODES, accept, cluster, install, talk};
use super::lab::{Ends, Lab, SEEN, eventually, finish};

/// The remote cluster's addresses, and a worker's pod's.
const REMOTE: [&str; 2] = ["10.2.0.9:80", "[fd00:2::9]:80"];
const POD: [&str; 2] = ["10.1.3.10:80", "[fd00:1:0:3::10]:80"];

/// firewalld's table in its version 1.3, of a zone that accepts SSH and nothing else.
const FIREWALLD: &str = "
table inet firewalld {
    chain mangle_PREROUTING { type filter hook prerouting priority mangle + 10; policy accept; }
    chain nat_PREROUTING { type nat hook prerouting priority dstnat + 10; policy accept; }
    chain nat_POSTROUTING { type nat hook postrouting priority srcnat + 10; policy accept; }
    chain nat_OUTPUT { type nat hook output priority -90; policy accept; }
    chain filter_PREROUTING {
        type filter hook prerouting priority filter + 10; policy accept;
        icmpv6 type { nd-router-advert, nd-neighbor-solicit } accept
        meta nfproto ipv6 fib saddr . mark . iif oif missing drop
    }
    chain filter_IN_public { tcp dport 22 accept; meta l4proto { icmp, ipv6-icmp } accept; }
    chain filter_FWD_public { }
    chain filter_INPUT_ZONES { goto filter_IN_public; }
    chain filter_FORWARD_ZONES { goto filter_FWD_public; }
    chain filter_INPUT {
        type filter hook input priority filter + 10; policy accept;
        ct state { established, related } accept
        ct status dnat accept
        iifname lo accept
        ct state invalid drop
        jump filter_INPUT_ZONES
        reject with icmpx admin-prohibited
    }
    chain filter_FORWARD {
        type filter hook forward priority filter + 10; policy accept;
        ct state { established, related } accept
        ct status dnat accept
        iifname lo accept
        ct state invalid drop
        ip6 daddr { ::/96, 2002::/16 } reject with icmpv6 addr-unreachable
        jump filter_FORWARD_ZONES
        reject with icmpx admin-prohibited
    }
    chain filter_OUTPUT {
        type filter hook output priority filter + 10; policy accept;
        ct state { established, related } accept
        oifname lo accept
    }
}
";

/// What it has while it reloads: no new connections.
const RELOADING: &str = "
table inet firewalld_policy_drop {
    chain filter_input { type filter hook input priority 9; policy drop; ct state { established, related } accept; }
    chain filter_forward { type filter hook forward priority 9; policy drop; ct state { established, related } accept; }
    chain filter_output { type filter hook output priority 9; policy drop; ct state { established, related } accept; }
}
";

#[test]
fn who_masquerades_early_changes_no_source_and_who_may_come_first_is_named() {
    let Some(lab) = cluster() else { return };
    for place in ["gw1", "w1"] {
        masquerade(&lab, place, "early", 0);
        masquerade(&lab, place, "earlier", -198);
    }
    install(&lab);
    assert_sources_are_kept(&lab);
    let once = || finish(&mut lab.agent_on("w1", "a-w1", &["--once"]));
    assert!(!once().contains("may change sources"), "{}", once());

    masquerade(&lab, "w1", "first", -199);
    let text = once();
    let named = "chain post of nftables table inet first may change sources at priority -199";
    assert!(text.contains(named) && !text.contains("inet earl"), "{text}");
    let sources = REMOTE.map(|to| talk(&lab, "pod-w1", "remote", to, to).map(|source| source.to_string()));
    assert!(!sources.contains(&Ok("10.1.3.10".to_owned())), "there is nothing to name: {sources:?}");

    lab.run("w1", "nft", &["delete", "table", "inet", "first"]);
    assert!(!once().contains("may change sources"));
    assert_sources_are_kept(&lab);
    assert_eq!(lab.leaked(), (0, 0));
}

#[test]
fn packets_pass_again_at_once_when_firewalld_has_reloaded() {
    let Some(lab) = cluster() else { return };
    for place in ["gw1", "w1"] {
        lab.nft(place, FIREWALLD);
    }
    let _agents: Vec<_> =
        NODES.iter().map(|(place, hostname, ..)| lab.start_agent_on(place, hostname)).collect();
    settled(&lab);
    assert_sources_are_kept(&lab);
    let listeners = REMOTE.map(|to| lab.inside("remote", || TcpListener::bind(to)).unwrap());
    let (over, rounds) = (AtomicBool::new(false), [AtomicU32::new(0), AtomicU32::new(0)]);
    std::thread::scope(|scope| {
        let _ends = Ends(&over);
        for (listener, rounds) in listeners.iter().zip(&rounds) {
            let client = lab.inside("pod-w1", || TcpStream::connect(listener.local_addr().unwrap())).unwrap();
            let (server, _) = accept(listener).unwrap();
            let over = &over;
            scope.spawn(move || keep_talking(client, server, rounds, over));
        }
        let (lab, over) = (&lab, &over);
        scope.spawn(move || keep_sending(lab, over));
        for place in ["w1", "gw1", "w1", "gw1"] {
            reload(lab, place);
            let since = Instant::now();
            let before = [&rounds[0], &rounds[1]].map(|rounds| rounds.load(Ordering::Relaxed));
            eventually("new connections pass", || listeners.iter().all(|listener| passes(lab, listener)));
            let took = since.elapsed();
            eventually("former ones go on", || {
                rounds.iter().zip(before).all(|(now, before)| now.load(Ordering::Relaxed) > before)
            });
            eprintln!("after firewalld's reload on {place}: {took:?}");
            assert!(took < SEEN, "{took:?}");
        }
    });
    for (place, hostname, ..) in NODES {
        eventually(place, || plan(&lab, place, hostname) == "nothing to change\n");
    }
    assert_eq!(lab.leaked(), (0, 0));
}

/// A chain of somebody who masquerades everything at that priority.
fn masquerade(lab: &Lab, place: &str, table: &str, priority: i32) {
    let chain = format!("chain post {{ type nat hook postrouting priority {priority}; masquerade; }}");
    lab.nft(place, &format!("table inet {table} {{\n{chain}\n}}\n"));
}

/// From pods and nodes, to pods, in both families.
fn assert_sources_are_kept(lab: &Lab) {
    let seen = |from: &str, place: &str, to: [&str; 2]| {
        to.map(|to| talk(lab, from, place, to, to).map(|source| source.to_string()))
    };
    let own = |addresses: [&str; 2]| addresses.map(|address| Ok(address.to_owned()));
    assert_eq!(seen("pod-w1", "remote", REMOTE), own(["10.1.3.10", "fd00:1:0:3::10"]));
    assert_eq!(seen("pod-gw1", "remote", REMOTE), own(["10.1.1.10", "fd00:1:0:1::10"]));
    assert_eq!(seen("w1", "remote", REMOTE), own(["10.1.3.1", "fd00:1:0:3::1"]));
    assert_eq!(seen("remote", "pod-w1", POD), own(["10.2.0.9", "fd00:2::9"]));
}

/// What firewalld does at `firewall-cmd --reload`.
fn reload(lab: &Lab, place: &str) {
    lab.nft(place, RELOADING);
    lab.run(place, "nft", &["delete", "table", "inet", "firewalld"]);
    lab.nft(place, FIREWALLD);
    lab.run(place, "nft", &["delete", "table", "inet", "firewalld_policy_drop"]);
}

/// Whether a new connection from the worker's pod comes about.
fn passes(lab: &Lab, listener: &TcpListener) -> bool {
    let to: SocketAddr = listener.local_addr().unwrap();
    let connect = || TcpStream::connect_timeout(&to, Duration::from_millis(300));
    // Nobody needs to accept it.
    lab.inside("pod-w1", connect).is_ok()
}

/// Sends a byte there and back, again and again, and counts.
fn keep_talking(mut client: TcpStream, mut server: TcpStream, rounds: &AtomicU32, over: &AtomicBool) {
    for stream in [&client, &server] {
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream.set_nodelay(true).unwrap();
    }
    let mut byte = [7];
    while !over.load(Ordering::Relaxed) {
        client.write_all(&byte).unwrap();
        server.read_exact(&mut byte).unwrap();
        server.write_all(&byte).unwrap();
        client.read_exact(&mut byte).unwrap();
        rounds.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Sends what nobody answers, from pods of both nodes.
fn keep_sending(lab: &Lab, over: &AtomicBool) {
    let pods = ["pod-gw1", "pod-w1"];
    let sockets = pods.map(|pod| lab.inside(pod, || UdpSocket::bind("[::]:0")).unwrap());
    while !over.load(Ordering::Relaxed) {
        for socket in &sockets {
            // Refused is as good as sent.
            let _ = socket.send_to(b"marker", "[::ffff:10.2.0.9]:9");
            let _ = socket.send_to(b"marker", "[fd00:2::9]:9");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
