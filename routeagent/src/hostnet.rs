//! The desired state of a node's network stack: types shared by drivers, plan and port.
//!
//! A [`HostNet`] is a value, computed from the cluster's state and compared with what the kernel reports. It names
//! devices by name, never by index, so that a device that was removed and made again needs no special case.
//! Not here: how any of it is read or written (`port/`), and how the difference is found (`plan.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use serde::{Deserialize, Serialize};
use trieste_vxlan::{Mac, Vxlan};

use crate::constants::{
    FORMER_PRIORITY_MARK, MARK, MARK_MASK, METRIC_FAIL_CLOSED, METRIC_IPV6_DEFAULT, METRIC_OTHERS_MORE,
    PRIORITY_DELIVERY, PRIORITY_GATEWAY, PRIORITY_MARK, PRIORITY_UPSTREAM_CABLE, TABLE_DELIVERY,
    TABLE_GATEWAY, TABLE_MAIN, TABLE_UPSTREAM_CABLE,
};
use crate::family::Family;
use crate::nexthops::NexthopGroups;
use crate::services::DesiredServices;
use crate::takeover::Takeover;

/// A policy-routing rule: `[fwmark M/m] [iif DEVICE] lookup TABLE` at a priority, without any other selector.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rule {
    /// Lower is looked at first. The field comes first, so that rules sort in the order the kernel reads them.
    pub priority: u32,
    /// The family the rule applies to.
    pub family: Family,
    /// Mark and mask that a packet or socket has to carry; `None` selects everything.
    pub mark: Option<(u32, u32)>,
    /// The device by which a packet has to enter; `lo` selects what originates on this node.
    pub iif: Option<String>,
    /// Table to look up.
    pub table: u32,
}

impl Rule {
    /// Sends everything to the gateway table.
    #[must_use]
    pub fn gateway(family: Family) -> Self {
        Self { priority: PRIORITY_GATEWAY, family, mark: None, iif: None, table: TABLE_GATEWAY }
    }

    /// Sends what comes from remote clusters to the table with routes to the other nodes' pods.
    #[must_use]
    pub fn delivery(family: Family, device: &str) -> Self {
        let iif = Some(device.to_owned());
        Self { priority: PRIORITY_DELIVERY, family, mark: None, iif, table: TABLE_DELIVERY }
    }

    /// Keeps our own sockets in the main table, whatever a remote cluster claims. Only sockets: a network plugin may
    /// put any mark on packets that it forwards, and those must not get past the gateway table.
    #[must_use]
    pub fn mark(family: Family) -> Self {
        let (mark, iif) = (Some((MARK, MARK_MASK)), Some("lo".to_owned()));
        Self { priority: PRIORITY_MARK, family, mark, iif, table: TABLE_MAIN }
    }

    /// Sends everything to the table of upstream's VXLAN cable.
    #[must_use]
    pub fn upstream_cable(family: Family) -> Self {
        let (priority, table) = (PRIORITY_UPSTREAM_CABLE, TABLE_UPSTREAM_CABLE);
        Self { priority, family, mark: None, iif: None, table }
    }

    /// Returns `true` if the route agent writes rules like this one.
    #[must_use]
    pub fn is_of_our_kind(&self) -> bool {
        let delivery = self.iif.as_ref().map(|device| Self::delivery(self.family, device));
        let mark = Self::mark(self.family);
        let former = Self { priority: FORMER_PRIORITY_MARK, ..mark.clone() };
        [Some(Self::gateway(self.family)), Some(mark), Some(former), delivery].contains(&Some(self.clone()))
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} rule pref {}", self.family, self.priority)?;
        if let Some((mark, mask)) = self.mark {
            write!(f, " fwmark {mark:#x}/{mask:#x}")?;
        }
        if let Some(device) = &self.iif {
            write!(f, " iif {device}")?;
        }
        write!(f, " lookup {}", table_name(self.table))
    }
}

