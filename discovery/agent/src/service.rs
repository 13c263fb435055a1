//! What is read of a Service and its export.

use std::collections::BTreeMap;
use std::net::IpAddr;

use jiff::Timestamp;
use serde_json::{Map, Value};
use trieste_control::api::limits::{MAX_SERVICE_PORTS, MAX_TEXT_LEN};
use trieste_control::api::{ImportPort, Object, ServiceImportType, annotation, label};
use trieste_control::sync::NotIts;

use crate::config::AgentConfig;
use crate::family::{Family, PerFamily};
use crate::metadata;
use crate::preferences::Preferences;

/// A service as it is exported.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Exported {
    /// What addresses it has.
    pub(crate) kind: ServiceImportType,
    /// Its virtual addresses, as others reach them; none of a headless one.
    pub(crate) ips: Vec<IpAddr>,
    /// Its ports.
    pub(crate) ports: Vec<ImportPort>,
    /// Its type as the Service says it.
    pub(crate) type_name: String,
    /// Its families of addresses, as the Service says them.
    pub(crate) families: Vec<String>,
    /// Whether clients stay with a back end, as the Service says it.
    pub(crate) session_affinity: String,
    /// For how long.
    pub(crate) session_affinity_config: Option<Value>,
    /// Whether clients in a cluster are sent to back ends of their own node alone, as the Service says it.
    pub(crate) internal_traffic_policy: String,
    /// Which back ends are preferred, if the Service says it.
    pub(crate) traffic_distribution: Option<String>,
    /// Labels and annotations that imports are to have.
    pub(crate) metadata: metadata::Exported,
    /// Whether addresses count that are not ready.
    pub(crate) publishes_not_ready: bool,
    /// Ours: what the export says of the choice among clusters.
    pub(crate) preferences: Preferences,
    /// Whether one address for the whole set was asked for.
    pub(crate) asks_for_clusterset_ip: bool,
    /// The families that the set has such addresses of.
    pub(crate) set_families: PerFamily<bool>,
    /// With Globalnet: why other clusters do not take its IPv6 address, if they do not.
    pub(crate) untaken: Option<NotIts>,
    /// The Service's labels that go with its slices.
    pub(crate) labels: BTreeMap<String, String>,
    /// When it was exported first, in Unix nanoseconds.
    pub(crate) since: i64,
    /// The export's incarnation, which other clusters do not learn.
    pub(crate) uid: String,
}

/// Why a service is not exported: reason and message of a condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Invalid {
    pub(crate) reason: String,
    pub(crate) message: String,
}

impl Exported {
    /// Returns whether it asks for an address for the whole set and can have one: they stand for virtual addresses, of the
    /// families that the set has such addresses of.
    pub(crate) fn can_have_clusterset_ip(&self) -> bool {
        self.clusterset_families().iter().any(|(_, has)| *has)
    }

    /// Returns the families of which it is to have an address for the whole set: those of its own addresses.
    pub(crate) fn clusterset_families(&self) -> PerFamily<bool> {
        let asks = self.asks_for_clusterset_ip && self.kind == ServiceImportType::ClusterSetIp;
        let has = |family| self.ips.iter().any(|ip| Family::of(*ip) == family);
        let is_taken = |family| family == Family::V4 || self.untaken.is_none();
        PerFamily::new(|family| asks && self.set_families[family] && has(family) && is_taken(family))
    }
}

impl Invalid {
    pub(crate) fn new(reason: &str, message: impl Into<String>) -> Self {
        Self { reason: reason.to_owned(), message: message.into() }
    }
}

/// Labels of a Service that do not go with its slices: they would say that a slice is another cluster's, or that it is a local
/// service's, to which the cluster's own proxies would then send.
const NOT_EXPORTED: [&str; 5] = [
    crate::admit::LOCAL_SERVICE,
    "service.kubernetes.io/headless",
    label::CLUSTER_ID,
    label::PATHS_CLUSTER_ID,
    label::ORIGINATING_NAMESPACE,
];

/// Reason of the condition `Valid` where there is no service of this name.
const NO_SERVICE: &str = "NoService";
/// Reason of the condition `Valid` where a service is of a type that cannot be exported.
pub(crate) const INVALID_TYPE: &str = "InvalidServiceType";

