//! Device settings: those that are written, and those of the node that only cause conditions. Pure.

use std::collections::{BTreeMap, BTreeSet};

use crate::change::Change;
use crate::condition::Condition;
use crate::constants::VX_DEVICE;
use crate::family::Family;
use crate::hostnet::{Guard, HostNet, Sysctl};
use crate::observed::Observed;

/// Filters by reverse path strictly: a packet has to come from where the answer would go to.
const STRICT: u32 = 1;
/// Accepts a source that can be reached by any device.
const LOOSE: u32 = 2;

/// Plans the settings that differ. `is_new` says that the device between nodes was just made.
pub(super) fn set(desired: &HostNet, observed: &Observed, is_new: bool) -> Vec<Change> {
    let mut changes = Vec::new();
    for (sysctl, value) in &desired.sysctls {
        let is_of_new = is_new && sysctl.device == VX_DEVICE;
        // A setting that was not found has no device, or its family is off; there is nothing to set then.
        let differs = match observed.sysctls.get(sysctl) {
            Some(there) if !is_of_new => there != value,
            _ => is_of_new && observed.families.contains(&sysctl.family),
        };
        if differs {
            changes.push(Change::Set(sysctl.clone(), *value));
        }
    }
    changes.extend(strict(desired, observed).map(|device| Change::Set(filter_of(device), LOOSE)));
    changes
}

/// Restores the former value of loosened devices, unless another program changed it since.
pub(super) fn restore(observed: &Observed) -> impl Iterator<Item = Change> {
    let settings = observed.loosened.iter().map(|(device, former)| (filter_of(device), *former));
    let unchanged = settings.filter(|(sysctl, _)| observed.sysctls.get(sysctl) == Some(&LOOSE));
    unchanged.map(|(sysctl, former)| Change::Set(sysctl, former))
}

/// Returns the wanted guard with the memory of what was and will be loosened.
pub(super) fn guard(desired: &HostNet, observed: &Observed) -> Option<Guard> {
    let mut guard = desired.guard.clone()?;
    guard.loosened = remembered(observed);
    for device in strict(desired, observed) {
        if let Some(former) = observed.sysctls.get(&filter_of(device)) {
            guard.loosened.entry(device.clone()).or_insert(*former);
        }
    }
    Some(guard)
}

/// Returns what is remembered of devices that still exist.
fn remembered(observed: &Observed) -> BTreeMap<String, u32> {
    let there = |device: &String| observed.links.contains_key(device);
    observed.loosened.iter().filter(|(device, _)| there(device)).map(|(d, f)| (d.clone(), *f)).collect()
}

/// Returns the devices that must not be strict and are. The larger of the node's and the device's value counts.
fn strict<'a>(desired: &'a HostNet, observed: &'a Observed) -> impl Iterator<Item = &'a String> {
    let all = observed.sysctls.get(&reverse_path()).copied().unwrap_or(0);
    desired.loose_rp_filter.iter().filter(move |device| {
        observed.sysctls.get(&filter_of(device)).is_some_and(|value| all.max(*value) == STRICT)
    })
}

fn filter_of(device: &str) -> Sysctl {
    Sysctl::of(Family::V4, device, "rp_filter")
}

/// Returns conditions of the host itself that keep packets from being forwarded.
#[must_use]
pub fn host_conditions(desired: &HostNet, observed: &Observed) -> BTreeSet<Condition> {
    let mut conditions = BTreeSet::new();
    for family in Family::ALL.into_iter().filter(|family| desired.has_device_route(*family)) {
        if observed.sysctls.get(&forwarding(family)) == Some(&0) {
            conditions.insert(Condition::ForwardingOff(family));
        }
        if family == Family::V4 && observed.sysctls.get(&reverse_path()) == Some(&1) {
            conditions.insert(Condition::StrictReversePath);
        }
    }
    conditions
}

/// Returns the node-wide forwarding switch of a family, which is only read.
#[must_use]
pub fn forwarding(family: Family) -> Sysctl {
    Sysctl::of(family, "all", "forwarding")
}

/// Returns the node-wide reverse-path filter, which is only read. The larger of its and the device's value is in effect.
#[must_use]
pub fn reverse_path() -> Sysctl {
    Sysctl::of(Family::V4, "all", "rp_filter")
}
