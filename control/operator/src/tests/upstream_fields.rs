//! Every field of upstream's kinds acts, is refused, or is remarked on: none can be forgotten, since the list is the definition's.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};
use trieste_control::api::{BrokerSpec, Kind, ServiceDiscoverySpec, SubmarinerSpec, crd};
use trieste_deploy::objects::Secret;

use crate::translate::broker_options;
use crate::translate::upstream::{
    Credentials, RegisteredContext, TranslatedMember, broker_config, member, registered_options,
    service_discovery, service_discovery_options,
};

/// Returns the names of the properties of a kind's spec.
fn properties(kind: Kind) -> BTreeSet<String> {
    let index = Kind::SUBMARINER.iter().position(|other| *other == kind).unwrap();
    let definition = &crd::definitions()[index];
    let spec =
        &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
    spec.as_object().unwrap().keys().cloned().collect()
}

fn submariner() -> Value {
    json!({"broker": "k8s", "brokerK8sApiServer": "b:1", "brokerK8sRemoteNamespace": "meet", "ceIPSecDebug": false,
        "clusterCIDR": "", "clusterID": "east", "debug": false, "namespace": "submariner-operator", "natEnabled": false,
        "serviceCIDR": ""})
}

fn discovery() -> Value {
    json!({"brokerK8sApiServer": "b:1", "brokerK8sRemoteNamespace": "meet", "clusterID": "east", "debug": false,
        "namespace": "submariner-operator"})
}

/// Returns all that comes out of a translation.
fn shown(translated: &TranslatedMember, is_member: bool) -> String {
    let membership = &translated.membership;
    let token = membership.token.clone().unwrap_or_else(|| Secret::new("t"));
    let psk = membership.psk.clone().unwrap_or_else(|| Secret::new("0123456789abcdef"));
    let credentials = Credentials { token, ca: membership.ca.clone(), psk };
    let limit = Duration::from_secs(1);
    let context = RegisteredContext { credentials: &credentials, earlier: None, image: "r/trieste:1", limit };
    let options = if is_member {
        format!("{:?}", registered_options(translated, &context).unwrap())
    } else {
        format!("{:?}", service_discovery_options(translated, &context).unwrap())
    };
    format!("{options} {membership:?} {:?}", translated.warnings)
}

fn of_member(spec: Value) -> Result<String, String> {
    let spec: SubmarinerSpec = serde_json::from_value(spec).unwrap();
    member(&spec, None).map(|translated| shown(&translated, true)).map_err(|error| error.to_string())
}

fn of_discovery(spec: Value) -> Result<String, String> {
    let spec: ServiceDiscoverySpec = serde_json::from_value(spec).unwrap();
    service_discovery(&spec).map(|translated| shown(&translated, false)).map_err(|error| error.to_string())
}

/// A field, a value that is not its default, and a part of what comes out of it, or of the error.
type Row = (&'static str, Value, &'static str);

/// Returns the fields that a Submariner and a ServiceDiscovery object both have, with the same meaning.
fn of_both() -> Vec<Row> {
    vec![
        ("brokerK8sApiServer", json!("https://c:2/"), "api_server: \"c:2\""),
        ("brokerK8sApiServerToken", json!("abc"), "token: Some(Secret(3 bytes))"),
        ("brokerK8sCA", json!("UEVN"), "ca: Some([80, 69, 77])"),
        ("brokerK8sInsecure", json!(true), "insecure: true"),
        ("brokerK8sRemoteNamespace", json!("other"), "namespace: \"other\""),
        ("brokerK8sSecret", json!("access"), "secret: Some(\"access\")"),
        ("clusterID", json!("west"), "cluster_id: \"west\""),
        ("clustersetIPCIDR", json!("243.1.0.0/20"), "clusterset_ip_cidrs: [243.1.0.0/20]"),
        ("clustersetIPEnabled", json!(true), "clusterset_ips_by_default: true"),
        (
            "coreDNSCustomConfig",
            json!({"configMapName": "more"}),
            "coredns_custom_config: \"kube-system/more\"",
        ),
        ("customDomains", json!(["a.example"]), "custom_domains: [\"a.example\"]"),
        ("debug", json!(true), " debug: true"),
        ("haltOnCertificateError", json!(false), "halt_on_certificate_error: false"),
        ("namespace", json!("other"), "spec.namespace: is `other`"),
        ("nodeSelector", json!({"a": "b"}), "node_selector: {\"a\": \"b\"}"),
        ("repository", json!("quay.io/x"), "spec.repository quay.io/x not carried out"),
        ("tolerations", json!([{"operator": "Exists"}]), "tolerations: [Object"),
        ("version", json!("0.19.0"), "spec.version 0.19.0 not carried out"),
    ]
}

