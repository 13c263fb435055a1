//! The EndpointSlices by which a cluster exports a service: one per family of a service with virtual addresses, and one per
//! slice of a headless one.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde_json::{Map, Value, json};
use trieste_control::api::{Body, Kind, Object, ObjectMeta, ServiceImportType, annotation, label};

use crate::config::AgentConfig;
use crate::ingress::GlobalAddresses;
use crate::name::{self, ServiceName};
use crate::service::Exported;

/// What a slice is made of, by which it is found again whatever it is called: the slice of a headless service, if it is of one,
/// and the family of its addresses.
pub(crate) type Identity = (Option<String>, String);

/// Returns what a slice that is there already is made of.
pub(crate) fn identity(slice: &Object) -> Identity {
    let source = slice.metadata.labels.get(label::SOURCE_NAME).cloned();
    let family = slice.body.get("addressType").and_then(Value::as_str).unwrap_or_default();
    (source, family.to_owned())
}

/// Returns the slices that say how a service is exported, as they are in the service's own namespace; the deterministic name
/// stands for those that are not there yet, the first that nobody else has.
pub(crate) fn wanted<'a>(
    name: &ServiceName,
    config: &AgentConfig,
    exported: &Exported,
    sources: impl Iterator<Item = &'a Object> + Clone,
    addresses: &GlobalAddresses,
    taken: &BTreeSet<String>,
) -> Vec<Object> {
    let unused = |called: &str| {
        let nth =
            |number: usize| name.slice(&config.cluster_id, called, &format!("{}/{number}", exported.uid));
        (0..taken.len()).map(nth).find(|name| !taken.contains(name)).unwrap_or_else(|| nth(taken.len()))
    };
    let new = |source: Option<&str>, family: &str, endpoints: Vec<Value>, ports: Value| {
        let called = source.map_or_else(|| family.to_owned(), |source| format!("{source}/{family}"));
        let mut metadata = ObjectMeta::new(&name.namespace, unused(&called));
        metadata.generate_name = Some(name.slice_prefix());
        metadata.labels = labels(name, config, exported, source);
        let is_translated = config.has_globalnet && exported.kind == ServiceImportType::Headless;
        metadata.annotations = [
            (annotation::PUBLISH_NOT_READY, exported.publishes_not_ready),
            (annotation::GLOBALNET_ENABLED, is_translated),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_string()))
        .into();
        let mut body = Map::new();
        body.insert("addressType".to_owned(), Value::from(family));
        body.insert("endpoints".to_owned(), Value::from(endpoints));
        body.insert("ports".to_owned(), ports);
        Object { body: Body::from(body), ..Object::new(Kind::EndpointSlice, metadata) }
    };
    match exported.kind {
        ServiceImportType::ClusterSetIp => {
            let ports = slice_ports(exported);
            let of_ip = |ip: &IpAddr| {
                let family = if ip.is_ipv4() { "IPv4" } else { "IPv6" };
                let is_ready = sources.clone().filter(|source| identity(source).1 == family).any(has_ready);
                let endpoint = json!({"addresses": [ip.to_string()], "conditions": {"ready": is_ready}});
                new(None, family, vec![endpoint], ports.clone())
            };
            exported.ips.iter().map(of_ip).collect()
        }
        ServiceImportType::Headless => {
            let of_source = |source: &Object| {
                let (_, family) = identity(source);
                let is_translated = config.has_globalnet && family == "IPv4";
                let endpoint = |endpoint: &Value| match is_translated {
                    true => translated(endpoint, addresses),
                    false => Some(endpoint.clone()),
                };
                let endpoints = list(source, "endpoints").iter().filter_map(endpoint).collect();
                let ports = Value::from(list(source, "ports").to_vec());
                new(Some(&source.metadata.name), &family, endpoints, ports)
            };
            let has_family = |source: &&Object| matches!(identity(source).1.as_str(), "IPv4" | "IPv6");
            sources.filter(has_family).map(of_source).collect()
        }
    }
}

fn labels(
    name: &ServiceName,
    config: &AgentConfig,
    exported: &Exported,
    source: Option<&str>,
) -> BTreeMap<String, String> {
    let mut labels = exported.labels.clone();
    let is_headless = if exported.kind == ServiceImportType::Headless { "true" } else { "false" };
    let fixed = [
        (label::MANAGED_BY, label::LIGHTHOUSE_AGENT),
        (label::SERVICE_NAME, &name.name),
        (label::SOURCE_NAMESPACE, &name.namespace),
        (label::SOURCE_CLUSTER, &config.cluster_id),
        (label::IS_HEADLESS, is_headless),
    ];
    labels.remove(label::SOURCE_NAME);
    let fixed = fixed.into_iter().chain(source.map(|source| (label::SOURCE_NAME, source)));
    labels.extend(fixed.map(|(key, value)| (key.to_owned(), value.to_owned())));
    labels
}

