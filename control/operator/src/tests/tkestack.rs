//! The resource that the first users have, field by field.

use crate::translate::tkestack::{API_VERSION, Translated, translate};
use serde_json::{Value, json};
use trieste_control::api::BrokerInfoSource;

fn resource(kind: &str, spec: &Value) -> Translated {
    let resource = json!({"apiVersion": API_VERSION, "kind": kind, "metadata": {"namespace": "n", "name": "f"}, "spec": spec});
    translate(&resource, BrokerInfoSource::ConfigMap).unwrap()
}

fn spec(spec: &Value) -> Value {
    serde_json::to_value(resource("Fabric", spec).spec).unwrap()
}

#[test]
fn defaults_are_as_they_were() {
    let broker = spec(&json!({"brokerConfig": {}}))["brokerConfig"].clone();
    for (field, value) in [
        ("connectivityEnabled", json!(true)),
        ("serviceDiscoveryEnabled", json!(false)),
        ("globalnetEnable", json!(false)),
        ("globalnetCIDRRange", json!("242.0.0.0/8")),
        ("defaultGlobalnetClusterSize", json!(65_336)),
    ] {
        assert_eq!(broker[field], value, "{field}");
    }
    let join = spec(&json!({"joinConfig": {}}))["joinConfig"].clone();
    for (field, value) in [
        ("clusterID", Value::Null),
        ("nattPort", json!(4500)),
        ("ikePort", json!(500)),
        ("preferredServer", json!(false)),
        ("forceUDPEncaps", json!(false)),
        ("natTraversal", json!(true)),
        ("globalnetEnabled", json!(false)),
        ("globalnetClusterSize", json!(0)),
        ("ipsecDebug", json!(false)),
        ("debug", json!(false)),
        ("labelGateway", json!(true)),
        ("loadBalancerEnabled", json!(false)),
        ("cableDriver", json!("libreswan")),
        ("healthCheckEnable", json!(true)),
        ("healthCheckInterval", json!(1)),
        ("healthCheckMaxPacketLossCount", json!(5)),
        ("image", Value::Null),
        (
            "brokerInfoRef",
            json!({"kind": "ConfigMap", "name": "submariner-broker-info", "namespace": "submariner-k8s-broker",
                "key": "brokerInfo"}),
        ),
    ] {
        assert_eq!(join[field], value, "{field}");
    }
}

