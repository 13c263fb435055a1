//! What follows from objects.

use serde_json::json;
use trieste_control::api::ObjectMeta;

use super::*;

const NAMESPACE: &str = "submariner-operator";

fn facts() -> Facts {
    Facts::new("a", "w1", vec!["10.128.0.0/14".parse().unwrap()], Topology::ClusterRouter)
}

fn route(kind: Kind, cluster: &str, hops: &[&str]) -> Object {
    let mut object = Object::new(kind, ObjectMeta::new(NAMESPACE, cluster));
    object.body.insert("spec".to_owned(), json!({"nextHops": hops, "remoteCIDRs": ["10.132.0.0/14"]}));
    object
}

fn gateway(cluster: &str, hostname: &str, created: &str) -> Object {
    let mut object = Object::new(Kind::Endpoint, ObjectMeta::new(NAMESPACE, format!("{cluster}-{hostname}")));
    object.metadata.creation_timestamp = Some(created.parse().unwrap());
    object.body.insert("spec".to_owned(), json!({"cluster_id": cluster, "hostname": hostname}));
    object
}

fn node(name: &str, zone: Option<&str>, subnets: &str) -> Object {
    let mut object = Object::new(Kind::Node, ObjectMeta::new("", name));
    object.metadata.labels.insert(label::HOSTNAME.to_owned(), format!("host-{name}"));
    object.metadata.annotations.insert(SUBNETS.to_owned(), subnets.to_owned());
    object.metadata.annotations.extend(zone.map(|zone| (annotation::OVN_ZONE.to_owned(), zone.to_owned())));
    object
}

impl Facts {
    fn see(&mut self, kind: Kind, event: &StoreEvent) -> bool {
        self.take(kind, event, Instant::now())
    }
}

