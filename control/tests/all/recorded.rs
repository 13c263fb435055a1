//! The objects recorded from upstream, for tests of the API.
#![allow(clippy::wildcard_enum_match_arm, reason = "any kind but those that were recorded fails the test")]

use serde_json::{Value, json};
use trieste_control::api::{
    Broker, Cluster, ClusterGlobalEgressIp, Endpoint, Gateway, GatewayRoute, GlobalEgressIp, GlobalIngressIp,
    Kind, NonGatewayRoute, Object, Resource, RouteAgent, ServiceDiscovery, Submariner,
};

macro_rules! samples {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_str!(concat!("../golden/", $name, ".yaml")))),*]
    };
}

const SAMPLES: [(&str, &str); 30] = samples![
    "globalnet/a-clusterglobalegressips",
    "globalnet/a-clusters",
    "globalnet/a-endpoints",
    "globalnet/a-gateways",
    "globalnet/a-globalegressips",
    "globalnet/a-globalingressips",
    "globalnet/a-leases",
    "globalnet/a-routeagents",
    "globalnet/b-globalingressips",
    "globalnet/broker-clusters",
    "globalnet/broker-endpoints",
    "ha-passive/a-gateways",
    "ha-passive/a-leases",
    "ha-passive/a-routeagents",
    "plain/a-clusters",
    "plain/a-endpoints",
    "plain/a-gateways",
    "plain/a-leases",
    "plain/a-routeagents",
    "plain/b-clusters",
    "plain/b-endpoints",
    "plain/b-gateways",
    "plain/broker-clusters",
    "plain/broker-endpoints",
    "wireguard/a-endpoints",
    "wireguard/a-gateways",
    "wireguard/a-routeagents",
    "wireguard/b-gateways",
    "wireguard/b-leases",
    "wireguard/broker-endpoints",
];

/// Every recorded object, with the sample that it is of.
pub(crate) fn items() -> impl Iterator<Item = (&'static str, Value)> {
    SAMPLES.into_iter().flat_map(|(sample, text)| {
        let list: Value = serde_saphyr::from_str(text).unwrap();
        list["items"].as_array().unwrap().clone().into_iter().map(move |item| (sample, item))
    })
}

/// The first object of a sample.
pub(crate) fn first(sample: &str) -> Value {
    items().find(|(name, _)| *name == sample).unwrap_or_else(|| panic!("no sample {sample}")).1
}

