//! Which of Calico's pools `--fix` writes, as the workers would. Pure.

use std::collections::BTreeMap;
use std::fmt;

use ipnet::IpNet;
use kube::api::{DynamicObject, ObjectMeta, TypeMeta};
use serde_json::{Map, Value, json};
use trieste_control::api::label::REMOTE_POOL;
use trieste_control::api::{Gateway, HaStatus};
use trieste_control::network_map::outermost;
use trieste_control::remote_pool;
use trieste_control::steps::Outcome;

use crate::checks::fix::Write;
use crate::facts::pool_resource;

/// A remark, and how it is meant.
type Remark = (Outcome, String);

/// What is written, and what keeps the rest from it.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Plan {
    pub(super) writes: Vec<Write>,
    pub(super) remarks: Vec<Remark>,
}

impl Plan {
    /// Returns a plan to write nothing, and why.
    pub(super) fn nothing(why: String) -> Self {
        Self { writes: Vec::new(), remarks: vec![(Outcome::Success, why)] }
    }
}

/// Plans the pools of all remote networks.
pub(super) fn plan(gateways: &[Gateway], pools: &[DynamicObject], api_version: &str) -> Plan {
    let mut plan = Plan::default();
    let mut taken: Vec<Wanted> = Vec::new();
    for wanted in wanted(gateways) {
        if let Some(other) = taken.iter().find(|other| overlap(other.network, wanted.network)) {
            let text = format!(
                "{wanted} overlaps {other}, so that Calico takes no pool for it: give the clusters different networks or use globalnet"
            );
            plan.remarks.push((Outcome::Failure, text));
            continue;
        }
        match wanted.change(pools, api_version) {
            Ok(change) => plan.writes.extend(change),
            Err(remark) => plan.remarks.push(remark),
        }
        taken.push(wanted);
    }
    if plan.writes.is_empty() && plan.remarks.is_empty() {
        return Plan::nothing("no IPPool is missing: --fix writes none".to_owned());
    }
    plan
}

/// A remote network that needs a pool.
struct Wanted {
    cluster: String,
    network: IpNet,
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of cluster {}", self.network, self.cluster)
    }
}

/// Returns the networks to which the active gateways are connected, without those inside of others of their cluster.
fn wanted(gateways: &[Gateway]) -> Vec<Wanted> {
    let active = gateways.iter().filter(|gateway| gateway.status.ha_status == HaStatus::Active);
    let mut by_cluster: BTreeMap<&str, Vec<IpNet>> = BTreeMap::new();
    for endpoint in active.flat_map(|gateway| &gateway.status.connections).map(|one| &one.endpoint) {
        by_cluster.entry(&endpoint.cluster_id).or_default().extend(networks(&endpoint.subnets));
    }
    let of_each = by_cluster.into_iter().flat_map(|(cluster, networks)| {
        outermost(networks).into_iter().map(|network| Wanted { cluster: cluster.to_owned(), network })
    });
    of_each.collect()
}

impl Wanted {
    /// Returns what has to be written for it, if anything has.
    ///
    /// # Errors
    /// The pool that is in the way, or serves.
    fn change(&self, pools: &[DynamicObject], api_version: &str) -> Result<Option<Write>, Remark> {
        let name = remote_pool::name(&self.cluster, self.network);
        let overlapping = |pool: &&DynamicObject| network(pool).is_some_and(|net| overlap(net, self.network));
        // Of the same network under another name, such as that of a cluster that was called otherwise.
        let same = pools.iter().find(|pool| is_labelled(pool) && network(pool) == Some(self.network));
        if let Some(same) = same.filter(|pool| name_of(pool) != name) {
            return Ok(self.correction(name_of(same), same, api_version));
        }
        let mut others = pools.iter().filter(|pool| !is_labelled(pool) || name_of(pool) != name);
        if let Some(other) = others.clone().find(overlapping) {
            return Err(self.obstacle(other));
        }
        if others.any(|pool| name_of(pool) == name) {
            let text = format!(
                "IPPool {name}, which should be for {self}, has no label {REMOTE_POOL}=true, so that --fix leaves it as it is. Remove it to have one made"
            );
            return Err((Outcome::Failure, text));
        }
        Ok(match pools.iter().find(|pool| name_of(pool) == name) {
            None => Some(self.creation(&name, api_version)),
            Some(found) => self.correction(&name, found, api_version),
        })
    }

