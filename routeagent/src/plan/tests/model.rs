//! What the kernel would do with a plan.

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;
use trieste_vxlan::Mac;

use super::super::{Plan, nexthops};
use super::{link_of, ours};
use crate::change::Change;
use crate::constants::VX_DEVICE;
use crate::family::Family;
use crate::foreign::{Foreign, ForeignChange};
use crate::guard::{GuardChange, ObservedGuard, Table};
use crate::hostnet::Sysctl;
use crate::nexthops::{Content, NEXTHOP_PROTOCOL, NexthopChange, ObservedNexthop};
use crate::observed::{Observed, ObservedRoute};
use crate::state::DeviceAddress;
use crate::submariner::Removal;
use crate::vxlan::VxlanChange;

pub(crate) fn apply(mut observed: Observed, plan: &Plan) -> Observed {
    for change in &plan.changes {
        match change {
            Change::Set(sysctl, value) => {
                observed.sysctls.insert(sysctl.clone(), *value);
            }
            Change::AddRoute(route) => {
                assert!(
                    !observed.routes.iter().any(|there| there.is_in_the_place_of(route)),
                    "EEXIST: {route}"
                );
                observed.routes.push(ObservedRoute::from_route(route));
            }
            Change::ReplaceRoute(route) => {
                let first = observed.routes.iter_mut().find(|there| there.is_in_the_place_of(route)).unwrap();
                *first = ObservedRoute::from_route(route);
            }
            Change::RemoveRoute(route) => {
                let at = observed.routes.iter().position(|there| there == route).expect("ESRCH");
                observed.routes.remove(at);
            }
            Change::AddRule(rule) => {
                assert!(!observed.rules.iter().any(|there| there.rule == *rule), "EEXIST: {rule}");
                observed.rules.push(ours(rule.clone()));
            }
            Change::RemoveRule(rule) => {
                let at =
                    observed.rules.iter().position(|there| *there == ours(rule.clone())).expect("ENOENT");
                observed.rules.remove(at);
            }
            Change::Guard(change) => {
                observed.guard = guard(observed.guard, change);
                observed.loosened = match &observed.guard {
                    ObservedGuard::Present(table) => table.loosened(),
                    ObservedGuard::Absent | ObservedGuard::Unknown => BTreeMap::new(),
                };
            }
            Change::Services(change) => observed.services = change.result(),
            Change::Clusterset(change) => observed.clusterset = change.result(),
            Change::Foreign(change) => foreign(&mut observed.foreign, change),
            Change::BetweenNodes(change) => apply_between_nodes(&mut observed, change),
            Change::Nexthops(change) => apply_nexthops(&mut observed, change),
            Change::Takeover(removal) => remove_leftover(&mut observed, removal),
        }
    }
    observed
}

fn remove_leftover(observed: &mut Observed, removal: &Removal) {
    let left = &mut observed.leftover;
    match removal {
        Removal::Chains { backend, family, table, .. } => {
            left.iptables.remove(&(*backend, *family, *table)).expect("no such table");
        }
        Removal::NftTable(family) => {
            left.chains.remove(&(*family, "submariner".to_owned())).expect("ENOENT");
        }
        Removal::Set(name) => assert!(left.sets.remove(name), "ENOENT: {name}"),
        Removal::Policies(gone) => left.policies.retain(|policy| !gone.contains(policy)),
        Removal::Rule { rule, is_wanted } => {
            observed.rules.retain(|there| there.rule != *rule || there.is_ours());
            let has_ours = observed.rules.iter().any(|there| there.rule == *rule);
            observed.rules.extend((*is_wanted && !has_ours).then(|| ours(rule.clone())));
        }
        Removal::CableDevice => drop(observed.links.remove("vxlan-tunnel").expect("ENODEV")),
    }
}

fn apply_nexthops(observed: &mut Observed, change: &NexthopChange) {
    let ours = |what| ObservedNexthop { protocol: NEXTHOP_PROTOCOL, what };
    let has_all = |members: &BTreeSet<u32>| {
        assert!(members.iter().all(|member| observed.nexthops.contains_key(member)), "EINVAL: {change}");
    };
    match change {
        NexthopChange::Set(id, nexthop) => {
            assert!(observed.links.contains_key(&nexthop.device), "ENODEV: {change}");
            observed.nexthops.insert(*id, ours(Content::One(nexthop.clone())));
        }
        NexthopChange::MakeGroup(id, members) => {
            has_all(members);
            let there = observed.nexthops.insert(*id, ours(Content::Group(members.clone())));
            assert!(there.is_none(), "EEXIST: {change}");
        }
        NexthopChange::SetGroup(id, members) => {
            has_all(members);
            observed.nexthops.insert(*id, ours(Content::Group(members.clone()))).expect("ENOENT");
        }
        NexthopChange::Remove(id) => {
            observed.nexthops.remove(id).expect("ENOENT");
            for there in observed.nexthops.values_mut() {
                if let Content::Group(members) = &mut there.what {
                    members.remove(id);
                }
            }
            observed.nexthops.retain(|_, there| there.what != Content::Group(BTreeSet::new()));
            // Routes go along.
            let nexthops = &observed.nexthops;
            observed.routes.retain(|route| route.nexthop.is_none_or(|id| nexthops.contains_key(&id)));
        }
    }
}

