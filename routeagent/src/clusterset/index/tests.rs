use std::time::Duration;

use serde_json::{Value, json};
use trieste_control::api::{ObjectMeta, annotation, displace, label};

use super::*;

/// What an import of `web` in `shop` says.
fn import(spec: &Value) -> Object {
    named_import("web", spec)
}

fn named_import(name: &str, spec: &Value) -> Object {
    let mut object = Object::new(Kind::ServiceImport, ObjectMeta::new("shop", name));
    object.body.insert("spec".to_owned(), spec.clone());
    object
}

fn web(ip: &str) -> Object {
    import(&json!({"type": "ClusterSetIP", "ips": [ip],
        "ports": [{"name": "http", "protocol": "TCP", "port": 80}, {"name": "dns", "protocol": "UDP", "port": 53}]}))
}

/// The slice by which a cluster exports a service, with its own number of port `http`.
fn exported(name: &str, cluster: &str, address: &str, (port, is_ready): (u16, bool)) -> Object {
    let mut object = Object::new(Kind::EndpointSlice, ObjectMeta::new("shop", format!("{name}-{cluster}")));
    let labels = [
        (label::SERVICE_NAME, name),
        (label::SOURCE_NAMESPACE, "shop"),
        (label::SOURCE_CLUSTER, cluster),
        (label::IS_HEADLESS, "false"),
    ];
    object.metadata.labels.extend(labels.map(|(key, value)| (key.to_owned(), value.to_owned())));
    let family = if address.contains(':') { "IPv6" } else { "IPv4" };
    object.body.insert("addressType".to_owned(), json!(family));
    object
        .body
        .insert("endpoints".to_owned(), json!([{"addresses": [address], "conditions": {"ready": is_ready}}]));
    object.body.insert("ports".to_owned(), json!([{"name": "http", "protocol": "TCP", "port": port}]));
    object
}

/// Pods of `web` in the own cluster.
fn pods(addresses: &[&str]) -> Object {
    let mut object = Object::new(Kind::EndpointSlice, ObjectMeta::new("shop", "web-x1"));
    object.metadata.labels.insert(SERVICE_NAME.to_owned(), "web".to_owned());
    let endpoint = |address: &&str| json!({"addresses": [address], "conditions": {"ready": true}});
    object.body.insert("addressType".to_owned(), json!("IPv4"));
    object.body.insert("endpoints".to_owned(), addresses.iter().map(endpoint).collect());
    object.body.insert("ports".to_owned(), json!([{"name": "http", "protocol": "TCP", "port": 8080}]));
    object
}

/// A gateway that reaches some clusters and others not.
fn gateway(connections: &[(&str, bool)]) -> Object {
    let endpoint = |cluster: &str| {
        json!({"cluster_id": cluster, "cable_name": "c", "hostname": "h", "private_ip": "10.0.0.1",
            "public_ip": "", "subnets": [], "nat_enabled": false, "backend": "wireguard"})
    };
    let connection = |(cluster, is_up): &(&str, bool)| {
        let status = if *is_up { "connected" } else { "error" };
        json!({"status": status, "statusMessage": "", "endpoint": endpoint(cluster)})
    };
    let mut object = Object::new(Kind::Gateway, ObjectMeta::new("submariner-operator", "gw"));
    let connections: Vec<_> = connections.iter().map(connection).collect();
    let status = json!({"version": "1", "haStatus": "active", "localEndpoint": endpoint("west"), "statusFailure": "",
        "connections": connections});
    object.body.insert("status".to_owned(), status);
    object
}

/// An index of a node of cluster west, with nothing but two clusters that can be reached.
fn index() -> ClustersetIndex {
    let mut index = ClustersetIndex::new("west", &["243.0.0.0/16".parse().unwrap()]).unwrap();
    assert!(!index.is_complete());
    index.handle_imports(StoreEvent::Listed(Vec::new()));
    assert!(index.is_complete(), "nothing more is needed without a clusterset IP");
    index.handle_exported(StoreEvent::Listed(Vec::new()));
    reach(&mut index, &[("east", true), ("south", true)]);
    index
}

fn reach(index: &mut ClustersetIndex, connections: &[(&str, bool)]) {
    index.handle_gateways(Some(StoreEvent::Listed(vec![gateway(connections)])), Instant::now());
}