#[test]
fn every_field_says_what_it_said() {
    for (field, value, pointer, becomes) in [
        ("publicAPIServerURL", json!("https://b:1"), "/publicAPIServerURL", json!("https://b:1")),
        ("connectivityEnabled", json!(false), "/connectivityEnabled", json!(false)),
        ("serviceDiscoveryEnabled", json!(true), "/serviceDiscoveryEnabled", json!(true)),
        ("globalnetEnable", json!(true), "/globalnetEnable", json!(true)),
        ("globalnetCIDRRange", json!("169.254.0.0/16"), "/globalnetCIDRRange", json!("169.254.0.0/16")),
        ("defaultGlobalnetClusterSize", json!(512), "/defaultGlobalnetClusterSize", json!(512)),
        ("defaultCustomDomains", json!(["a.b"]), "/customDomains", json!(["a.b"])),
    ] {
        let translated = spec(&json!({"brokerConfig": {field: value}}))["brokerConfig"].clone();
        assert_eq!(translated.pointer(pointer), Some(&becomes), "{field}");
    }
    for (field, value, pointer, becomes) in [
        ("clusterID", json!("east"), "/clusterID", json!("east")),
        ("serviceCIDR", json!("10.2.0.0/16"), "/serviceCIDR", json!("10.2.0.0/16")),
        ("clusterCIDR", json!("10.1.0.0/16"), "/clusterCIDR", json!("10.1.0.0/16")),
        ("globalnetCIDR", json!("242.1.0.0/16"), "/globalnetCIDR", json!("242.1.0.0/16")),
        ("repository", json!("reg/x"), "/image", json!(concat!("reg/x/trieste:", env!("CARGO_PKG_VERSION")))),
        ("imageVersion", json!("7"), "/image", json!("localhost/trieste:7")),
        ("imageOverrideArr", json!(["submariner-gateway=reg/own:7"]), "/image", json!("reg/own:7")),
        ("nattPort", json!(4501), "/nattPort", json!(4501)),
        ("preferredServer", json!(true), "/preferredServer", json!(true)),
        ("forceUDPEncaps", json!(true), "/forceUDPEncaps", json!(true)),
        ("natTraversal", json!(false), "/natTraversal", json!(false)),
        ("globalnetEnabled", json!(true), "/globalnetEnabled", json!(true)),
        ("globalnetClusterSize", json!(512), "/globalnetClusterSize", json!(512)),
        ("ipsecDebug", json!(true), "/ipsecDebug", json!(true)),
        ("submarinerDebug", json!(true), "/debug", json!(true)),
        ("labelGateway", json!(false), "/labelGateway", json!(false)),
        ("loadBalancerEnabled", json!(true), "/loadBalancerEnabled", json!(true)),
        ("cableDriver", json!("wireguard"), "/cableDriver", json!("wireguard")),
        ("customDomains", json!(["a.b"]), "/customDomains", json!(["a.b"])),
        ("corednsCustomConfigMap", json!("n/more"), "/corednsCustomConfigMap", json!("n/more")),
        ("healthCheckEnable", json!(false), "/healthCheckEnable", json!(false)),
        ("healthCheckInterval", json!(9), "/healthCheckInterval", json!(9)),
        ("healthCheckMaxPacketLossCount", json!(8), "/healthCheckMaxPacketLossCount", json!(8)),
    ] {
        let translated = spec(&json!({"joinConfig": {field: value}}))["joinConfig"].clone();
        assert_eq!(translated.pointer(pointer), Some(&becomes), "{field}");
    }
}

#[test]
fn what_is_not_carried_out_is_said() {
    let warned = resource(
        "Fabric",
        &json!({"joinConfig": {"ikePort": 501, "imageOverrideArr": ["lighthouse-agent=x"]},
            "cloudPrepareConfig": {"credentialsSecret": "aws", "infraID": "i", "region": "r", "aws": {"gateways": 2}}}),
    );
    let text = warned.warnings.join("\n");
    assert_eq!(warned.warnings.len(), 3, "{text}");
    assert!(
        text.contains("cloudPrepareConfig") && text.contains("501") && text.contains("lighthouse-agent"),
        "{text}"
    );
    let wrong =
        json!({"apiVersion": API_VERSION, "kind": "Fabric", "spec": {"joinConfig": {"nattPort": "x"}}});
    let error = translate(&wrong, BrokerInfoSource::Secret).unwrap_err().to_string();
    assert!(error.contains("joinConfig.nattPort"), "{error}");
    let two = json!({"kind": "Fabric", "spec": {"joinConfig": {
        "imageOverrideArr": ["submariner-gateway=a", "submariner-routeagent=b"]}}});
    assert!(translate(&two, BrokerInfoSource::Secret).is_err());
}

#[test]
fn a_knitnet_carries_out_what_its_action_says_and_a_fabric_what_is_there() {
    for (kind, action, parts) in [
        ("Fabric", Value::Null, [true, true]),
        ("Knitnet", Value::Null, [true, false]),
        ("Knitnet", json!("broker"), [true, false]),
        ("Knitnet", json!("join"), [false, true]),
        ("Knitnet", json!("all"), [true, true]),
    ] {
        let spec = resource(kind, &json!({"action": action, "brokerConfig": {}, "joinConfig": {}})).spec;
        assert_eq!([spec.broker_config.is_some(), spec.join_config.is_some()], parts, "{kind} {action}");
    }
}
