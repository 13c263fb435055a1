//! The definitions for an API server: checked in, upstream's in all but one point, and true of recorded objects.
//!
//! An API server is not needed: [`crate::structural`] does with a schema and an object what one does.

use std::path::Path;

use serde_json::{Value, json};
use trieste_control::api::{Kind, Object, crd};

use crate::recorded::{items, one_of_each, plant};
use crate::structural::stored;

#[test]
fn the_files_are_what_the_types_say() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("crds");
    let files = [crd::files(), crd::tkestack_files()].concat();
    for file in &files {
        let found = std::fs::read_to_string(directory.join(&file.name)).unwrap_or_default();
        assert!(
            found == file.text,
            "control/crds/{} is stale. Make it anew from the repository's root with:\n\
             cargo run -p trieste-cli -- crds --directory control/crds (and with --tkestack)",
            file.name
        );
    }
    let mut there: Vec<_> = std::fs::read_dir(&directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let mut made: Vec<_> = files.into_iter().map(|file| file.name).collect();
    there.sort();
    made.sort();
    assert_eq!(there, made, "control/crds has other files than those that are made");
}

#[test]
fn the_files_say_what_the_definitions_say() {
    for (file, definition) in crd::files().iter().zip(crd::definitions()) {
        let read: Value = serde_saphyr::from_str(&file.text).unwrap();
        assert_eq!(read, definition, "{}", file.name);
        assert!(file.text.starts_with("# Generated"), "{}", file.name);
    }
}

#[test]
fn names_scopes_columns_and_subresources_are_upstreams() {
    let facts: Vec<_> = crd::definitions()
        .iter()
        .map(|definition| {
            let (spec, version) = (&definition["spec"], &definition["spec"]["versions"][0]);
            let column = &version["additionalPrinterColumns"][0];
            assert_eq!(spec["group"], "submariner.io");
            assert_eq!(version["served"], json!(true));
            assert_eq!(spec["versions"].as_array().unwrap().len(), 1);
            [
                &definition["metadata"]["name"],
                &spec["names"]["kind"],
                &spec["names"]["listKind"],
                &spec["names"]["singular"],
                &spec["names"]["shortNames"][0],
                &spec["scope"],
                &version["name"],
                &version["subresources"],
                &column["name"],
                &column["jsonPath"],
            ]
            .map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned))
            .join(" ")
        })
        .collect();
    let status = r#"{"status":{}}"#;
    assert_eq!(
        facts,
        [
            "clusters.submariner.io Cluster ClusterList cluster null Namespaced v1 null null null".to_owned(),
            "endpoints.submariner.io Endpoint EndpointList endpoint null Namespaced v1 null null null".to_owned(),
            "gateways.submariner.io Gateway GatewayList gateway null Namespaced v1 null HA Status .status.haStatus".to_owned(),
            "routeagents.submariner.io RouteAgent RouteAgentList routeagent null Namespaced v1 null null null".to_owned(),
            "gatewayroutes.submariner.io GatewayRoute GatewayRouteList gatewayroute gwrt Namespaced v1 null null null".to_owned(),
            "nongatewayroutes.submariner.io NonGatewayRoute NonGatewayRouteList nongatewayroute ngwrt Namespaced v1 null null null".to_owned(),
            format!("clusterglobalegressips.submariner.io ClusterGlobalEgressIP ClusterGlobalEgressIPList clusterglobalegressip cgeip Cluster v1 {status} null null"),
            format!("globalegressips.submariner.io GlobalEgressIP GlobalEgressIPList globalegressip geip Namespaced v1 {status} null null"),
            format!("globalingressips.submariner.io GlobalIngressIP GlobalIngressIPList globalingressip giip Namespaced v1 {status} IP .status.allocatedIP"),
            format!("submariners.submariner.io Submariner SubmarinerList submariner null Namespaced v1alpha1 {status} null null"),
            format!("brokers.submariner.io Broker BrokerList broker null Namespaced v1alpha1 {status} null null"),
            format!(
                "servicediscoveries.submariner.io ServiceDiscovery ServiceDiscoveryList servicediscovery null Namespaced v1alpha1 {status} null null"
            ),
        ]
    );
}

fn required_of_discovery() -> Value {
    json!(["brokerK8sApiServer", "brokerK8sRemoteNamespace", "clusterID", "debug", "namespace"])
}

