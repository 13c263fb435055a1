//! nftables as JSON: names, forms and pieces that our tables have in common, and base chains. Pure.
//!
//! Forms are those in which `nft -j` reports them, so that what was written equals what is read.

mod listing;
mod transaction;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use serde_json::{Map, Value, json};
use trieste_vxlan::Mac;

use crate::family::Family;
pub(crate) use listing::for_each_object;
pub use transaction::Transaction;

/// nftables family of our tables.
pub const TABLE_FAMILY: &str = "inet";
/// Name of the packet filter's table; everything in it is ours.
pub const GUARD_TABLE: &str = "trieste";
/// Name of the table for services; everything in it is ours.
pub const SERVICES_TABLE: &str = "trieste-services";
/// Name of the table for clusterset IPs; everything in it is ours.
pub const CLUSTERSET_TABLE: &str = "trieste-clusterset";
/// Before connection tracking, so that a forged packet leaves no state behind.
pub(crate) const PRIORITY_RAW: i32 = -300;
/// The first that a chain of translation may have. The kernel translates sources in one place (100), where it asks these chains
/// in the order of their priorities until one has decided.
pub(crate) const PRIORITY_FIRST_NAT: i32 = -199;

/// A place in a packet's way where it may be dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hook {
    /// Packets for this node.
    Input,
    /// Packets for others.
    Forward,
    /// All of them, before it is known for whom they are.
    Prerouting,
}

impl Hook {
    /// Those where iptables' table `filter` has chains.
    pub const OF_IPTABLES: [Self; 2] = [Self::Input, Self::Forward];
    /// Those where firewalld filters what is not sent from here.
    pub const OF_FIREWALLD: [Self; 3] = [Self::Input, Self::Forward, Self::Prerouting];

    /// Returns the chain of iptables.
    #[must_use]
    pub fn iptables(self) -> &'static str {
        match self {
            Self::Input => "INPUT",
            Self::Forward => "FORWARD",
            Self::Prerouting => "PREROUTING",
        }
    }

    /// Returns the chain of firewalld.
    #[must_use]
    pub fn firewalld(self) -> &'static str {
        match self {
            Self::Input => "filter_INPUT",
            Self::Forward => "filter_FORWARD",
            Self::Prerouting => "filter_PREROUTING",
        }
    }

    /// Returns our chain, of upstream's name.
    #[must_use]
    pub fn ours(self) -> &'static str {
        match self {
            Self::Input => "SUBMARINER-INPUT",
            Self::Forward => "SUBMARINER-FORWARD",
            Self::Prerouting => "SUBMARINER-PREROUTING",
        }
    }

    /// Returns the hook of that name in nftables.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "input" => Some(Self::Input),
            "forward" => Some(Self::Forward),
            "prerouting" => Some(Self::Prerouting),
            _ => None,
        }
    }
}

/// A base chain of someone else.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct BaseChain {
    /// nftables family of its table.
    pub family: String,
    /// Its table.
    pub table: String,
    /// Its name.
    pub name: String,
    /// Where it is in a packet's way.
    pub hook: Hook,
    /// Whether it drops what no rule of it decides.
    pub drops: bool,
}

/// A chain of someone else that may translate sources.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SourceNat {
    /// nftables family of its table.
    pub family: String,
    /// Its table.
    pub table: String,
    /// Its name.
    pub name: String,
    /// Its place among those of its kind.
    pub priority: i64,
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
    /// An Ethernet address.
    Mac(Mac),
    /// An address as both source and destination.
    Loop(IpAddr),
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(name) => f.write_str(name),
            Self::Net(net) => net.fmt(f),
            Self::Port(port) => port.fmt(f),
            Self::Mac(mac) => mac.fmt(f),
            Self::Loop(address) => address.fmt(f),
        }
    }
}

impl Element {
    /// Returns the element of a set in nftables' JSON form.
    pub(crate) fn to_json(&self) -> Value {
        match self {
            Self::Device(name) => json!(name),
            Self::Net(net) if net.prefix_len() == net.max_prefix_len() => json!(net.addr()),
            Self::Net(net) => json!({"prefix": {"addr": net.addr(), "len": net.prefix_len()}}),
            Self::Port(port) => json!(port),
            Self::Mac(mac) => json!(mac.to_string()),
            Self::Loop(address) => json!({"concat": [address, address]}),
        }
    }

    /// Parses an address that is both source and destination.
    fn loop_from_json(value: &Value) -> Option<Self> {
        let [source, destination] = &**value.get("concat")?.as_array()? else { return None };
        let address = source.as_str().filter(|source| Some(*source) == destination.as_str())?;
        Some(Self::Loop(address.parse().ok()?))
    }

