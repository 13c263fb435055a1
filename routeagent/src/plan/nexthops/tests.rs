use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use proptest::prelude::*;
use trieste_control::notice::GatewayKey;
use trieste_vxlan::Vxlan;

use super::super::plan;
use super::super::tests::model;
use crate::change::Change;
use crate::condition::Condition;
use crate::constants::{TABLE_MAIN, VX_DEVICE};
use crate::family::Family;
use crate::hostnet::{Guard, Hop, HostNet, Route};
use crate::nexthops::{Content, NexthopChange, NexthopGroups, ObservedNexthop, Role, group_id};
use crate::observed::{Observed, ObservedRoute};

#[test]
fn next_hops_come_before_their_groups_and_those_before_routes_and_go_the_other_way_round() {
    let made = plan(&desired(&[1, 2], &[1, 2]), &Observed::default());
    let order = |changes: &[Change]| -> Vec<&'static str> {
        let kind = |change: &Change| match change {
            Change::Nexthops(NexthopChange::Set(..)) => Some("set"),
            Change::Nexthops(NexthopChange::MakeGroup(..)) => Some("group"),
            Change::Nexthops(NexthopChange::Remove(_)) => Some("remove"),
            Change::AddRoute(route) if matches!(route.hop, Hop::Group { .. }) => Some("route"),
            Change::RemoveRoute(route) if route.nexthop.is_some() => Some("unroute"),
            Change::Set(..)
            | Change::AddRoute(_)
            | Change::ReplaceRoute(_)
            | Change::RemoveRoute(_)
            | Change::AddRule(_)
            | Change::RemoveRule(_)
            | Change::Guard(_)
            | Change::Services(_)
            | Change::Clusterset(_)
            | Change::Foreign(_)
            | Change::BetweenNodes(_)
            | Change::Nexthops(_)
            | Change::Takeover(_) => None,
        };
        changes.iter().filter_map(kind).collect()
    };
    assert_eq!(order(&made.changes), ["set", "set", "group", "route"]);
    let observed = model::apply(Observed::default(), &made);
    let removed = plan(&HostNet::default(), &observed);
    assert_eq!(order(&removed.changes), ["unroute", "remove", "remove", "remove"]);
    let left = model::apply(observed, &removed);
    assert!(left.nexthops.is_empty() && left.routes.is_empty());
}

#[test]
fn the_loss_of_a_gateway_is_one_change_of_the_group_and_nothing_else() {
    let observed = settled(&desired(&[1, 2, 3], &[1, 2, 3]), &Observed::default());
    let lost = plan(&desired(&[1, 2, 3], &[1, 3]), &observed);
    let [Change::Nexthops(NexthopChange::SetGroup(id, members))] = &lost.changes[..] else {
        panic!("{:?}", lost.changes)
    };
    assert_eq!((*id, members.len()), (group_id(Role::Others, Family::V4), 2));
}

#[test]
fn what_drifted_is_repaired() {
    let wanted = desired(&[1, 2], &[1, 2]);
    let right = settled(&wanted, &Observed::default());
    let group = group_id(Role::Others, Family::V4);
    let member = *right.nexthops.keys().max().unwrap();
    let drifts: [&dyn Fn(&mut Observed); 5] = [
        &|observed| observed.nexthops.get_mut(&group).unwrap().what = Content::Group([member].into()),
        &|observed| observed.nexthops.get_mut(&group).unwrap().what = Content::Other,
        &|observed| observed.nexthops.get_mut(&member).unwrap().what = Content::Other,
        // The kernel takes groups and routes along.
        &|observed| {
            observed.nexthops.clear();
            observed.routes.retain(|route| route.nexthop.is_none());
        },
        &|observed| observed.routes.retain(|route| route.nexthop.is_none()),
    ];
    for (at, drift) in drifts.into_iter().enumerate() {
        let mut observed = right.clone();
        drift(&mut observed);
        let repair = plan(&wanted, &observed);
        assert!(!repair.changes.is_empty(), "drift {at}");
        // What was the wrong thing altogether takes a pass more: what leads there goes along with it.
        assert_eq!(settled(&wanted, &observed), right, "drift {at}");
    }
}

