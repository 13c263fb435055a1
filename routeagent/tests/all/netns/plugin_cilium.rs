//! Nodes of Cilium with pools of its own, in the cluster of `cluster.rs`: its routes and rules imitated, without its eBPF
//! programs.
//!
//! Kubernetes has assigned networks to nodes as well, and other ones than Cilium: those of `w1` and `w2` are exchanged.

use serde_json::json;

use super::cluster::{NODES, cluster, talk};
use super::lab::{Lab, finish};

/// Makes the cluster; ends the test where it is known that there is no root.
macro_rules! cilium {
    () => {
        match cluster() {
            Some(lab) => {
                imitate(&lab);
                lab
            }
            None => return,
        }
    };
}

/// Leaves each node as Cilium does: a route to each pod by its own device, `cilium_host` with the node's address among pods,
/// local addresses behind its own rules.
fn imitate(lab: &Lab) {
    for (place, name, net, host) in NODES {
        let others = match net {
            3 => 4,
            4 => 3,
            own => own,
        };
        let networks = |net: u8| [format!("10.1.{net}.0/24"), format!("fd00:1:0:{net}::/64")];
        lab.put_node(name, &format!("172.31.{net}.{host}"), &networks(others));
        lab.put_object(
            "ciliumnodes",
            &json!({"apiVersion": "cilium.io/v2", "kind": "CiliumNode", "metadata": {"name": name},
                "spec": {"addresses": [{"ip": format!("172.31.{net}.{host}"), "type": "InternalIP"},
                                       {"ip": format!("10.1.{net}.1"), "type": "CiliumInternalIP"}],
                         "ipam": {"podCIDRs": networks(net)}}}),
        );
        lab.ip(place, &["link", "add", "cilium_host", "type", "veth", "peer", "name", "cilium_net"]);
        lab.ip(place, &["link", "set", "cilium_net", "up"]);
        lab.ip(place, &["address", "delete", &format!("10.1.{net}.1/24"), "dev", "cni0"]);
        lab.ip(place, &["address", "delete", &format!("fd00:1:0:{net}::1/64"), "dev", "cni0"]);
        let own = [format!("10.1.{net}.1/32"), format!("fd00:1:0:{net}::1/128")];
        lab.address(place, "cilium_host", &own.each_ref().map(String::as_str));
        lab.ip(
            place,
            &["route", "add", &format!("10.1.{net}.10"), "dev", "cni0", "src", &format!("10.1.{net}.1")],
        );
        lab.ip(place, &["-6", "route", "add", &format!("fd00:1:0:{net}::10"), "dev", "cni0"]);
        // Its programs answer whoever asks for the router.
        let mac = &lab.mac(place, "cni0");
        let router = [
            "neigh",
            "replace",
            &own[1][..own[1].len() - 4],
            "lladdr",
            mac,
            "dev",
            "eth0",
            "nud",
            "permanent",
        ];
        lab.ip(&format!("pod-{place}"), &router);
        for family in ["-4", "-6"] {
            lab.ip(place, &[family, "rule", "add", "pref", "9", "fwmark", "0x200/0xf00", "lookup", "2004"]);
            lab.ip(place, &[family, "rule", "add", "pref", "100", "lookup", "local"]);
            lab.ip(place, &[family, "rule", "delete", "pref", "0"]);
        }
    }
}

fn install(lab: &Lab) {
    for (place, hostname, ..) in NODES {
        let mut agent = lab.agent_on(place, hostname, &["--once"]);
        finish(agent.env("SUBMARINER_NETWORKPLUGIN", "cilium"));
    }
}

#[test]
fn plugin_cilium_pods_are_reached_on_the_nodes_that_it_put_their_networks_on() {
    let lab = cilium!();
    install(&lab);

    let delivery = lab.ip("gw1", &["route", "show", "table", "149"]);
    assert!(delivery.contains("10.1.3.0/24 via 240.31.3.21 dev vx-submariner"), "{delivery}");
    for (place, _, net, _) in NODES {
        let pod = format!("pod-{place}");
        for (own, remote) in [
            (format!("10.1.{net}.10"), "10.2.0.9".to_owned()),
            (format!("[fd00:1:0:{net}::10]"), "[fd00:2::9]".to_owned()),
        ] {
            let (own, remote) = (format!("{own}:80"), format!("{remote}:80"));
            let address = |text: &str| text.parse::<std::net::SocketAddr>().unwrap().ip();
            assert_eq!(
                talk(&lab, &pod, "remote", &remote, &remote),
                Ok(address(&own)),
                "{pod} asks {remote}"
            );
            assert_eq!(talk(&lab, "remote", &pod, &own, &own), Ok(address(&remote)), "{own} is asked");
        }
        // The node's own packets have its address among pods.
        let seen = talk(&lab, place, "remote", "10.2.0.9:80", "10.2.0.9:80").unwrap();
        assert_eq!(seen.to_string(), format!("10.1.{net}.1"));
    }
    assert_eq!(lab.leaked(), (0, 0));
}

#[test]
fn plugin_cilium_without_its_objects_nobody_is_sent_to_the_wrong_node() {
    let lab = cilium!();
    for (_, name, ..) in NODES {
        lab.delete_object("ciliumnodes", name);
    }
    install(&lab);
    let rules = lab.ip("gw1", &["rule"]);
    assert!(!rules.contains("lookup 149") && rules.contains("lookup 150"), "Cilium delivers: {rules}");
}