fn put_exported(index: &mut ClustersetIndex, object: Object) {
    assert!(index.handle_exported(StoreEvent::Applied(object)).is_empty());
}

/// What is led: address, protocol and port, and the different targets.
fn led(index: &ClustersetIndex) -> Vec<String> {
    let leads = index.ips().leads.iter().map(|(frontend, pick)| {
        let places: BTreeSet<_> =
            pick.places.iter().map(|(address, port)| format!("{address}:{port}")).collect();
        format!("{frontend} to {}", places.into_iter().collect::<Vec<_>>().join(" "))
    });
    leads.collect()
}

#[test]
fn an_address_of_a_service_whose_namespace_is_missing_leads_as_any_other() {
    let mut index = index().with_displaced_in("submariner-operator");
    let displaced = |mut object: Object| {
        displace(&mut object, "submariner-operator");
        object
    };
    index.handle_imports(StoreEvent::Applied(displaced(web("243.0.0.7"))));
    put_exported(&mut index, displaced(exported("web", "east", "100.66.0.1", (80, true))));
    let leads = ["243.0.0.7 tcp port 80 to 100.66.0.1:80"];
    assert_eq!(led(&index), leads);
    // Its namespace comes: what stands there counts, and nothing changes.
    index.handle_imports(StoreEvent::Applied(web("243.0.0.7")));
    put_exported(&mut index, exported("web", "east", "100.66.0.1", (80, true)));
    assert_eq!(led(&index), leads);
    index.handle_imports(StoreEvent::Deleted(displaced(web("243.0.0.7"))));
    index.handle_exported(StoreEvent::Deleted(displaced(exported("web", "east", "100.66.0.1", (80, true)))));
    assert_eq!(led(&index), leads);
    index.handle_imports(StoreEvent::Deleted(web("243.0.0.7")));
    assert_eq!(led(&index), [""; 0]);
}

#[test]
fn an_address_leads_to_clusters_that_are_reached_by_each_ones_own_port() {
    let mut index = index();
    index.handle_imports(StoreEvent::Applied(web("243.0.0.7")));
    assert_eq!(led(&index), [""; 0], "nobody exports it");
    put_exported(&mut index, exported("web", "east", "100.66.0.1", (80, true)));
    put_exported(&mut index, exported("web", "south", "100.67.0.1", (8080, true)));
    assert_eq!(led(&index), ["243.0.0.7 tcp port 80 to 100.66.0.1:80 100.67.0.1:8080"]);

    reach(&mut index, &[("east", false), ("south", true)]);
    assert_eq!(led(&index), ["243.0.0.7 tcp port 80 to 100.67.0.1:8080"]);
    put_exported(&mut index, exported("web", "south", "100.67.0.1", (8080, false)));
    assert_eq!(led(&index), [""; 0], "one is not reached and the other has nothing ready");

    reach(&mut index, &[("east", true), ("south", true)]);
    assert_eq!(led(&index), [""; 0], "a cluster that was away is held out for a while");
    let until = index.poll_timeout().unwrap();
    index.handle_timeout(until + Duration::from_millis(1));
    assert_eq!(led(&index), ["243.0.0.7 tcp port 80 to 100.66.0.1:80"]);
}

#[test]
fn the_own_clusters_pods_come_first_while_there_are_some() {
    let mut index = index();
    index.handle_imports(StoreEvent::Applied(web("243.0.0.7")));
    put_exported(&mut index, exported("web", "east", "100.66.0.1", (80, true)));
    assert!(!index.needs_pods());
    put_exported(&mut index, exported("web", "west", "100.65.0.1", (80, true)));
    assert!(index.needs_pods() && !index.is_complete(), "its pods are not known yet");
    index.handle_slices(&StoreEvent::Listed(vec![pods(&["10.1.3.10"])]));
    assert!(index.is_complete());
    assert_eq!(led(&index), ["243.0.0.7 tcp port 80 to 10.1.3.10:8080"]);
    index.handle_slices(&StoreEvent::Applied(pods(&["10.1.3.10", "10.1.3.11"])));
    assert_eq!(led(&index), ["243.0.0.7 tcp port 80 to 10.1.3.10:8080 10.1.3.11:8080"]);
    assert_eq!(index.ips().pods.len(), 2);

    put_exported(&mut index, exported("web", "west", "100.65.0.1", (80, false)));
    assert_eq!(led(&index), ["243.0.0.7 tcp port 80 to 100.66.0.1:80"]);
    assert!(index.ips().pods.is_empty());
}