#[test]
fn someone_elses_next_hop_is_neither_replaced_nor_removed() {
    let wanted = desired(&[1, 2], &[1, 2]);
    let group = group_id(Role::Others, Family::V4);
    let mut observed = Observed::default();
    let foreign = ObservedNexthop { protocol: 4, what: Content::Other };
    observed.nexthops.insert(group, foreign.clone());
    let plan = plan(&wanted, &observed);
    assert!(plan.conditions.contains(&Condition::OccupiedNexthop(group)));
    let after = settled(&wanted, &observed);
    assert_eq!(after.nexthops[&group], foreign);
    assert!(!after.routes.iter().any(|route| route.nexthop.is_some()), "what leads there stays closed");
    let left = settled(&HostNet::default(), &after);
    assert_eq!(left.nexthops, [(group, foreign)].into());
}

#[test]
fn a_device_that_is_made_anew_takes_next_hops_and_routes_along_and_gets_them_back() {
    let wanted = desired(&[1, 2], &[1, 2]);
    let mut observed = settled(&wanted, &Observed::default());
    let link = observed.links.get_mut(VX_DEVICE).unwrap();
    link.vxlan.as_mut().unwrap().has_extras = true;
    let after = model::apply(observed.clone(), &plan(&wanted, &observed));
    assert_eq!(plan(&wanted, &after).changes, []);
    assert_eq!((after.nexthops.len(), after.routes.len()), (3, 2));
}

proptest! {
    #[test]
    fn a_plan_applied_leaves_nothing_to_plan(
        before in proptest::collection::btree_set(1u8..9, 0..6),
        after in proptest::collection::btree_set(1u8..9, 0..6),
        live in proptest::collection::btree_set(1u8..9, 0..6),
        own in any::<bool>(),
    ) {
        let list = |set: &BTreeSet<u8>| set.iter().copied().collect::<Vec<u8>>();
        let observed = settled(&desired(&list(&before), &list(&before)), &Observed::default());
        let mut wanted = desired(&list(&after), &list(&live));
        if own {
            wanted.nexthop_groups.add_own(Family::V4, GatewayKey(99), VX_DEVICE);
            wanted.groups = wanted.nexthop_groups.groups(&live.iter().map(|n| GatewayKey((*n).into())).collect());
        }
        let there = model::apply(observed.clone(), &plan(&wanted, &observed));
        prop_assert_eq!(plan(&wanted, &there).changes, vec![]);
    }
}

/// Returns the desired state of a worker with these gateways, some of them live.
fn desired(gateways: &[u8], live: &[u8]) -> HostNet {
    let mut nexthop_groups = NexthopGroups::default();
    let others: BTreeMap<GatewayKey, IpAddr> =
        gateways.iter().map(|n| (GatewayKey((*n).into()), IpAddr::from([240, 0, 0, *n]))).collect();
    nexthop_groups.add_others(Family::V4, &others);
    let groups = nexthop_groups.groups(&live.iter().map(|n| GatewayKey((*n).into())).collect());
    let network = "10.2.0.0/16".parse().unwrap();
    let hop = Hop::Group { id: group_id(Role::Others, Family::V4), source: None };
    let leading = (!gateways.is_empty()).then(|| Route::leading(TABLE_MAIN, network, hop));
    HostNet {
        routes: leading.into_iter().chain([Route::unreachable(TABLE_MAIN, network)]).collect(),
        vxlan: Some(Vxlan::new("10.0.0.9".parse().unwrap(), 1500)),
        guard: Some(Guard::default()),
        nexthop_groups,
        groups,
        ..HostNet::default()
    }
}

/// What is there after two passes.
fn settled(desired: &HostNet, observed: &Observed) -> Observed {
    let once = model::apply(observed.clone(), &plan(desired, observed));
    let twice = model::apply(once.clone(), &plan(desired, &once));
    assert_eq!(plan(desired, &twice).changes, []);
    let is_foreign = |route: &&ObservedRoute| !route.is_ours();
    assert_eq!(twice.routes.iter().filter(is_foreign).count(), 0);
    twice
}
