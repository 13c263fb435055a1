use serde_json::json;
use trieste_control::api::{Kind, ObjectMeta};
use trieste_dns::Routing;

use super::*;

/// An import of service `web` in namespace `shop`, as an agent of the set has it in its cluster.
pub(crate) fn import_object(spec: &Value) -> Object {
    let mut object = Object::new(Kind::ServiceImport, ObjectMeta::new("shop", "web"));
    object.body.insert("spec".to_owned(), spec.clone());
    object.metadata.resource_version = Some("1".to_owned());
    object
}

/// A slice of it from a cluster.
pub(crate) fn slice_object(name: &str, cluster: &str, addresses: &[&str]) -> Object {
    let mut object = Object::new(Kind::EndpointSlice, ObjectMeta::new("shop", name));
    let labels = [
        (label::SERVICE_NAME, "web"),
        (label::SOURCE_NAMESPACE, "shop"),
        (label::SOURCE_CLUSTER, cluster),
        (label::IS_HEADLESS, "false"),
    ];
    object.metadata.labels.extend(labels.map(|(key, value)| (key.to_owned(), value.to_owned())));
    object.metadata.resource_version = Some("1".to_owned());
    object.body.insert("addressType".to_owned(), json!("IPv4"));
    object.body.insert("endpoints".to_owned(), json!([{"addresses": addresses}]));
    object.body.insert("ports".to_owned(), json!([{"name": "http", "protocol": "TCP", "port": 80}]));
    object
}

#[test]
fn an_import_of_the_set_is_read() {
    let mut object = import_object(&json!({
        "type": "ClusterSetIP", "ips": ["243.0.0.1"],
        "ports": [{"name": "http", "protocol": "TCP", "port": 80}, {"protocol": "XYZ", "port": 81}],
    }));
    object.metadata.annotations.insert(annotation::ROUTING.to_owned(), "nearest".to_owned());
    object.metadata.annotations.insert(format!("{}east", annotation::WEIGHT_PREFIX), "5".to_owned());
    object.metadata.annotations.insert(format!("{}west", annotation::WEIGHT_PREFIX), "many".to_owned());
    let (name, read) = import(&object).unwrap().unwrap();
    assert_eq!(name.to_string(), "shop/web");
    assert_eq!((read.kind, read.ports.len()), (ServiceKind::ClusterSetIp, 1));
    assert_eq!(read.ips, ["243.0.0.1".parse::<IpAddr>().unwrap()]);
    assert_eq!(read.routing, Routing::Nearest);
    assert_eq!(read.weights, [(Label::new("east").unwrap(), 5)].into());
}

