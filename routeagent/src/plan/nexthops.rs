//! Next hops and groups of them: made before the routes that lead there, removed after. Pure.

use std::collections::BTreeSet;

use crate::condition::Condition;
use crate::constants::VX_DEVICE;
use crate::hostnet::HostNet;
use crate::nexthops::{Content, NexthopChange, ObservedNexthop};
use crate::observed::Observed;

/// Changes of next hops.
#[derive(Default)]
pub(super) struct Nexthops {
    /// Groups that routes can lead to afterwards.
    pub(super) usable: BTreeSet<u32>,
    /// Changes that make what is wanted.
    pub(super) making: Vec<NexthopChange>,
    /// Changes that remove the rest, once nothing leads there.
    pub(super) removing: Vec<NexthopChange>,
    /// What stands in the way.
    pub(super) conditions: BTreeSet<Condition>,
}

/// Compares and says what to do.
pub(super) fn plan(desired: &HostNet, observed: &Observed, has_vxlan: bool) -> Nexthops {
    let mut plan = Nexthops::default();
    let mut present = BTreeSet::new();
    for (id, nexthop) in &desired.nexthop_groups.nexthops {
        let is_there = if nexthop.device == VX_DEVICE {
            has_vxlan
        } else {
            observed.links.get(&nexthop.device).is_some_and(|link| link.is_up)
        };
        if !is_there && nexthop.device != VX_DEVICE {
            let (device, exists) = (nexthop.device.clone(), observed.links.contains_key(&nexthop.device));
            plan.conditions.insert(Condition::NoDevice { device, exists });
        }
        if !is_there || !observed.families.contains(&nexthop.family) {
            continue;
        }
        match observed.nexthops.get(id) {
            Some(there) if !there.is_ours() => {
                plan.conditions.insert(Condition::OccupiedNexthop(*id));
                continue;
            }
            Some(ObservedNexthop { what: Content::One(there), .. }) if there == nexthop => {}
            Some(ObservedNexthop { what: Content::One(_), .. }) | None => {
                plan.making.push(NexthopChange::Set(*id, nexthop.clone()));
            }
            Some(ObservedNexthop { what: Content::Group(_) | Content::Other, .. }) => {
                // Neither becomes the other.
                plan.making.extend([NexthopChange::Remove(*id), NexthopChange::Set(*id, nexthop.clone())]);
            }
        }
        present.insert(*id);
    }
    for (id, members) in &desired.groups {
        let members: BTreeSet<u32> = members.intersection(&present).copied().collect();
        if members.is_empty() {
            continue;
        }
        match observed.nexthops.get(id) {
            Some(there) if !there.is_ours() => {
                plan.conditions.insert(Condition::OccupiedNexthop(*id));
                continue;
            }
            Some(ObservedNexthop { what: Content::Group(there), .. }) if *there == members => {}
            Some(ObservedNexthop { what: Content::Group(_), .. }) => {
                plan.making.push(NexthopChange::SetGroup(*id, members));
            }
            Some(ObservedNexthop { what: Content::One(_) | Content::Other, .. }) => {
                plan.making.extend([NexthopChange::Remove(*id), NexthopChange::MakeGroup(*id, members)]);
            }
            None => plan.making.push(NexthopChange::MakeGroup(*id, members)),
        }
        plan.usable.insert(*id);
    }
    let is_surplus = |id: &u32| !present.contains(id) && !plan.usable.contains(id);
    plan.removing = removals(observed, is_surplus);
    plan
}

/// Returns what removes those of our next hops that are not needed. Groups go first: without its last member one would go by
/// itself, and its removal fail.
fn removals(observed: &Observed, is_surplus: impl Fn(&u32) -> bool) -> Vec<NexthopChange> {
    let surplus = observed.nexthops.iter().filter(|(id, there)| there.is_ours() && is_surplus(id));
    let (groups, others): (Vec<_>, Vec<_>) =
        surplus.partition(|(_, there)| matches!(there.what, Content::Group(_)));
    groups.into_iter().chain(others).map(|(id, _)| NexthopChange::Remove(*id)).collect()
}

/// Takes away what the kernel removes along with the device between nodes.
pub(super) fn without_device(observed: &mut Observed) {
    let gone = |there: &ObservedNexthop| matches!(&there.what, Content::One(one) if one.device == VX_DEVICE);
    observed.nexthops.retain(|_, there| !gone(there));
    let left: BTreeSet<u32> = observed.nexthops.keys().copied().collect();
    for there in observed.nexthops.values_mut() {
        if let Content::Group(members) = &mut there.what {
            members.retain(|member| left.contains(member));
        }
    }
    observed.nexthops.retain(|_, there| there.what != Content::Group(BTreeSet::new()));
    let nexthops = &observed.nexthops;
    observed.routes.retain(|route| route.nexthop.is_none_or(|id| nexthops.contains_key(&id)));
}

#[cfg(test)]
mod tests;
