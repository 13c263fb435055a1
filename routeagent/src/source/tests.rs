use std::time::Duration;

use serde_json::json;

use std::net::IpAddr;

use ipnet::IpNet;
use serde_json::Value;
use trieste_control::api::{Object, label};

use super::*;

#[test]
fn an_endpoint_is_read_with_its_ports_and_device() {
    let object = endpoint(&json!({}), &json!({"udp-port": "4501", "interface-name": "cable7"}));
    let view = view("b", [&object]);
    let endpoint = &view.endpoints[0];
    assert_eq!((endpoint.cable_port, endpoint.natt_port), (4501, 4490));
    assert_eq!(endpoint.interface.as_deref(), Some("cable7"));
    assert_eq!(endpoint.addresses, ["172.31.2.11".parse::<IpAddr>().unwrap()]);
    assert!(view.conditions.is_empty(), "{:?}", view.conditions);
    assert_eq!(
        super::view("a", [&object]).endpoints[0].interface,
        None,
        "a remote cluster names our devices"
    );
}

#[test]
fn of_an_endpoint_with_a_bad_network_the_good_ones_are_claimed_but_not_routed() {
    let view = view("a", [&endpoint(&json!({"subnets": ["10.2.0.0/16", "10.3.0.0/33"]}), &json!({}))]);
    assert!(view.endpoints.is_empty());
    assert_eq!(view.clusters[0].networks, ["10.2.0.0/16".parse::<IpNet>().unwrap()]);
    let text = view.conditions.iter().map(ToString::to_string).collect::<String>();
    assert!(text.contains("Endpoint ns/b-cable") && text.contains("spec.subnets[1]"), "{text}");
}

#[test]
fn a_device_name_that_leaves_its_directory_is_not_used() {
    let view = view("b", [&endpoint(&json!({}), &json!({"interface-name": "../all"}))]);
    assert_eq!(view.endpoints[0].interface, None);
    assert_eq!(view.conditions.len(), 1);
}

#[test]
fn what_a_peer_writes_is_shown_short_and_on_one_line() {
    let name = format!("x\n{}", "y".repeat(100_000));
    let view = view("b", [&endpoint(&json!({}), &json!({"interface-name": name}))]);
    let text = view.conditions.iter().map(ToString::to_string).collect::<String>();
    assert!(text.len() < 500 && !text.contains('\n'), "{} bytes", text.len());
}

#[test]
fn a_cluster_claims_its_global_networks_alone_if_it_has_any() {
    let networks = |global: Value| {
        let spec = json!({"cluster_id": "b", "service_cidr": ["100.66.0.0/16"], "cluster_cidr": ["10.2.0.0/16"],
                          "global_cidr": global});
        view("a", [&object("Cluster", "b", &spec)]).clusters[0].networks.len()
    };
    assert_eq!((networks(json!([])), networks(json!(["242.1.0.0/16"]))), (2, 1));
}

#[test]
fn nothing_is_known_before_every_kind_was_listed_and_a_store_that_goes_away_is_remembered() {
    let mut known = Caches::default();
    let listed = |object| StoreEvent::Listed(vec![object]);
    known.take(Kind::Endpoint, &listed(endpoint(&json!({}), &json!({}))));
    known.take(Kind::Cluster, &StoreEvent::Listed(Vec::new()));
    assert_eq!(known.view(&Reader::default()), None);
    known.take(Kind::Node, &StoreEvent::Listed(Vec::new()));
    let before = known.view(&Reader::default()).unwrap();
    assert_eq!(before.endpoints.len(), 1);

    let source = std::io::Error::other("gone");
    let operation = "read directory /x".to_owned();
    known.take(Kind::Endpoint, &StoreEvent::Unavailable(StoreError::Unavailable { operation, source }));
    let after = known.view(&Reader::default()).unwrap();
    assert_eq!(after.endpoints, before.endpoints);
    assert!(after.conditions.iter().any(|c| c.to_string().contains("cannot read directory /x: gone")));
}