#[test]
fn required_fields_are_upstreams() {
    let endpoint = json!(["backend", "cable_name", "cluster_id", "hostname", "nat_enabled", "subnets"]);
    let condition = json!(["lastTransitionTime", "message", "reason", "status", "type"]);
    let submariner = json!([
        "broker",
        "brokerK8sApiServer",
        "brokerK8sRemoteNamespace",
        "ceIPSecDebug",
        "clusterCIDR",
        "clusterID",
        "debug",
        "namespace",
        "natEnabled",
        "serviceCIDR"
    ]);
    let expected = [
        (Kind::Cluster, "", json!(["spec"])),
        (Kind::Cluster, "spec", json!(["cluster_cidr", "cluster_id", "global_cidr", "service_cidr"])),
        (Kind::Endpoint, "", json!(["spec"])),
        (Kind::Endpoint, "spec", endpoint.clone()),
        (Kind::Gateway, "", json!(["status"])),
        (
            Kind::Gateway,
            "status",
            json!(["connections", "haStatus", "localEndpoint", "statusFailure", "version"]),
        ),
        (Kind::Gateway, "status.localEndpoint", endpoint.clone()),
        (Kind::Gateway, "status.connections.[]", json!(["endpoint", "status", "statusMessage"])),
        (Kind::Gateway, "status.connections.[].endpoint", endpoint.clone()),
        (Kind::Gateway, "status.connections.[].latencyRTT", Value::Null),
        (Kind::RouteAgent, "", json!(["status"])),
        (Kind::RouteAgent, "status", json!(["remoteEndpoints", "statusFailure", "version"])),
        (Kind::RouteAgent, "status.remoteEndpoints.[]", json!(["spec", "status", "statusMessage"])),
        (Kind::RouteAgent, "status.remoteEndpoints.[].spec", endpoint),
        (Kind::GatewayRoute, "spec", json!(["nextHops", "remoteCIDRs"])),
        (Kind::NonGatewayRoute, "spec", json!(["nextHops", "remoteCIDRs"])),
        (Kind::ClusterGlobalEgressIp, "", json!(["spec"])),
        (Kind::ClusterGlobalEgressIp, "spec", Value::Null),
        (Kind::ClusterGlobalEgressIp, "status.conditions.[]", condition.clone()),
        (Kind::GlobalEgressIp, "", json!(["spec"])),
        (Kind::GlobalEgressIp, "spec", Value::Null),
        (Kind::GlobalEgressIp, "spec.podSelector", Value::Null),
        (Kind::GlobalEgressIp, "spec.podSelector.matchExpressions.[]", json!(["key", "operator"])),
        (Kind::GlobalIngressIp, "", json!(["spec"])),
        (Kind::GlobalIngressIp, "spec", json!(["target"])),
        (Kind::GlobalIngressIp, "spec.serviceRef", Value::Null),
        (Kind::GlobalIngressIp, "status", Value::Null),
        (Kind::GlobalIngressIp, "status.conditions.[]", condition),
        (Kind::Submariner, "", Value::Null),
        (Kind::Submariner, "spec", submariner),
        (Kind::Submariner, "status", Value::Null),
        (Kind::Submariner, "spec.connectionHealthCheck", Value::Null),
        (Kind::Broker, "", Value::Null),
        (Kind::Broker, "spec", Value::Null),
        (Kind::ServiceDiscovery, "spec", required_of_discovery()),
    ];
    for (kind, path, required) in expected {
        assert_eq!(schema_at(kind, path)["required"], required, "{kind} {path}");
    }
}

/// Returns the schema at a path of fields, where `[]` are the items of a list.
fn schema_at(kind: Kind, path: &str) -> Value {
    let mut node = schema(kind);
    for step in path.split('.').filter(|step| !step.is_empty()) {
        node = if step == "[]" { node["items"].clone() } else { node["properties"][step].clone() };
        assert!(node.is_object(), "{kind} {path}");
    }
    node
}

#[test]
fn recorded_objects_are_taken_and_nothing_of_them_is_dropped() {
    for (sample, item) in items().filter(|(_, item)| item["kind"] != "Lease") {
        let kind = item["kind"].as_str().unwrap().parse().unwrap();
        assert_eq!(stored(&schema(kind), &item).as_ref(), Ok(&item), "{sample}");
    }
}

