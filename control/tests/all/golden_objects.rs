//! Objects recorded from upstream pass through our types unchanged.
#![expect(clippy::wildcard_enum_match_arm, reason = "any kind but those that were recorded fails the test")]

use serde_json::{Value, json};
use trieste_control::api::{
    Cluster, ClusterGlobalEgressIp, ConditionStatus, ConnectionStatus, Endpoint, EndpointSpec, Gateway,
    GatewayRoute, GlobalEgressIp, GlobalIngressIp, GoDuration, HaStatus, IngressTarget, Kind, LatencyRtt,
    NonGatewayRoute, Object, Resource, RouteAgent, RouteSpec, annotation, cable_name, endpoint_object_name,
};

use crate::recorded::{first, items, one_of_each, plant, through_typed};

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
    assert_eq!(seen, 56, "a sample has gone missing");
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
    let all = items().map(|(_, item)| item).chain(one_of_each());
    for mut item in all {
        plant(&mut item);
        let object = Object::from_value(item.clone()).unwrap();
        object.check_shape().unwrap();
        assert_eq!(through_typed(&object).to_value(), item);
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
            Kind::RouteAgent => {
                let status = RouteAgent::from_object(&object).unwrap().status;
                let renamed = RouteAgent::new("ns", &object.metadata.name, status).unwrap();
                assert_eq!(renamed.metadata.name, object.metadata.name);
            }
            Kind::ClusterGlobalEgressIp => {
                assert_eq!(object.metadata.name, ClusterGlobalEgressIp::NAME);
                assert_eq!(ClusterGlobalEgressIp::new(8).to_object().body["spec"], object.body["spec"]);
            }
            Kind::GlobalEgressIp => {
                let spec = GlobalEgressIp::from_object(&object).unwrap().spec;
                let renamed = GlobalEgressIp::new("demo", &object.metadata.name, spec).unwrap();
                assert_eq!(renamed.to_object().body["spec"], object.body["spec"]);
            }
            Kind::GlobalIngressIp => assert_eq!(ours(&object).to_object().body["spec"], object.body["spec"]),
            Kind::Lease => {}
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
                let expected = if sample.starts_with("globalnet") { 1 } else { 2 };
                assert_eq!(facts.subnets.len(), expected, "{sample}");
                assert!(facts.public_ip.is_some() && facts.health_check_ip.is_some(), "{sample}");
            }
            Kind::Cluster => {
                let facts = Cluster::from_object(&object).unwrap().spec.parse().unwrap();
                let expected = if sample.starts_with("globalnet") { 1 } else { 2 };
                assert_eq!(facts.published_subnets().len(), expected, "{sample}");
            }
            Kind::Gateway => {
                let gateway = Gateway::from_object(&object).unwrap();
                assert!(gateway.updated().is_some(), "{sample}");
                for connection in &gateway.status.connections {
                    assert_eq!(connection.status, ConnectionStatus::Connected, "{sample}");
                    check_durations(connection.latency_rtt.as_ref().unwrap());
                }
                let is_active = gateway.status.ha_status == HaStatus::Active;
                assert_eq!(is_active, !gateway.status.connections.is_empty(), "{sample}");
            }
            Kind::RouteAgent => {
                for remote in RouteAgent::from_object(&object).unwrap().status.remote_endpoints {
                    remote.spec.parse().unwrap();
                    assert_eq!(
                        remote.latency_rtt.is_some(),
                        remote.status == Some(ConnectionStatus::Connected)
                    );
                    remote.latency_rtt.iter().for_each(check_durations);
                }
            }
            Kind::ClusterGlobalEgressIp => {
                let egress = ClusterGlobalEgressIp::from_object(&object).unwrap();
                let status = egress.status.unwrap();
                assert_eq!((egress.spec.number(), status.allocated_ips.len()), (8, 8));
                assert_eq!(status.conditions[0].status, ConditionStatus::True);
            }
            Kind::GlobalEgressIp => {
                let egress = GlobalEgressIp::from_object(&object).unwrap();
                let given = i64::try_from(egress.status.unwrap().allocated_ips.len()).unwrap();
                assert_eq!(egress.spec.number(), given);
            }
            Kind::GlobalIngressIp => {
                let status = GlobalIngressIp::from_object(&object).unwrap().status.unwrap();
                assert!(status.allocated_ip.starts_with("242."), "{sample}");
                assert_eq!(status.conditions[0].kind, "Allocated");
            }
            Kind::Lease => assert!(object.body["spec"]["leaseTransitions"].is_u64(), "{sample}"),
            other => panic!("unexpected kind {other}"),
        }
    }
}

