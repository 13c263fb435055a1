//! Objects of a small set: `shop/web` with virtual addresses and `shop/db`, headless.

use serde_json::{Value, json};
use trieste_control::api::{Kind, Object, ObjectMeta, annotation, displace, label};

use super::*;

/// Cluster west, whose gateway is connected to east and not to north.
pub(crate) fn gateway() -> Object {
    let connection = |cluster: &str, status: &str| {
        json!({"status": status, "statusMessage": "", "endpoint": {"cluster_id": cluster, "cable_name": "c",
            "hostname": "h", "subnets": [], "backend": "wireguard", "private_ip": "10.0.0.9", "public_ip": "",
            "nat_enabled": false, "backend_config": {}}})
    };
    object(
        Kind::Gateway,
        ("submariner-operator", "gw1"),
        &json!({"status": {"haStatus": "active", "version": "v", "statusFailure": "",
            "localEndpoint": {"cluster_id": "west", "cable_name": "c", "hostname": "gw1", "subnets": [],
                "backend": "wireguard", "private_ip": "10.0.0.1", "public_ip": "", "nat_enabled": false,
                "backend_config": {}},
            "connections": [connection("east", "connected"), connection("north", "error")]}}),
    )
}

pub(crate) fn object(kind: Kind, (namespace, name): (&str, &str), body: &Value) -> Object {
    let mut object = Object::new(kind, ObjectMeta::new(namespace, name));
    for (field, value) in body.as_object().unwrap() {
        object.body.insert(field.clone(), value.clone());
    }
    object
}

/// An export of a service of `shop` with conditions: type, status, reason.
pub(crate) fn export(name: &str, conditions: &[(&str, &str, &str)]) -> Object {
    let condition = |(kind, status, reason): &(&str, &str, &str)| {
        json!({"type": kind, "status": status, "reason": reason, "message": format!("about {kind}"),
            "lastTransitionTime": "2026-11-27T10:00:00Z"})
    };
    let conditions: Vec<Value> = conditions.iter().map(condition).collect();
    object(Kind::ServiceExport, ("shop", name), &json!({"status": {"conditions": conditions}}))
}

/// The conditions of an export that is well.
pub(crate) const WELL: &[(&str, &str, &str)] = &[("Valid", "True", "Valid"), ("Ready", "True", "Exported")];

/// An import of a service of `shop`.
pub(crate) fn import(name: &str, kind: &str, clusters: &[&str]) -> Object {
    let clusters: Vec<Value> = clusters.iter().map(|cluster| json!({"cluster": cluster})).collect();
    object(
        Kind::ServiceImport,
        ("shop", name),
        &json!({"spec": {"type": kind, "ports": [{"name": "http", "protocol": "TCP", "port": 80}]},
            "status": {"clusters": clusters}}),
    )
}

/// A slice of a service of `shop` in a cluster: addresses, and whether they are ready.
pub(crate) fn slice(service: &str, cluster: &str, endpoints: &[(&str, bool)]) -> Object {
    let is_v6 = endpoints.first().is_some_and(|(address, _)| address.contains(':'));
    let entries: Vec<Value> = endpoints
        .iter()
        .map(|(address, is_ready)| json!({"addresses": [address], "conditions": {"ready": is_ready}}))
        .collect();
    let family = if is_v6 { "IPv6" } else { "IPv4" };
    let name = format!("{service}-{cluster}-{}", family.to_lowercase());
    let mut slice = object(
        Kind::EndpointSlice,
        ("shop", &name),
        &json!({"addressType": family, "endpoints": entries,
            "ports": [{"name": "http", "protocol": "TCP", "port": 80}]}),
    );
    let labels = [
        (label::MANAGED_BY, label::LIGHTHOUSE_AGENT),
        (label::SERVICE_NAME, service),
        (label::SOURCE_NAMESPACE, "shop"),
        (label::SOURCE_CLUSTER, cluster),
    ];
    slice.metadata.labels.extend(labels.map(|(key, value)| (key.to_owned(), value.to_owned())));
    slice
}

/// A cluster's own part of the import of `shop/web`.
pub(crate) fn part(cluster: &str) -> Object {
    let mut part = import(&format!("web-shop-{cluster}"), "ClusterSetIP", &[cluster]);
    for (key, value) in [(label::SERVICE_NAME, "web"), (label::SOURCE_CLUSTER, cluster)] {
        part.metadata.labels.insert(key.to_owned(), value.to_owned());
    }
    part
}

/// The whole set: web of west and east, both ready; db of east and north, of both families.
pub(crate) fn objects() -> Objects {
    Objects {
        exports: vec![export("web", WELL)],
        imports: vec![
            import("web", "ClusterSetIP", &["west", "east"]),
            import("db", "Headless", &["east", "north"]),
            part("west"),
        ],
        slices: vec![
            slice("web", "west", &[("10.1.0.1", true)]),
            slice("web", "east", &[("10.2.0.1", true)]),
            slice("db", "east", &[("10.2.1.1", true), ("10.2.1.2", false)]),
            slice("db", "east", &[("fd00:2::1", true), ("fd00:2::2", false)]),
            slice("db", "north", &[("10.3.1.1", true)]),
        ],
        gateways: vec![gateway()],
    }
}

