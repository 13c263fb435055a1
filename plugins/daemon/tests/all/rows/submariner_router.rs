//! The proposal's topology in a real OVN: the golden database, both families, another gateway node, rows in the way.

use trieste_ovn::condition::{Condition, Effect};

use crate::rows::ovn::{Addresses, Ovn, golden};
use crate::rows::packets::{enters, exits, path};
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
    // By another name, as OVN would go on to send to the former host's MAC address.
    let chassis = ovn.nbctl(&["lrp-get-gateway-chassis", "subm_ext_port2"]);
    assert_eq!(chassis.trim(), "subm_ext_port2-node2-chassis    10");
    assert!(!ovn.nbctl(&["lrp-list", "submariner_router"]).contains("(subm_ext_port)"));
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
    for (service, node) in [("web", "node1"), ("mail", "node1"), ("other", "node2")] {
        let address = format!("172.30.0.{}:80", service.len());
        ovn.nbctl(&["lb-add", service, &address, "10.128.0.5:8080", "tcp"]);
        ovn.nbctl(&["ls-lb-add", node, service]);
    }
    let balanced = || {
        let list = ovn.nbctl(&["lr-lb-list", "submariner_router"]);
        ["web", "mail", "other"].map(|service| list.contains(service))
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
    ovn.nbctl(&["ls-lb-del", "node1", "mail"]);
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
    ovn.nbctl(&["ls-lb-add", "node1", "mail"]);
    assert_eq!(ovn.everything(), before);
}

/// Makes a group of one load balancer, as OVN-Kubernetes does of all services, on these switches.
fn add_group(ovn: &Ovn, group: &str, service: &str, address: &str, switches: &[&str]) {
    ovn.nbctl(&["lb-add", service, address, "10.128.0.5:8080", "tcp"]);
    let (name, load_balancer) = (format!("name={group}"), format!("load_balancer={}", lb(ovn, service)));
    ovn.nbctl(&["create", "Load_Balancer_Group", &name, &load_balancer]);
    for switch in switches {
        ovn.nbctl(&["add", "Logical_Switch", switch, "load_balancer_group", &uuid_of(ovn, group)]);
    }
}

fn lb(ovn: &Ovn, service: &str) -> String {
    let name = format!("name={service}");
    ovn.nbctl(&["--bare", "--columns=_uuid", "find", "Load_Balancer", &name]).trim().to_owned()
}

fn uuid_of(ovn: &Ovn, group: &str) -> String {
    ovn.nbctl(&["get", "Load_Balancer_Group", group, "_uuid"]).trim().to_owned()
}

#[test]
fn plugin_ovn_the_submariner_router_balances_the_groups_of_the_gateways_switch() {
    let ovn = Ovn::start();
    ovn.add_kubernetes(&["node1", "node2"], Addresses::V4);
    add_group(&ovn, "clusterLBGroup", "web", "172.30.0.3:80", &["node1", "node2"]);
    add_group(&ovn, "clusterSwitchLBGroup", "db", "172.30.0.2:80", &["node1"]);
    add_group(&ovn, "other", "other", "172.30.0.5:80", &["node2"]);
    let balanced = || {
        let groups = ovn.nbctl(&["get", "Logical_Router", "submariner_router", "load_balancer_group"]);
        ["clusterLBGroup", "clusterSwitchLBGroup", "other"]
            .map(|group| groups.contains(&uuid_of(&ovn, group)))
    };
    let reached = |address: &str| {
        ovn.sync();
        enters(&ovn, address).contains("/* output to \"default_pod1\"")
    };
    let before = ovn.everything();
    let mut facts = Facts::proposal();
    converge(&ovn, &facts);
    assert_eq!(balanced(), [true, true, false]);
    let addresses = ["172.30.0.3", "172.30.0.2", "172.30.0.5"];
    assert_eq!(addresses.map(reached), [true, true, false]);

    // A service comes to a group and goes: nothing is to be written.
    ovn.nbctl(&["lb-add", "new", "172.30.0.9:80", "10.128.0.5:8080", "tcp"]);
    ovn.nbctl(&["add", "Load_Balancer_Group", "clusterLBGroup", "load_balancer", &lb(&ovn, "new")]);
    assert_eq!(apply(&ovn, &facts), (0, Vec::new()));
    assert!(reached("172.30.0.9"));
    ovn.nbctl(&["lb-del", "new"]);
    assert!(!reached("172.30.0.9"));

    // The switch gets another group, and somebody else's hand is put right. Of the one that leaves the switch the router lets go, or the
    // server would not delete it.
    ovn.nbctl(&["add", "Logical_Switch", "node1", "load_balancer_group", &uuid_of(&ovn, "other")]);
    ovn.nbctl(&["clear", "Logical_Router", "submariner_router", "load_balancer_group"]);
    converge(&ovn, &facts);
    assert_eq!(balanced(), [true, true, true]);
    let remove = |group: &str| {
        ovn.nbctl(&["remove", "Logical_Switch", "node1", "load_balancer_group", &uuid_of(&ovn, group)]);
    };
    remove("other");
    remove("clusterSwitchLBGroup");
    assert!(!ovn.try_nbctl("destroy Load_Balancer_Group clusterSwitchLBGroup"));
    assert_eq!(apply(&ovn, &facts), (1, Vec::new()));
    assert_eq!(balanced(), [true, false, false]);
    assert!(ovn.try_nbctl("destroy Load_Balancer_Group clusterSwitchLBGroup"));
    ovn.nbctl(&["lb-del", "db"]);
    add_group(&ovn, "clusterSwitchLBGroup", "db", "172.30.0.2:80", &["node1"]);

    facts.gateway_node = Some("node2".to_owned());
    converge(&ovn, &facts);
    assert_eq!(balanced(), [true, false, true]);
    remove_all(&ovn);
    assert_eq!(ovn.everything(), before);
}
