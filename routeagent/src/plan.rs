//! The difference between what is wanted and what is there, as an ordered list of changes. Pure.
//!
//! Laws, tested as properties: a plan applied leaves nothing to plan; what is not ours is in no plan.
//! The order keeps every moment in between closed: refusals come before anything they back up, and go last.

use std::collections::BTreeSet;
use std::fmt;

use crate::condition::Condition;
use crate::guard::{GuardChange, guard_change};
use crate::hostnet::{Family, Hop, HostNet, Route, Rule, Sysctl};
use crate::observed::{Observed, ObservedRoute};

/// One step. Each is independent: if one fails, the others are still worth trying.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Writes a device setting.
    Set(Sysctl, u32),
    /// Adds a route; fails if its place is taken.
    AddRoute(Route),
    /// Puts a route in the place of one of ours.
    ReplaceRoute(Route),
    /// Removes one of our routes.
    RemoveRoute(ObservedRoute),
    /// Adds a rule.
    AddRule(Rule),
    /// Removes one instance of one of our rules.
    RemoveRule(Rule),
    /// Changes the source guard, in one transaction.
    Guard(GuardChange),
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Set(sysctl, value) => write!(f, "set {sysctl} = {value}"),
            Self::AddRoute(route) => write!(f, "add {route}"),
            Self::ReplaceRoute(route) => write!(f, "replace {route}"),
            Self::RemoveRoute(route) => {
                write!(f, "remove {} table {}", route.destination, crate::hostnet::table_name(route.table))?;
                if let Some(device) = &route.device {
                    write!(f, " dev {device}")?;
                }
                write!(f, " metric {}", route.metric)
            }
            Self::AddRule(rule) => write!(f, "add {rule}"),
            Self::RemoveRule(rule) => write!(f, "remove {rule}"),
            Self::Guard(change) => change.fmt(f),
        }
    }
}

/// What to do, in order, and what stands in the way.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// The changes.
    pub changes: Vec<Change>,
    /// Why the result will not be all that was wanted.
    pub conditions: BTreeSet<Condition>,
}

/// Compares and says what to do.
#[must_use]
pub fn plan(desired: &HostNet, observed: &Observed) -> Plan {
    let mut plan = Plan::default();
    let wanted = installable(desired, observed, &mut plan.conditions);
    let (closing, opening): (Vec<&Route>, Vec<&Route>) =
        wanted.iter().partition(|route| route.hop == Hop::Unreachable);

    for route in closing {
        ensure_route(route, observed, &mut plan);
    }
    // A node that stops being a gateway is closed in its main table before its gateway table is out of use.
    remove_rules(desired, observed, &mut plan);
    plan.changes.extend(guard_change(desired.guard.as_ref(), &observed.guard).map(Change::Guard));
    set_sysctls(desired, observed, &mut plan);
    for route in opening {
        ensure_route(route, observed, &mut plan);
    }
    add_rules(desired, observed, &mut plan);
    remove_routes(&wanted, observed, &mut plan);
    plan
}

/// Returns the wanted routes that the kernel could take at all, with a condition for what is missing.
fn installable<'a>(
    desired: &'a HostNet,
    observed: &Observed,
    conditions: &mut BTreeSet<Condition>,
) -> BTreeSet<&'a Route> {
    let mut wanted = BTreeSet::new();
    for route in desired.routes.iter().filter(|route| observed.families.contains(&route.family())) {
        if let Hop::Device { name, .. } = &route.hop {
            let link = observed.links.get(name);
            if !link.is_some_and(|link| link.is_up) {
                conditions.insert(Condition::NoDevice { device: name.clone(), exists: link.is_some() });
                continue;
            }
        }
        wanted.insert(route);
    }
    wanted
}