/// Checks a row for each field that the definition has.
fn check_all(kind: Kind, plain: &Value, translate: fn(Value) -> Result<String, String>, rows: &[Row]) {
    check_rows(plain, translate, rows);
    let listed: BTreeSet<String> = rows.iter().map(|(field, ..)| (*field).to_owned()).collect();
    assert_eq!(listed, properties(kind));
}

fn check_rows(plain: &Value, translate: fn(Value) -> Result<String, String>, rows: &[Row]) {
    let before = translate(plain.clone()).unwrap();
    for (field, value, part) in rows {
        let mut spec = plain.clone();
        spec[*field] = value.clone();
        let after = translate(spec).unwrap_or_else(|error| error);
        assert!(!before.contains(part), "{field}: {part} is so anyway");
        assert!(after.contains(part), "{field}: no {part} in {after}");
    }
}

#[test]
fn every_field_of_a_submariner_acts_is_refused_or_is_remarked_on() {
    let rows = [
        ("airGappedDeployment", json!(true), "air_gapped: true"),
        ("broker", json!("other"), "spec.broker: is `other`"),
        ("cableDriver", json!("wireguard"), "cable_driver: \"wireguard\""),
        ("ceIPSecDebug", json!(true), "ipsec_debug: true"),
        ("ceIPSecForceUDPEncaps", json!(true), "force_udp_encaps: true"),
        ("ceIPSecIKEPort", json!(501), "spec.ceIPSecIKEPort 501 not carried out"),
        ("ceIPSecNATTPort", json!(4501), "natt_port: 4501"),
        ("ceIPSecPSK", json!("a2V5"), "psk: Some(Secret(3 bytes))"),
        ("ceIPSecPSKSecret", json!("key"), "psk_secret: Some(\"key\")"),
        ("ceIPSecPreferredServer", json!(true), "preferred_server: true"),
        ("clusterCIDR", json!("10.1.0.0/16"), "pods: [10.1.0.0/16]"),
        ("colorCodes", json!("red"), "spec.colorCodes red not carried out"),
        ("connectionHealthCheck", json!({"enabled": true, "intervalSeconds": 7}), "interval_seconds: 7"),
        ("globalCIDR", json!("242.1.0.0/16"), "global_cidrs: [242.1.0.0/16]"),
        ("imageOverrides", json!({"trieste": "reg/own:7"}), "reference: \"reg/own:7\""),
        ("loadBalancerEnabled", json!(true), "load_balancer: true"),
        ("natEnabled", json!(true), "nat_enabled: true"),
        ("serviceCIDR", json!("10.2.0.0/16"), "services: [10.2.0.0/16]"),
        ("serviceDiscoveryEnabled", json!(true), "service_discovery: true"),
    ];
    check_all(Kind::Submariner, &submariner(), of_member, &[of_both(), rows.into()].concat());
}

#[test]
fn every_field_of_a_service_discovery_acts_is_refused_or_is_remarked_on() {
    let rows = [
        ("globalnetEnabled", json!(true), "discovers_global: true"),
        (
            "imageOverrides",
            json!({"lighthouse-agent": "x:1"}),
            "spec.imageOverrides.lighthouse-agent x:1 not carried out",
        ),
    ];
    check_all(Kind::ServiceDiscovery, &discovery(), of_discovery, &[of_both(), rows.into()].concat());
}