#[test]
fn the_own_pods_are_needed_as_long_as_a_service_has_both_an_address_and_an_own_export() {
    let mut index = index();
    let own = || exported("web", "west", "100.65.0.1", (80, true));
    put_exported(&mut index, own());
    assert!(!index.needs_pods(), "there is no import");
    index.handle_imports(StoreEvent::Applied(web("243.0.0.7")));
    assert!(index.needs_pods());
    index.handle_imports(StoreEvent::Applied(web("243.1.0.7")));
    assert!(!index.needs_pods(), "its address is not of the range");
    index.handle_imports(StoreEvent::Listed(vec![web("243.0.0.7")]));
    assert!(index.needs_pods());
    index.handle_exported(StoreEvent::Deleted(own()));
    assert!(!index.needs_pods());
    index.handle_exported(StoreEvent::Listed(vec![own()]));
    assert!(index.needs_pods());
    index.handle_imports(StoreEvent::Listed(Vec::new()));
    assert!(!index.needs_pods());
}

#[test]
fn only_addresses_of_the_range_are_led_whatever_an_import_says() {
    let mut index = index();
    put_exported(&mut index, exported("web", "east", "100.66.0.1", (80, true)));
    for foreign in ["8.8.8.8", "169.254.169.254", "10.1.3.10", "243.1.0.1", "::1"] {
        index.handle_imports(StoreEvent::Applied(web(foreign)));
        assert_eq!((led(&index), index.has_any()), (Vec::new(), false), "{foreign}");
    }
    let many: Vec<String> =
        (0..2000).map(|number| format!("243.0.{}.{}", number / 250, number % 250)).collect();
    let spec = json!({"type": "ClusterSetIP", "ips": many, "ports": [{"name": "http", "protocol": "TCP", "port": 80}]});
    index.handle_imports(StoreEvent::Applied(import(&spec)));
    assert!(led(&index).len() <= MAX_IPS);
    let headless = json!({"type": "Headless", "ips": ["243.0.0.7"], "ports": []});
    index.handle_imports(StoreEvent::Applied(import(&headless)));
    assert!(!index.has_any());
}

#[test]
fn of_two_services_with_one_address_the_older_import_has_it() {
    let mut index = index();
    let spec = web("243.0.0.7").body["spec"].clone();
    let made = |name: &str, time: &str| {
        let mut import = named_import(name, &spec);
        import.metadata.creation_timestamp = Some(time.parse().unwrap());
        import
    };
    put_exported(&mut index, exported("web", "east", "100.66.0.1", (80, true)));
    put_exported(&mut index, exported("a-thief", "south", "100.67.0.1", (80, true)));
    index.handle_imports(StoreEvent::Applied(made("web", "2026-01-01T00:00:00Z")));
    index.handle_imports(StoreEvent::Applied(made("a-thief", "2026-01-02T00:00:00Z")));
    assert_eq!(led(&index), ["243.0.0.7 tcp port 80 to 100.66.0.1:80"]);
    // Also when both are read at once, as after a start.
    let both = vec![made("a-thief", "2026-01-02T00:00:00Z"), made("web", "2026-01-01T00:00:00Z")];
    index.handle_imports(StoreEvent::Listed(both));
    assert_eq!(led(&index), ["243.0.0.7 tcp port 80 to 100.66.0.1:80"]);
    index.handle_imports(StoreEvent::Deleted(made("web", "2026-01-01T00:00:00Z")));
    assert_eq!(led(&index), ["243.0.0.7 tcp port 80 to 100.67.0.1:80"]);
    index.handle_imports(StoreEvent::Deleted(made("a-thief", "2026-01-02T00:00:00Z")));
    assert!(index.claims.is_empty() && index.imported.is_empty());
}

