//! Upstream's topology in a real OVN: where packets go, upstream's rows, OVN-Kubernetes' rows.

use trieste_ovn::wanted::{RouteKind, Zone};

use crate::rows::ovn::{Addresses, Ovn};
use crate::rows::packets::{exits, path};
use crate::rows::support::{Facts, apply, converge, remove_all, route};

/// The port by which packets leave node1 for the physical network, in clear.
const IN_CLEAR: [&str; 1] = ["br-local_node1"];
/// The port by which they reach the host of node1, where the gateway takes them.
const TO_HOST: [&str; 1] = ["k8s-node1"];

/// Makes OVN-Kubernetes on two nodes, both with a management port.
fn kubernetes() -> Ovn {
    let ovn = Ovn::start();
    ovn.add_kubernetes(&["node1", "node2"], Addresses::Dual);
    ovn.add_management_port("node1", "0a:58:0a:80:00:02 10.128.0.2 fd00:10:128::2");
    ovn.add_management_port("node2", "0a:58:0a:80:02:02 10.128.2.2 fd00:10:128:1::2");
    ovn.sync();
    ovn
}

#[test]
fn plugin_ovn_trace_shows_reroute_drop_and_the_untouched_rest() {
    let ovn = kubernetes();
    let remotes = ["10.132.1.9", "172.31.0.1", "fd00:10:132::9"];
    let rest = ["8.8.8.8", "2001:db8::8", "10.128.2.2", "fd00:10:128:1::2", "10.136.0.1"];
    let before = rest.map(|destination| path(&ovn, destination));
    assert_eq!(exits(&ovn, rest[0]), IN_CLEAR);
    for remote in remotes {
        assert_eq!(exits(&ovn, remote), IN_CLEAR, "{remote} without us");
    }

    converge(&ovn, &Facts::upstream());

    for remote in remotes {
        assert_eq!(exits(&ovn, remote), TO_HOST, "{remote}");
    }
    assert_eq!(rest.map(|destination| path(&ovn, destination)), before, "other packets");

    // The policies that reroute vanish, as OVN-Kubernetes removes them at times.
    for (priority, text) in [("20000", "ip4.dst == 10.132.0.0/14"), ("20100", "ip6.dst == fd00:10:132::/48")]
    {
        ovn.nbctl(&["lr-policy-del", "ovn_cluster_router", priority, text]);
    }
    ovn.sync();
    for (remote, expected) in [(remotes[0], &[][..]), (remotes[1], &TO_HOST), (remotes[2], &[])] {
        assert_eq!(exits(&ovn, remote), expected, "{remote}");
    }
    assert_eq!(rest.map(|destination| path(&ovn, destination)), before, "other packets");
}

#[test]
fn plugin_ovn_a_next_hop_on_no_network_of_the_router_drops_packets() {
    let ovn = kubernetes();
    let mut facts = Facts::upstream();
    facts.zone = Zone::Other;
    facts.routes = vec![route(
        "east",
        RouteKind::NonGateway,
        &["100.88.0.3", "fd97::3"],
        &["10.132.0.0/14", "fd00:10:132::/48"],
    )];
    converge(&ovn, &facts);
    for remote in ["10.132.1.9", "fd00:10:132::9"] {
        assert_eq!(exits(&ovn, remote), [""; 0], "{remote}");
    }

    // The transit switch between zones, whose far end is the gateway node's.
    ovn.nbctl_all(&[
        "lrp-add ovn_cluster_router rtots-node1 0a:58:64:58:00:02 100.88.0.2/16 fd97::2/64".to_owned()
    ]);
    ovn.nbctl_all(&["ls-add transit_switch".to_owned(), "lsp-add transit_switch tstor-node2".to_owned()]);
    ovn.join("transit_switch", "tstor-node1", "rtots-node1");
    ovn.nbctl(&["lsp-set-addresses", "tstor-node2", "0a:58:64:58:00:03 100.88.0.3 fd97::3"]);
    ovn.sync();
    for remote in ["10.132.1.9", "fd00:10:132::9"] {
        assert_eq!(exits(&ovn, remote), ["tstor-node2"], "{remote}");
    }
}