#[test]
fn the_clusterset_ip_of_ipv6_is_read_where_either_version_of_the_definition_has_it() {
    let ips = |spec: &[&str], annotated: Option<&str>, is_used: &str| {
        let mut object = import_object(&json!({"type": "ClusterSetIP", "ips": spec, "ports": []}));
        let annotations = &mut object.metadata.annotations;
        annotations.insert(annotation::USE_CLUSTERSET_IP.to_owned(), is_used.to_owned());
        annotations.extend(annotated.map(|ip| (annotation::CLUSTERSET_IPV6.to_owned(), ip.to_owned())));
        let (_, read) = import(&object).unwrap().unwrap();
        read.ips.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let (four, six) = ("243.0.0.1", "fd00:243::1");
    assert_eq!(ips(&[four, six], Some(six), "true"), [four, six]);
    assert_eq!(ips(&[four, six], None, "true"), [four, six]);
    assert_eq!(ips(&[four], Some(six), "true"), [four, six]);
    assert_eq!(ips(&[], Some(six), "true"), [six]);
    assert_eq!(ips(&[six], Some("fd00:243::2"), "true"), [six], "the specification counts more");
    assert_eq!(ips(&[four], None, "true"), [four]);
    assert_eq!(
        ips(&[], Some(six), "false"),
        [""; 0],
        "given up by an agent that does not know the annotation"
    );
    for nonsense in ["243.0.0.2", "nowhere", ""] {
        assert_eq!(ips(&[four], Some(nonsense), "true"), [four], "{nonsense}");
    }
}

#[test]
fn parts_of_clusters_and_records_of_the_broker_are_no_imports() {
    let mut part = import_object(&json!({"type": "Headless"}));
    part.metadata.labels.insert(label::SERVICE_NAME.to_owned(), "web".to_owned());
    assert_eq!(import(&part), Ok(None));
    let mut record = import_object(&json!({"type": "Headless"}));
    record.metadata.annotations.insert(label::SERVICE_NAME.to_owned(), "web".to_owned());
    assert_eq!(import(&record), Ok(None));
}

#[test]
fn an_import_that_cannot_be_says_why() {
    let error = |spec| import(&import_object(&spec)).unwrap_err().to_string();
    assert!(!error(json!({"type": "Other"})).is_empty());
    assert!(error(json!({"type": "ClusterSetIP", "ips": ["nowhere"]})).contains("spec.ips[0]"));
}

#[test]
fn a_service_whose_routing_cannot_be_is_chosen_as_by_default() {
    let mut object = import_object(&json!({"type": "ClusterSetIP"}));
    object.metadata.annotations.insert(annotation::ROUTING.to_owned(), "far".to_owned());
    assert_eq!(import(&object).unwrap().unwrap().1.routing, Routing::RoundRobin);
}

#[test]
fn endpoints_have_the_names_of_their_hosts_or_pods() {
    let mut object = slice_object("web-a", "east", &[]);
    object.body.insert(
        "endpoints".to_owned(),
        json!([
            {"addresses": ["10.2.0.1"], "hostname": "web-0"},
            {"addresses": ["10.2.0.2"], "targetRef": {"kind": "Pod", "name": "web-1"}},
            {"addresses": ["10.2.0.3", "bad", 7], "targetRef": {"kind": "Node", "name": "n"}},
            {"addresses": ["10.2.0.4"], "hostname": "no.label", "conditions": {"ready": false}},
            {"addresses": null},
            "nonsense",
        ]),
    );
    let read = exported(&object).unwrap().unwrap();
    assert_eq!((read.service.to_string(), read.cluster.to_string()), ("shop/web".into(), "east".into()));
    let hosts: Vec<_> = read.slice.endpoints.iter().map(|endpoint| endpoint.host.clone()).collect();
    assert_eq!(hosts, [Label::new("web-0").ok(), Label::new("web-1").ok(), None, None, None]);
    let ready: Vec<_> = read.slice.endpoints.iter().map(|endpoint| endpoint.is_ready).collect();
    assert_eq!(ready, [true, true, true, false, true]);
    assert_eq!(read.slice.endpoints[2].addresses.len(), 1);
    assert_eq!(read.slice.ports.len(), 1);
}

#[test]
fn endpoints_of_a_headless_service_that_have_no_name_are_called_by_their_addresses() {
    let mut object = slice_object("db-a", "east", &["10.2.0.1"]);
    object.body.insert(
        "endpoints".to_owned(),
        json!([
            {"addresses": ["10.2.0.1"]}, {"addresses": ["fd02::1"]}, {"addresses": ["10.2.0.3"], "hostname": "db-3"},
            {"addresses": ["bad"]}, {"addresses": []},
        ]),
    );
    let hosts = |object: &Object| {
        let read = exported(object).unwrap().unwrap().slice.endpoints;
        read.into_iter().map(|endpoint| endpoint.host.map(|host| host.to_string())).collect::<Vec<_>>()
    };
    let none = || None::<String>;
    assert_eq!(
        hosts(&object),
        [none(), none(), Some("db-3".into()), none(), none()],
        "a virtual IP has none"
    );
    object.metadata.labels.insert(label::IS_HEADLESS.to_owned(), "true".to_owned());
    let named = ["10-2-0-1", "fd02--1", "db-3"].map(|host| Some(host.to_owned()));
    assert_eq!(hosts(&object), [&named[..], &[None, None]].concat());
}

#[test]
fn slices_without_their_labels_are_refused_and_those_of_the_broker_left_out() {
    let mut object = slice_object("web-a", "east", &["10.2.0.1"]);
    object.metadata.namespace = "submariner-k8s-broker".to_owned();
    assert_eq!(exported(&object), Ok(None));
    let mut object = slice_object("web-a", "east", &["10.2.0.1"]);
    object.metadata.labels.remove(label::SOURCE_CLUSTER);
    assert!(exported(&object).unwrap_err().to_string().contains("source-cluster"));
    let object = slice_object("web-a", "east.1", &["10.2.0.1"]);
    assert!(exported(&object).is_err());
}

#[test]
fn global_addresses_of_pods_are_marked() {
    let mut object = slice_object("web-a", "east", &["242.0.0.1"]);
    let global = |object: &Object| exported(object).unwrap().unwrap().is_global;
    object.metadata.annotations.insert(annotation::GLOBALNET_ENABLED.to_owned(), "true".to_owned());
    assert!(!global(&object), "a virtual IP is answered as it is");
    object.metadata.labels.insert(label::IS_HEADLESS.to_owned(), "true".to_owned());
    assert!(global(&object));
}
