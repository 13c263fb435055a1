//! One object's list: which entries it should have. Pure.

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;
use jiff::Timestamp;
use serde_json::{Value, json};
use trieste_control::api::{Kind, Object};
use trieste_control::spiderpool::{ANNOTATION, Record, Recorded, Room, entry, whole};

/// Where a SpiderCoordinator has its list, and where a SpiderMultusConfig has its own.
const COORDINATOR: &str = "/spec/hijackCIDR";
const CONFIG: &str = "/spec/coordinator/hijackCIDR";

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

fn recorded(object: &Object) -> Recorded {
    Record::parse(object.metadata.annotations.get(ANNOTATION).map(String::as_str))
}

/// Returns `true` if pods of a SpiderMultusConfig get routes.
fn has_routes(object: &Object) -> bool {
    let is_off = value(object, "/spec/enableCoordinator") == Some(&Value::Bool(false));
    let mode = value(object, "/spec/coordinator/mode").and_then(Value::as_str);
    !is_off && mode != Some("disabled")
}

/// What becomes of an object.
#[derive(Debug, Default)]
pub(super) struct Corrected {
    /// It with the list that it should have; `None` if it has it.
    pub(super) object: Option<Object>,
    /// How many networks the list lacks since there is no room for more.
    pub(super) left_out: usize,
}

/// Returns what becomes of an object.
///
/// # Errors
/// Why its list cannot be changed, and what to do.
pub(super) fn corrected(found: &Object, wanted: &[IpNet], now: Timestamp) -> Result<Corrected, String> {
    let recorded = match recorded(found) {
        Recorded::Ours(record) => record,
        Recorded::Unmanaged => return Ok(Corrected::default()),
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
    let is_ours = |text: &String| entry(text).is_some_and(|network| recorded.0.contains_key(&network));
    let (ours, theirs): (Vec<String>, Vec<String>) = entries(found).into_iter().partition(is_ours);
    let is_config = found.kind != Kind::SpiderCoordinator;
    // An empty list leaves the coordinator's in force.
    let is_served = !is_config || has_routes(found) && !theirs.is_empty();
    let of_theirs: Vec<IpNet> = theirs.iter().filter_map(|text| entry(text)).collect();
    let ours: BTreeSet<IpNet> = ours.iter().filter_map(|text| entry(text)).collect();
    // Pods that were made while an entry was missing have no route either.
    let before = |network: &IpNet| recorded.0.get(network).filter(|_| ours.contains(network)).copied();
    let needed = wanted.iter().filter(|network| !of_theirs.iter().any(|theirs| theirs.contains(*network)));
    // What is there has its place: a new network must not take it from another cluster.
    let (kept, new): (Vec<IpNet>, Vec<IpNet>) =
        needed.filter(|_| is_served).partition(|network| before(network).is_some());
    let count = kept.len() + new.len();
    let mut room = Room::default();
    let since: BTreeMap<IpNet, Timestamp> = kept
        .into_iter()
        .chain(new)
        .filter(|network| room.take(*network))
        .map(|network| (network, before(&network).unwrap_or_else(|| whole(now))))
        .collect();
    let record = Record(since);
    let left_out = count - record.0.len();
    if record == recorded && ours.len() == record.0.len() {
        return Ok(Corrected { object: None, left_out });
    }
    let list: Vec<String> = theirs.into_iter().chain(record.0.keys().map(ToString::to_string)).collect();
    Ok(Corrected { object: Some(with(found, &list, &record)), left_out })
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
    match recorded(object) {
        Recorded::Ours(record) => !record.0.is_empty(),
        Recorded::Unmanaged => false,
        Recorded::Unreadable(_) => true,
    }
}

/// Returns `true` if the server has kept the list that was written.
pub(super) fn is_kept(written: &Object, kept: &Object) -> bool {
    entries(written) == entries(kept)
}

#[cfg(test)]
mod tests;
