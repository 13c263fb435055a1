//! The difference between what is wanted and what is there, as an ordered list of changes. Pure.
//!
//! Laws, tested as properties: a plan applied leaves nothing to plan; what is not ours is in no plan.
//! The order keeps every moment in between closed: refusals come before anything they back up, and go last.

mod between_nodes;
mod nexthops;
pub(crate) mod route_index;
pub mod settings;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;

use crate::change::Change;
use crate::condition::Condition;
use crate::constants::{TABLE_DELIVERY, TABLE_GATEWAY, TABLE_MAIN, VX_DEVICE};
use crate::foreign::foreign_changes;
use crate::guard::{ObservedGuard, guard_change};
use crate::hostnet::{Hop, HostNet, Route, Rule};
use crate::leftover::Chains;
use crate::observed::{Observed, ObservedRoute, ObservedRule};
use crate::services::services_change;
use crate::vxlan::VxlanChange;
use route_index::RouteIndex;

/// Changes, in order, and conditions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// The changes.
    pub changes: Vec<Change>,
    /// Why the result will not be all that was wanted.
    pub conditions: BTreeSet<Condition>,
    /// Devices whose strict reverse-path filter is or will be loosened, and the setting's former value.
    pub loosened: BTreeMap<String, u32>,
}

/// The key of a route in the kernel: table, destination and metric.
type RouteKey = (u32, IpNet, u32);

fn key(route: &Route) -> RouteKey {
    (route.table, route.destination, route.metric)
}

/// Compares and says what to do.
#[must_use]
pub fn plan(desired: &HostNet, observed: &Observed) -> Plan {
    plan_routes(desired, observed, &observed.routes.iter().cloned().collect(), None)
}

/// Compares and says what to do, with the routes that are there. All routes to other destinations than these are known to
/// be as desired; `None` if that is not known of any.
pub(crate) fn plan_routes(
    desired: &HostNet,
    observed: &Observed,
    index: &RouteIndex,
    destinations: Option<&BTreeSet<IpNet>>,
) -> Plan {
    let mut plan = Plan::default();
    // The VXLAN between nodes needs the filter, which restricts its senders.
    let is_guardable = desired.guard.is_none() || observed.guard != ObservedGuard::Unknown;
    let mut vxlan = between_nodes::plan(desired.vxlan.as_ref(), observed);
    if !is_guardable && vxlan.is_new {
        vxlan = between_nodes::Device { condition: Some(Condition::Unguarded), ..Default::default() };
    }
    let (observed, index) = match vxlan.is_new {
        true => without_device(observed, index),
        false => (Cow::Borrowed(observed), Cow::Borrowed(index)),
    };
    let (observed, index) = (&*observed, &*index);
    let destinations = destinations.filter(|_| !vxlan.is_new);
    let nexthops = nexthops::plan(desired, observed, vxlan.is_usable);
    let routes = routes_to(desired, destinations);
    let wanted = installable(routes, observed, (vxlan.is_usable, &nexthops.usable), &mut plan.conditions);
    let (closing, opening): (Vec<&Route>, Vec<&Route>) =
        wanted.iter().partition(|route| route.hop == Hop::Unreachable);
    for route in closing {
        ensure_route(route, index, &mut plan);
    }
    let is_uninstalled = desired.guard.is_none();
    if is_uninstalled {
        remove_rules(desired, observed, &mut plan);
        // The table is where the former values are remembered.
        plan.changes.extend(settings::restore(observed));
    }
    let guard = settings::guard(desired, observed);
    let change = guard_change(guard.as_ref(), &observed.guard);
    let (filter, uplinks) = change.map(|change| change.in_steps(is_moving_over(observed))).unzip();
    plan.changes.extend(filter.map(Change::Guard));
    plan.changes.extend(services_change(&desired.services, &observed.services).map(Change::Services));
    plan.loosened = guard.map(|guard| guard.loosened).unwrap_or_default();
    plan.conditions.extend(vxlan.condition);
    make_between_nodes(vxlan.making, settings::set(desired, observed, vxlan.is_new), &mut plan);
    plan.conditions.extend(nexthops.conditions);
    plan.changes.extend(nexthops.making.into_iter().map(Change::Nexthops));
    for route in opening {
        ensure_route(route, index, &mut plan);
    }
    add_rules(desired, observed, &mut plan);
    plan.changes.extend(uplinks.flatten().map(Change::Guard));
    add_exceptions(desired, observed, is_guardable, &mut plan);
    if !is_uninstalled {
        // The main table of a node that stops being a gateway leads to the others before its gateway table is out of use.
        remove_rules(desired, observed, &mut plan);
    }
    remove_routes(&wanted, index, destinations, &mut plan);
    plan.changes.extend(nexthops.removing.into_iter().map(Change::Nexthops));
    plan.changes.extend(vxlan.removing.into_iter().map(Change::BetweenNodes));
    plan
}

/// Returns what is there once the device between nodes is gone: the kernel removes what leads to it.
fn without_device<'a>(observed: &Observed, index: &RouteIndex) -> (Cow<'a, Observed>, Cow<'a, RouteIndex>) {
    let mut without = observed.clone();
    without.routes.retain(|route| route.device.as_deref() != Some(VX_DEVICE));
    nexthops::without_device(&mut without);
    let leads_there = |route: &ObservedRoute| {
        route.device.as_deref() == Some(VX_DEVICE)
            || route.nexthop.is_some_and(|id| !without.nexthops.contains_key(&id))
    };
    let index = index.without(leads_there);
    (Cow::Owned(without), Cow::Owned(index))
}

