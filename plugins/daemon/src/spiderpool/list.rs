//! One object's list: which entries it should have. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use jiff::Timestamp;
use serde_json::{Value, json};
use trieste_control::api::{Kind, Object};

use super::record::{ANNOTATION, Record, Recorded, Room, whole};

/// Where a SpiderCoordinator has its list, and where a SpiderMultusConfig has its own.
const COORDINATOR: &str = "/spec/hijackCIDR";
const CONFIG: &str = "/spec/coordinator/hijackCIDR";

/// Reads an entry as the coordinator does that checks it: an address is a network of its own.
fn network(entry: &str) -> Option<IpNet> {
    let text = entry.trim();
    let of_address = || text.parse::<IpAddr>().ok().map(IpNet::from);
    text.parse::<IpNet>().ok().map(|network| network.trunc()).or_else(of_address)
}

/// Returns the path of an object's list.
fn path(object: &Object) -> &'static str {
    if object.kind == Kind::SpiderCoordinator { COORDINATOR } else { CONFIG }
}

/// Returns a value of an object's body.
fn value<'a>(object: &'a Object, path: &str) -> Option<&'a Value> {
    let mut steps = path.split('/').skip(1);
    let first = object.body.get(steps.next()?)?;
    steps.try_fold(first, |value, step| value.get(step))
}

/// Returns the entries of an object's list.
pub(super) fn entries(object: &Object) -> Vec<String> {
    let list = value(object, path(object)).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Returns `true` if pods of a SpiderMultusConfig get routes.
fn has_routes(object: &Object) -> bool {
    let is_off = value(object, "/spec/enableCoordinator") == Some(&Value::Bool(false));
    let mode = value(object, "/spec/coordinator/mode").and_then(Value::as_str);
    !is_off && mode != Some("disabled")
}

/// Returns an object with the list that it should have; `None` if it has it.
///
/// # Errors
/// Why its list cannot be changed, and what to do.
pub(super) fn corrected(found: &Object, wanted: &[IpNet], now: Timestamp) -> Result<Option<Object>, String> {
    let recorded = match Record::of(found) {
        Recorded::Ours(record) => record,
        Recorded::Unmanaged => return Ok(None),
        Recorded::Unreadable(error) => {
            return Err(format!(
                "its annotation {ANNOTATION}, which names the entries of hijackCIDR that are remote clusters' networks, cannot be \
                 read: {error}; take these entries out of the list and remove the annotation, and they are added again"
            ));
        }
    };
    if let Some(reason) = &found.withheld {
        return Err(format!("it {reason}, and is left as it is"));
    }
    let there = entries(found);
    let is_ours = |entry: &str| network(entry).is_some_and(|network| recorded.0.contains_key(&network));
    let (ours, theirs): (Vec<String>, Vec<String>) = there.iter().cloned().partition(|entry| is_ours(entry));
    let is_config = found.kind != Kind::SpiderCoordinator;
    // An empty list leaves the coordinator's in force.
    let is_served = !is_config || has_routes(found) && !theirs.is_empty();
    let of_theirs: Vec<IpNet> = theirs.iter().filter_map(|entry| network(entry)).collect();
    let ours: BTreeSet<IpNet> = ours.iter().filter_map(|entry| network(entry)).collect();
    // Pods that were made while an entry was missing have no route either.
    let before = |network: &IpNet| recorded.0.get(network).filter(|_| ours.contains(network)).copied();
    let missing = wanted.iter().filter(|network| !of_theirs.iter().any(|theirs| theirs.contains(*network)));
    let (kept, new): (Vec<IpNet>, Vec<IpNet>) =
        missing.filter(|_| is_served).partition(|network| before(network).is_some());
    let mut room = Room::default();
    // What is there has its place: a new network must not take it from another cluster.
    let since: BTreeMap<IpNet, Timestamp> = kept
        .into_iter()
        .chain(new)
        .filter(|network| room.take(*network))
        .map(|network| (network, before(&network).unwrap_or_else(|| whole(now))))
        .collect();
    let record = Record(since);
    if record == recorded && ours.len() == record.0.len() {
        return Ok(None);
    }
    let list: Vec<String> = theirs.into_iter().chain(record.0.keys().map(ToString::to_string)).collect();
    Ok(Some(with(found, &list, &record)))
}

/// Returns how many networks a list lacks since there is no room for more.
pub(super) fn left_out(object: &Object, wanted: &[IpNet]) -> usize {
    let Recorded::Ours(record) = Record::of(object) else { return 0 };
    let there: Vec<IpNet> = entries(object).iter().filter_map(|entry| network(entry)).collect();
    let theirs: Vec<&IpNet> = there.iter().filter(|network| !record.0.contains_key(network)).collect();
    let is_there = |network: &&IpNet| {
        record.0.contains_key(network) || theirs.iter().any(|theirs| theirs.contains(*network))
    };
    // Without entries of ours the list is not in force, or not written yet.
    if record.0.is_empty() { 0 } else { wanted.iter().filter(|network| !is_there(network)).count() }
}

/// Returns an object with this list and record.
fn with(found: &Object, list: &[String], record: &Record) -> Object {
    let mut object = found.clone();
    match record.value() {
        Some(value) => object.metadata.annotations.insert(ANNOTATION.to_owned(), value),
        None => object.metadata.annotations.remove(ANNOTATION),
    };
    let spec = object.body.entry("spec").or_insert_with(|| json!({}));
    let parent = match found.kind == Kind::SpiderCoordinator {
        true => Some(spec),
        false => spec.get_mut("coordinator"),
    };
    match parent.and_then(Value::as_object_mut) {
        Some(parent) if list.is_empty() => drop(parent.remove("hijackCIDR")),
        Some(parent) => drop(parent.insert("hijackCIDR".to_owned(), json!(list))),
        None => {}
    }
    object
}

/// Returns `true` if an object carries entries of ours.
pub(super) fn has_ours(object: &Object) -> bool {
    match Record::of(object) {
        Recorded::Ours(record) => !record.0.is_empty(),
        Recorded::Unmanaged => false,
        Recorded::Unreadable(_) => true,
    }
}

/// Returns `true` if the server has kept the list that was written.
pub(super) fn is_kept(written: &Object, kept: &Object) -> bool {
    entries(written) == entries(kept)
}
