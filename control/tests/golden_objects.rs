//! Objects recorded from upstream pass through our types unchanged.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use serde_json::Value;
use trieste_control::api::{
    Cluster, ConnectionStatus, Endpoint, EndpointSpec, Gateway, GoDuration, Kind, Object, Resource,
    cable_name, endpoint_object_name,
};

const SAMPLES: [(&str, &str); 11] = [
    ("plain/a-clusters", include_str!("golden/plain/a-clusters.yaml")),
    ("plain/a-endpoints", include_str!("golden/plain/a-endpoints.yaml")),
    ("plain/a-gateways", include_str!("golden/plain/a-gateways.yaml")),
    ("plain/b-clusters", include_str!("golden/plain/b-clusters.yaml")),
    ("plain/b-endpoints", include_str!("golden/plain/b-endpoints.yaml")),
    ("plain/broker-clusters", include_str!("golden/plain/broker-clusters.yaml")),
    ("plain/broker-endpoints", include_str!("golden/plain/broker-endpoints.yaml")),
    ("wireguard/a-endpoints", include_str!("golden/wireguard/a-endpoints.yaml")),
    ("wireguard/a-gateways", include_str!("golden/wireguard/a-gateways.yaml")),
    ("wireguard/b-gateways", include_str!("golden/wireguard/b-gateways.yaml")),
    ("wireguard/broker-endpoints", include_str!("golden/wireguard/broker-endpoints.yaml")),
];

#[test]
fn every_recorded_object_survives_typed_reading_and_writing() {
    let mut seen = 0;
    for (sample, item) in items() {
        let object = Object::from_value(item.clone()).unwrap_or_else(|e| panic!("{sample}: {e}"));
        object.check_shape().unwrap_or_else(|e| panic!("{sample}: {e}"));
        assert_eq!(object.to_value(), item, "{sample}: untyped");
        assert_eq!(through_typed(&object).to_value(), item, "{sample}: typed");
        seen += 1;
    }
    assert_eq!(seen, 20, "a sample has gone missing");
}

#[test]
fn every_recorded_object_survives_yaml() {
    for (sample, item) in items() {
        let text = serde_saphyr::to_string(&item).unwrap();
        let again: Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(again, item, "{sample}:\n{text}");
    }
}

#[test]
fn unknown_fields_survive_at_every_level() {
    for (sample, mut item) in items() {
        plant(&mut item);
        let object = Object::from_value(item.clone()).unwrap();
        assert_eq!(through_typed(&object).to_value(), item, "{sample}");
    }
}

#[test]
fn recorded_names_are_the_ones_that_we_derive() {
    for (_, item) in items() {
        let object = Object::from_value(item).unwrap();
        match object.kind {
            Kind::Endpoint => {
                let spec = Endpoint::from_object(&object).unwrap().spec;
                assert_eq!(spec.cable_name, cable_name(&spec.cluster_id, spec.private_ip.parse().unwrap()));
                assert_eq!(
                    object.metadata.name,
                    endpoint_object_name(&spec.cluster_id, &spec.cable_name).unwrap()
                );
                let renamed = Endpoint::new(&object.metadata.namespace, spec).unwrap();
                assert_eq!(renamed.metadata.name, object.metadata.name);
            }
            Kind::Cluster => {
                let spec = Cluster::from_object(&object).unwrap().spec;
                assert_eq!(Cluster::new("ns", spec).unwrap().metadata.name, object.metadata.name);
            }
            Kind::Gateway => {
                let status = Gateway::from_object(&object).unwrap().status;
                let host = status.local_endpoint.hostname.clone();
                assert_eq!(Gateway::new("ns", &host, status).unwrap().metadata.name, object.metadata.name);
            }
            other => panic!("unexpected kind {other}"),
        }
    }
}

#[test]
fn recorded_values_parse() {
    for (sample, item) in items() {
        let object = Object::from_value(item).unwrap();
        match object.kind {
            Kind::Endpoint => {
                let facts = Endpoint::from_object(&object).unwrap().spec.parse().unwrap();
                assert_eq!((facts.udp_port, facts.nat_discovery_port), (Some(4500), Some(4490)), "{sample}");
                assert_eq!(facts.subnets.len(), 2, "{sample}");
            }
            Kind::Cluster => {
                let facts = Cluster::from_object(&object).unwrap().spec.parse().unwrap();
                assert_eq!(facts.published_subnets().len(), 2, "{sample}");
            }
            Kind::Gateway => {
                let gateway = Gateway::from_object(&object).unwrap();
                assert!(gateway.updated().is_some(), "{sample}");
                for connection in &gateway.status.connections {
                    assert_eq!(connection.status, ConnectionStatus::Connected, "{sample}");
                    let rtt = connection.latency_rtt.as_ref().unwrap();
                    for text in [&rtt.last, &rtt.min, &rtt.average, &rtt.max, &rtt.std_dev] {
                        let duration: GoDuration = text.parse().unwrap();
                        assert_eq!(&duration.to_string(), text, "{sample}");
                    }
                }
            }
            other => panic!("unexpected kind {other}"),
        }
    }
}

