//! One service, as export, import and slices have it.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;
use trieste_control::api::{ImportFacts, Object, Resource as _, ServiceImport};
use trieste_discovery_objects::read;
use trieste_dns::Survey;

use super::name::Name;

/// See the module.
#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) name: Name,
    /// The conditions of this cluster's own export; `None` without an export.
    pub(crate) export: Option<Vec<Condition>>,
    /// What the import says; `None` without one, or with one that cannot be used.
    pub(crate) import: Option<ImportFacts>,
    /// Why the import cannot be used.
    pub(crate) problem: Option<String>,
    /// How the DNS server answers it; `None` if it does not.
    pub(crate) survey: Option<Survey>,
    /// The endpoints in the slices of each cluster.
    pub(crate) endpoints: BTreeMap<String, Endpoints>,
}

/// A condition of an export. Upstream leaves reasons empty.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Condition {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) status: String,
    pub(crate) reason: String,
    pub(crate) message: String,
}

/// The endpoints of a service in a cluster, by family.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Endpoints {
    pub(crate) v4: Count,
    pub(crate) v6: Count,
}

/// How many endpoints there are, and how many of them are ready.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Count {
    pub(crate) ready: usize,
    pub(crate) all: usize,
}

impl Service {
    /// Creates it of its objects, with why the DNS server does not use the import, and how it answers.
    pub(super) fn new(
        name: Name,
        (export, import): (Option<&Object>, Option<&Object>),
        (problem, survey): (Option<String>, Option<Survey>),
        endpoints: BTreeMap<String, Endpoints>,
    ) -> Self {
        let facts = import.map(|import| ServiceImport::from_object(import).and_then(|import| import.parse()));
        let (facts, error) = match facts {
            Some(Ok(facts)) => (Some(facts), None),
            Some(Err(error)) => (None, Some(error.to_string())),
            None => (None, None),
        };
        let export = export.map(conditions);
        Self { name, export, import: facts, problem: problem.or(error), survey, endpoints }
    }

    /// Returns a condition of the export.
    pub(crate) fn condition(&self, kind: &str) -> Option<&Condition> {
        self.export.iter().flatten().find(|condition| condition.kind == kind)
    }

    /// Returns the clusters that export it: those that the import names and those that slices are of.
    pub(crate) fn clusters(&self) -> Vec<String> {
        let named = self.import.iter().flat_map(|import| &import.clusters);
        let mut clusters: Vec<String> = named.chain(self.endpoints.keys()).cloned().collect();
        clusters.sort_unstable();
        clusters.dedup();
        clusters
    }

    /// Returns whether the gateways are connected to a cluster; `None` if its slices are not known.
    pub(crate) fn is_up(&self, cluster: &str) -> Option<bool> {
        let clusters = &self.survey.as_ref()?.clusters;
        clusters.iter().find(|found| found.id.to_string() == cluster).map(|found| found.is_up)
    }
}

impl Condition {
    /// Returns whether it says that something is wrong: a conflict, or anything else that is not so.
    pub(crate) fn is_bad(&self) -> bool {
        (self.kind == "Conflict") == (self.status == "True")
    }
}

impl std::fmt::Display for Condition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let message = self.message.replace('\n', " ");
        let parts = [self.reason.as_str(), message.as_str()];
        let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        write!(f, "{} is {}", self.kind, self.status)?;
        if parts.is_empty() { Ok(()) } else { write!(f, ": {}", parts.join(": ")) }
    }
}

impl Count {
    fn add(&mut self, is_ready: bool) {
        self.all += 1;
        self.ready += usize::from(is_ready);
    }
}

impl Endpoints {
    /// Returns how many are ready, of the family that has most.
    pub(crate) fn ready(&self) -> usize {
        self.v4.ready.max(self.v6.ready)
    }
}

impl std::fmt::Display for Endpoints {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = |count: Count| format!("{}/{}", count.ready, count.all);
        match (self.v4, self.v6) {
            (v4, v6) if v6.all == 0 || v4 == v6 => f.write_str(&text(v4)),
            (v4, v6) if v4.all == 0 => f.write_str(&text(v6)),
            (v4, v6) => write!(f, "IPv4 {} IPv6 {}", text(v4), text(v6)),
        }
    }
}

/// Returns the conditions of an export, as far as they can be read.
fn conditions(export: &Object) -> Vec<Condition> {
    let list =
        export.body.get("status").and_then(|status| status.get("conditions")).and_then(Value::as_array);
    let read = |condition: &Value| {
        let text = |field: &str| condition.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (kind, status) = (text("type"), text("status"));
        let is_known = !kind.is_empty();
        is_known.then(|| Condition { kind, status, reason: text("reason"), message: text("message") })
    };
    list.into_iter().flatten().filter_map(read).collect()
}

/// Counts endpoints by service and cluster. What the DNS server does not use is left out.
pub(super) fn endpoints(slices: &[Object]) -> BTreeMap<Name, BTreeMap<String, Endpoints>> {
    let mut found: BTreeMap<Name, BTreeMap<String, Endpoints>> = BTreeMap::new();
    for exported in slices.iter().filter_map(|slice| read::exported(slice).ok()?) {
        let service = &exported.service;
        let name = Name { namespace: service.namespace().into_owned(), name: service.service().into_owned() };
        let of = found.entry(name).or_default().entry(exported.cluster.to_string()).or_default();
        for endpoint in &exported.slice.endpoints {
            let is_ready = endpoint.is_ready || exported.slice.publishes_not_ready;
            // An endpoint has addresses of one family; several of them are the same back end's.
            match endpoint.addresses.first() {
                Some(address) if address.is_ipv6() => of.v6.add(is_ready),
                Some(_) => of.v4.add(is_ready),
                None => {}
            }
        }
    }
    found
}
