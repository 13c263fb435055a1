//! The import of all clusters on the broker: whose word counts, and this cluster's part of it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde_json::{Map, Value, json};
use trieste_control::api::limits::MAX_SERVICE_PORTS;
use trieste_control::api::{ImportPort, Kind, Object, ObjectMeta, ServiceImportType, annotation, label};

use crate::config::AgentConfig;
use crate::family::{Family, PerFamily};
use crate::metadata;
use crate::name::{self, ServiceName, timestamp_key};
use crate::owned;
use crate::service::{self, Exported, families, ports, text};
use crate::slices;

/// The import as far as it is read.
#[derive(Debug, Default)]
pub(crate) struct Aggregate {
    /// What addresses the service has.
    pub(crate) kind: Option<ServiceImportType>,
    /// The clusters in its status.
    pub(crate) clusters: Vec<String>,
    /// Since when clusters export it.
    pub(crate) since: BTreeMap<String, i64>,
    /// In what clusters differ from the oldest.
    pub(crate) conflicts: BTreeMap<String, String>,
    /// Whether it has one address for all clusters.
    pub(crate) uses_clusterset_ip: bool,
    /// Whether clients stay with a back end, and for how long.
    pub(crate) affinity: (Option<String>, Option<Value>),
    /// Whether clients are sent to back ends of their own node alone; not there where nobody has said it.
    pub(crate) internal_traffic_policy: Option<String>,
    /// Which back ends are preferred.
    pub(crate) traffic_distribution: Option<String>,
    /// The labels and annotations of the oldest export.
    pub(crate) metadata: metadata::Exported,
    /// The families of addresses.
    pub(crate) families: Vec<String>,
    /// The ports.
    pub(crate) ports: Vec<ImportPort>,
}

impl Aggregate {
    /// Reads an import; nothing of what makes no sense.
    pub(crate) fn read(import: &Object) -> Self {
        let spec = import.body.get("spec").and_then(Value::as_object);
        let field = |field: &str| spec.and_then(|spec| text(spec, field));
        let kind = match field("type") {
            Some("ClusterSetIP") => Some(ServiceImportType::ClusterSetIp),
            Some("Headless") => Some(ServiceImportType::Headless),
            _ => None,
        };
        let of_prefix = |prefix: &'static str| {
            let annotations = import.metadata.annotations.iter();
            annotations.filter_map(move |(key, value)| Some((key.strip_prefix(prefix)?.to_owned(), value)))
        };
        let since = of_prefix(annotation::TIMESTAMP_PREFIX);
        let config = spec.and_then(service::affinity_config);
        Self {
            kind,
            clusters: clusters(import).into_iter().map(str::to_owned).collect(),
            since: since.map(|(cluster, time)| (cluster, time.parse().unwrap_or(i64::MAX))).collect(),
            conflicts: of_prefix(annotation::CONFLICT_PREFIX)
                .map(|(cluster, why)| (cluster, why.clone()))
                .collect(),
            uses_clusterset_ip: import
                .metadata
                .annotations
                .get(annotation::USE_CLUSTERSET_IP)
                .is_some_and(|uses| uses == "true"),
            affinity: (field("sessionAffinity").map(str::to_owned), config.cloned()),
            internal_traffic_policy: field("internalTrafficPolicy").map(str::to_owned),
            traffic_distribution: field("trafficDistribution").map(str::to_owned),
            metadata: metadata::Exported::of_import(import),
            families: families(spec.and_then(|spec| spec.get("ipFamilies"))),
            ports: ports(spec.and_then(|spec| spec.get("ports"))),
        }
    }

    /// Returns the clusters that export the service, or are about to, but for one.
    pub(crate) fn others(&self, own: &str) -> BTreeSet<&str> {
        let all = self.clusters.iter().chain(self.since.keys()).map(String::as_str);
        all.filter(|cluster| *cluster != own).collect()
    }

    /// Returns the clusters by the age of their exports, this one included: the first decides. One that does not say since when,
    /// as former releases, was there first.
    pub(crate) fn by_age<'a>(&'a self, own: (&'a str, i64)) -> Vec<&'a str> {
        let age = |cluster: &str| self.since.get(cluster).copied().unwrap_or(i64::MIN);
        let others = self.others(own.0).into_iter().map(|cluster| (age(cluster), cluster));
        let mut clusters: Vec<_> = others.chain([(own.1, own.0)]).collect();
        clusters.sort_unstable();
        clusters.into_iter().map(|(_, cluster)| cluster).collect()
    }

    /// Returns whether a cluster has a part of it.
    pub(crate) fn has_part(&self, cluster: &str) -> bool {
        self.clusters.iter().any(|known| known == cluster)
            || self.since.contains_key(cluster)
            || self.conflicts.contains_key(cluster)
    }
}

