use std::sync::Arc;

use serde_json::{Value, json};
use trieste_control::services::Backend;

use super::read::read;
use super::render::render;
use super::*;

fn frontend(address: &str, protocol: Protocol, port: u16) -> Frontend {
    Frontend { address: address.parse().unwrap(), protocol, port }
}

fn service(backends: &[&str], keeps_clients: bool) -> Service {
    let backend = |address: &&str| Backend {
        address: address.parse().unwrap(),
        port: 8080,
        node: Some(Arc::from("w1")),
        is_used: true,
        is_serving: true,
    };
    Service { keeps_clients, backends: backends.iter().map(backend).collect() }
}

fn rules(services: &[(Frontend, Service)]) -> ServiceRules {
    let nets = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
    ServiceRules {
        inlets: ["vx-submariner".to_owned(), "submariner".to_owned()].into(),
        remote: nets(&["10.2.0.0/16", "fd00:2::/48"]),
        served: nets(&["10.96.0.0/16"]),
        own: nets(&["10.1.0.0/16", "10.96.0.0/16"]),
        relayed: nets(&["10.1.3.0/24"]),
        services: services.iter().cloned().collect(),
    }
}

fn desired(services: &[(Frontend, Service)]) -> DesiredServices {
    DesiredServices::Rules { at: "172.31.1.11".parse().unwrap(), rules: rules(services) }
}

fn web() -> (Frontend, Service) {
    (frontend("10.96.0.10", Protocol::Tcp, 80), service(&["10.1.3.10"], false))
}

/// What `nft -j` 1.0.6 lists of chains that draw, as recorded, with fewer places.
fn listed() -> Value {
    json!({"nftables": [
        {"metainfo": {"version": "1.0.6"}},
        {"map": {"family": "inet", "name": "frontends4", "table": "trieste-services", "handle": 9, "map": "verdict",
            "type": ["ipv4_addr", "inet_proto", "inet_service"],
            "elem": [[{"concat": ["10.96.0.10", "udp", 53]}, {"goto": {"target": "b-0124"}}]]}},
        {"chain": {"family": "inet", "table": "trieste-services", "name": "b-0124", "handle": 2}},
        {"chain": {"family": "inet", "table": "trieste-services", "name": "b-0125", "handle": 3}},
        {"chain": {"family": "inet", "table": "trieste-services", "name": "b-0126", "handle": 4}},
        {"rule": {"family": "inet", "table": "trieste-services", "chain": "b-0124", "handle": 12, "expr": [
            {"dnat": {"family": "ip", "addr": {"map": {
                "key": {"jhash": {"mod": 2, "seed": 1, "expr": {"concat": [
                    {"payload": {"protocol": "ip", "field": "saddr"}}, {"payload": {"protocol": "udp", "field": "sport"}}]}}},
                "data": {"set": [[0, {"concat": ["10.1.3.10", 8080]}], [1, {"concat": ["10.1.3.11", 8080]}]]}}}}}]}},
        {"rule": {"family": "inet", "table": "trieste-services", "chain": "b-0125", "handle": 14, "expr": [
            {"match": {"op": "==", "left": {"meta": {"key": "l4proto"}}, "right": "sctp"}},
            {"dnat": {"family": "ip", "addr": {"map": {
                "key": {"jhash": {"mod": 1, "seed": 1, "expr": {"payload": {"protocol": "ip", "field": "saddr"}}}},
                "data": {"set": [[0, {"concat": ["10.1.3.10", 8080]}]]}}}}}]}},
        {"rule": {"family": "inet", "table": "trieste-services", "chain": "b-0126", "handle": 15, "expr": [{"accept": null}]}},
    ]})
}

