//! Service discovery of one cluster at one moment: its objects, and what its DNS server answers from them.
//!
//! ```text
//!   an API server or a store ─▶ Lists ─▶ Objects ─▶ Discovery (records as the DNS server has them) ─▶ show, diagnose, trace
//! ```

mod facts;
mod lists;
mod name;
mod resolve;

use std::collections::{BTreeMap, BTreeSet};

use trieste_control::api::{Gateway, HaStatus, Kind, Object, Resource as _, label};
use trieste_discovery::dns::snapshot::Snapshot;
use trieste_discovery_objects::index::LocalService;
use trieste_discovery_objects::read::SERVICE_NAME;
use trieste_dns::{Label, ServiceName};

pub(super) use facts::{Condition, Count, Endpoints, Service};
pub(super) use lists::Lists;
pub(super) use name::Name;
pub(super) use resolve::{Family, Resolved, is_name, resolve};

/// The id of a cluster that nobody tells the name of.
const NAMELESS: &str = "_";
/// Ours: of how many services of this cluster the pods' own addresses are read.
const MOST_OWN: usize = 100;

/// The objects that service discovery is about.
#[derive(Debug, Default)]
pub(super) struct Objects {
    pub(super) exports: Vec<Object>,
    pub(super) imports: Vec<Object>,
    /// Those of exported services.
    pub(super) slices: Vec<Object>,
    pub(super) gateways: Vec<Object>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Discovery {
    pub(super) objects: Objects,
    pub(super) snapshot: Snapshot,
    /// This cluster's id, if any object tells it.
    pub(super) local: Option<String>,
    /// Whether a gateway carries traffic, and so says which clusters are connected.
    pub(super) has_active_gateway: bool,
    /// Headless services of this cluster with global addresses, whose pods are answered by their own.
    own: BTreeSet<LocalService>,
}

impl Discovery {
    /// Reads objects.
    pub(super) fn new(objects: Objects) -> Self {
        let gateways: Vec<Gateway> =
            objects.gateways.iter().filter_map(|gateway| Gateway::from_object(gateway).ok()).collect();
        let local = own_cluster(&gateways, &objects.imports);
        let label = local.as_deref().and_then(|id| Label::new(id).ok());
        let label = label.or_else(|| Label::new(NAMELESS).ok()).expect("the nameless cluster has a label");
        let mut snapshot = Snapshot::new(label, &objects.imports, &objects.slices, &objects.gateways);
        let own = snapshot.wanted();
        for service in &own {
            // The global addresses stand for the pods' own until these are read: so many are ready.
            let slices = objects.slices.iter().filter(|slice| is_part(slice, service, local.as_deref()));
            snapshot.add_own(service, slices.cloned().collect());
        }
        let has_active_gateway = gateways.iter().any(|gateway| gateway.status.ha_status == HaStatus::Active);
        Self { objects, snapshot, local, has_active_gateway, own }
    }

    /// Reads the slices of this cluster's own pods that are answered instead of global addresses: of one service, or of the first
    /// [`MOST_OWN`]; one list for each.
    ///
    /// # Errors
    /// When they cannot be listed.
    pub(super) async fn read_own(&mut self, lists: &Lists<'_>, only: Option<&Name>) -> anyhow::Result<()> {
        let is_asked = |(namespace, name): &&LocalService| {
            only.is_none_or(|only| only.namespace == *namespace && only.name == *name)
        };
        for service in self.own.iter().filter(is_asked).take(MOST_OWN) {
            let slices =
                lists.list(Kind::EndpointSlice, &service.0, Some((SERVICE_NAME, &service.1))).await?;
            self.snapshot.add_own(service, slices);
        }
        Ok(())
    }

    /// Returns the services that this cluster exports or imports, in order.
    pub(super) fn services(&self) -> Vec<Service> {
        let of_exports = self.objects.exports.iter().map(|export| (Name::of(export), (Some(export), None)));
        let of_imports = self.objects.imports.iter().filter(|import| is_of_set(import));
        let of_imports = of_imports.map(|import| (Name::of(import), (None, Some(import))));
        let mut named: BTreeMap<Name, (Option<&Object>, Option<&Object>)> = BTreeMap::new();
        for (name, (export, import)) in of_exports.chain(of_imports) {
            let entry = named.entry(name).or_default();
            entry.0 = entry.0.or(export);
            entry.1 = entry.1.or(import);
        }
        let mut slices = facts::endpoints(&self.objects.slices);
        let service = |(name, (export, import)): (Name, (Option<&Object>, Option<&Object>))| {
            let endpoints = slices.remove(&name).unwrap_or_default();
            let problem = import.and_then(|import| self.problem(import));
            let key = ServiceName::parse(&name.namespace, &name.name).ok();
            let survey = key.and_then(|key| self.snapshot.records().survey(&key));
            Service::new(name, (export, import), (problem, survey), endpoints)
        };
        named.into_iter().map(service).collect()
    }

    /// Returns why an object is not used, if it is not.
    fn problem(&self, object: &Object) -> Option<String> {
        let key = object.key().to_string();
        let unusable = self.snapshot.unusable().iter().find(|(name, _)| *name == key);
        unusable.map(|(_, reason)| reason.to_string())
    }
}

/// Returns whether a slice is a cluster's part of an exported service.
fn is_part(slice: &Object, (namespace, name): &LocalService, cluster: Option<&str>) -> bool {
    let label = |key: &str| slice.metadata.labels.get(key).map(String::as_str);
    slice.metadata.namespace == *namespace
        && label(label::SERVICE_NAME) == Some(name)
        && label(label::SOURCE_CLUSTER) == cluster
}

/// Returns whether an import is the set's: neither a cluster's own part, nor a record of the broker.
fn is_of_set(import: &Object) -> bool {
    let metadata = &import.metadata;
    !metadata.labels.contains_key(label::SERVICE_NAME)
        && !metadata.annotations.contains_key(label::SERVICE_NAME)
}

/// Returns the id of this cluster: of its gateways, else of its own parts of imports, which are no copies.
fn own_cluster(gateways: &[Gateway], imports: &[Object]) -> Option<String> {
    let of_gateway = gateways.first().map(|gateway| gateway.status.local_endpoint.cluster_id.clone());
    let parts = imports.iter().filter(|import| import.metadata.origin().is_none());
    let of_parts: BTreeSet<&String> =
        parts.filter_map(|part| part.metadata.labels.get(label::SOURCE_CLUSTER)).collect();
    of_gateway.filter(|id| !id.is_empty()).or_else(|| match of_parts.len() {
        1 => of_parts.first().map(|id| (*id).clone()),
        _ => None,
    })
}

#[cfg(test)]
pub(super) mod tests;