/// Where a route leads.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hop {
    /// Ends the lookup in this table; the next rule decides. Used for networks of the node itself that lie inside
    /// a remote subnet.
    Throw,
    /// Straight out of a device.
    Device {
        /// Name of the device.
        name: String,
        /// Source address for the node's own packets, of the route's family.
        source: Option<IpAddr>,
    },
    /// To another node or router, which is on the device's network.
    Via {
        /// Name of the device.
        name: String,
        /// The next hop, of the route's family.
        via: IpAddr,
        /// Source address for the node's own packets, of the route's family.
        source: Option<IpAddr>,
    },
    /// To a member of a group of next hops (`nexthops.rs`).
    Group {
        /// The group's id.
        id: u32,
        /// Source address for the node's own packets, of the route's family.
        source: Option<IpAddr>,
    },
    /// Refuses with an ICMP error: the fail-closed end of the line.
    Unreachable,
}

impl Hop {
    /// Returns the device that it leads out of; a group's next hops have one each.
    #[must_use]
    pub fn device(&self) -> Option<&str> {
        match self {
            Self::Device { name, .. } | Self::Via { name, .. } => Some(name),
            Self::Throw | Self::Unreachable | Self::Group { .. } => None,
        }
    }
}

/// A route as the route agent writes it: protocol static, no type of service.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Route {
    /// Routing table.
    pub table: u32,
    /// Destination, host bits zero.
    pub destination: IpNet,
    /// Lower wins among routes to the same destination.
    pub metric: u32,
    /// Where it leads.
    pub hop: Hop,
    /// MTU of the way there, bytes of IP, where it is smaller than the device's.
    pub mtu: Option<u32>,
}

impl Route {
    /// Returns the fail-closed route for a remote network.
    #[must_use]
    pub fn unreachable(table: u32, destination: IpNet) -> Self {
        Self { table, destination, metric: METRIC_FAIL_CLOSED, hop: Hop::Unreachable, mtu: None }
    }

    /// Returns a route to a hop, with the kernel's default metric.
    #[must_use]
    pub fn leading(table: u32, destination: IpNet, hop: Hop) -> Self {
        let metric = match Family::of_net(&destination) {
            Family::V4 => 0,
            Family::V6 => METRIC_IPV6_DEFAULT,
        };
        Self { table, destination, metric, hop, mtu: None }
    }

    /// Returns the route with an MTU.
    #[must_use]
    pub fn with_mtu(self, mtu: Option<u32>) -> Self {
        Self { mtu, ..self }
    }

    /// Returns the route with a worse metric, for use when the first is down.
    #[must_use]
    pub fn as_second(self) -> Self {
        Self { metric: self.metric + METRIC_OTHERS_MORE, ..self }
    }

    /// Returns a gateway's route for a remote network.
    #[must_use]
    pub fn gateway(destination: IpNet, hop: Hop) -> Self {
        Self::leading(TABLE_GATEWAY, destination, hop)
    }

    /// Returns the family of the destination.
    #[must_use]
    pub fn family(&self) -> Family {
        Family::of_net(&self.destination)
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.hop {
            Hop::Throw => write!(f, "throw {}", self.destination)?,
            Hop::Unreachable => write!(f, "unreachable {}", self.destination)?,
            Hop::Device { name, source } => {
                write!(f, "{} dev {name}", self.destination)?;
                source.map_or(Ok(()), |source| write!(f, " src {source}"))?;
            }
            Hop::Group { id, source } => {
                write!(f, "{} nhid {id}", self.destination)?;
                source.map_or(Ok(()), |source| write!(f, " src {source}"))?;
            }
            Hop::Via { name, via, source } => {
                write!(f, "{} via {via} dev {name}", self.destination)?;
                source.map_or(Ok(()), |source| write!(f, " src {source}"))?;
            }
        }
        write!(f, " table {}", table_name(self.table))?;
        if self.metric != 0 && self.metric != METRIC_IPV6_DEFAULT {
            write!(f, " metric {}", self.metric)?;
        }
        self.mtu.map_or(Ok(()), |mtu| write!(f, " mtu {mtu}"))
    }
}

/// A setting of one device below `/proc/sys/net/<family>/conf/<device>/`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sysctl {
    /// The family it belongs to.
    pub family: Family,
    /// Name of the device, or `all`.
    pub device: String,
    /// Name of the setting.
    pub key: &'static str,
}