/// Returns the desired routes to some destinations, or all of them, in their order.
fn routes_to<'a>(desired: &'a HostNet, destinations: Option<&BTreeSet<IpNet>>) -> Vec<&'a Route> {
    let Some(destinations) = destinations else { return desired.routes.iter().collect() };
    let mut routes = Vec::new();
    for destination in destinations {
        for table in [TABLE_DELIVERY, TABLE_GATEWAY, TABLE_MAIN] {
            routes.extend(desired.routes_to(table, *destination));
        }
    }
    routes.sort();
    routes
}

/// Returns the wanted routes that the kernel could take at all, with a condition for what is missing.
fn installable<'a>(
    routes: Vec<&'a Route>,
    observed: &Observed,
    (has_vxlan, groups): (bool, &BTreeSet<u32>),
    conditions: &mut BTreeSet<Condition>,
) -> Vec<&'a Route> {
    let mut wanted: Vec<&Route> = Vec::new();
    for route in routes.into_iter().filter(|route| observed.families.contains(&route.family())) {
        if let Hop::Group { id, .. } = &route.hop
            && !groups.contains(id)
        {
            continue;
        }
        match route.hop.device() {
            Some(VX_DEVICE) if !has_vxlan => continue,
            Some(VX_DEVICE) | None => {}
            Some(name) => {
                let link = observed.links.get(name);
                if !link.is_some_and(|link| link.is_up) {
                    let device = name.to_owned();
                    conditions.insert(Condition::NoDevice { device, exists: link.is_some() });
                    continue;
                }
            }
        }
        // The kernel has one route per key; of two desired ones for it each pass would replace one by the other. They are
        // next to each other.
        if wanted.last().is_none_or(|last| key(last) != key(route)) {
            wanted.push(route);
        }
    }
    wanted
}

fn ensure_route(route: &Route, index: &RouteIndex, plan: &mut Plan) {
    let (ours, foreign): (Vec<&ObservedRoute>, Vec<&ObservedRoute>) =
        index.of(route).partition(|there| there.is_ours());
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

/// Removes our routes that nobody wants, to some destinations or all of them.
fn remove_routes(
    wanted: &[&Route],
    index: &RouteIndex,
    destinations: Option<&BTreeSet<IpNet>>,
    plan: &mut Plan,
) {
    match destinations {
        Some(destinations) => remove_surplus(wanted, index.to(destinations).into_iter(), plan),
        None => remove_surplus(wanted, index.all(), plan),
    }
}

/// Removes those of our routes that nobody wants, those that lead somewhere before those that refuse.
fn remove_surplus<'a>(wanted: &[&Route], routes: impl Iterator<Item = &'a ObservedRoute>, plan: &mut Plan) {
    let is_wanted = |there: &ObservedRoute| {
        let wanted_key = (there.table, there.destination, there.metric);
        there.tos == 0 && wanted.binary_search_by_key(&wanted_key, |route| key(route)).is_ok()
    };
    let mut surplus: Vec<&ObservedRoute> =
        routes.filter(|there| there.is_ours() && !is_wanted(there)).collect();
    surplus.sort_by_key(|there| there.kind);
    plan.changes.extend(surplus.into_iter().cloned().map(Change::RemoveRoute));
}

/// Makes the device between nodes. Its neighbours come after all settings: those of IPv6 are refused until it may have IPv6.
fn make_between_nodes(making: Vec<VxlanChange>, settings: impl IntoIterator<Item = Change>, plan: &mut Plan) {
    let sets_neighbour = |change: &VxlanChange| matches!(change, VxlanChange::SetNeighbour(..));
    let (neighbours, making): (Vec<_>, Vec<_>) = making.into_iter().partition(sets_neighbour);
    plan.changes.extend(making.into_iter().map(Change::BetweenNodes));
    plan.changes.extend(settings);
    plan.changes.extend(neighbours.into_iter().map(Change::BetweenNodes));
}

fn add_rules(desired: &HostNet, observed: &Observed, plan: &mut Plan) {
    for rule in desired.rules.iter().filter(|rule| observed.families.contains(&rule.family)) {
        if !observed.rules.iter().any(|there| there.rule == *rule) {
            plan.changes.push(Change::AddRule(rule.clone()));
        }
    }
}

/// Returns `true` if Submariner's route agent was here a moment ago, and ours has not been.
fn is_moving_over(observed: &Observed) -> bool {
    // That of its gateway stays while that one runs, and says nothing of the agent.
    let is_agents =
        |there: &ObservedRule| there.is_submariners() && there.rule == Rule::gateway(there.rule.family);
    let left = &observed.leftover;
    let has_chains = left.iptables.values().any(Chains::has_submariners) || left.has_nft_table();
    observed.guard == ObservedGuard::Absent && (has_chains || observed.rules.iter().any(is_agents))
}

/// Adds what other programs' filters have to let through. Each change is a process: done before routes, a node that moves over
/// would be without any for a tenth of a second.
fn add_exceptions(desired: &HostNet, observed: &Observed, is_guardable: bool, plan: &mut Plan) {
    let (changes, conditions) = foreign_changes(&desired.pass, &observed.foreign);
    plan.changes.extend(changes.into_iter().filter(|_| is_guardable).map(Change::Foreign));
    plan.conditions.extend(conditions);
}

/// Removes our rules that nobody wants, and doubles of the ones that are wanted.
fn remove_rules(desired: &HostNet, observed: &Observed, plan: &mut Plan) {
    let mut kept = BTreeSet::new();
    // Backwards: the lookup of the gateway table goes before the exception from it.
    let mut ours: Vec<Rule> =
        observed.rules.iter().filter(|there| there.is_ours()).map(|there| there.rule.clone()).collect();
    ours.sort();
    for rule in ours.into_iter().rev() {
        if !(desired.rules.contains(&rule) && kept.insert(rule.clone())) {
            plan.changes.push(Change::RemoveRule(rule));
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
