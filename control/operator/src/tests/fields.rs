//! Every field of the definition does something, is refused, or is the operator's own business: none can be forgotten.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::translate::{JoinContext, broker_options, cloud, cloud_wanted, join_options, join_source};
use serde_json::{Value, json};
use trieste_control::api::{
    AwsConfig, AzureConfig, BrokerConfig, BrokerInfoSource, CloudPrepareConfig, FabricSpec, GcpConfig,
    GenericConfig, JoinConfig, RhosConfig, crd,
};
use trieste_deploy::broker_info::{BrokerInfo, ClientToken};
use trieste_deploy::objects::Secret;

pub(crate) fn info() -> BrokerInfo {
    BrokerInfo {
        broker_url: "https://broker.example.com:6443".to_owned(),
        client_token: ClientToken {
            secret_name: "s".to_owned(),
            namespace: "submariner-k8s-broker".to_owned(),
            token: Secret::new("t"),
            ca: Vec::new(),
        },
        psk: Secret::new("0123456789abcdef"),
        service_discovery: true,
        components: Vec::new(),
        custom_domains: Some(vec!["of.broker".to_owned()]),
    }
}

/// Returns the names of the properties at a path of the definition's spec.
fn properties(path: &[&str]) -> BTreeSet<String> {
    let definition = crd::fabric();
    let mut node =
        definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"].clone();
    for name in path {
        node = node["properties"][name].clone();
    }
    node["properties"].as_object().unwrap().keys().cloned().collect()
}

fn shown_join(config: &JoinConfig) -> Result<String, String> {
    let info = info();
    let limit = Duration::from_secs(1);
    let context = JoinContext { fabric: "east", info: &info, earlier: None, image: "r/trieste:1", limit };
    join_options(config, &context).map(|join| format!("{join:?}")).map_err(|error| error.to_string())
}