/// Returns the clusters in an import's status.
pub(crate) fn clusters(import: &Object) -> Vec<&str> {
    let list = import.body.get("status").and_then(|status| status.get("clusters")).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(|entry| entry.get("cluster")?.as_str()).collect()
}

/// Returns whether another cluster is in an import's status.
pub(crate) fn is_shared(import: &Object, own: &str) -> bool {
    clusters(import).iter().any(|cluster| *cluster != own)
}

/// Returns the ports of a service: of all clusters', the oldest first, each name once, and each number of a protocol.
pub(crate) fn union<'a>(
    by_age: &[&str],
    slices: &(impl Iterator<Item = &'a Object> + Clone),
) -> Vec<ImportPort> {
    let mut union: Vec<ImportPort> = Vec::new();
    for cluster in by_age {
        for slice in slices.clone().filter(|slice| name::source_cluster(slice) == Some(*cluster)) {
            for port in ports(slice.body.get("ports")) {
                if union.len() < MAX_SERVICE_PORTS && !is_taken(&union, &port) {
                    union.push(port);
                }
            }
        }
    }
    union
}

/// Returns `true` if a port's name or its number of a protocol is another's already, or itself there.
pub(crate) fn is_taken(ports: &[ImportPort], port: &ImportPort) -> bool {
    ports
        .iter()
        .any(|known| known.name == port.name || known.protocol == port.protocol && known.port == port.port)
}

/// Returns the families of a service's addresses: of all clusters', the oldest first.
pub(crate) fn union_of_families<'a>(
    by_age: &[&str],
    (own, of_own): (&str, &[String]),
    slices: &(impl Iterator<Item = &'a Object> + Clone),
) -> Vec<String> {
    let mut union: Vec<String> = Vec::new();
    for cluster in by_age {
        let of_cluster = slices.clone().filter(|slice| name::source_cluster(slice) == Some(*cluster));
        let declared = of_own.iter().filter(|_| *cluster == own).cloned();
        for family in declared.chain(of_cluster.map(|slice| slices::identity(slice).1)) {
            if matches!(family.as_str(), "IPv4" | "IPv6") && !union.contains(&family) {
                union.push(family);
            }
        }
    }
    union
}

/// What this cluster wants its part to say.
#[derive(Debug)]
pub(crate) struct Part<'a> {
    pub(crate) exported: &'a Exported,
    /// Whether its word counts: it is the oldest.
    pub(crate) decides: bool,
    /// In what it differs from the oldest, if it does.
    pub(crate) conflicts: String,
    /// Whether it is left out altogether, as it is of another type.
    pub(crate) is_excluded: bool,
    /// What becomes of the address of each family for all clusters, if its word counts.
    pub(crate) addresses: PerFamily<Address>,
    /// What is made of all clusters' parts.
    pub(crate) merged: Merged,
}

/// What becomes of an import's address of a family for all clusters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Address {
    /// There is none, as none is wanted.
    Off,
    /// It stays.
    Keep,
    /// It is this one.
    Give(IpAddr),
    /// It stays as it is, or missing, as there is none to give.
    Lack,
}

