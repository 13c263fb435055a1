//! The inbound source guard as an nftables table: rendering, reading back, and the difference. Pure.
//!
//! ```text
//! table inet trieste
//!   set inlets            devices by which remote clusters' packets may enter
//!   set node4, node6      own networks inside a remote one: not judged
//!   set gateways4, …6     remote gateways inside a remote network
//!   set ports             where those may send cable packets to
//!   set remote4, remote6  networks of remote clusters
//!   counter spoofed4, …6  what was dropped
//!   chain source-guard    prerouting, priority raw: the rules below, in this order
//! ```
//!
//! The chain never changes, only the sets do, so that an update keeps the counters and never leaves a gap. Forms are
//! those in which `nft -j` reports them, so that what was written equals what is read.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use serde_json::{Value, json};

use crate::hostnet::{Family, Guard};
use crate::observed::ObservedGuard;

/// nftables family of the table.
pub const TABLE_FAMILY: &str = "inet";
/// Name of the table; everything in it is ours, nothing outside it is.
pub const TABLE_NAME: &str = "trieste";
/// Name of the chain.
const CHAIN: &str = "source-guard";
/// Before connection tracking, so that a forged packet leaves no state behind.
const PRIORITY_RAW: i32 = -300;

/// A change of the table, applied as one transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GuardChange {
    /// Makes the table anew, whatever it was before.
    Build(Guard),
    /// Adds and removes set elements.
    Update {
        /// Set name and elements to add.
        add: BTreeMap<&'static str, BTreeSet<Element>>,
        /// Set name and elements to remove.
        remove: BTreeMap<&'static str, BTreeSet<Element>>,
    },
    /// Removes the table.
    Remove,
}

impl fmt::Display for GuardChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Build(guard) => {
                write!(
                    f,
                    "build nftables table {TABLE_FAMILY} {TABLE_NAME} guarding {} networks",
                    guard.remote.len()
                )
            }
            Self::Update { add, remove } => {
                write!(f, "update nftables table {TABLE_FAMILY} {TABLE_NAME}:")?;
                let signed = remove.iter().map(|e| ('-', e)).chain(add.iter().map(|e| ('+', e)));
                for (sign, (set, elements)) in signed {
                    for element in elements {
                        write!(f, " {set}{sign}{element}")?;
                    }
                }
                Ok(())
            }
            Self::Remove => write!(f, "remove nftables table {TABLE_FAMILY} {TABLE_NAME}"),
        }
    }
}

/// An element of one of the sets.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Element {
    /// A device name.
    Device(String),
    /// A network.
    Net(IpNet),
    /// A UDP port.
    Port(u16),
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(name) => f.write_str(name),
            Self::Net(net) => net.fmt(f),
            Self::Port(port) => port.fmt(f),
        }
    }
}

impl Element {
    fn to_json(&self) -> Value {
        match self {
            Self::Device(name) => json!(name),
            Self::Net(net) if net.prefix_len() == net.max_prefix_len() => json!(net.addr()),
            Self::Net(net) => json!({"prefix": {"addr": net.addr(), "len": net.prefix_len()}}),
            Self::Port(port) => json!(port),
        }
    }

    fn from_json(kind: &str, value: &Value) -> Option<Self> {
        match kind {
            "ifname" => Some(Self::Device(value.as_str()?.to_owned())),
            "inet_service" => Some(Self::Port(u16::try_from(value.as_u64()?).ok()?)),
            _ => {
                let net = match value.get("prefix") {
                    Some(prefix) => {
                        let address = prefix.get("addr")?.as_str()?.parse::<IpAddr>().ok()?;
                        let len = u8::try_from(prefix.get("len")?.as_u64()?).ok()?;
                        IpNet::new(address, len).ok()?
                    }
                    None => IpNet::from(value.as_str()?.parse::<IpAddr>().ok()?),
                };
                Some(Self::Net(net))
            }
        }
    }
}

/// The sets: name, type, and whether they hold networks.
const SETS: [(&str, &str, bool); 8] = [
    ("inlets", "ifname", false),
    ("node4", "ipv4_addr", true),
    ("node6", "ipv6_addr", true),
    ("gateways4", "ipv4_addr", false),
    ("gateways6", "ipv6_addr", false),
    ("ports", "inet_service", false),
    ("remote4", "ipv4_addr", true),
    ("remote6", "ipv6_addr", true),
];

/// Says what has to change; `None` if nothing has, or if the present state is not known.
#[must_use]
pub fn guard_change(desired: Option<&Guard>, observed: &ObservedGuard) -> Option<GuardChange> {
    match (desired, observed) {
        (_, ObservedGuard::Unknown) | (None, ObservedGuard::Absent) => None,
        (None, ObservedGuard::Altered | ObservedGuard::Present(_)) => Some(GuardChange::Remove),
        (Some(guard), ObservedGuard::Absent | ObservedGuard::Altered) => {
            Some(GuardChange::Build(guard.clone()))
        }
        (Some(guard), ObservedGuard::Present(there)) if guard == there => None,
        (Some(guard), ObservedGuard::Present(there)) => {
            let (want, have) = (elements(guard), elements(there));
            Some(GuardChange::Update { add: missing(&want, &have), remove: missing(&have, &want) })
        }
    }
}