/// One object of each kind of ours. Upstream was not recorded with OVN-Kubernetes, and its operator's objects were not
/// recorded, so these five kinds are written here.
pub(crate) fn one_of_each() -> Vec<Value> {
    let route = |kind: &str, next_hop: &str| {
        json!({
            "apiVersion": "submariner.io/v1",
            "kind": kind,
            "metadata": {"name": "cluster-b", "namespace": "submariner-operator"},
            "spec": {"nextHops": [next_hop], "remoteCIDRs": ["10.2.0.0/16", "100.2.0.0/16"]},
        })
    };
    let all = vec![
        first("plain/a-clusters"),
        first("wireguard/a-endpoints"),
        first("wireguard/a-gateways"),
        items().find(|(_, item)| item["status"]["remoteEndpoints"][0].get("latencyRTT").is_some()).unwrap().1,
        route("GatewayRoute", "10.1.0.2"),
        route("NonGatewayRoute", "100.88.0.3"),
        first("globalnet/a-clusterglobalegressips"),
        items().find(|(_, item)| item["spec"].get("podSelector").is_some()).unwrap().1,
        first("globalnet/a-globalingressips"),
        submariner(),
        broker(),
        service_discovery(),
    ];
    let kinds: Vec<_> = all.iter().map(|item| item["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, Kind::SUBMARINER.map(Kind::as_str));
    all
}

fn submariner() -> Value {
    json!({
        "apiVersion": "submariner.io/v1alpha1",
        "kind": "Submariner",
        "metadata": {"name": "submariner", "namespace": "submariner-operator"},
        "spec": {
            "broker": "k8s", "brokerK8sApiServer": "172.31.0.10:17443", "brokerK8sApiServerToken": "TOKEN",
            "brokerK8sCA": "BASE64-PEM", "brokerK8sRemoteNamespace": "submariner-k8s-broker",
            "brokerK8sSecret": "submariner-broker-secret", "cableDriver": "vxlan", "ceIPSecDebug": false,
            "ceIPSecNATTPort": 4500, "ceIPSecPSK": "bGFiLXBzay1sYWItcHNrLWxhYi1wc2s=",
            "ceIPSecPSKSecret": "submariner-ipsec-psk", "clusterCIDR": "10.2.0.0/16", "clusterID": "cluster-b",
            "colorCodes": "blue", "connectionHealthCheck":
                {"enabled": true, "intervalSeconds": 1, "maxPacketLossCount": 5},
            "customDomains": ["example.org"], "debug": true, "imageOverrides": {"submariner-gateway": "r/i:1"},
            "namespace": "submariner-operator", "natEnabled": true, "nodeSelector": {"a": "b"},
            "repository": "quay.io/submariner", "serviceCIDR": "100.2.0.0/16",
            "tolerations": [{"operator": "Exists"}], "version": "0.19.0-rc3",
        },
        "status": {
            "clusterID": "cluster-b", "natEnabled": true, "networkPlugin": "generic",
            "gatewayDaemonSetStatus": {"mismatchedContainerImages": false}, "gateways": [{"version": "1"}],
        },
    })
}

fn service_discovery() -> Value {
    json!({
        "apiVersion": "submariner.io/v1alpha1",
        "kind": "ServiceDiscovery",
        "metadata": {"name": "service-discovery", "namespace": "submariner-operator"},
        "spec": {
            "brokerK8sApiServer": "172.31.0.10:17443", "brokerK8sApiServerToken": "TOKEN", "brokerK8sCA": "BASE64-PEM",
            "brokerK8sRemoteNamespace": "submariner-k8s-broker", "brokerK8sSecret": "submariner-broker-secret",
            "clusterID": "cluster-b", "customDomains": ["example.org"], "debug": true, "globalnetEnabled": true,
            "imageOverrides": {"lighthouse-agent": "r/i:1"}, "namespace": "submariner-operator",
            "nodeSelector": {"a": "b"}, "repository": "quay.io/submariner", "tolerations": [{"operator": "Exists"}],
            "version": "0.19.0-rc3",
        },
        "status": {"deploymentInfo": {"kubernetesType": "k8s"}},
    })
}

fn broker() -> Value {
    json!({
        "apiVersion": "submariner.io/v1alpha1",
        "kind": "Broker",
        "metadata": {"name": "submariner-broker", "namespace": "submariner-k8s-broker"},
        "spec": {
            "components": ["service-discovery", "connectivity"], "defaultCustomDomains": ["example.org"],
            "globalnetEnabled": true, "globalnetCIDRRange": "242.0.0.0/8", "defaultGlobalnetClusterSize": 65536,
        },
        "status": {},
    })
}

/// Reads an object as its type and writes it again. Kubernetes' own kinds have no type of ours.
pub(crate) fn through_typed(object: &Object) -> Object {
    match object.kind {
        Kind::Cluster => Cluster::from_object(object).unwrap().to_object(),
        Kind::Endpoint => Endpoint::from_object(object).unwrap().to_object(),
        Kind::Gateway => Gateway::from_object(object).unwrap().to_object(),
        Kind::RouteAgent => RouteAgent::from_object(object).unwrap().to_object(),
        Kind::GatewayRoute => GatewayRoute::from_object(object).unwrap().to_object(),
        Kind::NonGatewayRoute => NonGatewayRoute::from_object(object).unwrap().to_object(),
        Kind::ClusterGlobalEgressIp => ClusterGlobalEgressIp::from_object(object).unwrap().to_object(),
        Kind::GlobalEgressIp => GlobalEgressIp::from_object(object).unwrap().to_object(),
        Kind::GlobalIngressIp => GlobalIngressIp::from_object(object).unwrap().to_object(),
        Kind::Submariner => Submariner::from_object(object).unwrap().to_object(),
        Kind::ServiceDiscovery => ServiceDiscovery::from_object(object).unwrap().to_object(),
        Kind::Broker => Broker::from_object(object).unwrap().to_object(),
        Kind::Lease => object.clone(),
        other => panic!("unexpected kind {other}"),
    }
}

/// Adds an unknown field to every mapping that is not itself a free map of strings.
pub(crate) fn plant(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields.iter_mut() {
                if !matches!(
                    key.as_str(),
                    "labels"
                        | "annotations"
                        | "backend_config"
                        | "matchLabels"
                        | "nodeSelector"
                        | "imageOverrides"
                ) {
                    plant(value);
                }
            }
            fields.insert("fromTheFuture".to_owned(), json!({"deep": [1, "two", null]}));
        }
        Value::Array(values) => values.iter_mut().for_each(plant),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
