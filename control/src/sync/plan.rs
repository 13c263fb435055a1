//! What to write so that both stores agree. Pure: the same views give the same plan, and the plan of the result is
//! empty.

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;
use jiff::Timestamp;

use super::Refused;
use super::copy::{amend, copy};
use crate::api::{Cluster, Endpoint, Kind, Object, ObjectKey, Resource, overlap};

/// The kinds that are synced, in the order in which they are written.
pub(super) const KINDS: [Kind; 2] = [Kind::Cluster, Kind::Endpoint];

/// All that a plan depends on.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    /// Our cluster's ID.
    pub cluster_id: &'a str,
    /// The namespace of our objects in the local store.
    pub local_namespace: &'a str,
    /// The namespace of everybody's objects in the broker's store.
    pub broker_namespace: &'a str,
    /// Our own CIDRs.
    pub local_subnets: &'a [IpNet],
    /// Clusters and Endpoints of the local namespace.
    pub local: &'a [&'a Object],
    /// Clusters and Endpoints of the broker's namespace.
    pub broker: &'a [&'a Object],
}

/// One of the two stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// Our cluster's.
    Local,
    /// The broker's.
    Broker,
}

/// One write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Create this object.
    Create(Side, Object),
    /// Replace an object by this; its version is the one that the plan was based on.
    Update(Side, Object),
    /// Delete this object.
    Delete(Side, ObjectKey),
}

/// What to write, in this order, and what is not imported.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// Deletions first, then Clusters, then Endpoints.
    pub actions: Vec<Action>,
    /// Foreign objects that are not imported, by cluster and name.
    pub refused: Vec<Refused>,
}

/// Compares the two stores.
pub fn plan(view: &View<'_>) -> Plan {
    let mut refused = Vec::new();
    let exported = exports(view);
    let imported = imports(view, &exported, &mut refused);
    let mut actions = Vec::new();
    // Only what we put there is ours to remove: our label on the broker, others' labels here.
    reconcile(Side::Broker, &exported, view.broker, |origin| origin == view.cluster_id, &mut actions);
    reconcile(Side::Local, &imported, view.local, |origin| origin != view.cluster_id, &mut actions);
    actions.sort_by_key(rank);
    refused.sort_by(|a: &Refused, b| (&a.cluster, &a.endpoint).cmp(&(&b.cluster, &b.endpoint)));
    refused.dedup();
    Plan { actions, refused }
}

fn rank(action: &Action) -> (u8, Kind) {
    match action {
        Action::Delete(_, key) => (0, key.kind),
        Action::Create(_, object) | Action::Update(_, object) => (1, object.kind),
    }
}

/// Our originals, as the broker should have them. An unlabelled object of another cluster was put here by hand, as a
/// fixed peer; it is not ours to publish.
fn exports(view: &View<'_>) -> BTreeMap<ObjectKey, Object> {
    let is_own = |object: &&&Object| {
        is_synced(object) && object.metadata.origin().is_none() && cluster_of(object) == Some(view.cluster_id)
    };
    let export = |object: &&Object| copy(object, view.broker_namespace, view.cluster_id);
    view.local.iter().filter(is_own).map(export).map(|object| (object.key(), object)).collect()
}

/// Others' objects, as we should have them. What sits under one of our own names on the broker is overwritten by our
/// export, whoever put it there.
fn imports(
    view: &View<'_>,
    exported: &BTreeMap<ObjectKey, Object>,
    refused: &mut Vec<Refused>,
) -> BTreeMap<ObjectKey, Object> {
    let taken: BTreeSet<ObjectKey> = view
        .local
        .iter()
        .filter(|object| object.metadata.origin().is_none_or(|origin| origin == view.cluster_id))
        .map(|object| object.key())
        .collect();
    let mut imported = BTreeMap::new();
    let mut candidates = Vec::new();
    let is_ours = |object: &Object| exported.contains_key(&object.key());
    for object in view.broker.iter().filter(|object| is_synced(object) && !is_ours(object)) {
        let Some(origin) = object.metadata.origin().filter(|origin| *origin != view.cluster_id) else {
            continue;
        };
        let wanted = copy(object, view.local_namespace, origin);
        match admit(&wanted, origin, &taken) {
            Ok(Admitted::Cluster) => drop(imported.insert(wanted.key(), wanted)),
            Ok(Admitted::Endpoint(subnets)) => candidates.push(Candidate { origin, wanted, subnets }),
            Err(reason) => refused.push(refusal(origin, &wanted, reason)),
        }
    }
    let ages = ages(view.broker);
    candidates.sort_by_cached_key(|candidate| {
        let age = ages.get(candidate.origin).copied().unwrap_or(Timestamp::MAX);
        (age, candidate.origin.to_owned(), candidate.wanted.metadata.name.clone())
    });
    let mut claims: Vec<Claim<'_>> = Vec::new();
    for Candidate { origin, wanted, subnets } in candidates {
        if let Some(reason) = conflict(origin, &subnets, view.local_subnets, &claims) {
            refused.push(refusal(origin, &wanted, reason));
            continue;
        }
        claims.push(Claim { origin, subnets });
        imported.insert(wanted.key(), wanted);
    }
    imported
}

