//! The observed state of the kernel: the other input of `plan.rs`.
//!
//! Routes and rules arrive here as far as they could be ours; whether one is, is decided in one place,
//! [`ObservedRoute::is_ours`] and [`ObservedRule::is_ours`]. What is not ours is never part of a plan.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use trieste_vxlan::{Forward, Mac, VX_PORT, Vni};

use crate::condition::Condition;
use crate::constants::{
    EXTERNAL_BRIDGE, MANAGEMENT_PORT, METRIC_FAIL_CLOSED, PROTOCOL, RULE_PROTOCOL, TABLE_DELIVERY,
    TABLE_GATEWAY, TABLE_MAIN, VX_DEVICE,
};
use crate::family::Family;
use crate::foreign::Foreign;
use crate::guard::ObservedGuard;
use crate::hostnet::{Hop, Route, Rule, Sysctl};
use crate::leftover::Leftover;
use crate::nexthops::{ObservedNexthop, is_our_id};
use crate::services::ObservedServices;
use crate::state::{DeviceAddress, ResolvedRoute};

/// The kind of a route (`RTN_*`), as far as the route agent cares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RouteKind {
    /// Leads to a device or gateway.
    Unicast,
    /// Refuses with an ICMP error.
    Unreachable,
    /// Ends the lookup in its table.
    Throw,
    /// Any other, by number.
    Other(u8),
}

/// A route as the kernel reports it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObservedRoute {
    /// Routing table.
    pub table: u32,
    /// Destination.
    pub destination: IpNet,
    /// Metric.
    pub metric: u32,
    /// Type of service.
    pub tos: u8,
    /// The program that wrote it (`RTPROT_*`).
    pub protocol: u8,
    /// Scope (`RT_SCOPE_*`); always 0 for IPv6.
    pub scope: u8,
    /// Kind.
    pub kind: RouteKind,
    /// Name of its only device.
    pub device: Option<String>,
    /// Its only next hop, of its own family.
    pub via: Option<IpAddr>,
    /// Preferred source.
    pub source: Option<IpAddr>,
    /// The next hop or group of them that it leads to, by id; it has neither device nor hop of its own then.
    pub nexthop: Option<u32>,
    /// MTU of the way.
    pub mtu: Option<u32>,
    /// Whether it carries anything the route agent never writes: several hops, other metrics, an encapsulation.
    pub has_extras: bool,
}

/// `RT_SCOPE_LINK`.
const SCOPE_LINK: u8 = 253;
/// `RT_SCOPE_UNIVERSE`.
const SCOPE_UNIVERSE: u8 = 0;

