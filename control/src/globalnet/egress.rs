//! ClusterGlobalEgressIP and GlobalEgressIP: how many addresses, and what their status says.

use serde_json::Value;

use super::conditions::{self, ConditionUpdate};
use super::ledger::Ledger;
use super::writing::Writing;
use crate::api::{
    ApiError, ClusterGlobalEgressIp, Condition, EgressStatus, GlobalEgressIp, LabelSelector, Object,
    Resource, annotation,
};
use crate::runner::Write;

/// From the specification: most addresses that an object may ask for.
const MAX_NUMBER: i64 = 20;

/// Plans the writes of a ClusterGlobalEgressIP.
pub(super) fn cluster(object: &Object, ledger: &mut Ledger, writing: &mut Writing) -> Result<(), ApiError> {
    let egress = ClusterGlobalEgressIp::from_object(object)?;
    let mut status = egress.status.clone().unwrap_or_default();
    if object.metadata.name == ClusterGlobalEgressIp::NAME {
        decide(object, egress.spec.number(), &mut status, ledger, writing);
    } else {
        ConditionUpdate::wrong_instance().report(&mut status.conditions, writing.now);
    }
    put(object, egress.status.as_ref(), &status, writing);
    Ok(())
}

/// Plans the writes of a GlobalEgressIP. Its selector is noted first, so that it is known which one was first.
pub(super) fn namespaced(
    object: &Object,
    ledger: &mut Ledger,
    writing: &mut Writing,
) -> Result<(), ApiError> {
    let egress = GlobalEgressIp::from_object(object)?;
    if !object.metadata.annotations.contains_key(annotation::POD_SELECTOR) {
        let mut noted = object.clone();
        let selector = note(egress.spec.pod_selector.as_ref());
        noted.metadata.annotations.insert(annotation::POD_SELECTOR.to_owned(), selector);
        writing.push(Write::Update(noted));
        return Ok(());
    }
    let mut status = egress.status.clone().unwrap_or_default();
    decide(object, egress.spec.number(), &mut status, ledger, writing);
    if first_selector(object, egress.spec.pod_selector.as_ref()) == egress.spec.pod_selector {
        status.conditions.retain(|condition| condition.kind != conditions::UPDATED);
    } else {
        ConditionUpdate::selector_changed().report(&mut status.conditions, writing.now);
    }
    put(object, egress.status.as_ref(), &status, writing);
    Ok(())
}

/// Returns the selector that a GlobalEgressIP had first, which is the one that counts. A note that cannot be read was
/// spoilt by hand: then the present one counts.
pub(super) fn first_selector(object: &Object, present: Option<&LabelSelector>) -> Option<LabelSelector> {
    let noted = object.metadata.annotations.get(annotation::POD_SELECTOR);
    match noted.map(|text| serde_json::from_str(text)) {
        Some(Ok(first)) => first,
        Some(Err(_)) | None => present.cloned(),
    }
}

fn note(selector: Option<&LabelSelector>) -> String {
    serde_json::to_string(&selector).expect("its keys are strings and its values are JSON")
}

fn decide(
    object: &Object,
    number: i64,
    status: &mut EgressStatus,
    ledger: &mut Ledger,
    writing: &mut Writing,
) {
    let key = object.key();
    let now = writing.now;
    conditions::trim(&mut status.conditions);
    let report = |update: ConditionUpdate, conditions: &mut Vec<Condition>| update.report(conditions, now);
    if let Some(error) = ledger.broken(&key) {
        status.allocated_ips.clear();
        report(ConditionUpdate::not_reserved(error), &mut status.conditions);
        return;
    }
    if number < 0 {
        return report(ConditionUpdate::negative(), &mut status.conditions);
    }
    let Some(wanted) = u32::try_from(number).ok().filter(|_| number <= MAX_NUMBER) else {
        let message = format!("The NumberOfIPs is {number}, it can be at most {MAX_NUMBER}");
        return report(ConditionUpdate::invalid(message), &mut status.conditions);
    };
    if wanted == 0 {
        status.allocated_ips.clear();
        return report(ConditionUpdate::zero(), &mut status.conditions);
    }
    if status.allocated_ips.len() == usize::try_from(number).unwrap_or(usize::MAX) {
        return;
    }
    if !ledger.is_usable() && !status.allocated_ips.is_empty() {
        return;
    }
    match ledger.exchange(&key, wanted) {
        Ok(addresses) => {
            status.allocated_ips = addresses.iter().map(ToString::to_string).collect();
            report(ConditionUpdate::allocated(wanted), &mut status.conditions);
        }
        Err(error) => {
            status.allocated_ips.clear();
            report(ConditionUpdate::no_addresses(wanted, &error), &mut status.conditions);
        }
    }
}

fn put(object: &Object, before: Option<&EgressStatus>, status: &EgressStatus, writing: &mut Writing) {
    if before == Some(status) || before.is_none() && *status == EgressStatus::default() {
        return;
    }
    let mut updated = object.clone();
    let status = serde_json::to_value(status).unwrap_or(Value::Null);
    updated.body.insert("status".to_owned(), status);
    writing.push(Write::UpdateStatus(updated));
}