/// Lists everything: the gateway is on node gw1.
fn listed(zones: [Option<&str>; 2]) -> Facts {
    let mut facts = facts();
    let nodes = vec![
        node("gw1", zones[0], r#"{"default":["10.128.2.0/23","fd00:10:128:2::/64"]}"#),
        node("w1", zones[1], r#"{"default":"10.128.4.0/23"}"#),
    ];
    let gateways = vec![
        gateway("a", "host-w1", "2026-01-01T00:00:00Z"),
        gateway("a", "host-gw1", "2026-01-02T00:00:00Z"),
        gateway("b", "elsewhere", "2026-01-03T00:00:00Z"),
    ];
    let hops = &["10.128.2.2"];
    assert!(facts.see(Kind::GatewayRoute, &StoreEvent::Listed(vec![route(Kind::GatewayRoute, "b", hops)])));
    assert!(facts.see(Kind::NonGatewayRoute, &StoreEvent::Listed(Vec::new())));
    assert!(facts.see(Kind::Node, &StoreEvent::Listed(nodes)));
    assert!(facts.wanted(Instant::now()).is_none(), "not everything was listed");
    assert!(facts.see(Kind::Endpoint, &StoreEvent::Listed(gateways)));
    assert!(facts.wanted(Instant::now()).is_none(), "not everything was listed");
    assert!(facts.see(Kind::Cluster, &StoreEvent::Listed(Vec::new())));
    facts
}

fn cluster(id: &str, pods: &[&str]) -> Object {
    let mut object = Object::new(Kind::Cluster, ObjectMeta::new(NAMESPACE, id));
    let spec = json!({"cluster_id": id, "color_codes": [], "cluster_cidr": pods, "service_cidr": ["172.30.0.0/16"],
        "global_cidr": []});
    object.body.insert("spec".to_owned(), spec);
    object
}

#[test]
fn plugin_ovn_the_own_networks_are_those_that_the_cluster_announces() {
    let mut facts = listed([None, None]);
    let remote = |facts: &mut Facts| facts.wanted(Instant::now()).unwrap().len();
    assert_eq!(remote(&mut facts), 1);
    // Another cluster's object, and one of ours that says the same, are nothing new.
    assert!(!facts.see(Kind::Cluster, &StoreEvent::Applied(cluster("b", &["10.132.0.0/14"]))));
    let grown = cluster("a", &["10.128.0.0/14", "10.132.0.0/14"]);
    assert!(facts.see(Kind::Cluster, &StoreEvent::Applied(grown.clone())));
    assert!(!facts.see(Kind::Cluster, &StoreEvent::Listed(vec![grown.clone()])));
    assert_eq!(remote(&mut facts), 0, "what is the cluster's own is led nowhere");
    // While the object is away, networks are what it said last.
    assert!(!facts.see(Kind::Cluster, &StoreEvent::Deleted(grown)));
    assert_eq!(remote(&mut facts), 0);
    assert!(facts.see(Kind::Cluster, &StoreEvent::Applied(cluster("a", &["10.128.0.0/14"]))));
    assert_eq!(remote(&mut facts), 1);
}

#[test]
fn plugin_ovn_without_the_right_to_read_clusters_the_networks_of_the_start_count() {
    let mut facts = facts();
    for kind in [Kind::GatewayRoute, Kind::NonGatewayRoute, Kind::Node, Kind::Endpoint] {
        facts.see(kind, &StoreEvent::Listed(Vec::new()));
    }
    let forbidden =
        StoreError::Forbidden { operation: "listing".into(), source: std::io::Error::other("no") };
    assert!(facts.see(Kind::Cluster, &StoreEvent::Unavailable(forbidden)));
    assert!(facts.wanted(Instant::now()).is_some());
}

#[test]
fn plugin_ovn_the_gateway_is_the_newest_of_the_own_cluster_and_zones_are_compared() {
    for (zones, zone) in [
        ([None, None], Zone::Gateway),
        ([Some("global"), Some("global")], Zone::Gateway),
        ([Some("gw1"), Some("w1")], Zone::Other),
        ([Some("gw1"), None], Zone::Gateway),
    ] {
        let mut facts = listed(zones);
        assert_eq!(facts.gateway_node().as_deref(), Some("gw1"));
        assert_eq!(facts.zone(), zone, "{zones:?}");
        let port: Vec<String> = facts.management_port().iter().map(ToString::to_string).collect();
        assert_eq!(port, ["10.128.2.2", "fd00:10:128:2::2"]);
        let wanted = facts.wanted(Instant::now()).unwrap();
        assert_eq!(wanted.len(), 1);
    }
}

#[test]
fn plugin_ovn_the_zone_of_a_gateway_that_is_gone_stays_the_gateways() {
    let mut facts = listed([Some("gw1"), Some("w1")]);
    for gone in
        [gateway("a", "host-gw1", "2026-01-02T00:00:00Z"), gateway("a", "host-w1", "2026-01-01T00:00:00Z")]
    {
        assert!(facts.see(Kind::Endpoint, &StoreEvent::Deleted(gone)));
    }
    assert_eq!((facts.gateway_node(), facts.zone()), (None, Zone::Gateway), "the last one was on w1 itself");
    assert!(
        facts.see(Kind::Endpoint, &StoreEvent::Applied(gateway("a", "host-gw1", "2026-01-04T00:00:00Z")))
    );
    assert_eq!(facts.zone(), Zone::Other);
    assert!(facts.see(Kind::Endpoint, &StoreEvent::Listed(Vec::new())));
    assert_eq!((facts.gateway_node(), facts.zone()), (None, Zone::Other));
}

#[test]
fn plugin_ovn_what_says_nothing_new_changes_nothing() {
    let mut facts = listed([None, None]);
    let mut beat = node("gw1", None, r#"{"default":["10.128.2.0/23","fd00:10:128:2::/64"]}"#);
    beat.body.insert("status".to_owned(), json!({"conditions": [{"type": "Ready"}]}));
    assert!(!facts.see(Kind::Node, &StoreEvent::Applied(beat)));
    let again = route(Kind::GatewayRoute, "b", &["10.128.2.2"]);
    assert!(!facts.see(Kind::GatewayRoute, &StoreEvent::Applied(again)));
    let others = gateway("b", "another", "2026-01-09T00:00:00Z");
    assert!(!facts.see(Kind::Endpoint, &StoreEvent::Applied(others)));
}

#[test]
fn plugin_ovn_objects_that_cannot_be_read_are_named_until_they_can_be_or_are_gone() {
    let mut facts = listed([None, None]);
    for spec in [json!({"nextHops": 7}), json!("x"), json!({"remoteCIDRs": {"a": 1}, "nextHops": []})] {
        let mut bad = route(Kind::GatewayRoute, "c", &[]);
        bad.body.insert("spec".to_owned(), spec);
        facts.see(Kind::GatewayRoute, &StoreEvent::Applied(bad));
        assert!(facts.problems().contains_key("GatewayRoute c"), "{:?}", facts.problems());
        assert_eq!(facts.wanted(Instant::now()).unwrap().len(), 1);
    }
    facts.see(Kind::NonGatewayRoute, &StoreEvent::Listed(Vec::new()));
    assert_eq!(facts.problems().len(), 1, "of another kind");
    facts.see(Kind::GatewayRoute, &StoreEvent::Deleted(route(Kind::GatewayRoute, "c", &[])));
    assert!(facts.problems().is_empty());
}

#[test]
fn plugin_ovn_management_ports_are_the_second_addresses_of_their_networks() {
    for (text, expected) in [
        (r#"{"default":["10.244.1.0/24","fd00:10:244:2::/64"]}"#, &["10.244.1.2", "fd00:10:244:2::2"][..]),
        (r#"{"default":"10.244.1.0/24"}"#, &["10.244.1.2"]),
        (r#"{"default":["x","10.244.1.0/31","10.244.2.0/23"]}"#, &["10.244.2.2"]),
        (r#"{"other":"10.244.1.0/24"}"#, &[]),
        ("no", &[]),
    ] {
        let found: Vec<String> = management_port(text).iter().map(ToString::to_string).collect();
        assert_eq!(found, expected, "{text}");
    }
}

#[test]
fn plugin_ovn_what_nobody_names_any_more_stays_closed_for_a_while() {
    let mut facts = listed([None, None]);
    let began = Instant::now();
    let before = facts.wanted(began).unwrap();
    assert_eq!(facts.next_end(), None);
    let gone = route(Kind::GatewayRoute, "b", &[]);
    assert!(facts.take(Kind::GatewayRoute, &StoreEvent::Deleted(gone), began));
    let closed = facts.wanted(began).unwrap();
    assert!(closed.len() == 1 && closed != before, "it is closed, and led nowhere");
    assert_eq!(facts.next_end(), Some(began + CLOSE_GRACE));
    // It comes back, and goes with a change of its object.
    let back = route(Kind::GatewayRoute, "b", &["10.128.2.2"]);
    assert!(facts.take(Kind::GatewayRoute, &StoreEvent::Applied(back), began));
    assert_eq!(facts.wanted(began), Some(before));
    let mut other = route(Kind::GatewayRoute, "b", &["10.128.2.2"]);
    other.body["spec"]["remoteCIDRs"] = json!(["10.140.0.0/14"]);
    let later = began + Duration::from_secs(5);
    assert!(facts.take(Kind::GatewayRoute, &StoreEvent::Applied(other), later));
    assert_eq!(facts.wanted(later).unwrap().len(), 2);
    assert_eq!(facts.wanted(later + CLOSE_GRACE).unwrap().len(), 1);
    assert_eq!(facts.next_end(), None);
}

#[test]
fn plugin_ovn_an_object_that_cannot_be_read_any_more_closes_its_networks_and_what_nobody_has_comes_last() {
    let mut facts = listed([None, None]);
    let now = Instant::now();
    let open = facts.wanted(now).unwrap();
    let mut bad = route(Kind::GatewayRoute, "b", &["10.128.2.2"]);
    bad.body.remove("spec");
    assert!(facts.take(Kind::GatewayRoute, &StoreEvent::Applied(bad.clone()), now));
    assert!(!facts.take(Kind::GatewayRoute, &StoreEvent::Applied(bad), now));
    let closed = facts.wanted(now + CLOSE_GRACE + CLOSE_GRACE).unwrap();
    assert!(
        closed.len() == 1 && closed != open,
        "it is there, and led nowhere, for as long as the object is"
    );
    // Networks of no cluster are closed too, and take nothing from one that has the same.
    let nobodys = route(Kind::GatewayRoute, "0.closed.trieste.io", &["10.128.2.2"]);
    assert!(facts.take(Kind::GatewayRoute, &StoreEvent::Applied(nobodys), now));
    let back = route(Kind::GatewayRoute, "b", &["10.128.2.2"]);
    assert!(facts.take(Kind::GatewayRoute, &StoreEvent::Applied(back), now));
    assert_eq!(facts.wanted(now), Some(open));
}

#[test]
fn plugin_ovn_what_an_earlier_process_has_closed_stays_closed_for_a_while() {
    let mut facts = listed([None, None]);
    let now = Instant::now();
    facts.close(["10.132.0.0/14", "fd00:99::/48"].map(|text| text.parse().unwrap()), now);
    assert_eq!(facts.wanted(now).unwrap().len(), 2, "one is an object's");
    assert_eq!(facts.wanted(now + CLOSE_GRACE).unwrap().len(), 1);
}

#[test]
fn plugin_ovn_a_kind_that_is_never_listed_keeps_nothing_for_ever() {
    let mut facts = facts();
    let now = Instant::now();
    facts.close(["10.132.0.0/14".parse().unwrap()], now);
    assert_eq!(facts.wanted(now + CLOSE_GRACE), None);
    assert_eq!(facts.next_end(), None);
}