impl Sysctl {
    /// Names a setting of a device.
    #[must_use]
    pub fn of(family: Family, device: &str, key: &'static str) -> Self {
        Self { family, device: device.to_owned(), key }
    }
}

impl fmt::Display for Sysctl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Slashes, because a device name may contain dots; sysctl(8) reads both.
        write!(f, "net/{}/conf/{}/{}", self.family.sysctl_name(), self.device, self.key)
    }
}

/// The packet filter's sets: packets that may enter and leave by which devices, and how they are translated.
/// `guard.rs` makes the nftables table from it. Networks of one field are disjoint.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Guard {
    /// Devices by which packets of remote clusters legitimately enter and leave.
    pub inlets: BTreeSet<String>,
    /// Those of them by which nothing enters but packets of remote clusters and of this cluster's nodes: what has another
    /// source is dropped, since its answer might leave in clear.
    #[serde(default)]
    pub tunnels: BTreeSet<String>,
    /// Devices by which this node reaches others, where what came from a remote cluster never leaves by them: empty where a
    /// network plugin delivers it.
    pub uplinks: BTreeSet<String>,
    /// Networks of remote clusters, also those that no gateway offers: what is for them leaves by the inlets or not at all.
    pub remote: BTreeSet<IpNet>,
    /// Networks under which the own cluster's pods and services are known here and elsewhere.
    pub local: BTreeSet<IpNet>,
    /// Those of them that are reached by the underlay, such as of macvlan pods: what came from a remote cluster for them leaves by
    /// `uplinks` where the node is on such a network itself, and never by one of `routers`.
    #[serde(default)]
    pub beside: BTreeSet<IpNet>,
    /// The next hops of this node's default routes.
    #[serde(default)]
    pub routers: BTreeSet<IpAddr>,
    /// Networks of this node that lie inside a remote network and stay usable.
    pub node: BTreeSet<IpNet>,
    /// Addresses of remote gateways that lie inside a remote network: their cable packets come from outside.
    pub gateways: BTreeSet<IpAddr>,
    /// Local UDP ports to which those gateways may send.
    pub ports: BTreeSet<u16>,
    /// UDP ports that only nodes of the own cluster may send to: that of the VXLAN between nodes, and that of notices.
    /// Empty where there is neither.
    pub vxlan: BTreeSet<u16>,
    /// Addresses of the own cluster's nodes.
    pub nodes: BTreeSet<IpAddr>,
    /// Where one of several gateways is: what passes through to these networks of remote clusters is not tracked, because
    /// answers may come by another gateway, and a connection of which half is seen counts as invalid.
    #[serde(default)]
    pub onward: BTreeSet<IpNet>,
    /// The same for what comes from remote clusters to these networks of other nodes.
    #[serde(default)]
    pub behind: BTreeSet<IpNet>,
    /// On a gateway's node, the other gateways as they send over the VXLAN between nodes: what one of them could not send
    /// itself is not sent on to another.
    #[serde(default)]
    pub siblings: BTreeSet<Mac>,
    /// This node's address in a pod network, at most one of each family: the source of the node's own packets to
    /// remote clusters.
    pub sources: BTreeSet<IpAddr>,
    /// Whether another program of this node translates the sources of packets for remote clusters, as upstream's Globalnet does
    /// beside upstream's gateway: they are not kept here.
    #[serde(default)]
    pub is_translated_elsewhere: bool,
    /// Fixed TCP payload for connections with remote clusters over IPv4, in bytes, 20 less over IPv6; `None` follows
    /// the routes' MTUs.
    pub clamp: Option<u16>,
    /// How packets of remote clusters reach this node.
    pub delivery: Delivery,
    /// Devices whose strict reverse-path filter was loosened, and the setting's former value.
    pub loosened: BTreeMap<String, u32>,
}

/// How packets of remote clusters reach a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub enum Delivery {
    /// By the inlets alone.
    #[default]
    Inlets,
    /// By the inlets, and on this node, which is the gateway, by IPsec in the kernel.
    Ipsec,
    /// By the network plugin, from any device: a source cannot be checked.
    Plugin,
}