/// Reads a service that is exported; its addresses are those that it has in its own cluster.
pub(crate) fn read(
    export: &Object,
    service: Option<&Object>,
    config: &AgentConfig,
) -> Result<Exported, Invalid> {
    let spec = service.and_then(|service| service.body.get("spec")).and_then(Value::as_object);
    let (Some(service), Some(spec)) = (service, spec) else {
        return Err(Invalid::new(NO_SERVICE, "Service to be exported doesn't exist"));
    };
    let type_name = text(spec, "type").unwrap_or_default();
    // Those with ports of nodes or a load balancer have cluster IPs as well.
    if !matches!(type_name, "" | "ClusterIP" | "NodePort" | "LoadBalancer") {
        return Err(Invalid::new(INVALID_TYPE, format!("Service of type {type_name} not supported")));
    }
    let is_headless = text(spec, "clusterIP") == Some("None");
    let kind = if is_headless { ServiceImportType::Headless } else { ServiceImportType::ClusterSetIp };
    let mut labels = service.metadata.labels.clone();
    labels.retain(|key, _| !NOT_EXPORTED.contains(&key.as_str()));
    let short = |field: &str| {
        let value = text(spec, field).filter(|value| !value.is_empty() && value.len() <= MAX_TEXT_LEN);
        value.map(str::to_owned)
    };
    let is_annotated = export.metadata.annotations.contains_key(annotation::USE_CLUSTERSET_IP);
    Ok(Exported {
        kind,
        ips: if is_headless { Vec::new() } else { ips(spec) },
        ports: ports(spec.get("ports")),
        type_name: type_name.to_owned(),
        families: families(spec.get("ipFamilies")),
        session_affinity: text(spec, "sessionAffinity").unwrap_or("None").to_owned(),
        session_affinity_config: affinity_config(spec).cloned(),
        internal_traffic_policy: short("internalTrafficPolicy").unwrap_or_else(|| "Cluster".to_owned()),
        traffic_distribution: short("trafficDistribution"),
        metadata: metadata::Exported::of_export(export),
        publishes_not_ready: spec.get("publishNotReadyAddresses").and_then(Value::as_bool) == Some(true),
        preferences: Preferences::of_export(export),
        asks_for_clusterset_ip: asks_for_clusterset_ip(export, config) && (is_annotated || !is_headless),
        set_families: config.clusterset_families(),
        untaken: None,
        labels,
        since: export.metadata.creation_timestamp.map_or(i64::MAX, nanoseconds),
        uid: export.metadata.uid.clone().unwrap_or_default(),
    })
}

/// Returns whether an export asks for one address for the whole set: it says so, or the cluster's settings say it for those that
/// say nothing.
pub(crate) fn asks_for_clusterset_ip(export: &Object, config: &AgentConfig) -> bool {
    let value = export.metadata.annotations.get(annotation::USE_CLUSTERSET_IP);
    value.map_or(config.gives_clusterset_ips, |value| value == "true")
}

/// Reads the ports of a Service, or of a slice; those that have no number are left out.
pub(crate) fn ports(list: Option<&Value>) -> Vec<ImportPort> {
    let list = list.and_then(Value::as_array).into_iter().flatten().take(MAX_SERVICE_PORTS);
    list.filter_map(|port| {
        let port = port.as_object()?;
        Some(ImportPort {
            name: text(port, "name").unwrap_or_default().to_owned(),
            protocol: text(port, "protocol").unwrap_or("TCP").to_owned(),
            app_protocol: text(port, "appProtocol").map(str::to_owned),
            port: port.get("port")?.as_u64().and_then(|number| u16::try_from(number).ok())?,
            extra: Map::new(),
        })
    })
    .collect()
}

/// Reads families of addresses, in their order, each once.
pub(crate) fn families(list: Option<&Value>) -> Vec<String> {
    let mut families: Vec<String> = Vec::new();
    for family in list.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str) {
        if matches!(family, "IPv4" | "IPv6") && families.iter().all(|known| known != family) {
            families.push(family.to_owned());
        }
    }
    families
}

/// Reads the addresses of a Service, each once, in the Service's order.
fn ips(spec: &Map<String, Value>) -> Vec<IpAddr> {
    let many = spec.get("clusterIPs").and_then(Value::as_array).into_iter().flatten().take(2);
    let mut ips: Vec<IpAddr> = Vec::new();
    for ip in many.chain(spec.get("clusterIP")).filter_map(|ip| ip.as_str()?.parse().ok()) {
        if !ips.contains(&ip) {
            ips.push(ip);
        }
    }
    ips
}

/// Returns the configuration of a session affinity; one with nothing in it, as some releases of Lighthouse write, is none.
pub(crate) fn affinity_config(spec: &Map<String, Value>) -> Option<&Value> {
    spec.get("sessionAffinityConfig").filter(|config| !is_nothing(config))
}

/// Removes a field, but for one with nothing in it: upstream's agents compare such ones with their own.
pub(crate) fn remove_content(spec: &mut Map<String, Value>, field: &str) {
    if spec.get(field).is_some_and(|value| !is_nothing(value)) {
        spec.remove(field);
    }
}

fn is_nothing(value: &Value) -> bool {
    value.is_null() || value.as_object().is_some_and(Map::is_empty)
}

pub(crate) fn text<'a>(object: &'a Map<String, Value>, field: &str) -> Option<&'a str> {
    object.get(field).and_then(Value::as_str)
}

fn nanoseconds(time: Timestamp) -> i64 {
    i64::try_from(time.as_nanosecond()).unwrap_or(i64::MAX)
}