#[test]
fn errors_name_the_field() {
    let endpoint = items().find(|(sample, _)| *sample == "plain/a-endpoints").unwrap().1;
    let field_of = |edit: &dyn Fn(&mut Value)| {
        let mut item = endpoint.clone();
        edit(&mut item);
        let outcome = Object::from_value(item).and_then(|object| object.check_shape());
        outcome.unwrap_err().field_path().unwrap().to_owned()
    };
    assert_eq!(field_of(&|v| v["spec"]["nat_enabled"] = "yes".into()), "spec.nat_enabled");
    assert_eq!(field_of(&|v| drop(v["spec"].as_object_mut().unwrap().remove("hostname"))), "spec.hostname");
    assert_eq!(field_of(&|v| drop(v.as_object_mut().unwrap().remove("spec"))), "spec");
    assert_eq!(field_of(&|v| v["spec"]["subnets"][1] = 5.into()), "spec.subnets[1]");
    assert_eq!(
        field_of(&|v| v["spec"]["backend_config"]["udp-port"] = 4500.into()),
        "spec.backend_config.udp-port"
    );
    assert_eq!(field_of(&|v| v["spec"]["cluster_id"] = "".into()), "spec.cluster_id");
    assert_eq!(field_of(&|v| v["metadata"]["labels"] = 5.into()), "metadata.labels");
    assert_eq!(field_of(&|v| v["metadata"]["creationTimestamp"] = "x".into()), "metadata.creationTimestamp");
    assert_eq!(field_of(&|v| v["kind"] = "Sandwich".into()), "kind");
    assert_eq!(field_of(&|v| v["apiVersion"] = "v1".into()), "apiVersion");
}

#[test]
fn nulls_that_go_writes_are_read_as_empty() {
    let mut item = items().find(|(sample, _)| *sample == "plain/a-clusters").unwrap().1;
    item["spec"]["global_cidr"] = Value::Null;
    item["metadata"]["annotations"] = Value::Null;
    item["metadata"]["creationTimestamp"] = Value::Null;
    let cluster = Cluster::from_object(&Object::from_value(item).unwrap()).unwrap();
    assert!(cluster.spec.global_cidr.is_empty() && cluster.metadata.creation_timestamp.is_none());
    assert_eq!(cluster.to_object().to_value()["spec"]["global_cidr"], Value::Array(Vec::new()));
}

#[test]
fn endpoints_are_the_same_by_upstreams_rule() {
    let item = items().find(|(sample, _)| *sample == "wireguard/a-endpoints").unwrap().1;
    let spec = Endpoint::from_object(&Object::from_value(item).unwrap()).unwrap().spec;
    let differs = |edit: &dyn Fn(&mut EndpointSpec)| {
        let mut other = spec.clone();
        edit(&mut other);
        !spec.is_same_endpoint(&other)
    };
    assert!(differs(&|s| s.cluster_id.push('x')));
    assert!(differs(&|s| s.cable_name.push('x')));
    assert!(differs(&|s| s.hostname.push('x')));
    assert!(differs(&|s| s.backend.push('x')));
    assert!(differs(&|s| drop(s.backend_config.remove("publicKey"))));
    assert!(!differs(&|s| s.subnets.clear()));
    assert!(!differs(&|s| s.public_ip.clear()));
    assert!(!differs(&|s| s.private_ip.clear()));
    assert!(!differs(&|s| s.health_check_ip.clear()));

    let balanced = |key: &str| {
        let mut other = spec.clone();
        other.backend_config.insert("using-loadbalancer".to_owned(), "true".to_owned());
        other.backend_config.insert("publicKey".to_owned(), key.to_owned());
        other
    };
    assert!(balanced("one").is_same_endpoint(&balanced("two")));
    assert!(!balanced("one").is_same_endpoint(&spec));
}

#[test]
fn the_public_address_is_the_gateways_if_there_is_one() {
    let mut spec = EndpointSpec { private_ip: "10.0.0.1".to_owned(), ..EndpointSpec::default() };
    assert_eq!(spec.gateway_ip(), "10.0.0.1");
    spec.public_ip = "192.0.2.1".to_owned();
    assert_eq!(spec.gateway_ip(), "192.0.2.1");
}

fn items() -> impl Iterator<Item = (&'static str, Value)> {
    SAMPLES.into_iter().flat_map(|(sample, text)| {
        let list: Value = serde_saphyr::from_str(text).unwrap();
        list["items"].as_array().unwrap().clone().into_iter().map(move |item| (sample, item))
    })
}

fn through_typed(object: &Object) -> Object {
    match object.kind {
        Kind::Cluster => Cluster::from_object(object).unwrap().to_object(),
        Kind::Endpoint => Endpoint::from_object(object).unwrap().to_object(),
        Kind::Gateway => Gateway::from_object(object).unwrap().to_object(),
        other => panic!("unexpected kind {other}"),
    }
}

/// Adds an unknown field to every mapping that is not itself a free map of strings.
fn plant(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields.iter_mut() {
                if !matches!(key.as_str(), "labels" | "annotations" | "backend_config") {
                    plant(value);
                }
            }
            fields.insert("fromTheFuture".to_owned(), serde_json::json!({"deep": [1, "two", null]}));
        }
        Value::Array(values) => values.iter_mut().for_each(plant),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