fn apply_between_nodes(observed: &mut Observed, change: &VxlanChange) {
    let on_device = |network: IpNet| DeviceAddress { device: VX_DEVICE.to_owned(), network };
    match change {
        VxlanChange::Make(vxlan) => {
            let there = observed.links.insert(VX_DEVICE.into(), link_of(vxlan));
            assert!(there.is_none(), "EEXIST");
            // Inherited from `default`, whatever that is.
            for (key, value) in [("rp_filter", 1), ("forwarding", 0)] {
                observed.sysctls.insert(Sysctl::of(Family::V4, VX_DEVICE, key), value);
            }
        }
        VxlanChange::Convert(vxlan) => {
            let link = observed.links.get_mut(VX_DEVICE).expect("ENODEV");
            let former = std::mem::replace(&mut link.vxlan, link_of(vxlan).vxlan);
            if former.is_some_and(|former| former.has_extras) {
                // The entry of its peer goes along.
                observed.forwards.retain(|entry| entry.mac != Mac::ANY);
            }
        }
        VxlanChange::Adjust(vxlan) => {
            let former = observed.links.insert(VX_DEVICE.into(), link_of(vxlan)).expect("ENODEV");
            if former.mac != Some(vxlan.mac()) {
                observed.neighbours.clear();
            }
        }
        VxlanChange::Remove => {
            observed.links.remove(VX_DEVICE).expect("ENODEV");
            observed.routes.retain(|route| route.device.as_deref() != Some(VX_DEVICE));
            nexthops::without_device(observed);
            observed.addresses.retain(|address| address.device != VX_DEVICE);
            observed.sysctls.retain(|sysctl, _| sysctl.device != VX_DEVICE);
            (observed.forwards, observed.neighbours) = (BTreeSet::new(), BTreeMap::new());
        }
        VxlanChange::AddAddress(address) => {
            assert!(observed.addresses.insert(on_device(*address)), "EEXIST")
        }
        VxlanChange::RemoveAddress(address) => assert!(observed.addresses.remove(&on_device(*address))),
        VxlanChange::AddForward(entry) => {
            if entry.mac != Mac::ANY {
                observed.forwards.retain(|there| there.mac != entry.mac);
            }
            observed.forwards.insert(*entry);
        }
        VxlanChange::RemoveForward(entry) => assert!(observed.forwards.remove(entry), "ENOENT {entry:?}"),
        VxlanChange::SetNeighbour(address, mac) => {
            observed.neighbours.insert(*address, *mac);
        }
        VxlanChange::RemoveNeighbour(address) => {
            observed.neighbours.remove(address).expect("ENOENT");
        }
    }
}

/// iptables, as far as we call it.
fn foreign(there: &mut Foreign, change: &ForeignChange) {
    let ForeignChange::Iptables { backend, family, arguments } = change else { panic!("{change}") };
    let chains = &mut there.iptables.get_mut(&(*backend, *family)).unwrap().chains;
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match &words[..] {
        ["-N", chain] => assert!(chains.insert((*chain).to_owned(), Vec::new()).is_none()),
        ["-X", chain] => assert!(chains.remove(*chain).unwrap().is_empty()),
        ["-A", chain, rule @ ..] => chains.get_mut(*chain).unwrap().push(rule.join(" ")),
        ["-I", chain, at, rule @ ..] => {
            let rules = chains.entry((*chain).to_owned()).or_default();
            rules.insert(at.parse::<usize>().unwrap() - 1, rule.join(" "));
        }
        ["-D", chain, rule @ ..] => {
            let rules = chains.get_mut(*chain).unwrap();
            let at = rules.iter().position(|there| *there == rule.join(" ")).expect("ENOENT");
            rules.remove(at);
        }
        other => panic!("{other:?}"),
    }
}

fn guard(there: ObservedGuard, change: &GuardChange) -> ObservedGuard {
    match (change, there) {
        (GuardChange::Remove, _) => ObservedGuard::Absent,
        (GuardChange::Build(guard), _) => ObservedGuard::Present(Table::of(guard)),
        (GuardChange::Restore(_), _) => panic!("no plan restores"),
        (GuardChange::Update { add, remove }, ObservedGuard::Present(there)) => {
            ObservedGuard::Present(crate::guard::updated(&there, add, remove))
        }
        (GuardChange::Update { .. }, _) => panic!("an update needs a table"),
    }
}