#[test]
fn plugin_ovn_policies_are_asked_only_if_a_route_matches() {
    let ovn = kubernetes();
    ovn.nbctl(&["--policy=src-ip", "lr-route-del", "ovn_cluster_router", "10.128.0.0/23"]);
    let mut facts = Facts::upstream();
    facts.zone = Zone::Other;
    facts.routes.push(route("east", RouteKind::NonGateway, &["10.128.0.2"], &["10.132.0.0/14"]));
    converge(&ovn, &facts);
    assert_eq!(exits(&ovn, "10.132.1.9"), [""; 0], "no route, and closed for it");

    // In the gateway's zone there is a route of ours.
    converge(&ovn, &Facts::upstream());
    assert_eq!(exits(&ovn, "10.132.1.9"), TO_HOST);
}

#[test]
fn plugin_ovn_without_a_gateway_packets_are_dropped_in_every_zone() {
    let ovn = kubernetes();
    for zone in [Zone::Gateway, Zone::Other] {
        for kind in [RouteKind::Gateway, RouteKind::NonGateway] {
            let mut facts = Facts::upstream();
            facts.zone = zone;
            facts.routes = vec![route("east", kind, &[], &["10.132.0.0/14", "fd00:10:132::/48"])];
            apply(&ovn, &facts);
            ovn.sync();
            for remote in ["10.132.1.9", "fd00:10:132::9"] {
                assert_eq!(exits(&ovn, remote), [""; 0], "{zone:?}, {kind:?}, {remote}");
            }
        }
    }
}

#[test]
fn plugin_ovn_upstreams_rows_become_ours_and_all_others_stay() {
    let ovn = kubernetes();
    let others = || -> Vec<String> {
        let is_other =
            |line: &String| !line.contains("submariner=") && !line.contains(",ovn_cluster_router,");
        ovn.everything().into_iter().filter(is_other).collect()
    };
    // Rows without any mark that upstream would take for its own (its issue 3880), one of them where one of ours should be.
    ovn.nbctl_all(&[
        "lr-route-add ovn_cluster_router 10.140.0.0/16 10.128.0.2".to_owned(),
        "lr-route-add ovn_cluster_router 172.31.0.0/16 100.64.0.9".to_owned(),
    ]);
    ovn.nbctl(&[
        "lr-policy-add",
        "ovn_cluster_router",
        "20000",
        "ip4.dst == 10.150.0.0/16",
        "reroute",
        "10.128.0.2",
    ]);
    let before = others();
    let mark = "external_ids:submariner=v0.20.0";
    let add_policy = |network: &str, next_hop: &str| {
        let text = format!("match=\"ip4.dst == {network}\"");
        let next_hop = format!("nexthop=\"{next_hop}\"");
        let create =
            ["--id=@row", "create", "Logical_Router_Policy", "priority=20000", "action=reroute", mark];
        let add = ["--", "add", "Logical_Router", "ovn_cluster_router", "policies", "@row"];
        ovn.nbctl(&[&create[..], &[text.as_str(), next_hop.as_str()], &add[..]].concat());
    };
    add_policy("10.132.0.0/14", "10.128.0.2");
    add_policy("10.160.0.0/16", "10.128.0.2");
    add_policy("172.31.0.0/16", "10.128.0.99");

    // Not all objects are listed: nothing of upstream's is stale.
    let mut facts = Facts::upstream();
    facts.is_complete = false;
    let (_, conditions) = apply(&ovn, &facts);
    assert_eq!(conditions.len(), 1, "{conditions:?}");
    assert!(conditions[0].to_string().contains("172.31.0.0/16"), "{conditions:?}");
    assert!(ovn.dump().contains("10.160.0.0/16"));
    facts.is_complete = true;
    let (transactions, _) = apply(&ovn, &facts);
    assert_eq!(transactions, 1);
    assert_eq!(apply(&ovn, &facts).0, 0);

    let policies = ovn.nbctl(&["lr-policy-list", "ovn_cluster_router"]);
    assert_eq!(policies.matches("20000").count(), 3, "{policies}");
    assert!(!policies.contains("10.160.0.0/16") && !policies.contains("10.128.0.99"), "{policies}");
    assert_eq!(others(), before);

    remove_all(&ovn);
    assert_eq!(others(), before);
    assert_eq!(ovn.rows().count_ours(), 0);
}
