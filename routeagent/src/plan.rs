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
use trieste_reconcile::{Step, diff, steps};

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
    let (adding, mut removing) = rules(desired, observed);
    if is_uninstalled {
        plan.changes.append(&mut removing);
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
    plan.changes.extend(adding);
    plan.changes.extend(uplinks.flatten().map(Change::Guard));
    add_exceptions(desired, observed, is_guardable, &mut plan);
    // The main table of a node that stops being a gateway leads to the others before its gateway table is out of use.
    plan.changes.append(&mut removing);
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
    let is_ours = |there: &&ObservedRoute| there.is_ours();
    let is_right =
        |there: &&ObservedRoute, route: &&Route| there.is_ours() && there.as_route().as_ref() == Some(*route);
    // IPv4 allows several routes in one place; the first one wins, and only the right one may stay.
    for step in steps(Some(route), index.of(route), is_ours, is_right) {
        plan.changes.push(match step {
            Step::Add(route) => Change::AddRoute(route.clone()),
            Step::Change(_, route) => Change::ReplaceRoute(route.clone()),
            Step::Remove(there) => Change::RemoveRoute(there.clone()),
            // Replacing would take whichever comes first in the kernel's list.
            Step::Blocked(route, _) => {
                plan.conditions.insert(Condition::Occupied(route.clone()));
                continue;
            }
        });
    }
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
    // Once there is something to keep.
    let keeps = desired.guard.as_ref().is_some_and(|guard| !guard.remote.is_empty());
    let earlier = observed.foreign.earlier.iter().filter(|_| keeps);
    plan.conditions.extend(earlier.cloned().map(Condition::EarlierSourceNat));
}

/// Returns the changes that add rules, and those that remove ours that nobody wants and doubles of the ones that are wanted.
fn rules(desired: &HostNet, observed: &Observed) -> (Vec<Change>, Vec<Change>) {
    let wanted = desired.rules.iter().map(|rule| (rule, rule));
    let there = observed.rules.iter().map(|there| (&there.rule, there));
    let (mut adding, mut removing) = (Vec::new(), Vec::new());
    for step in diff(wanted, there, |there| there.is_ours(), |there, wanted| there.rule == **wanted) {
        match step {
            Step::Add(rule) if !observed.families.contains(&rule.family) => {}
            Step::Add(rule) => adding.push(Change::AddRule(rule.clone())),
            Step::Remove(there) => removing.push(there.rule.clone()),
            // The place of a rule is its content.
            Step::Change(..) | Step::Blocked(..) => {}
        }
    }
    // Backwards: the lookup of the gateway table goes before the exception from it.
    removing.sort_by(|one, other| other.cmp(one));
    (adding, removing.into_iter().map(Change::RemoveRule).collect())
}

#[cfg(test)]
pub(crate) mod tests;