fn ensure_route(route: &Route, observed: &Observed, plan: &mut Plan) {
    let in_place = observed.routes.iter().filter(|there| there.is_in_the_place_of(route));
    let (ours, foreign): (Vec<&ObservedRoute>, Vec<&ObservedRoute>) =
        in_place.partition(|there| there.is_ours());
    let right = ours.iter().position(|there| there.as_route().as_ref() == Some(route));
    match (right, ours.first()) {
        (Some(_), _) => {}
        // Replacing would take whichever comes first in the kernel's list.
        (None, _) if !foreign.is_empty() => {
            plan.conditions.insert(Condition::Occupied(route.clone()));
            return;
        }
        (None, Some(_)) => plan.changes.push(Change::ReplaceRoute(route.clone())),
        (None, None) => plan.changes.push(Change::AddRoute(route.clone())),
    }
    // IPv4 allows several routes in one place; the first one wins, and only the right one may stay.
    let keep = right.unwrap_or(0);
    let doubles = ours.into_iter().enumerate().filter(|(at, _)| *at != keep).map(|(_, there)| there.clone());
    plan.changes.extend(doubles.map(Change::RemoveRoute));
}

/// Removes our routes that nobody wants, those that lead somewhere before those that refuse.
fn remove_routes(wanted: &BTreeSet<&Route>, observed: &Observed, plan: &mut Plan) {
    let mut surplus: Vec<&ObservedRoute> = observed
        .routes
        .iter()
        .filter(|there| there.is_ours() && !wanted.iter().any(|route| there.is_in_the_place_of(route)))
        .collect();
    surplus.sort_by_key(|there| there.kind);
    plan.changes.extend(surplus.into_iter().cloned().map(Change::RemoveRoute));
}

fn add_rules(desired: &HostNet, observed: &Observed, plan: &mut Plan) {
    for rule in desired.rules.iter().filter(|rule| observed.families.contains(&rule.family)) {
        if !observed.rules.iter().any(|there| there.rule == *rule) {
            plan.changes.push(Change::AddRule(*rule));
        }
    }
}

/// Removes our rules that nobody wants, and doubles of the ones that are wanted.
fn remove_rules(desired: &HostNet, observed: &Observed, plan: &mut Plan) {
    let mut kept = BTreeSet::new();
    // Backwards: the lookup of the gateway table goes before the exception from it.
    let mut ours: Vec<Rule> =
        observed.rules.iter().filter(|there| there.is_ours()).map(|there| there.rule).collect();
    ours.sort();
    for rule in ours.into_iter().rev() {
        if !(desired.rules.contains(&rule) && kept.insert(rule)) {
            plan.changes.push(Change::RemoveRule(rule));
        }
    }
}

fn set_sysctls(desired: &HostNet, observed: &Observed, plan: &mut Plan) {
    for (sysctl, value) in &desired.sysctls {
        // A setting that was not found has no device, or its family is off; there is nothing to set then.
        if observed.sysctls.get(sysctl).is_some_and(|there| there != value) {
            plan.changes.push(Change::Set(sysctl.clone(), *value));
        }
    }
}

/// Returns conditions of the host itself that keep packets from being forwarded.
#[must_use]
pub fn host_conditions(desired: &HostNet, observed: &Observed) -> BTreeSet<Condition> {
    let mut conditions = BTreeSet::new();
    let device_families: BTreeSet<Family> = desired
        .routes
        .iter()
        .filter(|route| matches!(route.hop, Hop::Device { .. }))
        .map(Route::family)
        .collect();
    for family in device_families {
        if observed.sysctls.get(&forwarding(family)) == Some(&0) {
            conditions.insert(Condition::ForwardingOff(family));
        }
        if family == Family::V4 && observed.sysctls.get(&reverse_path()) == Some(&1) {
            conditions.insert(Condition::StrictReversePath);
        }
    }
    conditions
}

/// The node-wide forwarding switch of a family; read only.
#[must_use]
pub fn forwarding(family: Family) -> Sysctl {
    Sysctl::of(family, "all", "forwarding")
}

/// The node-wide reverse-path filter, the effective value being the larger of this and the device's; read only.
#[must_use]
pub fn reverse_path() -> Sysctl {
    Sysctl::of(Family::V4, "all", "rp_filter")
}

#[cfg(test)]
mod tests;