#[test]
fn what_the_kernel_lists_is_read() {
    let table = read(SERVICES_TABLE, listed().to_string().as_bytes()).unwrap();
    let at = frontend("10.96.0.10", Protocol::Udp, 53);
    assert_eq!(table.frontends, BTreeMap::from([(at, "b-0124".to_owned())]));
    let places = |hosts: &[u8]| -> Vec<(IpAddr, u16)> {
        hosts.iter().map(|host| (IpAddr::from([10, 1, 3, *host]), 8080)).collect()
    };
    let drawn = Pick { protocol: Protocol::Udp, by_port: true, places: places(&[10, 11]) };
    let kept = Pick { protocol: Protocol::Sctp, by_port: false, places: places(&[10]) };
    let expected = [("b-0124", Some(drawn.into())), ("b-0125", Some(kept.into())), ("b-0126", None)];
    assert_eq!(table.picks, expected.map(|(name, pick)| (name.to_owned(), pick)).into());
}

#[test]
fn what_is_as_wished_needs_no_change_and_what_is_not_known_none_either() {
    let wish = desired(&[web()]);
    let there = ObservedServices::Present(Table::of(&rules(&[web()])));
    assert_eq!(services_change(&wish, &there), None);
    assert_eq!(services_change(&DesiredServices::AsItIs, &there), None);
    assert_eq!(services_change(&wish, &ObservedServices::Unknown), None);
    assert_eq!(services_change(&DesiredServices::Absent, &ObservedServices::Absent), None);
    assert_eq!(
        services_change(&DesiredServices::Absent, &there),
        Some(ServicesChange::Remove(SERVICES_TABLE))
    );
    let built = services_change(&wish, &ObservedServices::Absent);
    assert!(matches!(built, Some(ServicesChange::Build(_))), "{built:?}");
}

#[test]
fn a_service_that_comes_or_goes_leaves_the_others_alone() {
    let dns = (frontend("10.96.0.53", Protocol::Udp, 53), service(&["10.1.3.11", "10.1.3.12"], true));
    let (one, two) = (Table::of(&rules(&[web()])), Table::of(&rules(&[web(), dns])));
    let text = |from: &Table, to: &Table| {
        let (from, to) = (from.clone().into(), to.clone().into());
        render(&ServicesChange::Update { from, to }).to_string()
    };
    let added = text(&one, &two);
    assert!(added.contains("10.96.0.53") && !added.contains("10.96.0.10"), "{added}");
    let removed = text(&two, &one);
    assert!(removed.contains("\"delete\"") && !removed.contains("10.96.0.10"), "{removed}");
}

#[test]
fn a_foreign_rule_among_ours_has_the_table_made_anew() {
    let mut there = Table::of(&rules(&[web()]));
    there.picks.insert("b-foreign".to_owned(), None);
    let change = services_change(&desired(&[web()]), &ObservedServices::Present(there));
    assert!(matches!(change, Some(ServicesChange::Build(_))), "{change:?}");
}

#[test]
fn a_back_end_that_goes_moves_only_its_own_clients() {
    let pick = |backends: &[&str]| Pick::of(&web().0, &service(backends, false)).unwrap();
    let (all, fewer) = (pick(&["10.1.3.10", "10.1.3.11", "10.1.3.12"]), pick(&["10.1.3.10", "10.1.3.11"]));
    let gone: IpAddr = "10.1.3.12".parse().unwrap();
    let mut counts: BTreeMap<IpAddr, usize> = BTreeMap::new();
    for (before, after) in all.places.iter().zip(&fewer.places) {
        *counts.entry(before.0).or_default() += 1;
        assert!(before == after || before.0 == gone);
    }
    assert!(counts.values().all(|count| (12..=32).contains(count)), "{counts:?}");
    assert_eq!(pick(&["10.1.3.10"]).places.len(), 1);
    assert_eq!(Pick::of(&web().0, &service(&["fd00::1"], false)), None, "of the other family");
}

#[test]
fn a_table_tells_whether_pods_are_left_untracked() {
    let pods: IpNet = "10.1.0.0/16".parse().unwrap();
    let several = rules(&[]);
    let one = ServiceRules { own: ["10.96.0.0/16".parse().unwrap()].into(), ..several.clone() };
    assert!(Table::of(&several).leaves_untracked(&pods) && !Table::of(&one).leaves_untracked(&pods));
    assert!(!Table::of(&several).leaves_untracked(&"fd00:1::/48".parse().unwrap()));
}
