//! The proposal's topology in a real OVN: the golden database, both families, another gateway node, rows in the way.

use trieste_ovn::condition::{Condition, Effect};

use crate::rows::ovn::{Addresses, Ovn, golden};
use crate::rows::packets::{exits, path};
use crate::rows::support::{Facts, apply, converge, networks, remove_all};

/// The policies that the golden database has not: packets are dropped when those of priority 10 lead nowhere.
const GUARDS: &str = r#"9,"""ip4.dst == 10.132.0.0/14""",drop,[]
9,"""ip4.dst == 172.31.0.0/16""",drop,[]
"#;

/// Returns the dump without our guards, which have to be there.
pub(crate) fn without_guards(dump: &str) -> String {
    assert!(dump.ends_with(GUARDS), "no guards:\n{dump}");
    dump.replace(GUARDS, "")
}

#[test]
fn plugin_ovn_the_proposals_sequence_gives_the_golden_database() {
    let ovn = Ovn::start();
    ovn.add_kubernetes(&["node1"], Addresses::V4);
    let before = ovn.everything();

    converge(&ovn, &Facts::proposal());

    assert_eq!(without_guards(&ovn.dump()), golden());
    let chassis = ovn.nbctl(&["lrp-get-gateway-chassis", "subm_ext_port"]);
    assert_eq!(chassis.trim(), "subm_ext_port-node1-chassis    10");

    assert_eq!(remove_all(&ovn), 1);
    assert_eq!(ovn.everything(), before);
    assert_eq!(remove_all(&ovn), 0);
}

#[test]
fn plugin_ovn_another_gateway_node_takes_over_in_one_transaction() {
    let ovn = Ovn::start();
    ovn.add_kubernetes(&["node1", "node2"], Addresses::Dual);
    let mut facts = Facts::proposal();
    facts.own.extend(networks(&["fd00:10:128::/48"]));
    facts.routes[0].remote_cidrs.push("fd00:10:132::/48".to_owned());
    converge(&ovn, &facts);
    assert!(ovn.nbctl(&["lsp-list", "ext_node1"]).contains("subm_ext_sw_port"));
    let first = ovn.everything();

    facts.gateway_node = Some("node2".to_owned());
    assert_eq!(apply(&ovn, &facts), (1, Vec::new()));
    assert_eq!(apply(&ovn, &facts), (0, Vec::new()));
    ovn.sync();

    assert!(!ovn.nbctl(&["lsp-list", "ext_node1"]).contains("subm_ext_sw_port"));
    assert!(ovn.nbctl(&["lsp-list", "ext_node2"]).contains("subm_ext_sw_port"));
    let chassis = ovn.nbctl(&["lrp-get-gateway-chassis", "subm_ext_port"]);
    assert_eq!(chassis.trim(), "subm_ext_port-node2-chassis    10");
    let routes = ovn.nbctl(&["lr-route-list", "submariner_router"]);
    assert!(routes.contains("169.254.43.1") && !routes.contains("169.254.33.1"), "{routes}");
    assert!(routes.contains("fd43::1") && routes.contains("fd53:7562:6d34::2"), "{routes}");

    facts.gateway_node = Some("node1".to_owned());
    assert_eq!(apply(&ovn, &facts), (1, Vec::new()));
    assert_eq!(ovn.everything(), first);
}

#[test]
fn plugin_ovn_packets_of_both_families_pass_the_submariner_router() {
    let ovn = Ovn::start();
    ovn.add_kubernetes(&["node1"], Addresses::Dual);
    let mut facts = Facts::proposal();
    facts.own.extend(networks(&["fd00:10:128::/48"]));
    facts.routes[0].remote_cidrs.push("fd00:10:132::/48".to_owned());
    converge(&ovn, &facts);

    for destination in ["10.132.1.9", "fd00:10:132::9"] {
        let path = path(&ovn, destination);
        assert!(path.contains("ingress(dp=\"submariner_router\""), "{destination}: {path}");
        assert!(path.contains("/* output to \"br-local_node1\""), "{destination}: {path}");
    }

    // The port that the policies lead to vanishes: northd leaves them out.
    ovn.nbctl(&["lrp-del", "ovn_cluster_submariner_port"]);
    ovn.sync();
    for destination in ["10.132.1.9", "fd00:10:132::9"] {
        assert_eq!(exits(&ovn, destination), [""; 0], "{destination}");
    }
    converge(&ovn, &facts);

    // So does the gateway.
    facts.gateway_node = None;
    let (_, conditions) = apply(&ovn, &facts);
    assert_eq!(conditions, [Condition::NoGatewayNode]);
    ovn.sync();
    for destination in ["10.132.1.9", "fd00:10:132::9"] {
        assert_eq!(exits(&ovn, destination), [""; 0], "{destination}");
    }
    assert!(!ovn.dump().contains("subm"), "what leads nowhere is gone");
}