/// Returns whether a slice has an endpoint that is ready. What is not said is to be taken so.
fn has_ready(slice: &Object) -> bool {
    let is_ready = |endpoint: &Value| {
        let ready = endpoint.get("conditions").and_then(|conditions| conditions.get("ready"));
        ready.and_then(Value::as_bool).unwrap_or(true)
    };
    list(slice, "endpoints").iter().any(is_ready)
}

/// Returns an endpoint with its global address; `None` while it has none.
fn translated(endpoint: &Value, addresses: &GlobalAddresses) -> Option<Value> {
    let target = endpoint.get("targetRef").filter(|target| target.get("kind") == Some(&json!("Pod")));
    let global = match target.and_then(|target| target.get("name")).and_then(Value::as_str) {
        Some(pod) => addresses.pods.get(pod),
        None => addresses.endpoints.get(endpoint.get("addresses")?.get(0)?.as_str()?),
    };
    let mut endpoint = endpoint.clone();
    endpoint.as_object_mut()?.insert("addresses".to_owned(), json!([global?]));
    Some(endpoint)
}

/// Returns a list of a slice; Go writes an empty one as `null`.
pub(crate) fn list<'a>(slice: &'a Object, field: &str) -> &'a [Value] {
    slice.body.get(field).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn slice_ports(exported: &Exported) -> Value {
    let port = |port: &trieste_control::api::ImportPort| {
        let mut value = json!({"name": port.name, "protocol": port.protocol, "port": port.port});
        if let Some(spoken) = &port.app_protocol {
            value["appProtocol"] = Value::from(spoken.as_str());
        }
        value
    };
    exported.ports.iter().map(port).collect()
}

/// Returns whether two slices say the same, whatever they are called and wherever they are.
pub(crate) fn agree(existing: &Object, wanted: &Object) -> bool {
    let has_same_body = || {
        identity(existing).1 == identity(wanted).1
            && list(existing, "endpoints") == list(wanted, "endpoints")
            && list(existing, "ports") == list(wanted, "ports")
    };
    existing.metadata.labels == wanted.metadata.labels
        && existing.metadata.annotations == wanted.metadata.annotations
        && (existing.body.is_shared_with(&wanted.body) || has_same_body())
}

/// Gives slices the names that those have which stand for the same already, but for names that somebody else has on the broker, and
/// those of former releases, which are removed there.
pub(crate) fn rename<'a>(
    wanted: &mut [Object],
    existing: impl Iterator<Item = &'a Object>,
    taken: &BTreeSet<String>,
) {
    let mut names: BTreeMap<Identity, &str> = BTreeMap::new();
    for slice in existing.filter(|slice| !taken.contains(&slice.metadata.name) && !name::is_former(slice)) {
        names.entry(identity(slice)).or_insert(&slice.metadata.name);
    }
    for slice in wanted {
        if let Some(name) = names.get(&identity(slice)) {
            (*name).clone_into(&mut slice.metadata.name);
        }
    }
}

/// Returns a slice as it is on the broker.
pub(crate) fn for_broker(slice: &Object, config: &AgentConfig) -> Object {
    let mut published = slice.clone();
    published.metadata.namespace.clone_from(&config.broker_namespace);
    let labels = &mut published.metadata.labels;
    labels.insert(label::CLUSTER_ID.to_owned(), config.cluster_id.clone());
    labels.insert(label::ORIGINATING_NAMESPACE.to_owned(), slice.metadata.namespace.clone());
    published
}

/// Returns another cluster's slice as it is in this one.
pub(crate) fn for_here(slice: &Object, namespace: &str) -> Object {
    let metadata = ObjectMeta {
        generate_name: slice.metadata.generate_name.clone(),
        labels: slice.metadata.labels.clone(),
        annotations: slice.metadata.annotations.clone(),
        ..ObjectMeta::new(namespace, &slice.metadata.name)
    };
    Object { body: slice.body.clone(), ..Object::new(Kind::EndpointSlice, metadata) }
}

/// Returns what there is with the content of what is wanted, in the version that it has.
pub(crate) fn amend(existing: &Object, wanted: &Object) -> Object {
    let mut amended = existing.clone();
    amended.metadata.labels.clone_from(&wanted.metadata.labels);
    amended.metadata.annotations.clone_from(&wanted.metadata.annotations);
    amended.body.clone_from(&wanted.body);
    amended
}