#[test]
fn clusters_that_may_not_be_read_are_done_without_also_after_an_outage() {
    let away = |error: fn(String, std::io::Error) -> StoreError| {
        StoreEvent::Unavailable(error("list clusters".to_owned(), std::io::Error::other("no")))
    };
    let mut known = Caches::default();
    known.take(Kind::Cluster, &away(|operation, source| StoreError::Forbidden { operation, source }));
    known.take(Kind::Cluster, &away(|operation, source| StoreError::Unavailable { operation, source }));
    known.take(Kind::Node, &StoreEvent::Listed(Vec::new()));
    known.take(Kind::Endpoint, &StoreEvent::Listed(vec![endpoint(&json!({}), &json!({}))]));
    let view = known.view(&Reader::default()).unwrap();
    assert_eq!((view.endpoints.len(), view.conditions.len()), (1, 0));
}

#[test]
fn nodes_that_may_not_be_read_are_a_condition_and_their_heartbeats_wake_nobody() {
    let node = |beat: &str| {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"},
            "status": {"conditions": [{"type": "Ready", "lastHeartbeatTime": beat}]}});
        Object::from_value(node).unwrap()
    };
    let source = std::io::Error::other("no");
    let forbidden = StoreError::Forbidden { operation: "list nodes".to_owned(), source };
    let mut known = Caches::default();
    known.take(Kind::Endpoint, &StoreEvent::Listed(Vec::new()));
    known.take(Kind::Cluster, &StoreEvent::Listed(Vec::new()));
    assert!(known.take(Kind::Node, &StoreEvent::Unavailable(forbidden)));
    let text = known
        .view(&Reader::default())
        .unwrap()
        .conditions
        .iter()
        .map(ToString::to_string)
        .collect::<String>();
    assert!(text.contains("may not list nodes") && known.store_error().is_none(), "{text}");

    assert!(known.take(Kind::Node, &StoreEvent::Listed(vec![node("1")])));
    let view = known.view(&Reader::default()).unwrap();
    assert_eq!((view.nodes.len(), view.conditions.len()), (1, 0));
    assert!(!known.take(Kind::Node, &StoreEvent::Applied(node("2"))));

    let mut own = |name: &str| {
        let node_name = Some(name.to_owned());
        known.view(&Reader { hostname: "h".to_owned(), node_name, ..Reader::default() }).unwrap()
    };
    assert_eq!((own("n1").nodes[0].hostname.as_str(), own("n1").conditions.len()), ("h", 0));
    assert_eq!(own("n2").conditions, [Condition::NoSuchNode { name: "n2".to_owned() }].into());
}

#[test]
fn plugin_cilium_nodes_have_the_networks_that_it_gave_them_and_none_while_that_is_not_known() {
    let object = |kind: &str, spec: &Value| {
        let api_version = if kind == "Node" { "v1" } else { "cilium.io/v2" };
        let object =
            json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "n1"}, "spec": spec});
        Object::from_value(object).unwrap()
    };
    let mut known = Caches::default();
    known.take(Kind::Endpoint, &StoreEvent::Listed(Vec::new()));
    known.take(Kind::Cluster, &StoreEvent::Listed(Vec::new()));
    known.take(Kind::Node, &StoreEvent::Listed(vec![object("Node", &json!({"podCIDRs": ["10.1.1.0/24"]}))]));
    let [with, without] = [true, false].map(|has_cilium| Reader { has_cilium, ..Reader::default() });
    let networks =
        |view: &ClusterView| view.nodes[0].pod_networks.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(networks(&known.view(&without).unwrap()), ["10.1.1.0/24"]);
    assert!(known.view(&with).is_none(), "nothing is done before they were listed");

    let source = std::io::Error::from(std::io::ErrorKind::NotFound);
    for error in [
        StoreError::Unavailable { operation: "list ciliumnodes".to_owned(), source },
        StoreError::Forbidden {
            operation: "list ciliumnodes".to_owned(),
            source: std::io::Error::other("no"),
        },
    ] {
        assert!(known.take(Kind::CiliumNode, &StoreEvent::Unavailable(error)));
        let view = known.view(&with).unwrap();
        assert!(networks(&view).is_empty() && known.store_error().is_none());
        let text = view.conditions.iter().map(ToString::to_string).collect::<String>();
        assert!(text.contains("list ciliumnodes"), "{text}");
    }

    let cilium = object("CiliumNode", &json!({"ipam": {"podCIDRs": ["10.1.9.0/24"]}}));
    assert!(known.take(Kind::CiliumNode, &StoreEvent::Listed(vec![cilium])));
    let view = known.view(&with).unwrap();
    assert_eq!((networks(&view), view.conditions.len()), (vec!["10.1.9.0/24".to_owned()], 0));
    // What was known stays while it cannot be read.
    let source = std::io::Error::other("away");
    known.take(
        Kind::CiliumNode,
        &StoreEvent::Unavailable(StoreError::Unavailable { operation: "watch".to_owned(), source }),
    );
    assert_eq!(networks(&known.view(&with).unwrap()), ["10.1.9.0/24"]);
    assert!(known.store_error().is_some());
}

