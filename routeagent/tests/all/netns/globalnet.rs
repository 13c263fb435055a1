//! Another cluster with the same pods and services, known by global addresses.

use std::io::ErrorKind;

use super::fail_closed::{connect, is_routed_to_tun, send};
use super::lab::{Lab, eventually, lab};

/// An address of the other cluster.
const REMOTE: &str = "242.2.0.5:80";
const GLOBAL: [&str; 2] = ["242.1.0.0/16", "242.2.0.0/16"];

/// A network plugin that masquerades whatever leaves the cluster.
const MASQUERADE: &str = "
table ip plugin {
    chain leaving {
        type nat hook postrouting priority srcnat
        ip saddr 10.1.0.0/16 ip daddr != 10.1.0.0/16 masquerade
    }
}
";

/// What upstream's Globalnet does to pods' packets, by nftables.
const UPSTREAMS_GLOBALNET: &str = "
table ip globalnet {
    chain leaving {
        type nat hook postrouting priority -110
        ip saddr 10.1.0.0/16 ip daddr 242.2.0.0/16 snat to 242.1.0.9
    }
}
";

#[test]
fn packets_for_another_clusters_global_addresses_reach_the_gateway_untranslated_or_nobody() {
    let lab = lab!();
    join(&lab);
    lab.tell_term("a");
    lab.nft("node", MASQUERADE);
    let text = lab.agent_once(&["--once", "--global-cidrs", GLOBAL[0]]);
    assert!(!text.contains("242.2.0.0/16 of cluster b"), "nothing is refused: {text}");

    let mut tun = lab.hold_tun();
    eventually("the gateway is used", || is_routed_to_tun(&lab, REMOTE));
    // The node's own packets have its address in the pod network, which the gateway knows how to translate.
    for (place, source) in [("pod", "0a01010a"), ("node", "0a010101")] {
        let marker = format!("marker of {place}");
        let packet = tun.expect(&marker, |marker| send(&lab, place, REMOTE, marker, None).unwrap());
        assert_eq!(&packet[24..32], source, "the source of {place}: {packet}");
    }

    tun.kill();
    eventually("the carrier is gone", || !is_routed_to_tun(&lab, REMOTE));
    for place in ["pod", "node"] {
        assert_eq!(connect(&lab, place, REMOTE), ErrorKind::HostUnreachable, "{place}");
    }
    assert_eq!(lab.leaked(), (0, 0));
}

#[test]
fn beside_upstreams_gateway_its_globalnet_translates_before_anybody_masquerades() {
    let lab = lab!();
    join(&lab);
    lab.nft("node", MASQUERADE);
    lab.nft("node", UPSTREAMS_GLOBALNET);
    lab.agent_once(&["--once", "--global-cidrs", GLOBAL[0]]);

    let mut tun = lab.hold_tun();
    eventually("the gateway is used", || is_routed_to_tun(&lab, REMOTE));
    let packet = tun.expect("marker", |marker| send(&lab, "pod", REMOTE, marker, None).unwrap());
    assert_eq!(&packet[24..32], "f2010009", "the source: {packet}");
    assert_eq!(lab.leaked(), (0, 0));
}

#[test]
fn the_same_pod_network_in_two_clusters_is_reached_here_and_is_nobodys_business_there() {
    let lab = lab!();
    join(&lab);
    lab.agent_once(&["--once", "--global-cidrs", GLOBAL[0]]);

    // A Cluster object says everything; only what is published counts.
    assert!(!lab.ip("node", &["route", "show", "table", "all"]).contains("unreachable 10.1.0.0/16"));
    assert_eq!(connect(&lab, "node", "10.1.1.10:80"), ErrorKind::ConnectionRefused, "the pod is there");
}

/// Both clusters, with the same pods and services.
fn join(lab: &Lab) {
    for (cluster, address, global) in [("a", "172.31.1.11", GLOBAL[0]), ("b", "203.0.113.21", GLOBAL[1])] {
        let health = global.replace("0.0/16", "255.254");
        lab.put_endpoint(cluster, &format!("{cluster}-gw1"), &[global], address, &health);
        lab.put_global_cluster(cluster, &["10.1.0.0/16"], &["100.65.0.0/16"], &[global]);
    }
}