impl ObservedRoute {
    /// Returns `true` if the route agent wrote this route, in this run or an earlier one: protocol static in the gateway
    /// table, or out of the device between nodes, or in the delivery table out of the network plugin's port or bridge, or in
    /// the main table an `unreachable` of exactly our metric.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        let leads_there = self.device.as_deref() == Some(VX_DEVICE) || self.nexthop.is_some_and(is_our_id);
        let is_between_nodes = self.kind == RouteKind::Unicast && leads_there && self.tos == 0;
        let plugins = [MANAGEMENT_PORT, EXTERNAL_BRIDGE];
        let is_to_plugin = self.kind == RouteKind::Unicast
            && self.device.as_deref().is_some_and(|device| plugins.contains(&device))
            && self.tos == 0;
        let is_refusal =
            self.kind == RouteKind::Unreachable && self.metric == METRIC_FAIL_CLOSED && self.tos == 0;
        self.protocol == PROTOCOL
            && match self.table {
                TABLE_GATEWAY => true,
                TABLE_DELIVERY => is_between_nodes || is_to_plugin,
                TABLE_MAIN => is_between_nodes || is_refusal,
                _ => false,
            }
    }

    /// Returns the route in the terms of [`Route`], or `None` if it says something else.
    #[must_use]
    pub fn as_route(&self) -> Option<Route> {
        let leads_and_refuses = self.via.is_some() && self.kind != RouteKind::Unicast;
        if self.tos != 0 || self.has_extras || leads_and_refuses || self.protocol != PROTOCOL {
            return None;
        }
        let hop = match self.kind {
            RouteKind::Unreachable => Hop::Unreachable,
            RouteKind::Throw => Hop::Throw,
            RouteKind::Unicast => self.hop()?,
            RouteKind::Other(_) => return None,
        };
        Some(Route {
            table: self.table,
            destination: self.destination,
            metric: self.metric,
            hop,
            mtu: self.mtu,
        })
    }

    fn hop(&self) -> Option<Hop> {
        if let Some(id) = self.nexthop {
            return Some(Hop::Group { id, source: self.source });
        }
        let (name, source) = (self.device.clone()?, self.source);
        match self.via {
            Some(via) if self.scope == SCOPE_UNIVERSE => Some(Hop::Via { name, via, source }),
            None if self.scope == device_scope(&self.destination) => Some(Hop::Device { name, source }),
            _ => None,
        }
    }

    /// Returns what the kernel would report once a route is written.
    #[must_use]
    pub fn from_route(route: &Route) -> Self {
        let (kind, scope) = match &route.hop {
            Hop::Throw => (RouteKind::Throw, SCOPE_UNIVERSE),
            Hop::Unreachable => (RouteKind::Unreachable, SCOPE_UNIVERSE),
            Hop::Device { .. } => (RouteKind::Unicast, device_scope(&route.destination)),
            Hop::Via { .. } | Hop::Group { .. } => (RouteKind::Unicast, SCOPE_UNIVERSE),
        };
        let (via, source) = match &route.hop {
            Hop::Throw | Hop::Unreachable => (None, None),
            Hop::Device { source, .. } | Hop::Group { source, .. } => (None, *source),
            Hop::Via { via, source, .. } => (Some(*via), *source),
        };
        Self {
            table: route.table,
            destination: route.destination,
            metric: route.metric,
            tos: 0,
            protocol: PROTOCOL,
            scope,
            kind,
            device: route.hop.device().map(str::to_owned),
            via,
            source,
            nexthop: if let Hop::Group { id, .. } = &route.hop { Some(*id) } else { None },
            mtu: route.mtu,
            has_extras: false,
        }
    }

    /// Returns `true` if the two cannot both exist: the kernel keys routes by table, destination, metric and, for IPv4,
    /// type of service.
    #[must_use]
    pub fn is_in_the_place_of(&self, route: &Route) -> bool {
        self.table == route.table
            && self.destination == route.destination
            && self.metric == route.metric
            && self.tos == 0
    }
}

/// Returns the scope of a route straight out of a device.
pub(crate) fn device_scope(destination: &IpNet) -> u8 {
    match Family::of_net(destination) {
        Family::V4 => SCOPE_LINK,
        Family::V6 => SCOPE_UNIVERSE,
    }
}

/// A rule of the shape that the route agent writes, as the kernel reports it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObservedRule {
    /// Its content.
    pub rule: Rule,
    /// The program that wrote it (`RTPROT_*`).
    pub protocol: u8,
}

impl ObservedRule {
    /// Returns `true` if the route agent wrote this rule. One of the same content by someone else, such as upstream's
    /// route agent, serves as well; `submariner.rs` says what becomes of it.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.protocol == RULE_PROTOCOL && self.rule.is_of_our_kind()
    }

    /// Returns `true` for one of the rules that Submariner's programs write, which name no program (`RTPROT_UNSPEC`).
    #[must_use]
    pub fn is_submariners(&self) -> bool {
        let family = self.rule.family;
        self.protocol == 0 && [Rule::gateway(family), Rule::upstream_cable(family)].contains(&self.rule)
    }
}

/// A network device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Link {
    /// Its index.
    pub index: u32,
    /// Whether it is administratively up. A device that is down can carry no routes.
    pub is_up: bool,
    /// Bytes of IP packet.
    pub mtu: u32,
    /// Its Ethernet address.
    pub mac: Option<Mac>,
    /// Its VXLAN parameters, if it is such a device.
    pub vxlan: Option<VxlanLink>,
}