    /// Parses an element of a set of this type.
    fn from_json(kind: &str, value: &Value) -> Option<Self> {
        match kind {
            "ifname" => Some(Self::Device(value.as_str()?.to_owned())),
            "ether_addr" => Some(Self::Mac(value.as_str()?.parse().ok()?)),
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

/// Elements by the name of their set.
pub type Elements = BTreeMap<String, BTreeSet<Element>>;

/// Returns the elements of `these` that `those` lack.
pub(crate) fn missing(these: &Elements, those: &Elements) -> Elements {
    let none = BTreeSet::new();
    these
        .iter()
        .map(|(set, elements)| {
            let there = those.get(set).unwrap_or(&none);
            (set.clone(), elements.difference(there).cloned().collect::<BTreeSet<_>>())
        })
        .filter(|(_, elements)| !elements.is_empty())
        .collect()
}

/// Returns the name of the set that holds a network, of the two sets with this name.
pub(crate) fn by_family(set: &str, net: &IpNet) -> String {
    format!("{set}{}", Family::of_net(net).digit())
}

/// Returns commands that put a table in place of whatever is there.
pub(crate) fn replace(table: &Value) -> [Value; 2] {
    // Adding first makes the deletion valid where there is none; all of it is one transaction.
    [json!({"add": table}), json!({"delete": table})]
}

/// Returns the command that adds or deletes elements of a set.
pub(crate) fn element_command(verb: &str, table: &str, set: &str, elements: &BTreeSet<Element>) -> Value {
    let elements: Vec<Value> = elements.iter().map(Element::to_json).collect();
    json!({verb: {"element": {"family": TABLE_FAMILY, "table": table, "name": set, "elem": elements}}})
}

/// Returns a table as an object to add or delete.
pub(crate) fn table(name: &str) -> Value {
    json!({"table": {"family": TABLE_FAMILY, "name": name}})
}

/// Returns a named counter as an object to add.
pub(crate) fn counter(table: &str, name: &str) -> Value {
    json!({"counter": {"family": TABLE_FAMILY, "table": table, "name": name}})
}

/// Returns a set of a name and type as an object to add; whether it holds networks comes last.
pub(crate) fn set(table: &str, (name, kind, is_interval): (&str, &str, bool)) -> Value {
    let mut set = json!({"family": TABLE_FAMILY, "table": table, "name": name, "type": kind});
    if is_interval {
        set["flags"] = json!(["interval"]);
    }
    json!({"set": set})
}

/// Returns a base chain, which accepts what none of its rules decides, as an object to add.
pub(crate) fn base_chain(table: &str, name: &str, (kind, hook, priority): (&str, &str, i32)) -> Value {
    json!({"chain": {
        "family": TABLE_FAMILY, "table": table, "name": name,
        "type": kind, "hook": hook, "prio": priority, "policy": "accept",
    }})
}

/// Returns a chain that others lead to, as an object to add.
pub(crate) fn chain(table: &str, name: &str) -> Value {
    json!({"chain": {"family": TABLE_FAMILY, "table": table, "name": name}})
}

/// Returns the objects of a listing.
pub(crate) fn objects(listing: &Value) -> impl Iterator<Item = &Value> {
    let all = listing.get("nftables").and_then(Value::as_array).into_iter().flatten();
    all.filter(|object| object.get("metainfo").is_none())
}

/// Removes what differs from one reading of an object to the next.
pub(crate) fn strip(object: &mut Map<String, Value>) {
    for key in ["handle", "packets", "bytes", "comment"] {
        object.remove(key);
    }
}

/// Moves a set's elements to `all`. Leaves them where they are if any is of another form than ours.
pub(crate) fn move_elements(set: &mut Map<String, Value>, all: &mut Elements) {
    if let Some(elements) = elements(set) {
        set.remove("elem");
        if !elements.is_empty() {
            all.insert(text(set, "name").to_owned(), elements);
        }
    }
}

fn elements(set: &Map<String, Value>) -> Option<BTreeSet<Element>> {
    let elements = set.get("elem")?.as_array()?.iter();
    match set.get("type")?.as_str() {
        Some(kind) => elements.map(|element| Element::from_json(kind, element)).collect(),
        None => elements.map(Element::loop_from_json).collect(),
    }
}

/// Returns a field that is text; nothing where it is not.
pub(crate) fn text<'a>(object: &'a Map<String, Value>, key: &str) -> &'a str {
    object.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// Puts objects in the order in which they have to be made. Rules of a chain keep theirs.
pub(crate) fn sort(objects: &mut [Value]) {
    objects.sort_by_cached_key(|object| {
        let kind = ["table", "counter", "set", "map", "chain", "rule"]
            .into_iter()
            .enumerate()
            .find_map(|(rank, kind)| Some((rank, object.get(kind)?.as_object()?)));
        kind.map(|(rank, body)| (rank, text(body, "chain").to_owned(), text(body, "name").to_owned()))
    });
}

/// Matches what is equal.
pub(crate) fn is(left: &Value, right: impl Into<Value>) -> Value {
    json!({"match": {"op": "==", "left": left, "right": right.into()}})
}

/// Matches what differs.
pub(crate) fn is_not(left: &Value, right: &str) -> Value {
    json!({"match": {"op": "!=", "left": left, "right": right}})
}

/// Names a field of a packet's header.
pub(crate) fn field(protocol: &str, field: &str) -> Value {
    json!({"payload": {"protocol": protocol, "field": field}})
}

/// Matches packets whose address at one end is in the set of that name for a family.
pub(crate) fn in_set(family: Family, end: &str, set: &str) -> Value {
    is(&field(protocol(family), end), format!("@{set}{}", family.digit()))
}

/// Matches packets by one of the devices to remote clusters; `key` says at which end.
pub(crate) fn by_inlet(key: &str) -> Value {
    is(&json!({"meta": {"key": key}}), "@inlets")
}

/// Returns nftables' name of a family's protocol.
pub(crate) fn protocol(family: Family) -> &'static str {
    match family {
        Family::V4 => "ip",
        Family::V6 => "ip6",
    }
}
