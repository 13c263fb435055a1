//! The packet filter as an nftables table: the difference between two, rendering, reading back. Pure.
//!
//! ```text
//! table inet trieste
//!   set inlets            devices by which remote clusters' packets may enter and leave
//!   set tunnels           those of them by which nothing else enters
//!   set uplinks           devices by which nothing of a remote cluster may leave
//!   set remote4, remote6  networks of remote clusters
//!   set local4, local6    networks of the own cluster
//!   set beside4, …6       those of them that are reached by the underlay
//!   set routers4, …6      next hops of the default routes
//!   set node4, node6      own networks inside a remote one: exempt
//!   set gateways4, …6     remote gateways inside a remote network; ports: where those may send cable packets to
//!   set nodes4, nodes6    nodes of the own cluster; vxlan: where only those may send to
//!   set onward4, onward6   networks of remote clusters, and behind4, behind6 of other nodes: not tracked on the way there
//!   set siblings          the other gateways' MAC addresses on the VXLAN between nodes
//!   set loosened0, …1     devices whose rp_filter was changed from that value
//!   counter …             what was dropped
//!   chain source-guard    prerouting, priority raw: forged sources, and those that are not closed here
//!   chain from-tunnel     its part of what comes by `tunnels`
//!   chain vxlan-guard     input, last: strangers on the VXLAN between nodes
//!   chain vxlan-onward    forward: what would reach it through this node
//!   chain vxlan-out       postrouting, before source NAT: the same, past IPVS
//!   chain way-out         postrouting, after source NAT: what would leave for or from a remote cluster in clear
//!   chain mss             postrouting, priority mangle: TCP's segment size
//!   chain keep-source     postrouting, before everybody's source NAT
//! ```
//!
//! Which rules there are follows from a few facts that hardly ever change (`guard/rules.rs`); everything else is in
//! the sets, so that an update keeps the counters. Every change is one transaction and leaves no gap. Forms are those
//! in which `nft -j` reports them, so that what was written equals what is read.

mod rules;

use std::collections::BTreeMap;
use std::fmt;

use ipnet::IpNet;
use serde_json::{Value, json};

use crate::hostnet::Guard;
use crate::nft::{
    self, Element, Elements, GUARD_TABLE, TABLE_FAMILY, Transaction, by_family, element_command, missing,
};

/// The content of the table, in the order of creation, without handles, counts and comments.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Table {
    structure: Vec<Value>,
    elements: Elements,
}

impl Table {
    /// Returns the table for a guard.
    #[must_use]
    pub fn of(guard: &Guard) -> Self {
        let mut structure = rules::structure(guard);
        for body in structure.iter_mut().filter_map(body) {
            body.remove("comment");
        }
        nft::sort(&mut structure);
        Self { structure, elements: elements(guard) }
    }

    /// Returns the devices whose strict filter was loosened, and the setting's former value.
    #[must_use]
    pub fn loosened(&self) -> BTreeMap<String, u32> {
        let of = |(set, value): (&str, u32)| {
            let devices = self.elements.get(set).into_iter().flatten();
            devices.map(move |device| (device.to_string(), value)).collect::<Vec<_>>()
        };
        [("loosened0", 0), ("loosened1", 1)].into_iter().flat_map(of).collect()
    }

    /// Adds and removes elements, as the kernel does with [`GuardChange::Update`].
    pub(crate) fn update(&mut self, add: &Elements, remove: &Elements) {
        for (set, gone) in remove {
            if let Some(elements) = self.elements.get_mut(set) {
                elements.retain(|element| !gone.contains(element));
            }
        }
        for (set, new) in add {
            self.elements.entry(set.clone()).or_default().extend(new.iter().cloned());
        }
        self.elements.retain(|_, elements| !elements.is_empty());
    }
}

/// State of the packet filter's nftables table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ObservedGuard {
    /// Could not be read; nothing is planned for it.
    Unknown,
    /// The table does not exist.
    Absent,
    /// The table holds this.
    Present(Table),
}

/// A change of the table, applied as one transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GuardChange {
    /// Replaces the table, whatever it was before.
    Build(Box<Guard>),
    /// Makes the table where there is none; fails, and changes nothing, where there is one.
    Restore(Box<Guard>),
    /// Adds and removes set elements.
    Update {
        /// Elements to add.
        add: Elements,
        /// Elements to remove.
        remove: Elements,
    },
    /// Removes the table.
    Remove,
}

impl GuardChange {
    /// Returns the change in one step, or, on a node that moves over, in two, the second of which is made once routes are in
    /// place: there what comes from remote clusters leaves by `uplinks` until then, and nothing of it shall be lost.
    #[must_use]
    pub fn in_steps(self, is_moving_over: bool) -> (Self, Option<Self>) {
        let Self::Build(mut guard) = self else { return (self, None) };
        if !is_moving_over || guard.uplinks.is_empty() {
            return (Self::Build(guard), None);
        }
        let uplinks = std::mem::take(&mut guard.uplinks).into_iter().map(Element::Device).collect();
        let add = Elements::from([("uplinks".to_owned(), uplinks)]);
        (Self::Build(guard), Some(Self::Update { add, remove: Elements::default() }))
    }
}