/// What an import says for all clusters together, as far as it is to be as said.
#[derive(Debug, Default)]
pub(crate) struct Merged {
    pub(crate) ports: Option<Vec<ImportPort>>,
    pub(crate) families: Option<Vec<String>>,
}

/// Returns the import with this cluster's part, and all else as it was.
pub(crate) fn with_part(
    existing: Option<&Object>,
    name: &ServiceName,
    config: &AgentConfig,
    part: &Part<'_>,
) -> Object {
    let own = config.cluster_id.as_str();
    let mut import = existing.cloned().unwrap_or_else(|| new(name, config, part.exported));
    let annotations = &mut import.metadata.annotations;
    let conflicts = Some(&part.conflicts).filter(|conflicts| !conflicts.is_empty());
    annotate(annotations, format!("{}{own}", annotation::CONFLICT_PREFIX), conflicts);
    let weight = part.exported.preferences.weight.as_ref().filter(|_| !part.is_excluded);
    annotate(annotations, format!("{}{own}", annotation::WEIGHT_PREFIX), weight);
    if part.decides {
        annotate(annotations, annotation::ROUTING.to_owned(), part.exported.preferences.routing.as_ref());
        part.exported.metadata.put(&mut import.metadata, own);
        set_addresses(&mut import, own, part.addresses);
    }
    let annotations = &mut import.metadata.annotations;
    if part.is_excluded {
        annotations.remove(&timestamp_key(own));
        set_cluster(&mut import, own, false);
        return import;
    }
    annotations.insert(timestamp_key(own), part.exported.since.to_string());
    set_cluster(&mut import, own, true);
    let mut spec = import.body.get("spec").and_then(Value::as_object).cloned().unwrap_or_default();
    if part.decides {
        decide(&mut spec, part.exported);
    }
    merge(&mut spec, &part.merged);
    if import.body.get("spec").and_then(Value::as_object) != Some(&spec) {
        import.body.insert("spec".to_owned(), Value::Object(spec));
    }
    import
}

/// Sets the addresses for all clusters, and whose block that of IPv4 is of. One of another cluster which exports the service goes
/// in two steps: who allots an address is not deprived of it. Nobody is named for those of IPv6, which upstream does not know.
fn set_addresses(import: &mut Object, own: &str, addresses: PerFamily<Address>) {
    let is_used = addresses.iter().any(|(_, address)| *address != Address::Off);
    let annotations = &mut import.metadata.annotations;
    annotations.insert(annotation::USE_CLUSTERSET_IP.to_owned(), is_used.to_string());
    let is_changed = |family: Family| matches!(addresses[family], Address::Off | Address::Give(_));
    let mut ips = PerFamily::new(|family| match addresses[family] {
        Address::Off => None,
        Address::Give(ip) => Some(ip),
        Address::Keep | Address::Lack => owned::clusterset_ip(import, family),
    });
    if is_changed(Family::V4) {
        let annotations = &import.metadata.annotations;
        let giver = annotations.get(annotation::CLUSTERSET_IP_ALLOCATED_BY).filter(|giver| *giver != own);
        let has_giver = giver.is_some_and(|giver| annotations.contains_key(&timestamp_key(giver)));
        if has_giver && owned::clusterset_ip(import, Family::V4).is_some() {
            ips[Family::V4] = None;
        } else {
            let giver = ips[Family::V4].map(|_| own.to_owned());
            let key = annotation::CLUSTERSET_IP_ALLOCATED_BY.to_owned();
            annotate(&mut import.metadata.annotations, key, giver.as_ref());
        }
    }
    if Family::ALL.into_iter().any(is_changed) {
        owned::set_clusterset_ips(import, ips);
    }
}

