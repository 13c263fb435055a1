//! Objects that a broken peer could write: refused by name of object field, and never more than that.

use serde_json::{Value, json};
use trieste_control::api::{ApiError, Cluster, Endpoint, GatewayRoute, Object, Resource, limits};

use crate::recorded::{first, one_of_each};

#[test]
fn errors_name_the_field() {
    let endpoint = first("plain/a-endpoints");
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
    assert_eq!(field_of(&|v| v["spec"]["privateIPs"] = json!(["10.0.0.1", 5])), "spec.privateIPs[1]");
    assert_eq!(field_of(&|v| v["metadata"]["labels"] = 5.into()), "metadata.labels");
    assert_eq!(field_of(&|v| v["metadata"]["creationTimestamp"] = "x".into()), "metadata.creationTimestamp");
    assert_eq!(field_of(&|v| v["kind"] = "Sandwich".into()), "kind");
    assert_eq!(field_of(&|v| v["apiVersion"] = "v1".into()), "apiVersion");
}

#[test]
fn a_bad_shape_of_any_kind_is_refused_with_its_path() {
    let cases: [(&str, &str, Value); 17] = [
        ("Cluster", "spec.cluster_id", json!("x".repeat(64))),
        ("Cluster", "spec.service_cidr", json!({"a": 1})),
        ("Gateway", "status.haStatus", json!("asleep")),
        ("Gateway", "status.localEndpoint.cluster_id", json!("")),
        ("Gateway", "status.connections[0].endpoint.cluster_id", json!("x".repeat(64))),
        ("Gateway", "status.connections[0].usingNAT", json!("no")),
        ("Gateway", "status.connections[0].latencyRTT.last", json!(5)),
        ("RouteAgent", "status.remoteEndpoints[0].spec.subnets", json!("10.0.0.0/8")),
        ("RouteAgent", "status.remoteEndpoints[0].spec.cluster_id", json!("")),
        ("RouteAgent", "status.remoteEndpoints[0].status", json!("perhaps")),
        ("GatewayRoute", "spec.nextHops", json!(5)),
        ("NonGatewayRoute", "spec.remoteCIDRs[0]", json!(null)),
        ("ClusterGlobalEgressIP", "spec.numGlobalIPs", json!(-1)),
        ("GlobalEgressIP", "spec.numberOfIPs", json!(21)),
        ("GlobalEgressIP", "spec.podSelector.matchLabels.app", json!(["web"])),
        ("GlobalEgressIP", "status.conditions[0].lastTransitionTime", json!("yesterday")),
        ("GlobalIngressIP", "spec.target", json!("Everything")),
    ];
    for (kind, path, value) in cases {
        let mut item = one_of_each().into_iter().find(|item| item["kind"] == kind).unwrap();
        let mut steps = path.replace('[', ".").replace(']', "");
        let mut at = &mut item;
        while let Some((step, rest)) = steps.split_once('.').map(|(a, b)| (a.to_owned(), b.to_owned())) {
            at = step_into(at, &step);
            steps = rest;
        }
        *step_into(at, &steps) = value;
        let error = Object::from_value(item).unwrap().check_shape().unwrap_err();
        assert_eq!(error.field_path(), Some(path), "{kind}: {error}");
    }
}

#[test]
fn a_required_field_that_is_missing_is_named() {
    let cases = [
        ("Cluster", "spec", "global_cidr"),
        ("Gateway", "status", "connections"),
        ("RouteAgent", "status", "remoteEndpoints"),
        ("GatewayRoute", "spec", "nextHops"),
        ("NonGatewayRoute", "spec", "remoteCIDRs"),
        ("GlobalIngressIP", "spec", "target"),
    ];
    for (kind, part, field) in cases {
        let mut item = one_of_each().into_iter().find(|item| item["kind"] == kind).unwrap();
        item[part].as_object_mut().unwrap().remove(field).unwrap();
        let error = Object::from_value(item).unwrap().check_shape().unwrap_err();
        assert_eq!(error.to_string(), format!("field `{part}.{field}`: is missing"), "{kind}");
    }
}