/// Everything the route agent wants of a node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HostNet {
    /// Device settings. Written only while the device exists.
    pub sysctls: BTreeMap<Sysctl, u32>,
    /// Policy-routing rules.
    pub rules: BTreeSet<Rule>,
    /// Routes of all tables.
    pub routes: BTreeSet<Route>,
    /// The next hops, and the candidates for each group of them.
    pub nexthop_groups: NexthopGroups,
    /// The members of the groups, by id.
    pub groups: BTreeMap<u32, BTreeSet<u32>>,
    /// The device between the nodes; `None` removes it.
    pub vxlan: Option<Vxlan>,
    /// Devices that must not filter strictly by reverse path.
    pub loose_rp_filter: BTreeSet<String>,
    /// The packet filter; `None` removes its nftables table.
    pub guard: Option<Guard>,
    /// Translation of packets for services with back ends on this node.
    pub services: DesiredServices,
    /// Exceptions in other programs' packet filters.
    pub pass: Pass,
    /// Whose leftovers are removed.
    pub takeover: Takeover,
}

impl HostNet {
    /// Returns the routes of a table to a destination, in their order.
    pub(crate) fn routes_to(&self, table: u32, destination: IpNet) -> impl Iterator<Item = &Route> {
        let first = Route { table, destination, metric: 0, hop: Hop::Throw, mtu: None };
        let is_there = move |route: &&Route| (route.table, route.destination) == (table, destination);
        self.routes.range(first..).take_while(is_there)
    }

    /// Returns `true` if a route of a family leads out of a device. Looks no further than the first of each table, unless routes
    /// that refuse come before it.
    pub(crate) fn has_device_route(&self, family: Family) -> bool {
        let any = match family {
            Family::V4 => IpNet::V4(Ipv4Net::default()),
            Family::V6 => IpNet::V6(Ipv6Net::default()),
        };
        let first = |table| Route { table, destination: any, metric: 0, hop: Hop::Throw, mtu: None };
        [TABLE_DELIVERY, TABLE_GATEWAY, TABLE_MAIN].into_iter().any(|table| {
            let is_there = |route: &&Route| route.table == table && route.family() == family;
            let mut routes = self.routes.range(first(table)..).take_while(is_there);
            routes.any(|route| route.hop.device().is_some())
        })
    }
}

/// Exceptions in other programs' packet filters. Empty removes ours.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pass {
    /// Devices by which forwarded packets may leave.
    pub outward: BTreeSet<String>,
    /// Devices by which forwarded packets may enter.
    pub inward: BTreeSet<String>,
    /// UDP ports of this node; `guard.rs` says who may send there.
    pub ports: BTreeSet<u16>,
}

/// Returns `main` for the main table and the number for any other.
pub(crate) fn table_name(table: u32) -> String {
    if table == TABLE_MAIN { "main".to_owned() } else { table.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_exact_rules_are_of_our_kind() {
        assert!(Rule::gateway(Family::V6).is_of_our_kind());
        assert!(Rule::mark(Family::V4).is_of_our_kind());
        assert!(Rule { priority: 90, ..Rule::mark(Family::V4) }.is_of_our_kind(), "of an earlier version");
        assert!(Rule::delivery(Family::V4, "submariner").is_of_our_kind());
        assert!(!Rule { table: 149, ..Rule::gateway(Family::V4) }.is_of_our_kind());
        assert!(!Rule { mark: None, ..Rule::mark(Family::V4) }.is_of_our_kind());
    }

    #[test]
    fn routes_read_like_the_ip_command() {
        let net: IpNet = "10.2.0.0/16".parse().unwrap();
        let hop = Hop::Device { name: "submariner".into(), source: Some("10.1.1.1".parse().unwrap()) };
        assert_eq!(Route::gateway(net, hop).to_string(), "10.2.0.0/16 dev submariner src 10.1.1.1 table 150");
        assert_eq!(
            Route::unreachable(TABLE_MAIN, net).to_string(),
            "unreachable 10.2.0.0/16 table main metric 4278198272"
        );
    }
}
