//! Beside gateways and route agents of Submariner's own.

use super::*;

#[test]
fn while_the_gateways_node_has_upstreams_agent_a_worker_takes_what_the_plugin_delivers() {
    let delivery = |hostname: &str| {
        let mut state = cluster(hostname, &["10.2.0.0/16"]);
        state.is_agent_foreign = true;
        let desired = KubeProxy.desired(&state);
        let why = desired.conditions.iter().find(|c| matches!(c, Condition::PluginDelivers { .. }));
        (desired.hostnet.guard.unwrap().delivery, why.map(ToString::to_string).unwrap_or_default())
    };
    let (worker, why) = delivery("a-w1");
    assert_eq!(worker, Delivery::Plugin);
    assert!(why.contains("another route agent than Trieste's"), "{why}");
    assert_eq!(delivery("a-gw1"), (Delivery::Inlets, String::new()));
}

#[test]
fn beside_upstreams_ipsec_gateway_packets_leave_by_the_default_device() {
    let mut state = cluster("a-gw1", &["10.2.0.0/16", "100.66.0.0/16"]);
    state.endpoints[0].backend = "libreswan".into();
    state.endpoints[1].addresses = vec!["192.168.7.7".parse().unwrap(), "10.2.0.21".parse().unwrap()];
    for address in state.lookup_addresses() {
        let way =
            ResolvedRoute { device: "eth0".into(), via: Some("172.31.1.1".parse().unwrap()), source: None };
        state.resolved_routes.insert(address, way);
    }
    let desired = KubeProxy.desired(&state);
    let routes = routes(&desired);
    // Where the remote gateway is inside: to its next hop, or the cable's own packets would be looked for on the link.
    assert!(
        routes.contains(&"10.2.0.0/16 via 172.31.1.1 dev eth0 src 10.1.1.1 table 150".to_owned()),
        "{routes:?}"
    );
    assert!(routes.contains(&"100.66.0.0/16 dev eth0 src 10.1.1.1 table 150".to_owned()));
    assert_eq!(desired.hostnet.guard.unwrap().delivery, Delivery::Ipsec);
    assert!(!desired.hostnet.rules.iter().any(|rule| rule.table == 149));
}

#[test]
fn beside_upstreams_vxlan_gateway_its_own_table_leads_and_ours_refuses() {
    let mut state = cluster("a-gw1", &["10.2.0.0/16"]);
    state.endpoints[0].backend = "vxlan".into();
    let desired = KubeProxy.desired(&state);
    let in_150: Vec<String> =
        routes(&desired).into_iter().filter(|route| route.contains("table 150")).collect();
    assert_eq!(in_150, ["unreachable 10.2.0.0/16 table 150 metric 4278198272"]);
    assert!(desired.hostnet.guard.unwrap().inlets.contains("vxlan-tunnel"));
    assert!(desired.hostnet.rules.contains(&Rule::delivery(Family::V4, "vxlan-tunnel")));
}
