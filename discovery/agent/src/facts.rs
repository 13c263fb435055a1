//! What follows from the objects of a service: whether it is exported, how, and where clusters disagree.

use std::collections::BTreeSet;

use trieste_control::api::{Object, ServiceImportType};
use trieste_control::sync::Networks;

use crate::aggregate::Aggregate;
use crate::config::AgentConfig;
use crate::conflicts::{self, Conflict, Difference, Exporters};
use crate::family::Family;
use crate::ingress::GlobalAddresses;
use crate::name::ServiceName;
use crate::row::Row;
use crate::service::{self, Exported, Invalid};
use crate::slices;

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
    /// Whether the service has one address for all clusters: the oldest export's word, on the import or this cluster's.
    pub(crate) uses_clusterset_ip: bool,
    /// Where clusters disagree.
    pub(crate) conflicts: Vec<Conflict>,
    /// In what this cluster differs from the oldest.
    pub(crate) differences: Vec<Difference>,
    /// The families of addresses by which this cluster exports it.
    pub(crate) families: Vec<String>,
    /// The slices by which it is exported.
    pub(crate) slices: Vec<Object>,
}

impl Facts {
    /// Returns who exports the service.
    fn exporters(&self) -> Exporters<'_> {
        let Self { by_age, decides, is_excluded, families, .. } = self;
        Exporters { by_age, decides: *decides, is_excluded: *is_excluded, families }
    }

    /// Finds out what follows from the objects of a service.
    /// Slices do not get the names that are taken.
    pub(crate) fn of(
        name: &ServiceName,
        config: &AgentConfig,
        row: &Row,
        (networks, taken): (&Networks, &BTreeSet<String>),
    ) -> Self {
        let own = config.cluster_id.as_str();
        let aggregate = row.aggregate.as_ref().map(Aggregate::read).unwrap_or_default();
        let export =
            row.export.as_ref().filter(|export| !export.metadata.is_terminating() && !config.withdraws);
        let addresses = GlobalAddresses::read(row.ingress.values());
        let verdict = export.map(|export| {
            let mut exported = verdict(config, export, row, &addresses)?;
            exported.untaken = networks.untaken();
            Ok(exported)
        });
        let Some(Ok(exported)) = &verdict else {
            let by_age = aggregate.by_age((own, i64::MAX));
            let by_age = by_age.into_iter().filter(|cluster| *cluster != own).map(str::to_owned).collect();
            return Self { verdict, by_age, aggregate, ..Self::default() };
        };
        let by_age: Vec<String> =
            aggregate.by_age((own, exported.since)).into_iter().map(str::to_owned).collect();
        let decides = by_age.first().is_some_and(|first| first == own);
        let is_excluded = !decides && aggregate.kind.is_some_and(|kind| kind != exported.kind);
        let uses_clusterset_ip =
            if decides { exported.can_have_clusterset_ip() } else { aggregate.uses_clusterset_ip };
        let mut facts = Self { by_age, decides, is_excluded, uses_clusterset_ip, ..Self::default() };
        if !is_excluded {
            facts.slices = slices::wanted(name, config, exported, row.sources.values(), &addresses, taken);
            slices::rename(&mut facts.slices, row.own.values().chain(row.published.values()), taken);
        }
        facts.families = families(exported, &facts.slices);
        let differences = conflicts::differences(&facts.exporters(), exported, &aggregate);
        facts.conflicts = conflicts::of(&facts.exporters(), &differences, own, exported, &aggregate);
        if !is_excluded {
            let is_virtual = exported.kind == ServiceImportType::ClusterSetIp;
            let ports = is_virtual.then(|| conflicts::of_ports(&facts.by_age, own, exported, row));
            let families = conflicts::of_families(&facts.exporters(), own, row);
            facts.conflicts.extend(ports.flatten().into_iter().chain(families));
        }
        facts.differences = differences;
        facts.aggregate = aggregate;
        facts.verdict = verdict;
        facts
    }

    /// Returns whether this cluster decides that the service has an address of a family for all clusters.
    pub(crate) fn gives(&self, family: Family) -> bool {
        self.decides && self.exported().is_some_and(|exported| exported.clusterset_families()[family])
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
    let mut exported = service::read(export, row.service.as_ref(), config)?;
    if config.has_globalnet && exported.ips.iter().any(std::net::IpAddr::is_ipv4) {
        // Global addresses are of IPv4 only; those of the other family are reached as they are.
        let global = addresses.of_service().map_err(|error| match exported.type_name.as_str() {
            "" | "ClusterIP" => error,
            other => {
                let message = format!("Service of type {other} not supported with Globalnet");
                Invalid::new(service::INVALID_TYPE, message)
            }
        })?;
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

/// Returns the families of a service's addresses, as others reach them; of one without virtual addresses, as it says them, or
/// as its slices are.
fn families(exported: &Exported, slices: &[Object]) -> Vec<String> {
    let mut families: Vec<String> = Vec::new();
    let of_ips = exported.ips.iter().map(|ip| if ip.is_ipv4() { "IPv4" } else { "IPv6" }.to_owned());
    let is_declared = !exported.ips.is_empty() || !exported.families.is_empty();
    let of_slices = slices.iter().filter(|_| !is_declared).map(|slice| slices::identity(slice).1);
    let declared = exported.families.iter().filter(|_| exported.ips.is_empty()).cloned();
    for family in of_ips.chain(declared).chain(of_slices) {
        if !families.contains(&family) {
            families.push(family);
        }
    }
    families
}