#[test]
fn plugin_ovn_rows_of_the_proposals_recipe_are_in_the_way_and_stay() {
    let ovn = Ovn::start();
    ovn.add_kubernetes(&["node1"], Addresses::V4);
    ovn.nbctl(&["lr-add", "submariner_router"]);
    let before = ovn.everything();

    let (_, conditions) = apply(&ovn, &Facts::proposal());

    let (table, key) = ("Logical_Router", "submariner_router".to_owned());
    assert_eq!(conditions, [Condition::ForeignRow { table, key, effect: Effect::Blocks }]);
    ovn.sync();
    assert_eq!(exits(&ovn, "10.132.1.9"), [""; 0], "closed all the same");
    remove_all(&ovn);
    assert_eq!(ovn.everything(), before);
}

#[test]
fn plugin_ovn_a_chassis_that_is_missing_closes() {
    let ovn = Ovn::start();
    ovn.add_kubernetes(&["node1"], Addresses::V4);
    let mut facts = Facts::proposal();
    facts.gateway_node = Some("node9".to_owned());
    let (_, conditions) = apply(&ovn, &facts);
    let texts: Vec<String> = conditions.iter().map(ToString::to_string).collect();
    for missing in
        ["Logical_Switch ext_node9", "Logical_Router_Port rtoe-GR_node9", "chassis with host name node9"]
    {
        assert!(texts.iter().any(|text| text.contains(missing)), "{missing}: {texts:?}");
    }
    ovn.sync();
    assert_eq!(exits(&ovn, "10.132.1.9"), [""; 0]);
}

#[test]
fn plugin_ovn_a_topology_is_changed_without_leaving_rows() {
    let ovn = Ovn::start();
    ovn.add_kubernetes(&["node1"], Addresses::Dual);
    ovn.add_management_port("node1", "0a:58:0a:80:00:02 10.128.0.2 fd00:10:128::2");
    converge(&ovn, &Facts::upstream());
    let first = ovn.everything();
    converge(&ovn, &Facts::proposal());
    assert!(!ovn.dump().contains("20000"));
    converge(&ovn, &Facts::upstream());
    assert_eq!(ovn.everything(), first);
}

#[test]
fn plugin_ovn_the_submariner_router_balances_what_the_gateways_switch_does() {
    let ovn = Ovn::start();
    ovn.add_kubernetes(&["node1", "node2"], Addresses::V4);
    for (service, node) in [("web", "node1"), ("db", "node1"), ("other", "node2")] {
        let address = format!("172.30.0.{}:80", service.len());
        ovn.nbctl(&["lb-add", service, &address, "10.128.0.5:8080", "tcp"]);
        ovn.nbctl(&["ls-lb-add", node, service]);
    }
    let balanced = || {
        let list = ovn.nbctl(&["lr-lb-list", "submariner_router"]);
        ["web", "db", "other"].map(|service| list.contains(service))
    };
    let before = ovn.everything();
    let mut facts = Facts::proposal();
    converge(&ovn, &facts);
    assert_eq!(balanced(), [true, true, false]);

    // A service comes to the switch and goes, one is gone altogether, and somebody else's hand is put right.
    ovn.nbctl(&[
        "lb-add",
        "new",
        "172.30.0.9:80",
        "10.128.0.5:8080",
        "tcp",
        "--",
        "ls-lb-add",
        "node1",
        "new",
    ]);
    ovn.nbctl(&["ls-lb-del", "node1", "db"]);
    ovn.nbctl(&["lr-lb-add", "submariner_router", "other"]);
    converge(&ovn, &facts);
    assert_eq!(balanced(), [true, false, false]);
    assert!(ovn.nbctl(&["lr-lb-list", "submariner_router"]).contains("new"));
    ovn.nbctl(&["lb-del", "new"]);
    assert_eq!(apply(&ovn, &facts), (0, Vec::new()), "the server has removed it everywhere");

    facts.gateway_node = Some("node2".to_owned());
    converge(&ovn, &facts);
    assert_eq!(balanced(), [false, false, true]);
    remove_all(&ovn);
    ovn.nbctl(&["ls-lb-add", "node1", "db"]);
    assert_eq!(ovn.everything(), before);
}
