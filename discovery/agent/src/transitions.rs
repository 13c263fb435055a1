//! Changes of the conditions of exports, for those who report them: each when it was written, and none that repeats what the
//! condition was.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use trieste_control::api::{Object, ObjectKey};

use crate::name::{Key, ServiceName};
use crate::rate_limit::RateLimit;
use crate::status::Transition;

/// Ours: so many are kept for who reports them.
const KEPT: usize = 256;
/// Ours: of one export so many are reported at once, then one each time. An export that flaps tells nothing new.
const BURST: u32 = 10;
const INTERVAL: Duration = Duration::from_secs(60);

/// See the module.
#[derive(Debug)]
pub(crate) struct Transitions {
    /// What changes when the export is written that was planned.
    planned: BTreeMap<ServiceName, Vec<Transition>>,
    latest: Arc<Vec<Transition>>,
    number: u64,
    rate_limit: RateLimit,
}

impl Transitions {
    pub(crate) fn new() -> Self {
        Self {
            planned: BTreeMap::new(),
            latest: Arc::default(),
            number: 0,
            rate_limit: RateLimit::new(INTERVAL, BURST),
        }
    }

    /// Returns the latest ones.
    pub(crate) fn latest(&self) -> Arc<Vec<Transition>> {
        Arc::clone(&self.latest)
    }

    /// Takes in that an export is to be written so.
    pub(crate) fn plan(&mut self, name: &ServiceName, before: &Object, after: &Object) {
        self.planned.insert(name.clone(), between(before, after));
    }

    /// Takes in that something else is planned.
    pub(crate) fn discard(&mut self, name: &ServiceName) {
        self.planned.remove(name);
    }

    /// Takes in whether the export was written.
    pub(crate) fn finish(&mut self, name: &ServiceName, is_written: bool, now: Instant) {
        let planned = self.planned.remove(name).unwrap_or_default();
        for transition in planned.into_iter().filter(|_| is_written) {
            if self.rate_limit.take(&Key::Local(name.clone()), now).is_some() {
                return;
            }
            self.number += 1;
            let latest = Arc::make_mut(&mut self.latest);
            if latest.len() >= KEPT {
                latest.remove(0);
            }
            latest.push(Transition { number: self.number, ..transition });
        }
    }
}

/// Returns what differs between the conditions of an export, but for what is well from the beginning.
fn between(before: &Object, after: &Object) -> Vec<Transition> {
    let (before, uid) = (conditions(before), after.metadata.uid.clone());
    let export: ObjectKey = after.key();
    let mut transitions = Vec::new();
    for condition in conditions(after) {
        let text = |field: &str| condition.get(field).and_then(Value::as_str).unwrap_or_default();
        let former = before.iter().find(|former| former.get("type") == condition.get("type"));
        let is_same = |former: &&Value| {
            ["status", "reason", "message"].iter().all(|field| former.get(field) == condition.get(field))
        };
        let is_so = text("status") == "True";
        if former.is_some_and(is_same) || former.is_none() && is_so && text("type") == "Valid" {
            continue;
        }
        let is_good = match text("type") {
            "Conflict" => !is_so,
            _ => is_so || text("reason") == crate::conditions::PENDING,
        };
        let message = match text("message") {
            "" => format!("The condition {} is {}", text("type"), text("status")),
            message => message.to_owned(),
        };
        let (export, uid, reason) = (export.clone(), uid.clone(), text("reason").to_owned());
        transitions.push(Transition { number: 0, export, uid, is_good, reason, message });
    }
    transitions
}

/// Returns the conditions that are ours.
fn conditions(export: &Object) -> Vec<&Value> {
    let is_ours = |condition: &&Value| {
        let kind = condition.get("type").and_then(Value::as_str);
        kind.is_some_and(|kind| ["Valid", "Ready", "Conflict"].contains(&kind))
    };
    crate::conditions::listed(export).iter().filter(is_ours).collect()
}
