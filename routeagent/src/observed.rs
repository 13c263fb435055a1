//! What the kernel reports: the other input of `plan.rs`.
//!
//! Routes and rules arrive here as far as they could be ours; whether one is, is decided in one place,
//! [`ObservedRoute::is_ours`] and [`ObservedRule::is_ours`]. What is not ours is never part of a plan.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;

use crate::condition::Condition;
use crate::hostnet::{
    Family, Guard, Hop, METRIC_FAIL_CLOSED, PROTOCOL, RULE_PROTOCOL, Route, Rule, Sysctl, TABLE_GATEWAY,
    TABLE_MAIN,
};
use crate::state::DeviceAddress;

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
    /// Who wrote it (`RTPROT_*`).
    pub protocol: u8,
    /// Scope (`RT_SCOPE_*`); always 0 for IPv6.
    pub scope: u8,
    /// Kind.
    pub kind: RouteKind,
    /// Name of its only device.
    pub device: Option<String>,
    /// Preferred source.
    pub source: Option<IpAddr>,
    /// Whether it carries anything the route agent never writes: a gateway, several hops, an MTU, an encapsulation.
    pub has_extras: bool,
}

/// `RT_SCOPE_LINK`.
const SCOPE_LINK: u8 = 253;
/// `RT_SCOPE_UNIVERSE`.
const SCOPE_UNIVERSE: u8 = 0;

impl ObservedRoute {
    /// Says whether the route agent wrote this route, now or in an earlier life: protocol static in the gateway
    /// table, or in the main table an `unreachable` of exactly our protocol and metric.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.protocol == PROTOCOL
            && (self.table == TABLE_GATEWAY
                || (self.table == TABLE_MAIN
                    && self.kind == RouteKind::Unreachable
                    && self.metric == METRIC_FAIL_CLOSED
                    && self.tos == 0))
    }

    /// Returns the route in the terms of [`Route`], or `None` if it says something else.
    #[must_use]
    pub fn as_route(&self) -> Option<Route> {
        if self.tos != 0 || self.has_extras || self.protocol != PROTOCOL {
            return None;
        }
        let hop = match self.kind {
            RouteKind::Unreachable => Hop::Unreachable,
            RouteKind::Throw => Hop::Throw,
            RouteKind::Unicast if self.scope == device_scope(&self.destination) => {
                Hop::Device { name: self.device.clone()?, source: self.source }
            }
            RouteKind::Unicast | RouteKind::Other(_) => return None,
        };
        Some(Route { table: self.table, destination: self.destination, metric: self.metric, hop })
    }

    /// Returns what the kernel would report once a route is written.
    #[must_use]
    pub fn from_route(route: &Route) -> Self {
        let (kind, device, source, scope) = match &route.hop {
            Hop::Throw => (RouteKind::Throw, None, None, SCOPE_UNIVERSE),
            Hop::Unreachable => (RouteKind::Unreachable, None, None, SCOPE_UNIVERSE),
            Hop::Device { name, source } => {
                (RouteKind::Unicast, Some(name.clone()), *source, device_scope(&route.destination))
            }
        };
        Self {
            table: route.table,
            destination: route.destination,
            metric: route.metric,
            tos: 0,
            protocol: PROTOCOL,
            scope,
            kind,
            device,
            source,
            has_extras: false,
        }
    }

    /// Says whether the two cannot both exist: the kernel keys routes by table, destination, metric and, for IPv4,
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObservedRule {
    /// What it says.
    pub rule: Rule,
    /// Who wrote it (`RTPROT_*`).
    pub protocol: u8,
}

impl ObservedRule {
    /// Says whether the route agent wrote this rule. One of the same content by someone else, such as upstream's
    /// route agent, serves as well, but is not ours to remove; the kernel does not let both exist.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.protocol == RULE_PROTOCOL && self.rule.is_of_our_kind()
    }
}

/// A network device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    /// Its index.
    pub index: u32,
    /// Whether it is administratively up. A device that is down can carry no routes.
    pub is_up: bool,
}

/// State of the source guard's nftables table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ObservedGuard {
    /// Could not be read; nothing is planned for it.
    Unknown,
    /// The table does not exist.
    Absent,
    /// The table exists, but its chain, rules or set definitions are not as written: it is made anew.
    Altered,
    /// The table is as written, with these set elements.
    Present(Guard),
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
    /// Routes of the gateway table, and `unreachable` routes of the main table with our protocol.
    pub routes: Vec<ObservedRoute>,
    /// The source guard.
    pub guard: ObservedGuard,
    /// Values of all device settings that were asked for and exist.
    pub sysctls: BTreeMap<Sysctl, u32>,
    /// Families that this kernel supports.
    pub families: BTreeSet<Family>,
    /// What was noticed on the way.
    pub conditions: BTreeSet<Condition>,
}

impl Default for Observed {
    /// A host with both families and nothing else.
    fn default() -> Self {
        Self {
            links: BTreeMap::new(),
            addresses: BTreeSet::new(),
            rules: Vec::new(),
            routes: Vec::new(),
            guard: ObservedGuard::Absent,
            sysctls: BTreeMap::new(),
            families: Family::ALL.into(),
            conditions: BTreeSet::new(),
        }
    }
}
