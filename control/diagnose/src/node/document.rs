//! What a node says about itself. Readers accept unknown and missing fields: a node may be older or newer.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use trieste_control::admin::GatewayStatus;

use super::Filters;

/// A node's network, as far as connections between clusters depend on it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeReport {
    /// The host name.
    pub hostname: String,
    /// The program's version.
    pub version: String,
    /// When the report was made, by the node's clock.
    pub time: Timestamp,
    /// The devices.
    pub links: Vec<Link>,
    /// The routes of all tables but `local`, of both families.
    pub routes: Vec<Route>,
    /// The routing rules of both families.
    pub rules: Vec<Rule>,
    /// Forwarding entries and neighbours of `vx-submariner`.
    pub neighbours: Vec<Neighbour>,
    /// Packet filters.
    pub filters: Filters,
    /// Settings below `/proc/sys/net`, by their path there, such as `ipv4/conf/all/rp_filter`.
    pub sysctls: BTreeMap<String, String>,
    /// The kernel's counters of packets that it did not pass on, such as `IPReversePathFilter`.
    pub counters: BTreeMap<String, u64>,
    /// Tracked connections and the most that there may be; absent where the kernel does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conntrack: Option<(u64, u64)>,
    /// The gateway's status; absent where it does not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway: Option<GatewayStatus>,
    /// Why the gateway does not answer; absent where it does, or where there is no socket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway_error: Option<String>,
    /// What could not be read, and why.
    pub problems: Vec<String>,
}

impl NodeReport {
    /// The device of this name.
    #[must_use]
    pub fn link(&self, name: &str) -> Option<&Link> {
        self.links.iter().find(|link| link.name == name)
    }

    /// The route with the longest prefix and then the smallest metric among those of a table that has the address.
    #[must_use]
    pub fn route_to(&self, table: &str, address: IpAddr) -> Option<&Route> {
        let candidates =
            self.routes.iter().filter(|route| route.table == table && route.destination.contains(&address));
        candidates.min_by_key(|route| (u8::MAX - route.destination.prefix_len(), route.metric))
    }

    /// The device that leads to the world.
    #[must_use]
    pub fn default_device(&self) -> Option<&str> {
        let defaults =
            self.routes.iter().filter(|route| route.table == "main" && route.destination.prefix_len() == 0);
        defaults.min_by_key(|route| route.metric)?.device.as_deref()
    }

    /// Whether an address is one of the node's own.
    #[must_use]
    pub fn has_address(&self, address: IpAddr) -> bool {
        self.links.iter().any(|link| link.addresses.iter().any(|net| net.addr() == address))
    }

    /// A setting, as a number.
    #[must_use]
    pub fn sysctl(&self, path: &str) -> Option<i64> {
        self.sysctls.get(path)?.trim().parse().ok()
    }

    /// The reverse path filter that counts on a device: the greater of its own value and the node's.
    #[must_use]
    pub fn reverse_path_filter(&self, device: &str) -> Option<i64> {
        let own = self.sysctl(&format!("ipv4/conf/{device}/rp_filter"))?;
        Some(own.max(self.sysctl("ipv4/conf/all/rp_filter").unwrap_or(0)))
    }
}

/// A device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Link {
    /// Its name.
    pub name: String,
    /// Its kind, such as `vxlan` or `tun`; empty for a plain one.
    pub kind: String,
    /// Largest packet in bytes.
    pub mtu: u32,
    /// Whether it is switched on.
    pub up: bool,
    /// Whether somebody is at the other end: of a TUN device, the gateway.
    pub carrier: bool,
    /// Its addresses.
    pub addresses: Vec<IpNet>,
    /// A VXLAN's network identifier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vni: Option<u32>,
    /// A VXLAN's port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// The node that a VXLAN without forwarding entries sends everything to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote: Option<IpAddr>,
    /// Packets received.
    pub rx_packets: u64,
    /// Packets sent.
    pub tx_packets: u64,
}

/// A route.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// Its table: a number, or `main`.
    pub table: String,
    /// `unicast`, `unreachable`, `throw` and the like.
    pub kind: String,
    /// Where to.
    pub destination: IpNet,
    /// By whom.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<IpAddr>,
    /// By which device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// The source that the node's own packets get.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<IpAddr>,
    /// Smaller wins.
    #[serde(default)]
    pub metric: u32,
    /// Who made it, as `ip` names it.
    #[serde(default)]
    pub protocol: String,
    /// What `ip` says of its state: `linkdown`, `dead`, `onlink`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flags: Vec<String>,
}

/// A routing rule.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Rule {
    /// Smaller comes first.
    pub priority: u32,
    /// Whether it is of IPv6.
    pub is_v6: bool,
    /// The table that it looks in; empty for rules that do something else.
    pub table: String,
    /// Only packets from this device; empty for all.
    pub device: String,
    /// Only packets with this mark; empty for all.
    pub mark: String,
    /// Only packets from here; `all` for all.
    pub source: String,
}

/// An entry of `vx-submariner`: where a neighbour's frames go, or which hardware address it has.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Neighbour {
    /// The hardware address; all zero for "everybody".
    pub hardware: String,
    /// The neighbour's address; absent in the forwarding table.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// The node that frames go to; absent in the neighbour table.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<IpAddr>,
    /// What the kernel says of it, such as `REACHABLE`, `FAILED`, `PERMANENT`.
    pub state: Vec<String>,
}