/// Returns the elements of `these` that `those` lack.
fn missing(
    these: &BTreeMap<&'static str, BTreeSet<Element>>,
    those: &BTreeMap<&'static str, BTreeSet<Element>>,
) -> BTreeMap<&'static str, BTreeSet<Element>> {
    these
        .iter()
        .map(|(set, elements)| (*set, elements.difference(&those[set]).cloned().collect::<BTreeSet<_>>()))
        .filter(|(_, elements)| !elements.is_empty())
        .collect()
}

/// Spreads a guard over its sets; every set is named.
fn elements(guard: &Guard) -> BTreeMap<&'static str, BTreeSet<Element>> {
    let mut sets: BTreeMap<&'static str, BTreeSet<Element>> =
        SETS.iter().map(|(name, _, _)| (*name, BTreeSet::new())).collect();
    let mut put = |set: &'static str, element| {
        sets.entry(set).or_default().insert(element);
    };
    for device in &guard.inlets {
        put("inlets", Element::Device(device.clone()));
    }
    for net in &guard.node {
        put(by_family(net, "node4", "node6"), Element::Net(*net));
    }
    for net in &guard.remote {
        put(by_family(net, "remote4", "remote6"), Element::Net(*net));
    }
    for address in &guard.gateways {
        let net = IpNet::from(*address);
        put(by_family(&net, "gateways4", "gateways6"), Element::Net(net));
    }
    for port in &guard.ports {
        put("ports", Element::Port(*port));
    }
    sets
}

fn by_family(net: &IpNet, v4: &'static str, v6: &'static str) -> &'static str {
    match Family::of_net(net) {
        Family::V4 => v4,
        Family::V6 => v6,
    }
}

/// Renders a change as the input of `nft -j -f -`.
#[must_use]
pub fn render(change: &GuardChange) -> Value {
    let mut commands = vec![json!({"metainfo": {"json_schema_version": 1}})];
    let table = json!({"table": {"family": TABLE_FAMILY, "name": TABLE_NAME}});
    match change {
        GuardChange::Remove => commands.push(json!({"delete": table})),
        GuardChange::Build(guard) => {
            // Adding first makes the deletion valid where there is none; all of it is one transaction.
            commands.push(json!({"add": table}));
            commands.push(json!({"delete": table}));
            commands.extend(structure().into_iter().map(|object| json!({"add": object})));
            commands.extend(elements(guard).iter().filter_map(|(set, all)| element_command("add", set, all)));
        }
        GuardChange::Update { add, remove } => {
            commands.extend(remove.iter().filter_map(|(set, all)| element_command("delete", set, all)));
            commands.extend(add.iter().filter_map(|(set, all)| element_command("add", set, all)));
        }
    }
    json!({"nftables": commands})
}

fn element_command(verb: &str, set: &str, elements: &BTreeSet<Element>) -> Option<Value> {
    if elements.is_empty() {
        return None;
    }
    let elements: Vec<Value> = elements.iter().map(Element::to_json).collect();
    Some(
        json!({verb: {"element": {"family": TABLE_FAMILY, "table": TABLE_NAME, "name": set, "elem": elements}}}),
    )
}

/// Returns everything in the table but the elements, in the order in which it has to be made.
fn structure() -> Vec<Value> {
    let mut objects = vec![json!({"table": {"family": TABLE_FAMILY, "name": TABLE_NAME}})];
    for family in Family::ALL {
        let name = format!("spoofed{}", family.digit());
        objects.push(json!({"counter": {"family": TABLE_FAMILY, "table": TABLE_NAME, "name": name}}));
    }
    for (name, kind, is_interval) in SETS {
        let mut set = json!({"family": TABLE_FAMILY, "table": TABLE_NAME, "name": name, "type": kind});
        if is_interval {
            set["flags"] = json!(["interval"]);
        }
        objects.push(json!({"set": set}));
    }
    objects.push(json!({"chain": {
        "family": TABLE_FAMILY, "table": TABLE_NAME, "name": CHAIN,
        "type": "filter", "hook": "prerouting", "prio": PRIORITY_RAW, "policy": "accept",
    }}));
    objects.extend(rules().into_iter().map(|(comment, expr)| {
        json!({"rule": {
            "family": TABLE_FAMILY, "table": TABLE_NAME, "chain": CHAIN, "comment": comment, "expr": expr,
        }})
    }));
    objects
}