#[test]
fn nulls_that_go_writes_are_read_as_empty() {
    let mut item = first("plain/a-clusters");
    item["spec"]["global_cidr"] = Value::Null;
    item["metadata"]["annotations"] = Value::Null;
    item["metadata"]["creationTimestamp"] = Value::Null;
    let cluster = Cluster::from_object(&Object::from_value(item).unwrap()).unwrap();
    assert!(cluster.spec.global_cidr.is_empty() && cluster.metadata.creation_timestamp.is_none());
    assert_eq!(cluster.to_object().to_value()["spec"]["global_cidr"], Value::Array(Vec::new()));
}

#[test]
fn endpoints_are_the_same_by_upstreams_rule() {
    let item = first("wireguard/a-endpoints");
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

#[test]
fn settings_that_are_absent_null_or_empty_are_the_same() {
    let read = |settings: Option<Value>| {
        let mut item = first("plain/a-endpoints");
        let spec = item["spec"].as_object_mut().unwrap();
        spec.remove("backend_config");
        spec.extend(settings.map(|settings| ("backend_config".to_owned(), settings)));
        Endpoint::from_object(&Object::from_value(item).unwrap()).unwrap().spec
    };
    let absent = read(None);
    assert!(absent.is_same_endpoint(&read(Some(Value::Null))));
    assert!(absent.is_same_endpoint(&read(Some(json!({})))));
    assert!(!absent.is_same_endpoint(&read(Some(json!({"udp-port": "4500"})))));
}

#[test]
fn an_endpoint_needs_a_cluster_and_a_cable_for_its_name() {
    let spec = |cluster: &str, cable: &str| EndpointSpec {
        cluster_id: cluster.to_owned(),
        cable_name: cable.to_owned(),
        ..EndpointSpec::default()
    };
    assert_eq!(Endpoint::new("ns", spec("East_1", "Cable.A")).unwrap().metadata.name, "east-1-cable.a");
    assert!(Endpoint::new("ns", spec("", "cable")).is_err());
    assert!(Endpoint::new("ns", spec("east", "")).is_err());
}

#[test]
fn what_a_newer_release_writes_is_read_and_kept_when_we_write() {
    // Arrange: lists beside the single fields, as releases after 0.20 write them.
    let lists = json!({
        "privateIPs": ["172.31.1.11", "fd00:31::11"],
        "publicIPs": ["192.0.2.11", "2001:db8::11"],
        "healthCheckIPs": ["10.1.1.1", "fd00:1::1"],
    });
    let mut endpoint = first("plain/a-endpoints");
    let mut gateway = first("plain/a-gateways");
    let status = &mut gateway["status"];
    for spec in [&mut endpoint["spec"], &mut status["localEndpoint"]] {
        spec.as_object_mut().unwrap().extend(lists.as_object().unwrap().clone());
    }
    let remote = &mut status["connections"][0]["endpoint"];
    remote.as_object_mut().unwrap().extend(lists.as_object().unwrap().clone());

    // Act: change something else.
    let mut typed = Endpoint::from_object(&Object::from_value(endpoint.clone()).unwrap()).unwrap();
    typed.spec.hostname = "renamed".to_owned();
    let mut typed_gateway = Gateway::from_object(&Object::from_value(gateway.clone()).unwrap()).unwrap();
    typed_gateway.status.version = "2".to_owned();

    // Assert: that has changed, and nothing else.
    endpoint["spec"]["hostname"] = json!("renamed");
    gateway["status"]["version"] = json!("2");
    assert_eq!(typed.to_object().to_value(), endpoint);
    assert_eq!(typed_gateway.to_object().to_value(), gateway);
}

#[test]
fn an_endpoint_with_lists_alone_has_the_address_of_its_first_ipv4() {
    let read = |lists: Value| {
        let mut item = first("plain/a-endpoints");
        let spec = item["spec"].as_object_mut().unwrap();
        for single in ["private_ip", "public_ip", "healthCheckIP"] {
            spec.remove(single);
        }
        spec.extend(lists.as_object().unwrap().clone());
        let object = Object::from_value(item).unwrap();
        object.check_shape().unwrap();
        Endpoint::from_object(&object).unwrap().spec
    };
    let both = read(json!({
        "private_ip": "",
        "privateIPs": ["fd00:31::11", "172.31.1.11"],
        "publicIPs": ["2001:db8::11", "192.0.2.11"],
        "healthCheckIPs": ["fd00:1::1", "10.1.1.1"],
    }));
    let facts = both.parse().unwrap();
    assert_eq!(facts.private_ip.to_string(), "172.31.1.11");
    assert_eq!(facts.public_ip.unwrap().to_string(), "192.0.2.11");
    assert_eq!(facts.health_check_ip.unwrap().to_string(), "10.1.1.1");
    assert_eq!(both.gateway_ip(), "192.0.2.11");

    let ipv6 = read(json!({"privateIPs": ["fd00:31::11"], "publicIPs": null}));
    let facts = ipv6.parse().unwrap();
    assert_eq!((facts.private_ip.to_string().as_str(), facts.public_ip), ("fd00:31::11", None));
    assert_eq!(ipv6.gateway_ip(), "fd00:31::11");

    // The single field is the older one, and wins where both are there.
    let single = read(json!({"private_ip": "172.31.1.12", "privateIPs": ["172.31.1.11"]}));
    assert_eq!(single.parse().unwrap().private_ip.to_string(), "172.31.1.12");
    assert_eq!(read(json!({})).parse().unwrap_err().field_path(), Some("spec.private_ip"));
}

#[test]
fn a_long_name_is_cut_as_upstream_cuts_it_and_stays_a_name() {
    let address = "10.1.3.10".parse().unwrap();
    let pod = format!("{}-{}", "p".repeat(58), "q".repeat(20));
    let ingress = GlobalIngressIp::for_headless_pod("demo", "web", &pod, address).unwrap();
    assert_eq!(ingress.metadata.name, format!("pod-{}", "p".repeat(58)));

    let ingress = GlobalIngressIp::for_headless_endpoints("demo", "web", &"e".repeat(60), address).unwrap();
    assert_eq!(ingress.metadata.name, format!("ep-{}-10.1.3.10", "e".repeat(44)));
    assert_eq!(ingress.metadata.annotations[annotation::HEADLESS_ENDPOINTS_IP], "10.1.3.10");
    assert_eq!(ingress.spec.target, IngressTarget::HeadlessServiceEndpoints);
}

#[test]
fn routes_are_named_after_the_remote_cluster() {
    let spec = RouteSpec::new(&["10.1.0.2".parse().unwrap()], &["10.2.0.0/16".parse().unwrap()]);
    let facts = spec.parse().unwrap();
    assert_eq!(facts.next_hops, ["10.1.0.2".parse::<std::net::IpAddr>().unwrap()]);
    let object = GatewayRoute::new("ns", "cluster-b", spec.clone()).unwrap().to_object();
    assert_eq!(object.key().to_string(), "GatewayRoute ns/cluster-b");
    assert_eq!(object.body["spec"], json!({"nextHops": ["10.1.0.2"], "remoteCIDRs": ["10.2.0.0/16"]}));
    let object = NonGatewayRoute::new("ns", "cluster-b", spec.clone()).unwrap().to_object();
    assert_eq!(object.key().to_string(), "NonGatewayRoute ns/cluster-b");
    assert!(GatewayRoute::new("ns", "Cluster B", spec).is_err());
}

/// The object that we would write for the same purpose.
fn ours(recorded: &Object) -> GlobalIngressIp {
    let (namespace, name) = (&recorded.metadata.namespace, &recorded.metadata.name);
    let spec = GlobalIngressIp::from_object(recorded).unwrap().spec;
    let service = spec.service_ref.unwrap().name;
    let object = match spec.target {
        IngressTarget::ClusterIpService => GlobalIngressIp::for_service(namespace, &service).unwrap(),
        IngressTarget::HeadlessServicePod => {
            let address = recorded.metadata.annotations[annotation::HEADLESS_POD_IP].parse().unwrap();
            let pod = spec.pod_ref.unwrap().name;
            let object = GlobalIngressIp::for_headless_pod(namespace, &service, &pod, address).unwrap();
            assert_eq!(object.metadata.labels, recorded.metadata.labels);
            assert_eq!(object.metadata.annotations, recorded.metadata.annotations);
            object
        }
        other => panic!("{other} was not recorded"),
    };
    assert_eq!(&object.metadata.name, name);
    object
}

fn check_durations(rtt: &LatencyRtt) {
    for text in [&rtt.last, &rtt.min, &rtt.average, &rtt.max, &rtt.std_dev] {
        let duration: GoDuration = text.parse().unwrap();
        assert_eq!(&duration.to_string(), text);
    }
}
