//! The status of a resource of the first users: a Fabric's, with the phases that their programs wait for.

use jiff::Timestamp;
use serde_json::{Map, Value};
use trieste_control::api::FabricStatus;

use super::{View, of};

/// The phases that there are for that operator; while neither holds there is none.
const PHASES: [&str; 2] = ["Running", "Failed"];

/// Returns the status. What was there and cannot be read, such as what another operator has written, counts for nothing.
pub(crate) fn of_tkestack(view: &View<'_>, before: Map<String, Value>, now: Timestamp) -> Map<String, Value> {
    let before: FabricStatus = serde_json::from_value(Value::Object(before)).unwrap_or_default();
    let mut status = serde_json::to_value(of(view, &before, now))
        .ok()
        .and_then(|status| status.as_object().cloned())
        .unwrap_or_default();
    let is_known = |phase: &Value| phase.as_str().is_some_and(|phase| PHASES.contains(&phase));
    status.retain(|field, value| field != "phase" || is_known(value));
    status
}
