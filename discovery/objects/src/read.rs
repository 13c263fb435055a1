//! One object as the responder needs it. An object that cannot be used costs itself alone.

use std::net::IpAddr;

use serde_json::{Map, Value};
use trieste_control::api::{Object, Resource as _, ServiceImport, ServiceImportType, annotation, label};
use trieste_dns::{
    Endpoint, Import, Label, MAX_ENDPOINTS, MAX_PORTS, Port, Protocol, ServiceKind, ServiceName, Slice,
};

/// From Kubernetes: the service of a slice.
pub const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// Why an object cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unusable(pub String);

impl Unusable {
    fn because(error: &impl ToString) -> Self {
        Self(error.to_string())
    }
}

/// An exported service's slice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exported {
    /// The service.
    pub service: ServiceName,
    /// The cluster that exports it.
    pub cluster: Label,
    /// Whether its addresses are global ones of pods, which their own cluster does not reach them at.
    pub is_global: bool,
    /// What it says.
    pub slice: Slice,
}

/// Reads an import; `None` if it is not the set's: a cluster's own part, or a record of the broker.
///
/// # Errors
/// Which field cannot be.
pub fn import(object: &Object) -> Result<Option<(ServiceName, Import)>, Unusable> {
    let metadata = &object.metadata;
    let is_part = metadata.labels.contains_key(label::SERVICE_NAME);
    if is_part || metadata.annotations.contains_key(label::SERVICE_NAME) {
        return Ok(None);
    }
    let name =
        ServiceName::parse(&metadata.namespace, &metadata.name).map_err(|error| Unusable::because(&error))?;
    let facts = ServiceImport::from_object(object).and_then(|import| import.parse());
    let facts = facts.map_err(|error| Unusable::because(&error))?;
    // One that cannot be is the exporter's, whose export says so; the service is served all the same.
    let routing =
        metadata.annotations.get(annotation::ROUTING).and_then(|text| text.parse().ok()).unwrap_or_default();
    let weights = metadata.annotations.iter().filter_map(|(key, text)| {
        let cluster = Label::new(key.strip_prefix(annotation::WEIGHT_PREFIX)?).ok()?;
        Some((cluster, text.parse().ok()?))
    });
    let ports = facts.ports.iter().filter_map(|import| port(&import.name, &import.protocol, import.port));
    let import = Import {
        kind: match facts.kind {
            ServiceImportType::ClusterSetIp => ServiceKind::ClusterSetIp,
            ServiceImportType::Headless => ServiceKind::Headless,
        },
        ports: ports.collect(),
        ips: clusterset_ips(object, facts.ips),
        routing,
        weights: weights.collect(),
    };
    Ok(Some((name, import)))
}

/// Returns the clusterset IPs of an import whose specification has these: where that has none of IPv6, the one of our annotation,
/// since upstream's definition lets a specification have one address.
fn clusterset_ips(object: &Object, mut ips: Vec<IpAddr>) -> Vec<IpAddr> {
    let annotations = &object.metadata.annotations;
    // Upstream's agents do not take our annotation away when the service gives up its addresses.
    let is_used = annotations.get(annotation::USE_CLUSTERSET_IP).is_some_and(|is_used| is_used == "true");
    let annotated = annotations.get(annotation::CLUSTERSET_IPV6).filter(|_| is_used);
    if let Some(ip) = annotated.and_then(|text| text.parse().ok())
        && ips.iter().all(IpAddr::is_ipv4)
    {
        ips.truncate(1);
        ips.push(IpAddr::V6(ip));
    }
    ips
}