#[test]
fn of_two_services_with_one_address_and_age_the_first_by_name_has_it() {
    let mut index = index();
    let spec = web("243.0.0.7").body["spec"].clone();
    index.handle_imports(StoreEvent::Listed(vec![named_import("web", &spec)]));
    put_exported(&mut index, exported("web", "east", "100.66.0.1", (80, true)));
    put_exported(&mut index, exported("api", "south", "100.67.0.1", (80, true)));
    assert_eq!(led(&index), ["243.0.0.7 tcp port 80 to 100.66.0.1:80"]);
    index.handle_imports(StoreEvent::Applied(named_import("api", &spec)));
    assert_eq!(led(&index), ["243.0.0.7 tcp port 80 to 100.67.0.1:80"]);
    index.handle_imports(StoreEvent::Deleted(named_import("api", &spec)));
    assert_eq!(led(&index), ["243.0.0.7 tcp port 80 to 100.66.0.1:80"]);
    index.handle_imports(StoreEvent::Listed(Vec::new()));
    assert_eq!((led(&index), index.has_any()), (Vec::new(), false));
    assert!(index.claims.is_empty());
}

#[test]
fn clients_stay_where_the_import_says_so_and_weights_are_shares() {
    let mut index = index();
    put_exported(&mut index, exported("web", "east", "100.66.0.1", (80, true)));
    put_exported(&mut index, exported("web", "south", "100.67.0.1", (80, true)));
    let mut object = web("243.0.0.7");
    object.metadata.annotations.insert("weight.trieste.io/east".to_owned(), "3".to_owned());
    index.handle_imports(StoreEvent::Applied(object.clone()));
    let pick = |index: &ClustersetIndex| index.ips().leads.values().next().unwrap().clone();
    let drawn = pick(&index);
    assert!(drawn.by_port);
    let of_east = drawn.places.iter().filter(|place| place.0 == IpAddr::from([100, 66, 0, 1])).count();
    assert!((36..=58).contains(&of_east), "{of_east} of {}", drawn.places.len());
    object.body["spec"]["sessionAffinity"] = json!("ClientIP");
    object.metadata.resource_version = Some("2".to_owned());
    index.handle_imports(StoreEvent::Applied(object.clone()));
    assert!(!pick(&index).by_port);
    assert_eq!(pick(&index).places, drawn.places);
    index.handle_imports(StoreEvent::Deleted(object));
    assert!(index.imported.is_empty());
}

#[test]
fn without_gateways_every_cluster_counts_as_reached() {
    let mut index = ClustersetIndex::new("west", &["243.0.0.0/16".parse().unwrap()]).unwrap();
    index.handle_imports(StoreEvent::Listed(vec![web("243.0.0.7")]));
    index.handle_exported(StoreEvent::Listed(vec![exported("web", "east", "100.66.0.1", (80, true))]));
    assert!(!index.is_complete());
    index.handle_gateways(None, Instant::now());
    assert!(index.is_complete());
    assert_eq!(led(&index), ["243.0.0.7 tcp port 80 to 100.66.0.1:80"]);
    assert!(ClustersetIndex::new("west", &[]).is_none());
}

#[test]
fn addresses_of_ipv6_lead_to_those_of_ipv6() {
    let mut index = ClustersetIndex::new("west", &["fd00:243::/112".parse().unwrap()]).unwrap();
    index.handle_imports(StoreEvent::Listed(vec![web("fd00:243::7")]));
    index.handle_gateways(None, Instant::now());
    index.handle_exported(StoreEvent::Listed(vec![
        exported("web", "east", "fd00:66::1", (80, true)),
        exported("web", "south", "100.67.0.1", (80, true)),
    ]));
    assert_eq!(led(&index), ["fd00:243::7 tcp port 80 to fd00:66::1:80"]);
}