#[test]
fn the_own_clusters_networks_are_its_objects_and_no_copys() {
    let cluster = |id: &str, pods: &[&str], extra: &str, origin: Option<&str>| {
        let spec = json!({"cluster_id": id, "color_codes": ["blue"], "service_cidr": ["10.96.0.0/16"],
            "cluster_cidr": pods, "global_cidr": []});
        let object = json!({"apiVersion": "submariner.io/v1", "kind": "Cluster", "spec": spec,
            "metadata": {"name": id, "annotations": {"trieste.io/extra-cidrs": extra}}});
        let mut object = Object::from_value(object).unwrap();
        object.metadata.labels.extend(origin.map(|origin| (label::CLUSTER_ID.to_owned(), origin.to_owned())));
        object
    };
    let read = |object: Object| view("a", [&object]).own_networks;
    let nets = |texts: &[&str]| -> Vec<IpNet> { texts.iter().map(|text| text.parse().unwrap()).collect() };
    let own = read(cluster("a", &["10.1.0.0/16", "10.77.0.0/24"], "10.77.0.0/24", None)).unwrap();
    assert_eq!((own.pods, own.extra), (nets(&["10.1.0.0/16"]), nets(&["10.77.0.0/24"])));
    assert_eq!(own.services, nets(&["10.96.0.0/16"]));
    assert_eq!(read(cluster("b", &["10.1.0.0/16"], "", None)), None);
    assert_eq!(read(cluster("a", &["10.1.0.0/16"], "", Some("b"))), None, "a member's copy");
}

#[tokio::test(start_paused = true)]
async fn what_a_pass_has_found_before_somebody_waits_for_it_is_not_missed() {
    let (reports, mut told_of) = watch::channel(Report::default());
    reports.send_modify(|report| report.serving.has_table = true);
    // Seen for another reason, and not acted upon.
    drop(told_of.borrow_and_update());
    let wait = Duration::from_secs(1);
    assert!(tokio::time::timeout(wait, table_changed(&mut told_of, false)).await.is_ok());
    assert!(tokio::time::timeout(wait, table_changed(&mut told_of, true)).await.is_err(), "it is no news");
}

#[test]
fn of_every_other_cluster_the_newest_endpoint_is_told_word_for_word() {
    let at = |name: &str, cluster: &str, second: u8| {
        let mut object = endpoint(&json!({"cluster_id": cluster, "hostname": name}), &json!({"k": "v"}));
        object.metadata.name = name.to_owned();
        object.metadata.creation_timestamp = format!("2026-11-21T05:48:{second:02}Z").parse().ok();
        object
    };
    let mut bad = at("c-bad", "c", 9);
    bad.body["spec"]["subnets"] = json!(["10.3.0.0/33"]);
    let mut known = Caches::default();
    let all = vec![at("b-1", "b", 2), at("b-2", "b", 1), at("own", "a", 3), at("c-1", "c", 1), bad];
    known.take(Kind::Endpoint, &StoreEvent::Listed(all));
    drop(known.view(&Reader { cluster: "a".to_owned(), ..Reader::default() }));
    let remotes = known.remotes();
    let told: Vec<_> = remotes.iter().map(|spec| (spec.hostname.as_str(), spec.subnets.len())).collect();
    assert_eq!(told, [("b-1", 1), ("c-1", 1)]);
    assert_eq!(remotes[0].backend_config["k"], "v");
}

fn endpoint(fields: &Value, backend_config: &Value) -> Object {
    let mut spec = json!({
        "cluster_id": "b", "cable_name": "cable", "hostname": "b-gw1", "subnets": ["10.2.0.0/16"],
        "private_ip": "172.31.2.11", "public_ip": "", "backend": "wireguard",
        "backend_config": backend_config,
    });
    spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    object("Endpoint", "b-cable", &spec)
}

fn object(kind: &str, name: &str, spec: &Value) -> Object {
    Object::from_value(json!({
        "apiVersion": "submariner.io/v1", "kind": kind,
        "metadata": {"name": name, "namespace": "ns"}, "spec": spec,
    }))
    .unwrap()
}