impl fmt::Display for GuardChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Build(guard) => {
                write!(
                    f,
                    "build nftables table {TABLE_FAMILY} {GUARD_TABLE} guarding {} networks",
                    guard.remote.len()
                )
            }
            Self::Restore(guard) => {
                write!(
                    f,
                    "restore nftables table {TABLE_FAMILY} {GUARD_TABLE} guarding {} networks",
                    guard.remote.len()
                )
            }
            Self::Update { add, remove } => {
                write!(f, "update nftables table {TABLE_FAMILY} {GUARD_TABLE}:")?;
                let signed = remove.iter().map(|e| ('-', e)).chain(add.iter().map(|e| ('+', e)));
                for (sign, (set, elements)) in signed {
                    for element in elements {
                        write!(f, " {set}{sign}{element}")?;
                    }
                }
                Ok(())
            }
            Self::Remove => write!(f, "remove nftables table {TABLE_FAMILY} {GUARD_TABLE}"),
        }
    }
}

/// Returns the change to make; `None` if there is none, or if the present state could not be read.
#[must_use]
pub fn guard_change(desired: Option<&Guard>, observed: &ObservedGuard) -> Option<GuardChange> {
    match (desired, observed) {
        (_, ObservedGuard::Unknown) | (None, ObservedGuard::Absent) => None,
        (None, ObservedGuard::Present(_)) => Some(GuardChange::Remove),
        (Some(guard), ObservedGuard::Absent) => Some(GuardChange::Build(guard.clone().into())),
        (Some(guard), ObservedGuard::Present(there)) => {
            let want = Table::of(guard);
            if want.structure != there.structure {
                return Some(GuardChange::Build(guard.clone().into()));
            }
            let add = missing(&want.elements, &there.elements);
            let remove = missing(&there.elements, &want.elements);
            (!add.is_empty() || !remove.is_empty()).then_some(GuardChange::Update { add, remove })
        }
    }
}

/// Spreads a guard over its sets; empty sets are left out.
fn elements(guard: &Guard) -> Elements {
    let mut sets = Elements::new();
    let mut put = |set: &str, element| {
        sets.entry(set.to_owned()).or_default().insert(element);
    };
    for device in &guard.inlets {
        put("inlets", Element::Device(device.clone()));
    }
    for device in &guard.tunnels {
        put("tunnels", Element::Device(device.clone()));
    }
    for device in &guard.uplinks {
        put("uplinks", Element::Device(device.clone()));
    }
    for (device, former) in &guard.loosened {
        put(if *former == 0 { "loosened0" } else { "loosened1" }, Element::Device(device.clone()));
    }
    let networks = [
        ("node", &guard.node),
        ("remote", &guard.remote),
        ("local", &guard.local),
        ("beside", &guard.beside),
        ("onward", &guard.onward),
        ("behind", &guard.behind),
    ];
    for (set, nets) in networks {
        for net in nets {
            put(&by_family(set, net), Element::Net(*net));
        }
    }
    let addresses = [("gateways", &guard.gateways), ("nodes", &guard.nodes), ("routers", &guard.routers)];
    for (set, addresses) in addresses {
        for net in addresses.iter().map(|address| IpNet::from(*address)) {
            put(&by_family(set, &net), Element::Net(net));
        }
    }
    for (set, ports) in [("ports", &guard.ports), ("vxlan", &guard.vxlan)] {
        for port in ports {
            put(set, Element::Port(*port));
        }
    }
    for mac in &guard.siblings {
        put("siblings", Element::Mac(*mac));
    }
    sets
}

/// Renders a change as the input of `nft -j -f -`.
#[must_use]
pub fn render(change: &GuardChange) -> Transaction {
    let table = nft::table(GUARD_TABLE);
    match change {
        GuardChange::Remove => [json!({"delete": table})].into_iter().collect(),
        GuardChange::Build(guard) => nft::replace(&table).into_iter().chain(whole(guard)).collect(),
        GuardChange::Restore(guard) => [json!({"create": table})].into_iter().chain(whole(guard)).collect(),
        GuardChange::Update { add, remove } => {
            let removed = remove.iter().map(|(set, all)| element_command("delete", GUARD_TABLE, set, all));
            let added = add.iter().map(|(set, all)| element_command("add", GUARD_TABLE, set, all));
            removed.chain(added).collect()
        }
    }
}

/// Returns the commands that fill an empty table.
fn whole(guard: &Guard) -> impl Iterator<Item = Value> {
    let structure = rules::structure(guard).into_iter().map(|object| json!({"add": object}));
    let elements = elements(guard);
    structure.chain(elements.into_iter().map(|(set, all)| element_command("add", GUARD_TABLE, &set, &all)))
}

/// Reads the output of `nft -j list table inet trieste`. What cannot be ours is part of the structure, which then
/// equals none of ours.
#[must_use]
pub fn read(listing: &Value) -> Table {
    let mut table = Table::default();
    for object in nft::objects(listing) {
        let mut object = object.clone();
        if let Some(body) = body(&mut object) {
            nft::strip(body);
            nft::move_elements(body, &mut table.elements);
        }
        table.structure.push(object);
    }
    nft::sort(&mut table.structure);
    table
}

/// Returns what an object says of itself: `{"set": {…}}` and the like.
fn body(object: &mut Value) -> Option<&mut serde_json::Map<String, Value>> {
    object.as_object_mut()?.values_mut().next()?.as_object_mut()
}

/// Returns what a table is after an update: the model for tests of plans.
#[cfg(test)]
pub(crate) fn updated(table: &Table, add: &Elements, remove: &Elements) -> Table {
    let mut updated = table.clone();
    updated.update(add, remove);
    updated
}

#[cfg(test)]
mod tests;