/// A value of each field that is not its default, and a part of what comes out of it.
const JOIN: [(&str, &str, &str); 40] = [
    ("activeGateways", r#""one""#, "active_gateways: Some(One)"),
    ("airGapped", "true", "air_gapped: true"),
    ("allowRemoteCIDRs", r#""25.0.0.0/8""#, "allow_remote_cidrs: [25.0.0.0/8]"),
    ("brokerURL", r#""https://other:1""#, "api_server: \"other:1\""),
    ("cableDriver", r#""libreswan""#, "cable_driver: \"libreswan\""),
    ("checkBrokerCertificate", "false", "insecure: true"),
    ("clusterCIDR", r#""10.1.0.0/16, fd00::/48""#, "pods: [10.1.0.0/16, fd00::/48]"),
    ("clusterID", r#""west""#, "cluster_id: \"west\""),
    ("clustersetIPCIDR", r#""243.1.0.0/20""#, "cidrs: [243.1.0.0/20]"),
    ("clustersetIPEnabled", "true", "is_default: Some(true)"),
    ("corednsCustomConfigMap", r#""n/more""#, "coredns_custom_config: \"n/more\""),
    ("customDomains", r#"["a.example"]"#, "custom_domains: [\"a.example\"]"),
    ("debug", "true", " debug: true"),
    ("extraCIDRs", r#""10.9.0.0/24""#, "extra_cidrs: [10.9.0.0/24]"),
    ("forceUDPEncaps", "true", "force_udp_encaps: true"),
    ("gatewayMemory", r#""2Gi""#, "gateway_memory: MemoryLimit(Some(2147483648))"),
    ("gateways", "3", "gateways: 3"),
    ("globalnetCIDR", r#""242.1.0.0/16""#, "cidr: Some(242.1.0.0/16)"),
    ("globalnetClusterSize", "512", "size: Some(512)"),
    ("globalnetEnabled", "false", "globalnet: false"),
    ("healthCheckEnable", "false", "enabled: false"),
    ("healthCheckInterval", "9", "interval_seconds: 9"),
    ("healthCheckMaxPacketLossCount", "8", "max_packet_loss: 8"),
    ("ignoreRequirements", "true", "ignore_requirements: true"),
    ("image", r#""reg/own:7""#, "reference: \"reg/own:7\""),
    ("imagePullPolicy", r#""Always""#, "pull_policy: Always"),
    ("imagePullSecrets", r#"["pull"]"#, "pull_secrets: [\"pull\"]"),
    ("ipsecDebug", "true", "ipsec_debug: true"),
    ("labelGateway", "false", "gateways: 0"),
    ("loadBalancerEnabled", "true", "load_balancer: true"),
    ("natDiscoveryPort", "0", "nat_discovery_port: 0"),
    ("natTraversal", "false", "nat_enabled: false"),
    ("nattPort", "4501", "natt_port: 4501"),
    ("nodeSelector", r#"{"a":"b"}"#, "node_selector: {\"a\": \"b\"}"),
    ("nodeTaint", "true", "node_taint: true"),
    ("preferredServer", "true", "preferred_server: true"),
    (
        "proxy",
        r#"{"http":"h","https":"s","noProxy":"n"}"#,
        "Proxy { http: \"h\", https: \"s\", no_proxy: \"n\" }",
    ),
    ("replacePSK", "true", "replace_psk: true"),
    ("routeAgentMemory", r#""0""#, "route_agent_memory: MemoryLimit(None)"),
    ("serviceCIDR", r#""10.2.0.0/16""#, "services: [10.2.0.0/16]"),
];

#[test]
fn every_field_of_a_join_changes_what_is_asked_for() {
    let plain = shown_join(&JoinConfig::default()).unwrap();
    let more = [
        ("serviceDiscoveryEnabled", "false", "declines_service_discovery: true"),
        ("missingNamespaces", "true", "answers_missing_namespaces: true"),
        ("io", r#""auto""#, "outer_io: Some(Auto)"),
        ("gatewayCPU", r#""2""#, "gateway_cpu: CpuRequest(2000)"),
        ("routeAgentCPU", r#""250m""#, "route_agent_cpu: CpuRequest(250)"),
        ("priorityClassName", r#""own""#, "priority_class: Some(\"own\")"),
        ("workers", "4", "settings: {\"workers\": \"4\"}"),
        ("settings", r#"{"log-level":"debug"}"#, "settings: {\"log-level\": \"debug\"}"),
        ("tolerations", r#"[{"key":"k","operator":"Exists"}]"#, "tolerations: [Object"),
    ];
    for (field, value, part) in JOIN.iter().chain(&more) {
        let value: Value = serde_json::from_str(value).unwrap();
        let config: JoinConfig = serde_json::from_value(json!({*field: value})).unwrap();
        let shown = shown_join(&config).unwrap();
        assert!(!plain.contains(part), "{field}: {part} is so anyway");
        assert!(shown.contains(part), "{field}: no {part} in {shown}");
    }
    // The join data is looked up by the worker; a port of IKE other than 500 is refused by the definition.
    let elsewhere = ["brokerInfoRef", "ikePort"];
    let listed = JOIN.iter().chain(&more).map(|(field, ..)| *field).chain(elsewhere);
    let listed: BTreeSet<String> = listed.map(str::to_owned).collect();
    assert_eq!(listed, properties(&["joinConfig"]));
}

#[test]
fn every_field_of_a_broker_changes_what_is_asked_for() {
    let plain = format!("{:?}", broker_options(&BrokerConfig::default()).unwrap());
    let rows = [
        ("connectivityEnabled", "false", "components: [ServiceDiscovery]"),
        ("serviceDiscoveryEnabled", "false", "components: [Connectivity]"),
        ("customDomains", r#"["a.example"]"#, "custom_domains: [\"a.example\"]"),
        ("globalnetEnable", "true", "Globalnet { enabled: true"),
        ("globalnetCIDRRange", r#""169.254.0.0/16""#, "cidr_range: 169.254.0.0/16"),
        ("defaultGlobalnetClusterSize", "512", "cluster_size: 512"),
        ("clustersetIPEnable", "true", "ClusterSetIp { enabled: true"),
        ("clustersetIPCIDRRange", r#""244.0.0.0/8""#, "cidr_range: 244.0.0.0/8"),
    ];
    for (field, value, part) in rows {
        let value: Value = serde_json::from_str(value).unwrap();
        let config: BrokerConfig = serde_json::from_value(json!({field: value})).unwrap();
        let shown = format!("{:?}", broker_options(&config).unwrap());
        assert!(!plain.contains(part), "{field}: {part} is so anyway");
        assert!(shown.contains(part), "{field}: no {part} in {shown}");
    }
    // The address is used by the worker, which looks for one where none is given.
    let listed = rows.iter().map(|(field, ..)| *field).chain(["publicAPIServerURL"]);
    let listed: BTreeSet<String> = listed.map(str::to_owned).collect();
    assert_eq!(listed, properties(&["brokerConfig"]));
    assert_eq!(properties(&[]).len(), 3, "a part that nobody translates");
}

/// Fields of each cloud with a value that is not the default, and a part of what comes out of it.
const CLOUDS: [(&str, &str, &str, &str); 21] = [
    ("aws", "controlPlaneSecurityGroup", r#""x""#, "control_plane_security_group: Some(\"x\")"),
    ("aws", "gatewayInstance", r#""x""#, "instance: Some(\"x\")"),
    ("aws", "gateways", "3", "gateways: 3"),
    ("aws", "subnetNames", r#"["x"]"#, "subnet_names: [\"x\"]"),
    ("aws", "vpcName", r#""x""#, "vpc_name: Some(\"x\")"),
    ("aws", "workerSecurityGroup", r#""x""#, "worker_security_group: Some(\"x\")"),
    ("azure", "airGapped", "true", "air_gapped: true"),
    ("azure", "gatewayInstance", r#""x""#, "instance: Some(\"x\")"),
    ("azure", "gateways", "3", "gateways: 3"),
    ("gcp", "gatewayInstance", r#""x""#, "instance: Some(\"x\")"),
    ("gcp", "gateways", "3", "gateways: 3"),
    ("gcp", "projectID", r#""x""#, "project_id: Some(\"x\")"),
    ("gcp", "publicSubnetName", r#""x""#, "public_subnet_name: Some(\"x\")"),
    ("gcp", "nodeTags", r#"["x"]"#, "node_tags: [\"x\"]"),
    ("gcp", "vpcName", r#""x""#, "vpc_name: Some(\"x\")"),
    ("generic", "gateways", "3", "gateways: 3"),
    ("rhos", "cloudEntry", r#""x""#, "cloud_entry: \"x\""),
    ("rhos", "gatewayInstance", r#""x""#, "instance: Some(\"x\")"),
    ("rhos", "gateways", "3", "gateways: 3"),
    ("rhos", "projectID", r#""x""#, "project_id: Some(\"x\")"),
    ("", "sources", r#"["10.1.2.3/8"]"#, "sources: [10.0.0.0/8]"),
];

fn shown_cloud(config: &Value, join: Option<&JoinConfig>) -> String {
    let config: CloudPrepareConfig = serde_json::from_value(config.clone()).unwrap();
    let wanted = cloud_wanted(&config, join).unwrap();
    let shown = format!("{:?} {wanted:?}", cloud(&config).unwrap());
    // What is wanted of every cloud alike says more than the part that it comes from.
    shown.replace("gateway_instance: ", "")
}

#[test]
fn every_field_of_a_cloud_changes_what_is_asked_for() {
    for (name, field, value, part) in CLOUDS {
        let value: Value = serde_json::from_str(value).unwrap();
        let (plain, changed) = match name {
            "" => (json!({"generic": {}}), json!({"generic": {}, field: value})),
            name => (json!({name: {}}), json!({name: {field: value}})),
        };
        let (plain, shown) = (shown_cloud(&plain, None), shown_cloud(&changed, None));
        assert!(!plain.contains(part), "{name}.{field}: {part} is so anyway");
        assert!(shown.contains(part), "{name}.{field}: no {part} in {shown}");
    }
    let of = |wanted: &str| -> BTreeSet<String> {
        let rows = CLOUDS.iter().filter(|(name, ..)| *name == wanted);
        rows.map(|(_, field, ..)| (*field).to_owned()).collect()
    };
    let names = ["aws", "azure", "gcp", "generic", "rhos"];
    for name in names {
        assert_eq!(of(name), properties(&["cloudPrepareConfig", name]), "{name}");
    }
    // The worker hands these over to the cloud's own client.
    let elsewhere = ["credentialsSecret", "infraID", "region"];
    let listed = of("").into_iter().chain(elsewhere.into_iter().chain(names).map(str::to_owned));
    assert_eq!(listed.collect::<BTreeSet<String>>(), properties(&["cloudPrepareConfig"]));
}

#[test]
fn what_a_cloud_lets_pass_is_what_the_member_uses() {
    let generic = json!({"generic": {}});
    let alone = shown_cloud(&generic, None);
    assert!(alone.contains("natt: 4500, nat_discovery: 4490, ike: 500, vxlan: 4800"), "{alone}");
    assert!(alone.contains("load_balancer: false"), "{alone}");
    let join = JoinConfig {
        natt_port: 4501,
        nat_discovery_port: 0,
        load_balancer_enabled: true,
        ..JoinConfig::default()
    };
    let beside = shown_cloud(&generic, Some(&join));
    assert!(beside.contains("natt: 4501, nat_discovery: 0, ike: 500"), "{beside}");
    assert!(beside.contains("load_balancer: true"), "{beside}");
}

#[test]
fn the_definitions_defaults_are_the_types() {
    let definition = crd::fabric();
    let spec = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    let mut shown = 0;
    for (part, plain) in [
        ("/brokerConfig", serde_json::to_value(BrokerConfig::default()).unwrap()),
        ("/joinConfig", serde_json::to_value(JoinConfig::default()).unwrap()),
        ("/cloudPrepareConfig", serde_json::to_value(CloudPrepareConfig::default()).unwrap()),
        ("/cloudPrepareConfig/aws", serde_json::to_value(AwsConfig::default()).unwrap()),
        ("/cloudPrepareConfig/gcp", serde_json::to_value(GcpConfig::default()).unwrap()),
        ("/cloudPrepareConfig/azure", serde_json::to_value(AzureConfig::default()).unwrap()),
        ("/cloudPrepareConfig/rhos", serde_json::to_value(RhosConfig::default()).unwrap()),
        ("/cloudPrepareConfig/generic", serde_json::to_value(GenericConfig::default()).unwrap()),
    ] {
        let node = spec.pointer(&part.replace('/', "/properties/")).unwrap();
        for (field, schema) in node["properties"].as_object().unwrap() {
            let default = schema.get("default").cloned();
            assert_eq!(default, plain.get(field).cloned(), "{part}/{field}");
            shown += usize::from(default.is_some());
        }
    }
    assert!(shown > 40, "{shown} defaults are visible");
}

#[test]
fn a_field_that_makes_no_sense_is_named() {
    for (field, value, reason) in [
        ("clusterCIDR", "10.0.0.0", "joinConfig.clusterCIDR: `10.0.0.0` is no CIDR"),
        ("gatewayMemory", "1Mi", "joinConfig.gatewayMemory: below 64Mi"),
        ("clusterID", "A_b", "joinConfig.clusterID: "),
        ("globalnetCIDR", "242.0.0.0/16,242.1.0.0/16", "joinConfig.globalnetCIDR: is more than one"),
        ("activeGateways", "some", "joinConfig.activeGateways: "),
        ("io", "some", "joinConfig.io: "),
        ("imagePullPolicy", "some", "joinConfig.imagePullPolicy: "),
    ] {
        let config: JoinConfig = serde_json::from_value(json!({field: value})).unwrap();
        let error = shown_join(&config).unwrap_err();
        assert!(error.starts_with(reason), "{error}");
    }
    let bad = BrokerConfig { clusterset_ip_cidr_range: "fd00::/48".to_owned(), ..BrokerConfig::default() };
    assert!(broker_options(&bad).unwrap_err().to_string().contains("no range of IPv4"));
}

#[test]
fn the_id_and_the_join_data_come_from_where_the_fabric_says_or_from_itself() {
    let plain = shown_join(&JoinConfig::default()).unwrap();
    assert!(plain.contains("cluster_id: \"east\""), "the Fabric's name: {plain}");
    assert!(plain.contains("custom_domains: [\"of.broker\"]") && plain.contains("r/trieste:1"), "{plain}");
    let spec = |spec: Value| serde_json::from_value::<FabricSpec>(spec).unwrap();
    let own = join_source(&spec(json!({"brokerConfig": {}, "joinConfig": {}}))).unwrap();
    assert_eq!((own.kind, own.namespace.as_str()), (BrokerInfoSource::Secret, "submariner-k8s-broker"));
    let other = join_source(&spec(json!({"brokerConfig": {}, "joinConfig": {"brokerInfoRef": {}}}))).unwrap();
    assert_eq!(
        (other.name.as_str(), other.namespace.as_str()),
        ("submariner-broker-info", "trieste-operator")
    );
    assert_eq!(join_source(&spec(json!({"joinConfig": {}}))), None);
    assert_eq!(join_source(&spec(json!({"brokerConfig": {}}))), None);
}
