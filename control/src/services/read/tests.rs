use serde_json::json;

use super::*;
use crate::api::ObjectMeta;

fn object(kind: Kind, name: &str, body: Value) -> Object {
    let Value::Object(body) = body else { panic!("a body is an object") };
    Object { body: body.into(), ..Object::new(kind, ObjectMeta::new("ns", name)) }
}

fn service(name: &str, spec: impl Into<Value>) -> Object {
    let spec = spec.into();
    object(Kind::Service, name, json!({ "spec": spec }))
}

fn slice(name: &str, service: &str, family: &str, port: u16, endpoints: impl Into<Value>) -> Object {
    let endpoints = endpoints.into();
    let ports = json!([{"name": "http", "port": port, "protocol": "TCP"}]);
    let body = json!({"addressType": family, "ports": ports, "endpoints": endpoints});
    let mut slice = object(Kind::EndpointSlice, name, body);
    slice.metadata.labels.insert(SERVICE_NAME.to_owned(), service.to_owned());
    slice
}

fn web() -> Object {
    service(
        "web",
        json!({
            "clusterIP": "10.96.0.10",
            "clusterIPs": ["10.96.0.10", "fd96::10"],
            "ports": [{"name": "http", "port": 80, "protocol": "TCP", "targetPort": "web"}],
        }),
    )
}

fn endpoint(address: &str, node: &str, conditions: impl Into<Value>) -> Value {
    let conditions = conditions.into();
    json!({"addresses": [address], "nodeName": node, "conditions": conditions})
}

fn catalogue(objects: &[Object]) -> Catalogue {
    let mut index = ServiceIndex::default();
    for kind in [Kind::Service, Kind::EndpointSlice] {
        let of_kind = objects.iter().filter(|object| object.kind == kind).cloned().collect();
        index.take(kind, &StoreEvent::Listed(of_kind));
    }
    assert!(index.is_complete());
    index.catalogue()
}

/// Address, port, node and whether it is used, of each back end.
fn backends(catalogue: &Catalogue, address: &str, port: u16) -> Vec<String> {
    let frontend = Frontend { address: address.parse().unwrap(), protocol: Protocol::Tcp, port };
    let service = &catalogue.services[&frontend];
    let line = |backend: &Backend| {
        let node = backend.node.as_deref().unwrap_or("-");
        format!("{} {} {node} {}", backend.address, backend.port, if backend.is_used { "+" } else { "-" })
    };
    service.backends.iter().map(line).collect()
}

#[test]
fn each_family_has_the_back_ends_of_its_own_slices() {
    let ready = json!({"ready": true});
    let found = catalogue(&[
        web(),
        slice("web-a", "web", "IPv4", 8080, json!([endpoint("10.1.3.10", "w1", ready.clone())])),
        slice("web-b", "web", "IPv4", 8081, json!([endpoint("10.1.4.10", "w2", json!({}))])),
        slice("web-c", "web", "IPv6", 8080, json!([endpoint("fd01::10", "w1", json!(null))])),
        slice("other", "other", "IPv4", 8080, json!([endpoint("10.1.9.9", "w1", ready)])),
    ]);
    assert_eq!(backends(&found, "10.96.0.10", 80), ["10.1.3.10 8080 w1 +", "10.1.4.10 8081 w2 +"]);
    assert_eq!(backends(&found, "fd96::10", 80), ["fd01::10 8080 w1 +"]);
    assert_eq!(found.services.len(), 2);
    let here = found.on_node("w2");
    assert_eq!(here.values().flat_map(|service| &service.backends).count(), 1);
}

#[test]
fn one_that_is_not_ready_keeps_its_connections_and_gets_no_new_ones() {
    let found = catalogue(&[
        web(),
        slice(
            "web-a",
            "web",
            "IPv4",
            8080,
            json!([
                endpoint("10.1.3.10", "w1", json!({"ready": true})),
                endpoint("10.1.3.11", "w1", json!({"ready": false, "serving": true, "terminating": true})),
                endpoint("10.1.3.12", "w1", json!({"ready": false})),
            ]),
        ),
    ]);
    assert_eq!(
        backends(&found, "10.96.0.10", 80),
        ["10.1.3.10 8080 w1 +", "10.1.3.11 8080 w1 -", "10.1.3.12 8080 w1 -"]
    );
}