#[test]
fn unknown_fields_are_stored_at_every_level() {
    for (kind, mut item) in Kind::SUBMARINER.into_iter().zip(one_of_each()) {
        plant(&mut item);
        assert_eq!(stored(&schema(kind), &item).as_ref(), Ok(&item), "{kind}");
    }
}

#[test]
fn an_object_of_a_newer_release_without_single_addresses_is_taken() {
    let mut item = one_of_each().swap_remove(1);
    let spec = item["spec"].as_object_mut().unwrap();
    spec.retain(|key, _| !matches!(key.as_str(), "private_ip" | "public_ip" | "healthCheckIP"));
    spec.insert("privateIPs".to_owned(), json!(["fd00:31::11"]));
    assert_eq!(stored(&schema(Kind::Endpoint), &item).as_ref(), Ok(&item));
}

#[test]
fn limits_are_upstreams() {
    let refused = |kind: Kind, part: &str, field: &str, value: Value| {
        let mut item = one_of_each().into_iter().find(|item| item["kind"] == kind.as_str()).unwrap();
        item[part][field] = value;
        stored(&schema(kind), &item).err()
    };
    for (value, at) in [(json!(""), Some("spec.cluster_id")), (json!("x".repeat(63)), None)] {
        assert_eq!(refused(Kind::Endpoint, "spec", "cluster_id", value).as_deref(), at);
    }
    let at = Some("spec.cluster_id".to_owned());
    assert_eq!(refused(Kind::Cluster, "spec", "cluster_id", json!("x".repeat(64))), at);
    for (number, is_fine) in [(-1, false), (0, true), (20, true), (21, false)] {
        let outcome = refused(Kind::GlobalEgressIp, "spec", "numberOfIPs", json!(number));
        assert_eq!(outcome.is_none(), is_fine, "{number}");
        let outcome = refused(Kind::ClusterGlobalEgressIp, "spec", "numGlobalIPs", json!(number));
        assert_eq!(outcome.is_none(), is_fine, "{number}");
    }
}

/// Whatever is written to a server gets past its schema first. What it lets through must be read, so that our types
/// may not be stricter; but for the words of three fields, where a newer release may know more.
#[test]
fn what_the_schema_takes_our_types_read() {
    let replacements = [json!(null), json!(5), json!("text"), json!(true), json!([]), json!({})];
    let (mut taken, mut refused) = (0, 0);
    for (kind, item) in Kind::SUBMARINER.into_iter().zip(one_of_each()) {
        let schema = schema(kind);
        let mut try_one = |at: &str, mutant: &Value| {
            if stored(&schema, mutant).is_err() {
                refused += 1;
                return;
            }
            taken += 1;
            let outcome = Object::from_value(mutant.clone()).and_then(|object| object.check_shape());
            assert_eq!(outcome, Ok(()), "{kind}: the schema takes {at}");
        };
        for pointer in pointers(&item) {
            let (parent, last) = pointer.rsplit_once('/').unwrap();
            for replacement in &replacements {
                let is_word = matches!(last, "haStatus" | "status" | "target");
                if is_word && replacement.is_string() {
                    continue;
                }
                let mut mutant = item.clone();
                *mutant.pointer_mut(&pointer).unwrap() = replacement.clone();
                try_one(&format!("{pointer} = {replacement}"), &mutant);
            }
            let mut mutant = item.clone();
            if let Some(Value::Object(fields)) = mutant.pointer_mut(parent) {
                fields.remove(last);
                try_one(&format!("no {pointer}"), &mutant);
            }
        }
    }
    assert!(taken > 100 && refused > 100, "{taken} taken, {refused} refused");
}

fn schema(kind: Kind) -> Value {
    let index = Kind::SUBMARINER.iter().position(|other| *other == kind).unwrap();
    crd::definitions()[index]["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
}

/// JSON pointers to everything in an object but its metadata and what says its kind.
fn pointers(item: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![(String::new(), item)];
    while let Some((at, value)) = open.pop() {
        let children: Vec<(String, &Value)> = match value {
            Value::Object(fields) => fields
                .iter()
                .filter(|(key, _)| !matches!(key.as_str(), "apiVersion" | "kind" | "metadata"))
                .map(|(key, child)| (format!("{at}/{key}"), child))
                .collect(),
            Value::Array(values) => {
                values.iter().enumerate().map(|(index, child)| (format!("{at}/{index}"), child)).collect()
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
        };
        found.extend(children.iter().map(|(at, _)| at.clone()));
        open.extend(children);
    }
    found
}