/// Sets what the oldest export decides.
fn decide(spec: &mut Map<String, Value>, exported: &Exported) {
    let is_virtual = exported.kind == ServiceImportType::ClusterSetIp;
    let policy = is_virtual.then(|| Value::from(exported.internal_traffic_policy.as_str()));
    let distribution = exported.traffic_distribution.as_deref().filter(|_| is_virtual).map(Value::from);
    let fields = [
        ("type", Some(Value::from(exported.kind.as_str()))),
        ("sessionAffinity", Some(Value::from(exported.session_affinity.as_str()))),
        ("sessionAffinityConfig", exported.session_affinity_config.clone()),
        ("internalTrafficPolicy", policy),
        ("trafficDistribution", distribution),
    ];
    for (field, value) in fields {
        match value {
            Some(value) => drop(spec.insert(field.to_owned(), value)),
            None => service::remove_content(spec, field),
        }
    }
}

/// Returns the import without this cluster's part, with what is made of the others'; `None` if nobody else has any.
pub(crate) fn without_part(existing: &Object, own: &str, merged: &Merged) -> Option<Object> {
    if Aggregate::read(existing).others(own).is_empty() {
        return None;
    }
    let mut import = existing.clone();
    import.metadata.annotations.remove(&timestamp_key(own));
    for prefix in [annotation::CONFLICT_PREFIX, annotation::WEIGHT_PREFIX] {
        import.metadata.annotations.remove(&format!("{prefix}{own}"));
    }
    metadata::withdraw(&mut import.metadata, own);
    set_cluster(&mut import, own, false);
    let mut spec = import.body.get("spec").and_then(Value::as_object).cloned().unwrap_or_default();
    merge(&mut spec, merged);
    if import.body.get("spec").and_then(Value::as_object) != Some(&spec) {
        import.body.insert("spec".to_owned(), Value::Object(spec));
    }
    Some(import)
}

/// Sets an annotation, or removes it.
fn annotate(annotations: &mut BTreeMap<String, String>, key: String, value: Option<&String>) {
    match value {
        Some(value) => drop(annotations.insert(key, value.clone())),
        None => drop(annotations.remove(&key)),
    }
}

fn new(name: &ServiceName, config: &AgentConfig, exported: &Exported) -> Object {
    let mut metadata = ObjectMeta::new(&config.broker_namespace, name.aggregate());
    let annotations = [
        (label::SERVICE_NAME, name.name.as_str()),
        (label::SOURCE_NAMESPACE, &name.namespace),
        (annotation::USE_CLUSTERSET_IP, "false"),
    ];
    metadata.annotations = annotations.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    let mut import = Object::new(Kind::ServiceImport, metadata);
    import.body.insert("spec".to_owned(), json!({"type": exported.kind.as_str(), "ports": []}));
    import
}

fn merge(spec: &mut Map<String, Value>, merged: &Merged) {
    if let Some(wanted) = merged.ports.as_deref()
        && !is_same(&ports(spec.get("ports")), wanted)
    {
        let ports = serde_json::to_value(wanted).expect("ports are JSON");
        spec.insert("ports".to_owned(), ports);
    }
    if let Some(wanted) = merged.families.as_ref().filter(|families| !families.is_empty())
        && families(spec.get("ipFamilies")) != *wanted
    {
        spec.insert("ipFamilies".to_owned(), Value::from(wanted.clone()));
    }
}

/// Returns whether two lists have the same ports, in whatever order.
pub(crate) fn is_same(ports: &[ImportPort], others: &[ImportPort]) -> bool {
    ports.len() == others.len() && ports.iter().all(|port| others.contains(port))
}

fn set_cluster(import: &mut Object, own: &str, is_wanted: bool) {
    if clusters(import).contains(&own) == is_wanted {
        return;
    }
    let mut status = import.body.get("status").and_then(Value::as_object).cloned().unwrap_or_default();
    let mut clusters = match status.remove("clusters") {
        Some(Value::Array(clusters)) => clusters,
        _ => Vec::new(),
    };
    clusters.retain(|entry| entry.get("cluster").and_then(Value::as_str) != Some(own));
    if is_wanted {
        clusters.push(json!({"cluster": own}));
    }
    status.insert("clusters".to_owned(), Value::from(clusters));
    import.body.insert("status".to_owned(), Value::Object(status));
}