#[test]
fn a_node_whose_last_back_end_ends_still_serves_what_a_gateway_sends_it() {
    let ready = || endpoint("10.1.4.10", "w2", json!({"ready": true}));
    let serving = json!({"ready": false, "serving": true, "terminating": true});
    let here = |others: Vec<Value>| {
        let all = [vec![ready()], others].concat();
        let found = catalogue(&[web(), slice("web-a", "web", "IPv4", 8080, Value::from(all))]);
        let here = found.on_node("w1");
        here.into_values()
            .flat_map(|service| service.backends)
            .map(|one| one.address.to_string())
            .collect::<Vec<_>>()
    };
    let ending = || endpoint("10.1.3.11", "w1", serving.clone());
    assert_eq!(here(vec![ending()]), ["10.1.3.11"]);
    assert_eq!(here(vec![ending(), endpoint("10.1.3.10", "w1", json!({"ready": true}))]), ["10.1.3.10"]);
    assert!(here(vec![endpoint("10.1.3.12", "w1", json!({"ready": false}))]).is_empty(), "it serves nobody");
}

#[test]
fn where_none_is_ready_those_that_end_but_still_serve_get_the_new_ones() {
    let found = catalogue(&[
        web(),
        slice(
            "web-a",
            "web",
            "IPv4",
            8080,
            json!([
                endpoint("10.1.3.11", "w1", json!({"ready": false, "serving": true, "terminating": true})),
                endpoint("10.1.3.12", "w1", json!({"ready": false, "serving": false, "terminating": true})),
            ]),
        ),
    ]);
    assert_eq!(backends(&found, "10.96.0.10", 80), ["10.1.3.11 8080 w1 +", "10.1.3.12 8080 w1 -"]);
}

#[test]
fn a_pod_that_moves_from_one_slice_to_another_is_one_back_end() {
    let found = catalogue(&[
        web(),
        slice("web-a", "web", "IPv4", 8080, json!([endpoint("10.1.3.10", "w1", json!({"ready": false}))])),
        slice("web-b", "web", "IPv4", 8080, json!([endpoint("10.1.3.10", "w1", json!({"ready": true}))])),
    ]);
    assert_eq!(backends(&found, "10.96.0.10", 80), ["10.1.3.10 8080 w1 +"]);
}

#[test]
fn headless_services_other_names_and_nonsense_are_left_out() {
    let ports = json!([{"name": "http", "port": 80}]);
    let found = catalogue(&[
        service("headless", json!({"clusterIP": "None", "clusterIPs": ["None"], "ports": ports})),
        service("name", json!({"type": "ExternalName", "externalName": "example.org", "ports": ports})),
        service(
            "odd",
            json!({"clusterIP": "10.96.0.11", "ports": [{"port": 70_000}, {"port": 80, "protocol": "IGMP"}, 7]}),
        ),
        service("empty", json!({"clusterIP": "", "ports": ports})),
        object(Kind::Service, "bare", json!({"spec": 7})),
        slice("s", "odd", "FQDN", 80, json!([endpoint("example.org", "w1", json!({}))])),
        object(Kind::EndpointSlice, "bare", json!({"endpoints": {}})),
    ]);
    assert_eq!(found, Catalogue::default());
}

#[test]
fn affinity_is_told_and_what_is_deleted_goes() {
    let mut index = ServiceIndex::default();
    assert!(!index.is_complete());
    let mut kept = web();
    kept.body["spec"]["sessionAffinity"] = json!("ClientIP");
    let of_web = slice("web-a", "web", "IPv4", 8080, json!([endpoint("10.1.3.10", "w1", json!({}))]));
    index.take(Kind::EndpointSlice, &StoreEvent::Listed(vec![of_web.clone()]));
    index.take(Kind::Service, &StoreEvent::Listed(vec![web()]));
    assert!(index.take(Kind::Service, &StoreEvent::Applied(kept.clone())));
    assert!(!index.take(Kind::Service, &StoreEvent::Applied(kept.clone())), "nothing new");
    assert!(index.catalogue().services.values().all(|service| service.keeps_clients));
    assert!(index.take(Kind::EndpointSlice, &StoreEvent::Deleted(of_web)));
    assert!(index.of_service.is_empty());
    assert!(index.catalogue().services.values().all(|service| service.backends.is_empty()));
    assert!(index.take(Kind::Service, &StoreEvent::Deleted(kept)));
    assert_eq!(index.catalogue(), Catalogue::default());
}
