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

type Catalogue = BTreeMap<Frontend, Service>;

fn all(index: &ServiceIndex) -> Catalogue {
    index.frontends().map(|at| (*at, index.service(at).unwrap())).collect()
}

fn on_node(catalogue: &Catalogue, node: &str) -> Vec<Service> {
    catalogue.values().filter_map(|service| service.on_node(node)).collect()
}

fn catalogue(objects: &[Object]) -> Catalogue {
    let mut index = ServiceIndex::default();
    for kind in [Kind::Service, Kind::EndpointSlice] {
        let of_kind = objects.iter().filter(|object| object.kind == kind).cloned().collect();
        index.take(kind, &StoreEvent::Listed(of_kind));
    }
    assert!(index.is_complete());
    all(&index)
}

/// Address, port, node and whether it is used, of each back end.
fn backends(catalogue: &Catalogue, address: &str, port: u16) -> Vec<String> {
    let frontend = Frontend { address: address.parse().unwrap(), protocol: Protocol::Tcp, port };
    let service = &catalogue[&frontend];
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
    assert_eq!(found.len(), 2);
    let here = on_node(&found, "w2");
    assert_eq!(here.iter().flat_map(|service| &service.backends).count(), 1);
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
        let here = on_node(&found, "w1");
        here.into_iter()
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
    assert!(all(&index).values().all(|service| service.keeps_clients));
    assert!(index.take(Kind::EndpointSlice, &StoreEvent::Deleted(of_web)));
    assert!(index.of_service.is_empty());
    assert!(all(&index).values().all(|service| service.backends.is_empty()));
    assert!(index.take(Kind::Service, &StoreEvent::Deleted(kept)));
    assert_eq!(all(&index), Catalogue::default());
}

/// Brings a copy of all services up to date by what is said to have changed.
fn follow(known: &mut Catalogue, index: &mut ServiceIndex) {
    for at in index.take_changed() {
        match index.service(&at) {
            Some(service) => drop(known.insert(at, service)),
            None => drop(known.remove(&at)),
        }
    }
}

proptest::proptest! {
    #[test]
    fn who_follows_the_changes_has_what_is_there(
        steps in proptest::collection::vec((0..5u8, 0..4u8, 0..3u8, 0..4u8), 1..60),
    ) {
        let (mut index, mut known) = (ServiceIndex::default(), Catalogue::new());
        for kind in [Kind::Service, Kind::EndpointSlice] {
            index.take(kind, &StoreEvent::Listed(Vec::new()));
        }
        for (what, which, address, detail) in steps {
            let ports = json!([{"name": "http", "port": 80 + u16::from(detail % 2), "protocol": "TCP"}]);
            // Of two with one address the first has it.
            let one = service(&format!("s{which}"), json!({"clusterIPs": [format!("10.96.0.{address}")], "ports": ports}));
            let endpoints: Vec<Value> = (0..detail)
                .map(|host| endpoint(&format!("10.1.{address}.{host}"), "w1", json!({"ready": host != 1})))
                .collect();
            let part = slice(&format!("s{which}-{address}"), &format!("s{which}"), "IPv4", 8080, endpoints);
            match what {
                0 => index.take(Kind::Service, &StoreEvent::Applied(one)),
                1 => index.take(Kind::Service, &StoreEvent::Deleted(one)),
                2 => index.take(Kind::EndpointSlice, &StoreEvent::Applied(part)),
                3 => index.take(Kind::EndpointSlice, &StoreEvent::Deleted(part)),
                _ if detail % 2 == 0 => index.take(Kind::Service, &StoreEvent::Listed(vec![one])),
                _ => index.take(Kind::EndpointSlice, &StoreEvent::Listed(vec![part])),
            };
            if detail > 0 {
                follow(&mut known, &mut index);
                proptest::prop_assert_eq!(&known, &all(&index));
            }
        }
    }
}

#[test]
fn a_change_concerns_its_own_addresses_alone_and_a_list_of_the_same_none() {
    let other = service("other", json!({"clusterIP": "10.96.0.20", "ports": [{"port": 80}]}));
    let part = |host: &str| slice("web-a", "web", "IPv4", 8080, json!([endpoint(host, "w1", json!({}))]));
    let mut index = ServiceIndex::default();
    index.take(Kind::Service, &StoreEvent::Listed(vec![web(), other.clone()]));
    index.take(Kind::EndpointSlice, &StoreEvent::Listed(vec![part("10.1.3.10")]));
    assert_eq!(index.take_changed().len(), 3);
    assert!(index.take(Kind::EndpointSlice, &StoreEvent::Applied(part("10.1.3.11"))));
    assert_eq!(index.take_changed().len(), 2, "both families of one service");
    assert!(!index.take(Kind::Service, &StoreEvent::Listed(vec![web(), other])));
    assert!(index.take_changed().is_empty());
}

#[test]
fn what_there_is_no_room_for_comes_in_when_there_is() {
    let ports = |count: usize| -> Vec<Value> { (1..=count).map(|port| json!({"port": port})).collect() };
    let of = |name: &str, host: usize| {
        let address = format!("10.96.{}.{}", host / 250, host % 250);
        service(name, json!({"clusterIP": address, "ports": ports(100)}))
    };
    let mut index = ServiceIndex::default();
    let many = (0..=500).map(|host| of(&format!("s{host:03}"), host)).collect();
    index.take(Kind::Service, &StoreEvent::Listed(many));
    assert!(index.is_cut() && index.frontends().count() == 50_000);
    index.take_changed();
    index.take(Kind::Service, &StoreEvent::Deleted(of("s007", 7)));
    assert!(!index.is_cut() && index.frontends().count() == 50_000);
    assert_eq!(index.take_changed().len(), 200);
}