/// A foreign endpoint that makes sense by itself.
struct Candidate<'a> {
    origin: &'a str,
    wanted: Object,
    subnets: Vec<IpNet>,
}

/// Subnets that an imported endpoint's cluster owns.
struct Claim<'a> {
    origin: &'a str,
    subnets: Vec<IpNet>,
}

enum Admitted {
    Cluster,
    Endpoint(Vec<IpNet>),
}

/// Whether a foreign object makes sense by itself; the reason if not.
fn admit(wanted: &Object, origin: &str, taken: &BTreeSet<ObjectKey>) -> Result<Admitted, String> {
    if taken.contains(&wanted.key()) {
        return Err(format!("an object of ours has the name `{}`", wanted.metadata.name));
    }
    let (cluster_id, admitted) = match wanted.kind {
        Kind::Endpoint => {
            let facts = Endpoint::from_object(wanted).and_then(|endpoint| endpoint.spec.parse());
            let facts = facts.map_err(|error| error.to_string())?;
            (facts.cluster_id, Admitted::Endpoint(facts.subnets))
        }
        Kind::Cluster => {
            let facts = Cluster::from_object(wanted).and_then(|cluster| cluster.spec.parse());
            (facts.map_err(|error| error.to_string())?.cluster_id, Admitted::Cluster)
        }
        kind => return Err(format!("{kind} objects are not synced")),
    };
    // Nobody may speak for another cluster, least of all for ours.
    if cluster_id != origin {
        return Err(format!(
            "field `spec.cluster_id`: is `{cluster_id}`, but the object is labelled `{origin}`"
        ));
    }
    Ok(admitted)
}

/// Why these subnets cannot be had, if they cannot.
fn conflict(origin: &str, subnets: &[IpNet], local: &[IpNet], claims: &[Claim<'_>]) -> Option<String> {
    if let Some((theirs, ours)) = overlap(subnets, local) {
        return Some(format!("subnet {theirs} overlaps our own {ours}"));
    }
    claims.iter().filter(|claim| claim.origin != origin).find_map(|claim| {
        let (theirs, others) = overlap(subnets, &claim.subnets)?;
        Some(format!("subnet {theirs} overlaps {others} of cluster {}, which was there first", claim.origin))
    })
}

/// When each cluster joined: its Cluster object's age on the broker, or its oldest Endpoint's if it has none. The
/// Cluster object outlives restarts and fail-overs; Endpoints do not.
fn ages<'a>(broker: &[&'a Object]) -> BTreeMap<&'a str, Timestamp> {
    let mut ages: BTreeMap<&str, (Kind, Timestamp)> = BTreeMap::new();
    for object in broker.iter().filter(|object| is_synced(object)) {
        let Some(origin) = object.metadata.origin() else { continue };
        let age = (object.kind, object.metadata.creation_timestamp.unwrap_or(Timestamp::MAX));
        ages.entry(origin).and_modify(|oldest| *oldest = age.min(*oldest)).or_insert(age);
    }
    ages.into_iter().map(|(origin, (_, age))| (origin, age)).collect()
}

/// Adds what it takes to make `existing` into `wanted`, as far as it is ours to change.
fn reconcile(
    side: Side,
    wanted: &BTreeMap<ObjectKey, Object>,
    existing: &[&Object],
    is_ours: impl Fn(&str) -> bool,
    actions: &mut Vec<Action>,
) {
    let existing: BTreeMap<ObjectKey, &Object> =
        existing.iter().filter(|object| is_synced(object)).map(|object| (object.key(), *object)).collect();
    for (key, object) in &existing {
        let is_stale = !wanted.contains_key(key) && object.metadata.origin().is_some_and(&is_ours);
        if is_stale {
            actions.push(Action::Delete(side, key.clone()));
        }
    }
    for (key, object) in wanted {
        match existing.get(key) {
            None => actions.push(Action::Create(side, object.clone())),
            Some(found) => actions.extend(amend(found, object).map(|amended| Action::Update(side, amended))),
        }
    }
}

fn is_synced(object: &Object) -> bool {
    KINDS.contains(&object.kind)
}

fn cluster_of(object: &Object) -> Option<&str> {
    object.body.get("spec")?.get("cluster_id")?.as_str()
}

fn refusal(origin: &str, wanted: &Object, reason: String) -> Refused {
    let endpoint = (wanted.kind == Kind::Endpoint).then(|| wanted.metadata.name.clone());
    Refused { cluster: origin.to_owned(), endpoint, reason }
}

#[cfg(test)]
mod tests;