#[test]
fn services_are_those_of_exports_and_of_the_sets_imports() {
    let mut objects = objects();
    objects.exports.push(export("new", &[]));
    let mut record = import("web-shop", "ClusterSetIP", &["west"]);
    record.metadata.annotations.insert(label::SERVICE_NAME.to_owned(), "web".to_owned());
    objects.imports.push(record);
    let discovery = Discovery::new(objects);
    assert_eq!((discovery.local.as_deref(), discovery.has_active_gateway), (Some("west"), true));
    let found = discovery.services();
    let names: Vec<String> = found.iter().map(|service| service.name.to_string()).collect();
    assert_eq!(names, ["shop/db", "shop/new", "shop/web"]);
    assert_eq!(found[0].clusters(), ["east", "north"]);
    assert_eq!(
        (found[0].is_up("east"), found[0].is_up("north"), found[0].is_up("x")),
        (Some(true), Some(false), None)
    );
    assert_eq!(found[0].endpoints["east"].to_string(), "1/2");
    assert_eq!(found[2].condition("Ready").unwrap().reason, "Exported");
    assert!(found[1].export.is_some() && found[1].import.is_none() && found[1].survey.is_none());
}

#[test]
fn a_cluster_without_gateways_is_known_by_its_own_parts_of_imports() {
    let copy = |cluster: &str| {
        let mut copy = part(cluster);
        copy.metadata.labels.insert(label::CLUSTER_ID.to_owned(), cluster.to_owned());
        copy
    };
    let local = |imports: Vec<Object>| Discovery::new(Objects { imports, ..Objects::default() }).local;
    assert_eq!(local(vec![part("west"), copy("east")]).as_deref(), Some("west"));
    assert_eq!(local(vec![part("west"), part("east")]), None);
    assert_eq!(local(Vec::new()), None);
}

#[test]
fn a_bad_condition_is_one_that_is_not_so_or_a_conflict() {
    let conditions = [("Valid", "True"), ("Ready", "False"), ("Conflict", "True"), ("Conflict", "False")];
    let bad = conditions.map(|(kind, status)| {
        let (kind, status) = (kind.to_owned(), status.to_owned());
        Condition { kind, status, reason: "Why".to_owned(), message: "a\nb".to_owned() }
    });
    assert_eq!(bad.each_ref().map(Condition::is_bad), [false, true, true, false]);
    assert_eq!(bad[1].to_string(), "Ready is False: Why: a b");
}

#[test]
fn an_import_that_cannot_be_used_says_why() {
    let mut objects = objects();
    let key = annotation::ROUTING.to_owned();
    objects.imports[0].metadata.annotations.insert(key, "far".to_owned());
    objects.imports[1].body.insert("spec".to_owned(), json!(7));
    let found = Discovery::new(objects).services();
    assert!(found[0].problem.is_some() && found[0].import.is_none());
    // A choice among clusters that cannot be takes no service away.
    assert!(found[1].problem.is_none() && found[1].survey.is_some(), "{:?}", found[1].problem);
}

#[tokio::test]
async fn own_pods_are_counted_by_their_global_addresses_and_answered_by_their_own() {
    let mut global = slice("db", "west", &[("242.0.0.1", true), ("242.0.0.2", false)]);
    global.metadata.labels.insert(label::IS_HEADLESS.to_owned(), "true".to_owned());
    global.metadata.annotations.insert(annotation::GLOBALNET_ENABLED.to_owned(), "true".to_owned());
    let mut objects = objects();
    objects.slices.push(global);
    let mut discovery = Discovery::new(objects);
    let db = |discovery: &Discovery| discovery.services().remove(0);
    let found = db(&discovery);
    assert_eq!((found.endpoints["west"].to_string(), found.is_up("west")), ("1/2".to_owned(), Some(true)));
    let addresses = |service: &Service| service.survey.as_ref().unwrap().clusters[2].addresses.clone();
    assert_eq!(addresses(&found), ["242.0.0.1".parse::<std::net::IpAddr>().unwrap()]);
    let mut pods = slice("db", "west", &[("10.1.0.7", true)]);
    pods.metadata.name = "db-x".to_owned();
    pods.metadata.labels = [(SERVICE_NAME.to_owned(), "db".to_owned())].into();
    let root = tempfile::tempdir().unwrap();
    let location = trieste_control::store::Location::Dir(root.path().to_owned());
    let store = trieste_control::store::AnyStore::open(&location).unwrap();
    trieste_control::store::Store::create(&store, pods).await.unwrap();
    let other = Name { namespace: "shop".to_owned(), name: "web".to_owned() };
    discovery.read_own(&Lists::Store(&store, &location), Some(&other)).await.unwrap();
    assert_eq!(addresses(&db(&discovery)), addresses(&found), "another service was asked for");
    discovery.read_own(&Lists::Store(&store, &location), None).await.unwrap();
    assert_eq!(addresses(&db(&discovery)), ["10.1.0.7".parse::<std::net::IpAddr>().unwrap()]);
}

#[tokio::test]
async fn services_whose_namespace_is_missing_are_under_their_own_names() {
    let root = tempfile::tempdir().unwrap();
    let location = trieste_control::store::Location::Dir(root.path().to_owned());
    let store = trieste_control::store::AnyStore::open(&location).unwrap();
    let operator = "submariner-operator";
    let mut of_west = Objects {
        exports: Vec::new(),
        slices: vec![slice("web", "east", &[("10.2.0.1", true)])],
        ..objects()
    };
    of_west.imports.truncate(1);
    for mut object in of_west.imports.into_iter().chain(of_west.slices) {
        displace(&mut object, operator);
        trieste_control::store::Store::create(&store, object).await.unwrap();
    }
    let lists = Lists::Store(&store, &location);
    let objects = lists.objects(of_west.gateways.clone(), operator).await.unwrap();
    let found = Discovery::new(objects).services().remove(0);
    assert_eq!(
        (found.name.to_string(), found.endpoints["east"].to_string()),
        ("shop/web".to_owned(), "1/1".to_owned())
    );
    assert!(found.survey.is_some() && found.problem.is_none());
    let elsewhere = lists.objects(of_west.gateways, "another").await.unwrap();
    assert!(Discovery::new(elsewhere).services().is_empty());
}
