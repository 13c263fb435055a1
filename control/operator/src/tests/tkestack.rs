//! The resource that the first users have, field by field.

use crate::order::Part;
use crate::translate::FieldError;
use crate::translate::tkestack::{Translated, begins, cloud, has, of_part, translate};
use serde_json::{Value, json};
use trieste_control::api::{BrokerInfoSource, Kind};

fn resource(spec: &Value) -> Result<Translated, FieldError> {
    translate(spec.as_object().unwrap(), BrokerInfoSource::ConfigMap)
}

fn spec(spec: &Value) -> Value {
    serde_json::to_value(resource(spec).unwrap().spec).unwrap()
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
    let spec = json!({"joinConfig": {"ikePort": 501, "imageOverrideArr": ["lighthouse-agent=x"]}});
    let warned = resource(&spec).unwrap();
    let text = warned.warnings.join("\n");
    assert_eq!(warned.warnings.len(), 2, "{text}");
    assert!(text.contains("501") && text.contains("lighthouse-agent"), "{text}");
    for (field, wrong) in [
        ("joinConfig.nattPort", json!({"joinConfig": {"nattPort": "x"}})),
        (
            "imageOverrideArr",
            json!({"joinConfig": {
            "imageOverrideArr": ["submariner-gateway=a", "submariner-routeagent=b"]}}),
        ),
    ] {
        let error = resource(&wrong).unwrap_err().to_string();
        assert!(error.contains(field), "{error}");
    }
    let error = resource(&json!({"action": "leave", "joinConfig": {}})).unwrap_err();
    assert!(error.to_string().contains("action"), "{error}");
}

#[test]
fn a_cloud_that_nobody_has_asked_for_is_no_part() {
    let given = |config: Value| {
        let spec = json!({"brokerConfig": {}, "cloudPrepareConfig": config});
        let spec = spec.as_object().unwrap();
        let is_there = cloud(spec, "apps").unwrap().is_some();
        assert_eq!(has(spec, Part::Cloud), is_there);
        is_there
    };
    // What that operator's programs write where there is nothing.
    let empty = json!({"credentialsSecret": {"name": ""}, "infraID": "", "region": "", "aws": {"gatewayInstance": "m5n.large", "gateways": 1}});
    assert_eq!(
        [given(empty), given(json!({})), given(json!({"credentialsSecret": "aws"}))],
        [false, false, true]
    );
}

#[test]
fn every_field_of_a_cloud_says_what_it_said() {
    let of = |config: Value, namespace: &str| {
        let spec = json!({"joinConfig": {}, "cloudPrepareConfig": config});
        cloud(spec.as_object().unwrap(), namespace).map(Option::unwrap)
    };
    let plain = of(json!({"credentialsSecret": "aws"}), "apps").unwrap();
    assert!(!plain.is_named, "it is AWS if the nodes are");
    let config = serde_json::to_value(plain.config).unwrap();
    let secret = json!({"name": "aws", "namespace": "trieste-operator"});
    let expected = json!({"credentialsSecret": secret, "sources": ["0.0.0.0/0", "::/0"],
        "aws": {"gatewayInstance": "m5n.large", "gateways": 1}});
    assert_eq!(config, expected);
    for (config, pointer, becomes) in [
        (json!({"credentialsSecret": {"name": "k"}}), "/credentialsSecret/name", json!("k")),
        (json!({"region": "r", "infraID": "i"}), "/infraID", json!("i")),
        (json!({"region": "r", "infraID": ""}), "/region", json!("r")),
        (json!({"region": "r", "aws": {"gateways": 2}}), "/aws/gateways", json!(2)),
        (json!({"region": "r", "aws": {"gatewayInstance": "x"}}), "/aws/gatewayInstance", json!("x")),
    ] {
        let translated = of(config.clone(), "apps").unwrap();
        assert_eq!(translated.is_named, config["aws"].is_object());
        let translated = serde_json::to_value(translated.config).unwrap();
        assert_eq!(translated.pointer(pointer), Some(&becomes), "{config}");
    }
    let own = of(json!({"credentialsSecret": "aws"}), "submariner-operator").unwrap().config;
    assert_eq!(own.credentials_secret.unwrap().namespace, "submariner-operator");
    let error = of(json!({"region": "r", "aws": {"gateways": "x"}}), "apps").unwrap_err().to_string();
    assert!(error.starts_with("cloudPrepareConfig: aws.gateways"), "{error}");
}

#[test]
fn a_mistake_in_one_part_does_not_concern_the_other() {
    let spec = json!({"action": "all", "brokerConfig": {}, "joinConfig": {"nattPort": "x"}, "cloudPrepareConfig": {"region": "r"}});
    let of = |part| translate(&of_part(spec.as_object().unwrap(), part), BrokerInfoSource::Secret);
    let broker = of(Part::Broker).unwrap();
    assert!(
        broker.spec.broker_config.is_some()
            && broker.spec.join_config.is_none()
            && broker.warnings.is_empty()
    );
    assert!(of(Part::Member).unwrap_err().to_string().contains("nattPort"));
    assert!(of(Part::Cloud).unwrap_err().to_string().contains("nattPort"), "its ports are the cloud's");
    let parts = |part| of_part(spec.as_object().unwrap(), part).keys().cloned().collect::<Vec<_>>();
    assert_eq!(parts(Part::Cloud), ["action", "cloudPrepareConfig", "joinConfig"]);
    assert_eq!(parts(Part::Member), ["action", "joinConfig"]);
}

#[test]
fn fields_without_a_value_are_missing() {
    let empty = json!({"joinConfig": {"imageOverrideArr": null, "customDomains": null, "clusterID": null}});
    assert_eq!(spec(&empty), spec(&json!({"joinConfig": {}})));
    assert_eq!(spec(&json!({"action": "", "joinConfig": {}})), spec(&json!({"joinConfig": {}})));
}

#[test]
fn a_knitnet_begins_what_its_action_says_and_a_fabric_what_is_there() {
    for (kind, action, wanted) in [
        (Kind::TkestackFabric, Value::Null, [true, true]),
        (Kind::TkestackFabric, json!("join"), [false, true]),
        (Kind::Knitnet, json!(""), [true, false]),
        (Kind::Knitnet, json!("leave"), [false, false]),
        (Kind::Knitnet, Value::Null, [true, false]),
        (Kind::Knitnet, json!("broker"), [true, false]),
        (Kind::Knitnet, json!("join"), [false, true]),
        (Kind::Knitnet, json!("all"), [true, true]),
    ] {
        let both = json!({"action": action, "brokerConfig": {}, "joinConfig": {}});
        let none = json!({"action": action, "brokerConfig": null});
        let cloud = json!({"action": action, "cloudPrepareConfig": {"region": "r"}});
        assert_eq!(begins(kind, cloud.as_object().unwrap(), Part::Cloud), wanted[1], "as the member");
        let begun = |spec: &Value| {
            [Part::Broker, Part::Member].map(|part| begins(kind, spec.as_object().unwrap(), part))
        };
        assert_eq!((begun(&both), begun(&none)), (wanted, [false, false]), "{kind} {action}");
        assert!(
            has(both.as_object().unwrap(), Part::Member) && !has(none.as_object().unwrap(), Part::Broker)
        );
    }
}
