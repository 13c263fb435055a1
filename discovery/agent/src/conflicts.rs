//! Where clusters that export one service disagree, and what is said of it.
//!
//! The oldest export decides. What a cluster cannot see for itself, another one tells it by an annotation of the import.

use std::collections::{BTreeMap, BTreeSet};

use trieste_control::api::{ImportPort, ServiceImportType};

use crate::aggregate::{Aggregate, is_same};
use crate::name;
use crate::row::Row;
use crate::service::{self, Exported};
use crate::slices;

/// Who exports a service, and what this cluster is among them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Exporters<'a> {
    /// All clusters that export it, the oldest export first.
    pub(crate) by_age: &'a [String],
    /// Whether this cluster's is the oldest.
    pub(crate) decides: bool,
    /// Whether this cluster's is of another type than the oldest.
    pub(crate) is_excluded: bool,
    /// The families of addresses by which this cluster exports it.
    pub(crate) families: &'a [String],
}

/// A disagreement between clusters: reasons of the condition `Conflict`, and what it means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Conflict {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

/// In what exports can differ, as clusters tell each other: upstream's words, and for what it does not have, those of the
/// Multi-Cluster Services API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Difference {
    Type,
    Affinity,
    AffinityConfig,
    InternalTrafficPolicy,
    TrafficDistribution,
    ClustersetIp,
    Labels,
    Annotations,
}

/// The reasons of the API, with upstream's beside them where that has its own.
const PORTS: &str = "PortConflict,ConflictingPorts";
const FAMILIES: &str = "IPFamilyConflict";
/// Ours: most characters of a value in a message.
const MAX_VALUE_CHARS: usize = 200;

impl Difference {
    /// Returns the word by which clusters tell each other.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Type => "ConflictingType",
            Self::Affinity => "ConflictingSessionAffinity",
            Self::AffinityConfig => "ConflictingSessionAffinityConfig",
            Self::ClustersetIp => "ConflictingClusterSetIPEnablement",
            Self::InternalTrafficPolicy | Self::TrafficDistribution | Self::Labels | Self::Annotations => {
                self.reason()
            }
        }
    }

    /// Returns the reasons of the condition, separated by commas.
    const fn reason(self) -> &'static str {
        match self {
            Self::Type => "TypeConflict,ConflictingType",
            Self::Affinity => "SessionAffinityConflict,ConflictingSessionAffinity",
            Self::AffinityConfig => "SessionAffinityConfigConflict,ConflictingSessionAffinityConfig",
            Self::InternalTrafficPolicy => "InternalTrafficPolicyConflict",
            Self::TrafficDistribution => "TrafficDistributionConflict",
            Self::ClustersetIp => "ClusterSetIPEnablementConflict,ConflictingClusterSetIPEnablement",
            Self::Labels => "LabelsConflict",
            Self::Annotations => "AnnotationsConflict",
        }
    }
}

/// Returns in what an export differs from the oldest.
pub(crate) fn differences(
    exporters: &Exporters<'_>,
    exported: &Exported,
    aggregate: &Aggregate,
) -> Vec<Difference> {
    if exporters.is_excluded {
        return vec![Difference::Type];
    }
    if exporters.decides {
        return Vec::new();
    }
    let mut differ = vec![
        (Difference::Labels, aggregate.metadata.labels != exported.metadata.labels),
        (Difference::Annotations, aggregate.metadata.annotations != exported.metadata.annotations),
    ];
    if exported.kind == ServiceImportType::ClusterSetIp {
        let (affinity, config) = &aggregate.affinity;
        // Agents that write no policy, and definitions that do not know it, say nothing of either.
        let policy = aggregate.internal_traffic_policy.as_deref();
        differ.extend([
            (Difference::Affinity, affinity.as_deref().unwrap_or("None") != exported.session_affinity),
            (Difference::ClustersetIp, aggregate.uses_clusterset_ip != exported.asks_for_clusterset_ip),
            (Difference::AffinityConfig, *config != exported.session_affinity_config),
            (
                Difference::InternalTrafficPolicy,
                policy.is_some_and(|policy| policy != exported.internal_traffic_policy),
            ),
            (
                Difference::TrafficDistribution,
                policy.is_some()
                    && distribution(aggregate.traffic_distribution.as_deref())
                        != distribution(exported.traffic_distribution.as_deref()),
            ),
        ]);
    }
    let mut differ: Vec<_> = differ.into_iter().filter_map(|(what, is_so)| is_so.then_some(what)).collect();
    differ.sort_unstable();
    differ
}

/// Returns a traffic distribution by the newer of its two names in Kubernetes.
fn distribution(name: Option<&str>) -> &str {
    match name {
        Some("PreferClose") => "PreferSameZone",
        name => name.unwrap_or_default(),
    }
}

