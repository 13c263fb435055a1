//! The conditions of a ServiceExport: `Valid`, `Ready` and `Conflict`.

use jiff::Timestamp;
use serde_json::{Value, json};
use trieste_control::api::Object;

use crate::conflicts::Conflict;
use crate::facts::Facts;
use crate::family::Family;

/// How far an export is on the broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress<'a> {
    /// All of it is there.
    Published,
    /// All of it is there, but for a clusterset IP that it asks for; and for annotations that cannot be used, and why.
    WithoutAddress(&'a Lack, Option<&'a str>),
    /// All of it is there, but for annotations of the export that cannot be used; why.
    Ignoring(&'a str),
    /// It is not all there yet.
    Awaiting,
    /// The broker does not take it.
    Failed(&'a str),
}

/// A clusterset IP that an export asks for and does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lack {
    pub(crate) why: String,
    /// The family of the one that it has, if there is one.
    pub(crate) has: Option<Family>,
}

/// The reason of an export that is on its way, of the condition `Ready` as the Multi-Cluster Services API has it.
pub(crate) const PENDING: &str = "Pending";
/// The reason of one that failed, likewise.
const FAILED: &str = "Failed";

/// The status of a condition, its reason and message.
type Wanted = (bool, String, String);

/// Returns the export with the conditions that it should have; `None` if it has them.
pub(crate) fn with_conditions(
    export: &Object,
    facts: &Facts,
    progress: Progress<'_>,
    wall: Timestamp,
) -> Option<Object> {
    let existing = listed(export);
    let ready = find(existing, "Ready");
    let is_ready = ready.is_some_and(|condition| condition.get("status") == Some(&Value::from("True")));
    let mut wanted = existing.to_vec();
    // Former releases called it so.
    wanted.retain(|condition| condition.get("type") != Some(&Value::from("Synced")));
    let (valid, ready) = wanted_of(facts, progress, (ready.is_some(), is_ready));
    set(&mut wanted, "Valid", Some(valid), wall);
    set(&mut wanted, "Ready", ready, wall);
    set(&mut wanted, "Conflict", conflict(&facts.conflicts, find(existing, "Conflict").is_some()), wall);
    if wanted == existing {
        return None;
    }
    let status = export.body.get("status").and_then(Value::as_object);
    let mut status = status.cloned().unwrap_or_default();
    status.insert("conditions".to_owned(), Value::from(wanted));
    let mut export = export.clone();
    export.body.insert("status".to_owned(), Value::Object(status));
    Some(export)
}

/// Returns the conditions that an export has.
pub(crate) fn listed(export: &Object) -> &[Value] {
    let status = export.body.get("status");
    let list = status.and_then(|status| status.get("conditions")).and_then(Value::as_array);
    list.map(Vec::as_slice).unwrap_or_default()
}

fn find<'a>(conditions: &'a [Value], kind: &str) -> Option<&'a Value> {
    conditions.iter().find(|condition| condition.get("type") == Some(&Value::from(kind)))
}

/// Returns whether an export is on its way to the broker, and has no condition yet that says whether it is there.
pub(crate) fn is_on_its_way(export: &Object, facts: &Facts, progress: Progress<'_>) -> bool {
    progress == Progress::Awaiting
        && !facts.is_excluded
        && matches!(facts.verdict, Some(Ok(_)))
        && find(listed(export), "Ready").is_none()
}

fn wanted_of(
    facts: &Facts,
    progress: Progress<'_>,
    (has_ready, is_ready): (bool, bool),
) -> (Wanted, Option<Wanted>) {
    let text = |text: &str| text.to_owned();
    match &facts.verdict {
        Some(Ok(_)) => {}
        Some(Err(invalid)) => {
            let valid = (false, invalid.reason.clone(), invalid.message.clone());
            let gone = (false, text("NoServiceImport"), text("ServiceImport was deleted"));
            return (valid, has_ready.then_some(gone));
        }
        None => return ((true, text("Valid"), String::new()), None),
    }
    let valid = (true, text("Valid"), String::new());
    let ready = match progress {
        _ if facts.is_excluded => {
            (false, text(FAILED), text("Unable to export due to an irresolvable conflict"))
        }
        Progress::Failed(error) => (false, text(FAILED), format!("Unable to export: {error}")),
        Progress::WithoutAddress(Lack { why, has }, ignored) => {
            let mut message = match has {
                Some(family) => {
                    let family = family.name();
                    format!(
                        "Service was exported to the broker with a clusterset IP of {family} alone: {why}"
                    )
                }
                None => format!(
                    "Service was exported to the broker without the clusterset IP that it asks for, so that each \
                     cluster's own address is used: {why}"
                ),
            };
            if let Some(why) = ignored {
                message = format!("{message}; {why}");
            }
            (true, text("ExportedWithoutClustersetIP"), message)
        }
        Progress::Ignoring(why) => {
            (true, text("AnnotationIgnored"), format!("Service was exported to the broker; {why}"))
        }
        Progress::Published => {
            (true, text("Exported"), text("Service was successfully exported to the broker"))
        }
        // What was there is there still, and only changes.
        Progress::Awaiting if is_ready => return (valid, None),
        Progress::Awaiting => {
            (false, text(PENDING), text("ServiceImport created - awaiting aggregation on the broker"))
        }
    };
    (valid, Some(ready))
}

/// Returns what there is to tell of conflicts: nothing of those that never were.
fn conflict(conflicts: &[Conflict], is_known: bool) -> Option<Wanted> {
    let join = |texts: Vec<&str>, by: &str| texts.join(by);
    if conflicts.is_empty() {
        return is_known.then(|| (false, "NoConflicts".to_owned(), String::new()));
    }
    let reasons = join(conflicts.iter().map(|conflict| conflict.reason).collect(), ",");
    let messages = join(conflicts.iter().map(|conflict| conflict.message.as_str()).collect(), "\n");
    Some((true, reasons, messages))
}

/// Sets a condition, if there is anything to say; its time is that of the change of its status.
fn set(conditions: &mut Vec<Value>, kind: &str, wanted: Option<Wanted>, wall: Timestamp) {
    let Some((is_so, reason, message)) = wanted else { return };
    let status = if is_so { "True" } else { "False" };
    let known = conditions.iter_mut().find(|condition| condition.get("type") == Some(&Value::from(kind)));
    let text = |condition: &Value, field: &str| {
        condition.get(field).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let mut time = Value::from(second(wall));
    if let Some(known) = &known {
        let has_status = text(known, "status") == status;
        if has_status && text(known, "reason") == reason && text(known, "message") == message {
            return;
        }
        if has_status && let Some(since) = known.get("lastTransitionTime").filter(|since| since.is_string()) {
            time = since.clone();
        }
    }
    let condition = json!({"type": kind, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": time});
    match known {
        Some(known) => *known = condition,
        None => conditions.push(condition),
    }
}

/// Returns the time as Kubernetes writes it.
fn second(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