#[test]
fn each_of_two_addresses_leads_to_those_of_its_family() {
    let ranges = ["243.0.0.0/16", "fd00:243::/112"].map(|range| range.parse().unwrap());
    let mut index = ClustersetIndex::new("west", &ranges).unwrap();
    let mut import = web("243.0.0.7");
    import.metadata.annotations.extend([
        (annotation::USE_CLUSTERSET_IP.to_owned(), "true".to_owned()),
        (annotation::CLUSTERSET_IPV6.to_owned(), "fd00:243::7".to_owned()),
    ]);
    index.handle_imports(StoreEvent::Listed(vec![import.clone()]));
    index.handle_gateways(None, Instant::now());
    let slice = |name: &str, address: &str| {
        let mut slice = exported("web", "east", address, (80, true));
        slice.metadata.name = name.to_owned();
        slice
    };
    index.handle_exported(StoreEvent::Listed(vec![slice("four", "100.66.0.1"), slice("six", "fd00:66::1")]));
    let both = ["243.0.0.7 tcp port 80 to 100.66.0.1:80", "fd00:243::7 tcp port 80 to fd00:66::1:80"];
    assert_eq!(led(&index), both);
    // In the specification, as the Multi-Cluster Services API has them, it is the same.
    import.metadata.annotations.clear();
    import.body["spec"]["ips"] = json!(["243.0.0.7", "fd00:243::7"]);
    index.handle_imports(StoreEvent::Applied(import.clone()));
    assert_eq!(led(&index), both);
    index.handle_exported(StoreEvent::Deleted(slice("four", "100.66.0.1")));
    assert_eq!(led(&index), both[1..]);
    import.body["spec"]["ips"] = json!(["243.0.0.7"]);
    index.handle_imports(StoreEvent::Applied(import));
    assert_eq!((led(&index), index.has_any()), (Vec::new(), true));
    assert_eq!(index.claims.len(), 1, "the other address is nobody's");
}

#[test]
fn no_member_fills_a_node_with_addresses_ports_or_targets() {
    let mut index = index();
    let ports: Vec<_> =
        (1..=100).map(|port| json!({"name": format!("p{port}"), "protocol": "TCP", "port": port})).collect();
    for number in 0..150 {
        let name = format!("s{number:03}");
        let spec = json!({"type": "ClusterSetIP", "ips": [format!("243.0.1.{number}")], "ports": ports});
        let mut slice = exported(&name, "east", "100.66.0.1", (80, true));
        let endpoint = |last: u8| json!({"addresses": [format!("100.66.0.{last}")]});
        slice.body.insert("endpoints".to_owned(), (1..=200).map(endpoint).collect());
        slice.body.insert("ports".to_owned(), json!(ports));
        put_exported(&mut index, slice);
        index.handle_imports(StoreEvent::Applied(named_import(&name, &spec)));
    }
    assert_eq!((index.ips().leads.len(), index.left_out()), (MAX_LEADS, 50));
    assert!(index.ips().leads.values().all(|pick| pick.places.len() == 1));
    for number in 0..60 {
        index.handle_imports(StoreEvent::Deleted(named_import(&format!("s{number:03}"), &json!({}))));
    }
    assert_eq!((index.ips().leads.len(), index.left_out()), (9_000, 0), "there is room for the others then");
    index.handle_imports(StoreEvent::Listed(Vec::new()));
    assert_eq!((index.ips().leads.len(), index.left_out()), (0, 0));
}

/// What is led does not depend on the order in which objects come, nor on how they are told.
#[test]
fn any_order_of_events_leads_to_the_same() {
    let imports = || vec![web("243.0.0.7"), named_import("api", &web("243.0.0.8").body["spec"])];
    let slices = || {
        vec![
            exported("web", "east", "100.66.0.1", (80, true)),
            exported("api", "south", "100.67.0.1", (81, true)),
            exported("web", "west", "100.65.0.1", (80, true)),
        ]
    };
    let mut results = BTreeSet::new();
    for order in [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1], [1, 3, 0, 2]] {
        for is_listed in [true, false] {
            let mut index = ClustersetIndex::new("west", &["243.0.0.0/16".parse().unwrap()]).unwrap();
            for step in order {
                match (step, is_listed) {
                    (0, true) => drop(index.handle_imports(StoreEvent::Listed(imports()))),
                    (0, false) => imports()
                        .into_iter()
                        .for_each(|object| drop(index.handle_imports(StoreEvent::Applied(object)))),
                    (1, true) => drop(index.handle_exported(StoreEvent::Listed(slices()))),
                    (1, false) => slices()
                        .into_iter()
                        .for_each(|object| drop(index.handle_exported(StoreEvent::Applied(object)))),
                    (2, _) => reach(&mut index, &[("east", true), ("south", true)]),
                    _ => index.handle_slices(&StoreEvent::Listed(vec![pods(&["10.1.3.10"])])),
                }
            }
            results.insert(led(&index));
        }
    }
    let expected = ["243.0.0.7 tcp port 80 to 10.1.3.10:8080", "243.0.0.8 tcp port 80 to 100.67.0.1:81"];
    assert_eq!(results, BTreeSet::from([expected.map(str::to_owned).to_vec()]));
}
