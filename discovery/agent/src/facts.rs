//! What follows from the objects of a service: whether it is exported, how, and where clusters disagree.

use std::collections::BTreeSet;

use trieste_control::api::{ImportPort, Object, ServiceImportType};

use crate::aggregate::{Aggregate, is_same};
use crate::config::AgentConfig;
use crate::ingress::GlobalAddresses;
use crate::name::{self, ServiceName};
use crate::row::Row;
use crate::service::{self, Exported, Invalid};
use crate::slices;

/// A disagreement between clusters: a reason of the condition `Conflict`, and what it means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Conflict {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

const TYPE: &str = "ConflictingType";
const PORTS: &str = "ConflictingPorts";
const AFFINITY: &str = "ConflictingSessionAffinity";
const AFFINITY_CONFIG: &str = "ConflictingSessionAffinityConfig";

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    /// How the service is exported, or why it is not; `None` if it is not to be.
    pub(crate) verdict: Option<Result<Exported, Invalid>>,
    /// The broker's import.
    pub(crate) aggregate: Aggregate,
    /// The clusters that export it, the oldest first; this one among them if it does.
    pub(crate) by_age: Vec<String>,
    /// Whether this cluster's word counts.
    pub(crate) decides: bool,
    /// Whether it is of another type than the oldest, and so not exported.
    pub(crate) is_excluded: bool,
    /// Where clusters disagree.
    pub(crate) conflicts: Vec<Conflict>,
    /// In what this cluster differs from the oldest.
    pub(crate) differs: Vec<&'static str>,
    /// The slices by which it is exported.
    pub(crate) slices: Vec<Object>,
}

impl Facts {
    /// Finds out what follows from the objects of a service.
    pub(crate) fn of(name: &ServiceName, config: &AgentConfig, row: &Row) -> Self {
        let own = config.cluster_id.as_str();
        let aggregate = row.aggregate.as_ref().map(Aggregate::read).unwrap_or_default();
        let export =
            row.export.as_ref().filter(|export| !export.metadata.is_terminating() && !config.withdraws);
        let addresses = GlobalAddresses::read(row.ingress.values());
        let verdict = export.map(|export| verdict(config, export, row, &addresses));
        let Some(Ok(exported)) = &verdict else {
            let by_age = aggregate.by_age((own, i64::MAX));
            let by_age = by_age.into_iter().filter(|cluster| *cluster != own).map(str::to_owned).collect();
            return Self { verdict, by_age, aggregate, ..Self::default() };
        };
        let by_age: Vec<String> =
            aggregate.by_age((own, exported.since)).into_iter().map(str::to_owned).collect();
        let decides = by_age.first().is_some_and(|first| first == own);
        let is_excluded = !decides && aggregate.kind.is_some_and(|kind| kind != exported.kind);
        let mut facts = Self { by_age, decides, is_excluded, ..Self::default() };
        if !is_excluded {
            facts.slices = slices::wanted(name, config, exported, row.sources.values(), &addresses);
            slices::rename(&mut facts.slices, row.own.values().chain(row.published.values()));
        }
        facts.differs = differs(&facts, exported, &aggregate);
        facts.conflicts = conflicts(&facts, own, exported, &aggregate);
        if !is_excluded && exported.kind == ServiceImportType::ClusterSetIp {
            facts.conflicts.extend(port_conflict(&facts.by_age, own, exported, row));
        }
        facts.aggregate = aggregate;
        facts.verdict = verdict;
        facts
    }

    /// Returns how the service is exported, if it is.
    pub(crate) fn exported(&self) -> Option<&Exported> {
        self.verdict.as_ref()?.as_ref().ok()
    }
}

fn verdict(
    config: &AgentConfig,
    export: &Object,
    row: &Row,
    addresses: &GlobalAddresses,
) -> Result<Exported, Invalid> {
    let mut exported = service::read(export, row.service.as_ref())?;
    if config.has_globalnet && exported.ips.iter().any(std::net::IpAddr::is_ipv4) {
        // Global addresses are of IPv4 only; those of the other family are reached as they are.
        let global = addresses.of_service()?;
        let global = global
            .parse()
            .map_err(|_| Invalid::new("ServiceGlobalIPUnavailable", "The global IP is none"))?;
        exported.ips.retain(std::net::IpAddr::is_ipv6);
        exported.ips.insert(0, global);
    }
    if exported.kind == ServiceImportType::ClusterSetIp && exported.ips.is_empty() {
        return Err(Invalid::new("ServiceUnavailable", "Service to be exported doesn't have an IP yet"));
    }
    Ok(exported)
}

/// Returns in what an export differs from the oldest.
fn differs(facts: &Facts, exported: &Exported, aggregate: &Aggregate) -> Vec<&'static str> {
    if facts.is_excluded {
        return vec![TYPE];
    }
    if facts.decides || exported.kind == ServiceImportType::Headless {
        return Vec::new();
    }
    let (affinity, config) = &aggregate.affinity;
    let mut differs = Vec::new();
    if affinity.as_deref().unwrap_or("None") != exported.session_affinity {
        differs.push(AFFINITY);
    }
    if *config != exported.session_affinity_config {
        differs.push(AFFINITY_CONFIG);
    }
    differs
}

/// Returns where this cluster or another one differs from the oldest.
fn conflicts(facts: &Facts, own: &str, exported: &Exported, aggregate: &Aggregate) -> Vec<Conflict> {
    let oldest = facts.by_age.first().map_or(own, String::as_str);
    let (affinity, config) = match facts.decides {
        true => (Some(exported.session_affinity.clone()), exported.session_affinity_config.clone()),
        false => aggregate.affinity.clone(),
    };
    let kind = if facts.decides { Some(exported.kind) } else { aggregate.kind };
    let used = [
        (TYPE, "service type", kind.map_or("none", ServiceImportType::as_str).to_owned()),
        (AFFINITY, "service SessionAffinity", affinity.unwrap_or_else(|| "None".to_owned())),
        (
            AFFINITY_CONFIG,
            "service SessionAffinityConfig",
            config.map_or_else(|| "none".to_owned(), |config| config.to_string()),
        ),
    ];
    let mut conflicts = Vec::new();
    for (reason, what, value) in used {
        let has_reason = |why: &str| why.split(',').any(|known| known == reason);
        let others = aggregate.conflicts.iter().filter(|(cluster, why)| *cluster != own && has_reason(why));
        let mut disagree: BTreeSet<&str> = others.map(|(cluster, _)| cluster.as_str()).collect();
        if facts.differs.contains(&reason) {
            disagree.insert(own);
        }
        disagree.remove(oldest);
        if disagree.is_empty() {
            continue;
        }
        let all: BTreeSet<&str> =
            facts.by_age.iter().map(String::as_str).chain(disagree.iter().copied()).collect();
        let message = format!(
            "The {what} conflicts between the constituent clusters [{}]. Using {value:?} of the oldest export, in \
             cluster {oldest:?} (clusters [{}] disagree).",
            join(&all),
            join(&disagree),
        );
        conflicts.push(Conflict { reason, message });
    }
    conflicts
}

fn port_conflict(by_age: &[String], own: &str, exported: &Exported, row: &Row) -> Option<Conflict> {
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

fn join(clusters: &BTreeSet<&str>) -> String {
    clusters.iter().copied().collect::<Vec<_>>().join(", ")
}
