//! Pods with a macvlan device on their node's uplink, in the cluster of `cluster.rs`: what they send to other clusters goes by
//! their node, what comes for them goes to the device directly.
//!
//! ```text
//!   mac-w1 veth0 ── w1 ── vx-submariner ── gw1 ── submariner ── remote        a question
//!          net1 ─── macvlan on eth1 ── LAN 172.20.1.0/24 ── eth1 gw1 ─────┘   its answer, and what remote asks
//! ```
//!
//! The pods are as Spiderpool's coordinator leaves them: `veth0` leads to the node, whose table 500 has the way back, since a
//! device of the parent cannot reach its own macvlan devices.

use serde_json::json;

use super::cluster::{NODES, PLACES, cluster_of, install, talk};
use super::lab::{Lab, NAMESPACE};

/// Where such pods are, and the host part of their addresses.
const PODS: [(&str, &str, u8); 2] = [("mac-gw1", "gw1", 111), ("mac-w1", "w1", 121)];
const ALL_PLACES: [&str; 10] = {
    let [a, b, c, d, e, f, g, h] = PLACES;
    [a, b, c, d, e, f, g, h, PODS[0].0, PODS[1].0]
};
/// What another cluster has, by family.
const REMOTE: [&str; 2] = ["10.2.0.9", "[fd00:2::9]"];
/// The networks of the pods, by family.
const LAN: [&str; 2] = ["172.20.1.0/24", "fd00:20::/64"];

/// Makes the cluster with its LAN, which leads everywhere, and the pods.
fn with_macvlan() -> Option<Lab> {
    let lab = cluster_of(&ALL_PLACES)?;
    lab.ip("wan", &["link", "add", "lan", "type", "bridge", "mcast_snooping", "0"]);
    lab.address("wan", "lan", &["172.20.1.1/24", "fd00:20::1/64"]);
    for (place, _, net, host) in NODES {
        let port = format!("lan-{place}");
        lab.pair(place, "eth1", "wan", &port);
        lab.ip("wan", &["link", "set", &port, "master", "lan", "up"]);
        lab.address(place, "eth1", &[&format!("172.20.1.{host}/24"), &format!("fd00:20::{host}/64")]);
        lab.ip(place, &["route", "add", "172.31.0.0/16", "via", &format!("172.31.{net}.1")]);
        lab.ip(place, &["route", "replace", "default", "via", "172.20.1.1"]);
        lab.ip(place, &["-6", "route", "replace", "default", "via", "fd00:20::1"]);
        // A careful administrator masquerades these as well.
        let rule = "-t nat -A POSTROUTING -s 172.20.1.0/24 ! -d 172.20.1.0/24 -j MASQUERADE";
        lab.run(place, "iptables-nft", &rule.split(' ').collect::<Vec<_>>());
        let rule = "-t nat -A POSTROUTING -s fd00:20::/64 ! -d fd00:20::/64 -j MASQUERADE";
        lab.run(place, "ip6tables-nft", &rule.split(' ').collect::<Vec<_>>());
    }
    for (pod, place, host) in PODS {
        add_pod(&lab, pod, place, host);
    }
    Some(lab)
}

fn add_pod(lab: &Lab, pod: &str, place: &str, host: u8) {
    let (v4, v6) = (format!("172.20.1.{host}"), format!("fd00:20::{host}"));
    lab.ip(place, &["link", "add", "m0", "link", "eth1", "type", "macvlan", "mode", "bridge"]);
    let inside = lab.name(pod);
    lab.ip(place, &["link", "set", "m0", "netns", &inside, "name", "net1"]);
    lab.address(pod, "net1", &[&format!("{v4}/24"), &format!("{v6}/64")]);
    lab.pair(place, "veth-mac", pod, "veth0");
    lab.address(place, "veth-mac", &["fe80::1/64"]);
    lab.ip(pod, &["link", "set", "veth0", "up"]);
    lab.ip(place, &["route", "add", &v4, "dev", "veth-mac", "table", "500"]);
    lab.ip(place, &["-6", "route", "add", &v6, "dev", "veth-mac", "table", "500"]);
    for family in ["-4", "-6"] {
        lab.ip(place, &[family, "rule", "add", "lookup", "500", "priority", "1000"]);
    }
    // IPv6 answers for the addresses of the device that is asked alone: the coordinator writes down where they are.
    let mac = &lab.mac(pod, "veth0");
    for address in [&v4, &v6] {
        lab.ip(place, &["neigh", "replace", address, "lladdr", mac, "dev", "veth-mac", "nud", "permanent"]);
    }
    let node = format!("10.1.{}.1", if place == "gw1" { 1 } else { 3 });
    lab.ip(pod, &["route", "add", &node, "dev", "veth0", "src", &v4]);
    for hijacked in ["10.2.0.0/16", "100.66.0.0/16"] {
        lab.ip(pod, &["route", "add", hijacked, "via", &node, "dev", "veth0", "src", &v4]);
    }
    lab.ip(pod, &["-6", "route", "add", "fd00:2::/48", "via", "fe80::1", "dev", "veth0", "src", &v6]);
}

