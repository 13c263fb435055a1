//! nftables as JSON: names, forms and pieces that our tables have in common, and base chains. Pure.
//!
//! Forms are those in which `nft -j` reports them, so that what was written equals what is read.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use serde_json::{Value, json};

use crate::family::Family;
use crate::vxlan::Mac;

/// nftables family of our tables.
pub const TABLE_FAMILY: &str = "inet";
/// Name of the packet filter's table; everything in it is ours.
pub const GUARD_TABLE: &str = "trieste";
/// Name of the table for services; everything in it is ours.
pub const SERVICES_TABLE: &str = "trieste-services";
/// Before connection tracking, so that a forged packet leaves no state behind.
pub(crate) const PRIORITY_RAW: i32 = -300;

/// A place in a packet's way where it may be dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hook {
    /// Packets for this node.
    Input,
    /// Packets for others.
    Forward,
}

impl Hook {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Input, Self::Forward];

    /// Returns the chain of iptables.
    #[must_use]
    pub fn iptables(self) -> &'static str {
        match self {
            Self::Input => "INPUT",
            Self::Forward => "FORWARD",
        }
    }

    /// Returns the chain of firewalld.
    #[must_use]
    pub fn firewalld(self) -> &'static str {
        match self {
            Self::Input => "filter_INPUT",
            Self::Forward => "filter_FORWARD",
        }
    }

    /// Returns our chain, of upstream's name.
    #[must_use]
    pub fn ours(self) -> &'static str {
        match self {
            Self::Input => "SUBMARINER-INPUT",
            Self::Forward => "SUBMARINER-FORWARD",
        }
    }

    /// Returns the hook of that name in nftables.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "input" => Some(Self::Input),
            "forward" => Some(Self::Forward),
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
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(name) => f.write_str(name),
            Self::Net(net) => net.fmt(f),
            Self::Port(port) => port.fmt(f),
            Self::Mac(mac) => mac.fmt(f),
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
        }
    }

    pub(crate) fn from_json(kind: &str, value: &Value) -> Option<Self> {
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