/// Returns where this cluster or another one differs from the oldest.
pub(crate) fn of(
    exporters: &Exporters<'_>,
    differ: &[Difference],
    own: &str,
    exported: &Exported,
    aggregate: &Aggregate,
) -> Vec<Conflict> {
    let oldest = exporters.by_age.first().map_or(own, String::as_str);
    let mut conflicts = Vec::new();
    for (difference, what, value) in used(exporters.decides, exported, aggregate) {
        let has_word = |why: &str| why.split(',').any(|known| known == difference.word());
        let others = aggregate.conflicts.iter().filter(|(cluster, why)| *cluster != own && has_word(why));
        let mut disagree: BTreeSet<&str> = others.map(|(cluster, _)| cluster.as_str()).collect();
        if differ.contains(&difference) {
            disagree.insert(own);
        }
        disagree.remove(oldest);
        if disagree.is_empty() {
            continue;
        }
        let all: BTreeSet<&str> =
            exporters.by_age.iter().map(String::as_str).chain(disagree.iter().copied()).collect();
        let message = format!(
            "The {what} conflicts between the constituent clusters [{}]. Using {:?} of the oldest export, in \
             cluster {oldest:?} (clusters [{}] disagree).",
            join(&all),
            value.chars().take(MAX_VALUE_CHARS).collect::<String>(),
            join(&disagree),
        );
        conflicts.push(Conflict { reason: difference.reason(), message });
    }
    conflicts
}

/// Returns what is used of each property that exports can differ in: the oldest export's.
fn used(
    decides: bool,
    exported: &Exported,
    aggregate: &Aggregate,
) -> [(Difference, &'static str, String); 8] {
    let text = |text: Option<&str>| text.unwrap_or("none").to_owned();
    let pick = |own: Option<String>, theirs: Option<String>| if decides { own } else { theirs };
    let affinity = pick(Some(exported.session_affinity.clone()), aggregate.affinity.0.clone());
    let config = pick(
        exported.session_affinity_config.as_ref().map(ToString::to_string),
        aggregate.affinity.1.as_ref().map(ToString::to_string),
    );
    let policy =
        pick(Some(exported.internal_traffic_policy.clone()), aggregate.internal_traffic_policy.clone());
    let distribution = pick(exported.traffic_distribution.clone(), aggregate.traffic_distribution.clone());
    let enablement = if decides { exported.can_have_clusterset_ip() } else { aggregate.uses_clusterset_ip };
    let kind = if decides { Some(exported.kind) } else { aggregate.kind };
    let metadata = if decides { &exported.metadata } else { &aggregate.metadata };
    [
        (Difference::Type, "service type", text(kind.map(ServiceImportType::as_str))),
        (Difference::Affinity, "service SessionAffinity", affinity.unwrap_or_else(|| "None".to_owned())),
        (Difference::AffinityConfig, "service SessionAffinityConfig", text(config.as_deref())),
        (Difference::InternalTrafficPolicy, "service InternalTrafficPolicy", text(policy.as_deref())),
        (Difference::TrafficDistribution, "service TrafficDistribution", text(distribution.as_deref())),
        (Difference::ClustersetIp, "use of a clusterset IP", enablement.to_string()),
        (Difference::Labels, "exported labels", listed(&metadata.labels)),
        (Difference::Annotations, "exported annotations", listed(&metadata.annotations)),
    ]
}

fn listed(map: &BTreeMap<String, String>) -> String {
    map.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
}

/// Returns the disagreement about ports, if there is one.
pub(crate) fn of_ports(by_age: &[String], own: &str, exported: &Exported, row: &Row) -> Option<Conflict> {
    let mut intersection: Vec<ImportPort> = exported.ports.clone();
    let (mut differs, mut clusters) = (false, BTreeSet::from([own]));
    for cluster in by_age.iter().filter(|cluster| *cluster != own) {
        let slices = row.foreign.values().filter(|slice| name::source_cluster(slice) == Some(cluster));
        let Some(slice) = slices.into_iter().next() else { continue };
        let ports = service::ports(slice.body.get("ports"));
        differs |= !is_same(&exported.ports, &ports);
        intersection.retain(|port| ports.contains(port));
        clusters.insert(cluster);
    }
    let port = |port: &ImportPort| {
        let spoken = port.app_protocol.as_deref().unwrap_or_default();
        format!(
            "[name: {}, protocol: {}, port: {}, appProtocol: {spoken:?}]",
            port.name, port.protocol, port.port
        )
    };
    let exposed: Vec<String> = intersection.iter().map(port).collect();
    let message = format!(
        "The service ports conflict between the constituent clusters [{}]. The service will expose the intersection of \
         all the ports: {}",
        join(&clusters),
        exposed.join(", "),
    );
    differs.then_some(Conflict { reason: PORTS, message })
}

/// Returns the disagreement about families of addresses: clients of one family then reach some of the clusters alone.
pub(crate) fn of_families(exporters: &Exporters<'_>, own: &str, row: &Row) -> Option<Conflict> {
    let mut families: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for slice in row.foreign.values() {
        if let Some(cluster) = name::source_cluster(slice).filter(|cluster| *cluster != own) {
            families.entry(cluster).or_default().insert(slices::identity(slice).1);
        }
    }
    families.retain(|cluster, _| exporters.by_age.iter().any(|known| known == cluster));
    let ours: BTreeSet<String> = exporters.families.iter().cloned().collect();
    if ours.is_empty() || families.values().all(|theirs| *theirs == ours) {
        return None;
    }
    families.insert(own, ours);
    let each = families.iter().map(|(cluster, families)| {
        format!("{cluster}: {}", families.iter().map(String::as_str).collect::<Vec<_>>().join(" and "))
    });
    let message = format!(
        "The IP families of the service conflict between the constituent clusters [{}]. Each client reaches those with \
         an address of its own family.",
        each.collect::<Vec<_>>().join(", ")
    );
    Some(Conflict { reason: FAMILIES, message })
}

fn join(clusters: &BTreeSet<&str>) -> String {
    clusters.iter().copied().collect::<Vec<_>>().join(", ")
}