/// Parameters of a VXLAN device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VxlanLink {
    /// VNI.
    pub vni: u32,
    /// UDP port that it listens on and sends to.
    pub port: u16,
    /// Source of what it sends.
    pub local: Option<IpAddr>,
    /// Whether it has anything that the route agent's device has not: it learns addresses, or has a peer or group.
    pub has_extras: bool,
    /// Whether the kernel cannot take that off it: it is bound to another device, or leaves peers to others.
    pub is_fixed: bool,
}

impl VxlanLink {
    /// Returns `true` if the device is the one between the cluster's nodes, ours or upstream's.
    #[must_use]
    pub fn is_between_nodes(&self) -> bool {
        (self.vni, self.port) == (Vni::NODES.value(), VX_PORT)
    }
}

/// Everything that was read in one pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observed {
    /// Devices by name.
    pub links: BTreeMap<String, Link>,
    /// Addresses of devices.
    pub addresses: BTreeSet<DeviceAddress>,
    /// Rules of the shape that the route agent writes, doubles included.
    pub rules: Vec<ObservedRule>,
    /// Routes of the gateway and delivery tables, and of the main table `unreachable` ones with our protocol and those
    /// out of the device between nodes.
    pub routes: Vec<ObservedRoute>,
    /// Next hops of our range or protocol, by id.
    pub nexthops: BTreeMap<u32, ObservedNexthop>,
    /// Whether this kernel supports next hops (Linux 5.3).
    pub has_nexthops: bool,
    /// Static forwarding entries of the device between nodes.
    pub forwards: BTreeSet<Forward>,
    /// Permanent neighbours on the device between nodes.
    pub neighbours: BTreeMap<IpAddr, Mac>,
    /// The kernel's routes to the addresses that were asked for.
    pub resolved_routes: BTreeMap<IpAddr, ResolvedRoute>,
    /// The packet filter.
    pub guard: ObservedGuard,
    /// The table of services.
    pub services: ObservedServices,
    /// The table of clusterset IPs.
    pub clusterset: ObservedServices,
    /// Other programs' packet filters.
    pub foreign: Foreign,
    /// What Submariner's programs have left, as far as it was asked for.
    pub leftover: Leftover,
    /// Devices whose strict reverse-path filter was loosened, and the setting's former value: what the packet filter's
    /// table and this process remember.
    pub loosened: BTreeMap<String, u32>,
    /// Values of all device settings that were asked for and exist, and of every device's `rp_filter`.
    pub sysctls: BTreeMap<Sysctl, u32>,
    /// Families that this kernel supports.
    pub families: BTreeSet<Family>,
    /// Conditions found while reading.
    pub conditions: BTreeSet<Condition>,
}

impl Default for Observed {
    /// Returns a host with both families and nothing else.
    fn default() -> Self {
        Self {
            links: BTreeMap::new(),
            addresses: BTreeSet::new(),
            rules: Vec::new(),
            routes: Vec::new(),
            nexthops: BTreeMap::new(),
            has_nexthops: true,
            forwards: BTreeSet::new(),
            neighbours: BTreeMap::new(),
            resolved_routes: BTreeMap::new(),
            guard: ObservedGuard::Absent,
            services: ObservedServices::Absent,
            clusterset: ObservedServices::Absent,
            foreign: Foreign::default(),
            leftover: Leftover::default(),
            loosened: BTreeMap::new(),
            sysctls: BTreeMap::new(),
            families: Family::ALL.into(),
            conditions: BTreeSet::new(),
        }
    }
}

impl Observed {
    /// Adds what this process remembers of loosened devices, in case that the packet filter's table was lost.
    pub fn remember(&mut self, loosened: &BTreeMap<String, u32>) {
        for (device, former) in loosened {
            self.loosened.entry(device.clone()).or_insert(*former);
        }
    }
}