/// Reads a slice of an exported service; `None` if it is a record of the broker, whose namespace is not the service's.
///
/// # Errors
/// Which label is missing or cannot be.
pub fn exported(object: &Object) -> Result<Option<Exported>, Unusable> {
    let labels = &object.metadata.labels;
    let text = |name: &str| labels.get(name).ok_or_else(|| Unusable(format!("label {name} is missing")));
    let namespace = text(label::SOURCE_NAMESPACE)?;
    if *namespace != object.metadata.namespace {
        return Ok(None);
    }
    let service = ServiceName::parse(namespace, text(label::SERVICE_NAME)?)
        .map_err(|error| Unusable::because(&error))?;
    let cluster = Label::new(text(label::SOURCE_CLUSTER)?).map_err(|error| Unusable::because(&error))?;
    let is = |text: Option<&String>| text.is_some_and(|text| text == "true");
    let annotations = &object.metadata.annotations;
    let is_headless = is(labels.get(label::IS_HEADLESS));
    let is_global = is_headless && is(annotations.get(annotation::GLOBALNET_ENABLED));
    Ok(Some(Exported { service, cluster, is_global, slice: slice(object, is_headless)? }))
}

/// Reads what a slice says, whoever wrote it. Each endpoint of a headless service has a host name, as KEP-1645 wants it: one
/// that has no name is called by its address, as in a cluster's own DNS.
///
/// # Errors
/// That the object has no body.
pub fn slice(object: &Object, is_headless: bool) -> Result<Slice, Unusable> {
    if let Some(reason) = &object.withheld {
        return Err(Unusable(reason.clone()));
    }
    let list = |field: &str| object.body.get(field).and_then(Value::as_array).into_iter().flatten();
    let endpoints = list("endpoints").take(MAX_ENDPOINTS).filter_map(Value::as_object);
    let ports = list("ports").take(MAX_PORTS).filter_map(Value::as_object).filter_map(|entry| {
        let number = entry.get("port")?.as_u64().and_then(|number| u16::try_from(number).ok())?;
        port(text(entry, "name").unwrap_or_default(), text(entry, "protocol").unwrap_or("TCP"), number)
    });
    let publish = object.metadata.annotations.get(annotation::PUBLISH_NOT_READY);
    Ok(Slice {
        endpoints: endpoints.map(|entry| endpoint(entry, is_headless)).collect(),
        ports: ports.collect(),
        publishes_not_ready: publish.is_some_and(|text| text == "true"),
    })
}

fn endpoint(entry: &Map<String, Value>, is_headless: bool) -> Endpoint {
    let addresses = entry.get("addresses").and_then(Value::as_array).into_iter().flatten();
    let conditions = entry.get("conditions").and_then(Value::as_object);
    let ready = conditions.and_then(|conditions| conditions.get("ready")).and_then(Value::as_bool);
    Endpoint {
        // Kubernetes allows 100.
        addresses: addresses.take(100).filter_map(|address| address.as_str()?.parse().ok()).collect(),
        host: host(entry).or_else(|| address_as_host(entry).filter(|_| is_headless)),
        // What is not said is to be taken so (EndpointConditions).
        is_ready: ready.unwrap_or(true),
    }
}

/// Returns the name of an endpoint's host: its own, else its pod's; one that is no label has none.
fn host(entry: &Map<String, Value>) -> Option<Label> {
    let own = text(entry, "hostname").filter(|name| !name.is_empty());
    let pod = || {
        let target = entry.get("targetRef")?.as_object()?;
        let is_pod = text(target, "kind").is_some_and(|kind| kind.eq_ignore_ascii_case("pod"));
        text(target, "name").filter(|_| is_pod)
    };
    Label::new(own.or_else(pod)?).ok()
}

/// Returns the first address of an endpoint with dashes, as Kubernetes' DNS names what has no name.
fn address_as_host(entry: &Map<String, Value>) -> Option<Label> {
    let address: IpAddr = entry.get("addresses")?.get(0)?.as_str()?.parse().ok()?;
    Label::new(&address.to_string().replace(['.', ':'], "-")).ok()
}

fn port(name: &str, protocol: &str, number: u16) -> Option<Port> {
    let protocol = match protocol {
        "TCP" => Protocol::Tcp,
        "UDP" => Protocol::Udp,
        "SCTP" => Protocol::Sctp,
        _ => return None,
    };
    Some(Port { name: Label::new(name).ok(), protocol, number })
}

fn text<'a>(entry: &'a Map<String, Value>, field: &str) -> Option<&'a str> {
    entry.get(field).and_then(Value::as_str)
}

#[cfg(test)]
pub(super) mod tests;