/// Announces the pods' networks, or withdraws them.
fn announce(lab: &Lab, extra: &[&str]) {
    let pods = [&["10.1.0.0/16", "fd00:1::/48"], extra].concat();
    let spec = json!({"cluster_id": "a", "color_codes": ["blue"], "service_cidr": ["100.65.0.0/16"],
        "cluster_cidr": pods, "global_cidr": []});
    let object = json!({
        "apiVersion": "submariner.io/v1", "kind": "Cluster", "spec": spec,
        "metadata": {"name": "a", "namespace": NAMESPACE, "annotations": {"trieste.io/extra-cidrs": extra.join(",")}},
    });
    lab.put_object("clusters", &object);
}

#[test]
fn plugin_macvlan_pods_reach_remote_ones_and_are_reached_with_their_own_addresses() {
    let Some(lab) = with_macvlan() else { return };
    install(&lab);
    let (_, _, host) = PODS[1];
    let answers = |address: String| {
        let ping = ["-c", "1", "-W", "1", &address];
        lab.command("remote", "ping").args(ping).output().unwrap().status.success()
    };
    let answered = || [answers(format!("172.20.1.{host}")), answers(format!("fd00:20::{host}"))];
    assert_eq!(answered(), [false, false], "nobody has announced these networks");

    announce(&lab, &LAN);
    install(&lab);

    for (pod, _, host) in PODS {
        let own = [format!("172.20.1.{host}"), format!("[fd00:20::{host}]")];
        for (own, remote) in own.iter().zip(REMOTE) {
            let (own, remote) = (format!("{own}:80"), format!("{remote}:80"));
            let bare = |address: &str| address.parse::<std::net::SocketAddr>().unwrap().ip();
            assert_eq!(talk(&lab, pod, "remote", &remote, &remote), Ok(bare(&own)), "{pod} asks {remote}");
            assert_eq!(talk(&lab, "remote", pod, &own, &own), Ok(bare(&remote)), "{own} is asked");
        }
        let service = "100.66.0.9:80";
        let seen = talk(&lab, pod, "remote", service, service).unwrap();
        assert_eq!(seen.to_string(), format!("172.20.1.{host}"), "{pod} asks a service");
    }
    assert_eq!(lab.leaked(), (0, 0));
    // Other pods are reached as ever.
    assert!(talk(&lab, "remote", "pod-w1", "10.1.3.10:80", "10.1.3.10:80").is_ok());

    // Without a way of its own to the pods' network nothing for it takes the default route.
    lab.ip("gw1", &["route", "delete", "172.20.1.0/24", "dev", "eth1"]);
    lab.ip("gw1", &["-6", "route", "delete", "fd00:20::/64", "dev", "eth1"]);
    assert!(lab.ip("gw1", &["route", "get", "172.20.1.121"]).contains("via 172.20.1.1 dev eth1"));
    let stray = || ["stray4", "stray6"].map(|name| lab.counter("gw1", "trieste", name));
    let before = stray();
    assert_eq!(answered(), [false, false]);
    assert!(stray().iter().zip(before).all(|(now, before)| *now > before), "{:?}", stray());
    lab.ip("gw1", &["route", "add", "172.20.1.0/24", "dev", "eth1", "src", "172.20.1.11"]);
    lab.ip("gw1", &["-6", "route", "add", "fd00:20::/64", "dev", "eth1"]);
    assert_eq!(answered(), [true, true]);

    // What is withdrawn is closed.
    announce(&lab, &[]);
    install(&lab);
    assert_eq!(answered(), [false, false]);
}