#[test]
fn values_that_cannot_be_are_refused_with_their_path() {
    let cases = [
        ("cluster_id", json!("not.a.label"), "spec.cluster_id"),
        ("cable_name", json!(""), "spec.cable_name"),
        ("hostname", json!(""), "spec.hostname"),
        ("subnets", json!(["10.1.0.0/16", "10.1.0.0/33"]), "spec.subnets[1]"),
        ("subnets", json!(["127.0.0.0/8"]), "spec.subnets[0]"),
        ("private_ip", json!("172.31.1"), "spec.private_ip"),
        ("private_ip", json!("0.0.0.0"), "spec.private_ip"),
        ("public_ip", json!("gateway.example.com"), "spec.public_ip"),
        ("healthCheckIP", json!("224.0.0.1"), "spec.healthCheckIP"),
        ("backend_config", json!({"udp-port": "65536"}), "spec.backend_config.udp-port"),
        ("backend_config", json!({"natt-discovery-port": "x"}), "spec.backend_config.natt-discovery-port"),
    ];
    for (field, value, path) in cases {
        let error = parse_endpoint(field, value).unwrap_err();
        assert_eq!(error.field_path(), Some(path), "{error}");
    }

    let mut item = first("plain/a-clusters");
    item["spec"]["cluster_cidr"] = json!(["10.1.0.0"]);
    let spec = Cluster::from_object(&Object::from_value(item).unwrap()).unwrap().spec;
    assert_eq!(spec.parse().unwrap_err().field_path(), Some("spec.cluster_cidr[0]"));

    let mut item = one_of_each().swap_remove(4);
    item["spec"]["nextHops"] = json!(["10.1.0.2", "::"]);
    let spec = GatewayRoute::from_object(&Object::from_value(item).unwrap()).unwrap().spec;
    assert_eq!(spec.parse().unwrap_err().field_path(), Some("spec.nextHops[1]"));
}

#[test]
fn what_is_beyond_all_measure_is_refused_with_its_path() {
    let cidrs = |count: usize| {
        json!((0..count).map(|n| format!("10.{}.{}.0/24", n / 256, n % 256)).collect::<Vec<_>>())
    };
    let settings = |count: usize| {
        let entry = |n: usize| (format!("key-{n}"), json!("value"));
        Value::Object((0..count).map(entry).collect())
    };
    assert!(parse_endpoint("subnets", cidrs(limits::MAX_CIDRS)).is_ok());
    assert!(parse_endpoint("backend_config", settings(limits::MAX_BACKEND_CONFIG)).is_ok());

    let addresses: Vec<_> = (0..=limits::MAX_ADDRESSES).map(|n| format!("10.0.0.{n}")).collect();
    let cases = [
        ("subnets", cidrs(limits::MAX_CIDRS + 1), "spec.subnets"),
        ("backend_config", settings(limits::MAX_BACKEND_CONFIG + 1), "spec.backend_config"),
        ("backend_config", json!({"publicKey": "k".repeat(5_000)}), "spec.backend_config.publicKey"),
        ("cable_name", json!("c".repeat(254)), "spec.cable_name"),
        ("hostname", json!("h".repeat(254)), "spec.hostname"),
        ("backend", json!("b".repeat(254)), "spec.backend"),
        ("privateIPs", json!(addresses), "spec.privateIPs"),
        ("publicIPs", json!(addresses), "spec.publicIPs"),
        ("healthCheckIPs", json!(addresses), "spec.healthCheckIPs"),
    ];
    for (field, value, path) in cases {
        let error = parse_endpoint(field, value).unwrap_err();
        assert_eq!(error.field_path(), Some(path), "{error}");
    }
}

#[test]
fn an_error_is_one_short_line_whatever_a_peer_wrote() {
    let long = "x\n\u{1b}[31m".repeat(100_000);
    let errors = [
        parse_endpoint("private_ip", json!(long)).unwrap_err(),
        parse_endpoint("cluster_id", json!(long)).unwrap_err(),
        parse_endpoint("subnets", json!([long])).unwrap_err(),
        parse_endpoint("nat_enabled", json!(long)).unwrap_err(),
        parse_endpoint("backend_config", json!({long.clone(): 5})).unwrap_err(),
        parse_endpoint("backend_config", json!({long: "5"})).unwrap_err(),
    ];
    for error in errors {
        let text = error.to_string();
        assert!(text.len() < 700 && !text.contains(char::is_control), "{text:.1000}");
    }
}

/// Reads a recorded endpoint with one field of its spec replaced.
fn parse_endpoint(field: &str, value: Value) -> Result<(), ApiError> {
    let mut item = first("plain/a-endpoints");
    item["spec"][field] = value;
    Endpoint::from_object(&Object::from_value(item)?)?.spec.parse().map(drop)
}

fn step_into<'a>(value: &'a mut Value, step: &str) -> &'a mut Value {
    match step.parse::<usize>() {
        Ok(index) => &mut value[index],
        Err(_) => &mut value[step],
    }
}