    /// Tells what becomes of the network with this pool, which overlaps it.
    fn obstacle(&self, other: &DynamicObject) -> Remark {
        let (name, cidr) = (name_of(other), network(other).map(|net| net.to_string()).unwrap_or_default());
        if is_labelled(other) {
            let text = format!(
                "IPPool {name} ({cidr}) overlaps {self}, so that Calico takes no pool for that. Where no cluster of the set has {cidr} any \
                 more, remove it; else give the clusters different networks or use globalnet"
            );
            return (Outcome::Failure, text);
        }
        if serves(other, self.network) {
            let text = format!(
                "IPPool {name} ({cidr}), made by somebody else, contains {self} and does not masquerade: it serves, and --fix makes no \
                 other"
            );
            return (Outcome::Success, text);
        }
        let text = format!(
            "IPPool {name} ({cidr}), made by somebody else, overlaps {self}, so that Calico takes no pool for that, and --fix never \
             changes it: change or remove it, or give the clusters different networks"
        );
        (Outcome::Failure, text)
    }

    fn creation(&self, name: &str, api_version: &str) -> Write {
        let resource = pool_resource(api_version);
        let fields = remote_pool::fields(self.network);
        let shown: Vec<String> =
            fields.iter().map(|(field, value)| format!("{field} {}", text(value))).collect();
        let announcement = format!("--fix creates IPPool {name} ({api_version}): {}", shown.join(", "));
        let labels = [(REMOTE_POOL.to_owned(), "true".to_owned())].into();
        let metadata =
            ObjectMeta { name: Some(name.to_owned()), labels: Some(labels), ..ObjectMeta::default() };
        let spec: Map<String, Value> =
            fields.into_iter().map(|(field, value)| (field.to_owned(), value)).collect();
        let object = DynamicObject { types: Some(types(api_version)), metadata, data: json!({"spec": spec}) };
        Write { resource, object, announcement }
    }

    /// Returns the pool with the fields that matter; `None` if it has them.
    fn correction(&self, name: &str, found: &DynamicObject, api_version: &str) -> Option<Write> {
        let mut spec = found.data.get("spec").and_then(Value::as_object).cloned().unwrap_or_default();
        let mut shown = Vec::new();
        for (field, value) in remote_pool::fields(self.network) {
            let now = text(&value);
            let before = spec.insert(field.to_owned(), value.clone()).unwrap_or_default();
            if before != value {
                shown.push(format!("{field} {now} in the place of {}", text(&before)));
            }
        }
        let mut object = found.clone();
        object.types = Some(types(api_version));
        object.data["spec"] = Value::Object(spec);
        let announcement = format!("--fix corrects IPPool {name} ({api_version}): {}", shown.join(", "));
        (!shown.is_empty()).then(|| Write { resource: pool_resource(api_version), object, announcement })
    }
}

/// Returns `true` if a pool of somebody else's keeps pods' addresses towards a network.
pub(super) fn serves(pool: &DynamicObject, wanted: IpNet) -> bool {
    let is_wider = network(pool).is_some_and(|net| net.contains(&wanted));
    is_wider && !is_labelled(pool) && pool.data["spec"]["natOutgoing"] != true
}

fn types(api_version: &str) -> TypeMeta {
    TypeMeta { api_version: api_version.to_owned(), kind: "IPPool".to_owned() }
}

/// Returns a field's value, for people.
fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "nothing".to_owned(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}

fn is_labelled(pool: &DynamicObject) -> bool {
    pool.metadata
        .labels
        .as_ref()
        .and_then(|labels| labels.get(REMOTE_POOL))
        .is_some_and(|value| value == "true")
}

fn name_of(pool: &DynamicObject) -> &str {
    pool.metadata.name.as_deref().unwrap_or_default()
}

/// Returns a pool's network, if it can be read.
pub(super) fn network(pool: &DynamicObject) -> Option<IpNet> {
    let text = pool.data["spec"]["cidr"].as_str()?;
    text.parse::<IpNet>().ok().map(|network| network.trunc())
}

/// Returns the networks that can be read, without bits of hosts.
pub(super) fn networks(subnets: &[String]) -> impl Iterator<Item = IpNet> {
    subnets.iter().filter_map(|subnet| subnet.parse::<IpNet>().ok()).map(|network| network.trunc())
}

fn overlap(one: IpNet, other: IpNet) -> bool {
    one.contains(&other) || other.contains(&one)
}

#[cfg(test)]
mod tests;