#[test]
fn every_field_of_a_broker_acts_or_is_refused() {
    let translate = |spec: Value| {
        let spec: BrokerSpec = serde_json::from_value(spec).unwrap();
        let (config, warnings) = broker_config(&spec).map_err(|error| error.to_string())?;
        broker_options(&config)
            .map(|options| format!("{options:?} {warnings:?}"))
            .map_err(|error| error.to_string())
    };
    let rows = [
        ("components", json!(["connectivity"]), "components: [Connectivity]"),
        ("defaultCustomDomains", json!(["a.example"]), "custom_domains: [\"a.example\"]"),
        ("globalnetEnabled", json!(true), "Globalnet { enabled: true"),
        ("globalnetCIDRRange", json!("169.254.0.0/16"), "cidr_range: 169.254.0.0/16"),
        ("defaultGlobalnetClusterSize", json!(512), "cluster_size: 512"),
        ("clustersetIPEnabled", json!(true), "ClusterSetIp { enabled: true"),
        ("clustersetIPCIDRRange", json!("244.0.0.0/8"), "cidr_range: 244.0.0.0/8"),
    ];
    check_all(Kind::Broker, &json!({}), translate, &rows);
    check_rows(
        &json!({}),
        translate,
        &[
            ("components", json!(["connectivity", "globalnet"]), "Globalnet { enabled: true"),
            ("components", json!(["other"]), "spec.components: `other` is no component"),
            ("newer", json!(1), "spec: newer not carried out"),
            ("defaultGlobalnetClusterSize", json!(-1), "spec.defaultGlobalnetClusterSize: "),
        ],
    );
}

#[test]
fn what_makes_no_sense_is_refused_and_what_upstream_leaves_out_is_its_default() {
    check_rows(
        &submariner(),
        of_member,
        &[
            ("ceIPSecNATTPort", json!(70_000), "spec.ceIPSecNATTPort: is no UDP port"),
            ("clusterID", json!("A_b"), "spec.clusterID: "),
            ("globalCIDR", json!("x"), "spec.globalCIDR: `x` is no CIDR"),
            ("brokerK8sCA", json!("%"), "spec.brokerK8sCA: is no base64"),
            (
                "coreDNSCustomConfig",
                json!({"configMapName": "a", "namespace": "dns"}),
                "names the namespace dns",
            ),
            // Upstream's operator leaves a switch out that is off.
            ("connectionHealthCheck", json!({"intervalSeconds": 3}), "enabled: false, interval_seconds: 3"),
            (
                "connectionHealthCheck",
                json!({"maxPacketLossCount": -1}),
                "spec.connectionHealthCheck: has the number -1",
            ),
            ("newer", json!(1), "spec: newer not carried out"),
        ],
    );
    let plain = of_member(submariner()).unwrap();
    for part in [
        "cable_driver: \"libreswan\"",
        "natt_port: 4500",
        "enabled: true, interval_seconds: 1, max_packet_loss: 5",
    ] {
        assert!(plain.contains(part), "no {part} in {plain}");
    }
    assert!(plain.contains("deployments_alone: true") && plain.contains("gateways: 0"), "{plain}");
}

#[test]
fn a_service_discovery_beside_a_submariner_adds_to_it_and_is_of_the_same_membership() {
    let spec: SubmarinerSpec = serde_json::from_value(submariner()).unwrap();
    let beside = |edit: Value| {
        let mut value = discovery();
        for (field, new) in edit.as_object().unwrap() {
            value[field] = new.clone();
        }
        serde_json::from_value::<ServiceDiscoverySpec>(value).unwrap()
    };
    let extra = beside(json!({"customDomains": ["a.example"], "clustersetIPCIDR": "243.1.0.0/20"}));
    let both = shown(&member(&spec, Some(&extra)).unwrap(), true);
    for part in ["service_discovery: true", "[\"a.example\"]", "clusterset_ip_ranges: [243.0.0.0/8]"] {
        assert!(both.contains(part), "no {part} in {both}");
    }
    let error = member(&spec, Some(&beside(json!({"clusterID": "west"})))).unwrap_err().to_string();
    assert!(error.contains("ServiceDiscovery.spec: clusterID is not what the Submariner object"), "{error}");
    // One that upstream's operator has made of the Submariner object says nothing of its own.
    let on = SubmarinerSpec { service_discovery_enabled: Some(true), ..spec };
    assert!(!shown(&member(&on, Some(&extra)).unwrap(), true).contains("a.example"));
}