/// Returns the chain's rules: comment and expressions.
fn rules() -> Vec<(String, Value)> {
    let is = |left: Value, right: &str| json!({"match": {"op": "==", "left": left, "right": right}});
    let field = |protocol: &str, field: &str| json!({"payload": {"protocol": protocol, "field": field}});
    let accept = json!({"accept": null});
    let mut rules = vec![(
        "the ways in from remote clusters".to_owned(),
        json!([is(json!({"meta": {"key": "iifname"}}), "@inlets"), accept]),
    )];
    for (protocol, digit) in [("ip", 4), ("ip6", 6)] {
        let source = |set: &str| is(field(protocol, "saddr"), &format!("@{set}{digit}"));
        rules.push((
            format!("IPv{digit} networks of this node inside a remote one"),
            json!([source("node"), accept]),
        ));
        rules.push((
            format!("cables from IPv{digit} gateways inside a remote network"),
            json!([source("gateways"), is(field("udp", "dport"), "@ports"), accept]),
        ));
        rules.push((
            format!("ESP from IPv{digit} gateways inside a remote network"),
            json!([source("gateways"), is(json!({"meta": {"key": "l4proto"}}), "esp"), accept]),
        ));
        rules.push((
            format!("forged IPv{digit} source in a remote network"),
            json!([source("remote"), {"counter": format!("spoofed{digit}")}, {"drop": null}]),
        ));
    }
    rules
}

/// Reads the output of `nft -j list table inet trieste`.
#[must_use]
pub fn read(listing: &Value) -> ObservedGuard {
    let Some(objects) = listing.get("nftables").and_then(Value::as_array) else {
        return ObservedGuard::Altered;
    };
    let mut there: Vec<Value> = Vec::new();
    let mut guard = Guard::default();
    for object in objects.iter().filter(|object| object.get("metainfo").is_none()) {
        let mut object = object.clone();
        for body in object.as_object_mut().into_iter().flat_map(|map| map.values_mut()) {
            let Some(body) = body.as_object_mut() else { return ObservedGuard::Altered };
            // What differs from one reading to the next.
            for key in ["handle", "packets", "bytes", "comment"] {
                body.remove(key);
            }
            if let Some(Value::Array(elements)) = body.remove("elem") {
                let kind = body.get("type").and_then(Value::as_str).unwrap_or_default();
                let name = body.get("name").and_then(Value::as_str).unwrap_or_default();
                if elements.iter().any(|e| !take(&mut guard, name, Element::from_json(kind, e))) {
                    return ObservedGuard::Altered;
                }
            }
        }
        there.push(object);
    }
    if is_as_written(there) { ObservedGuard::Present(guard) } else { ObservedGuard::Altered }
}

/// Compares with [`structure`]: rules in their order, everything else in any.
fn is_as_written(there: Vec<Value>) -> bool {
    let mut written = structure();
    for object in &mut written {
        if let Some(rule) = object.get_mut("rule").and_then(Value::as_object_mut) {
            rule.remove("comment");
        }
    }
    let split = |objects: Vec<Value>| -> (Vec<Value>, Vec<Value>) {
        objects.into_iter().partition(|object| object.get("rule").is_some())
    };
    let (rules, others) = split(there);
    let (rules_written, others_written) = split(written);
    rules == rules_written
        && others.len() == others_written.len()
        && others_written.iter().all(|object| others.contains(object))
}

/// Puts a set's element where it belongs; `false` if it cannot be ours.
fn take(guard: &mut Guard, set: &str, element: Option<Element>) -> bool {
    match (set, element) {
        ("inlets", Some(Element::Device(name))) => guard.inlets.insert(name),
        ("ports", Some(Element::Port(port))) => guard.ports.insert(port),
        ("node4" | "node6", Some(Element::Net(net))) => guard.node.insert(net),
        ("remote4" | "remote6", Some(Element::Net(net))) => guard.remote.insert(net),
        ("gateways4" | "gateways6", Some(Element::Net(net))) => guard.gateways.insert(net.addr()),
        _ => false,
    }
}

/// Returns what a guard is after an update: the model for tests of plans.
#[cfg(test)]
pub(crate) fn updated(
    guard: &Guard,
    add: &BTreeMap<&'static str, BTreeSet<Element>>,
    remove: &BTreeMap<&'static str, BTreeSet<Element>>,
) -> Guard {
    let mut sets = elements(guard);
    for (set, gone) in remove {
        sets.entry(set).or_default().retain(|element| !gone.contains(element));
    }
    for (set, new) in add {
        sets.entry(set).or_default().extend(new.iter().cloned());
    }
    let mut updated = Guard::default();
    for (set, element) in sets.into_iter().flat_map(|(set, all)| all.into_iter().map(move |e| (set, e))) {
        take(&mut updated, set, Some(element));
    }
    updated
}

#[cfg(test)]
mod tests;
