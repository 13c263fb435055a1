//! One step from the observed state to the desired one: what a plan consists of and the port applies.

use std::fmt;

use crate::constants::VX_DEVICE;
use crate::foreign::ForeignChange;
use crate::guard::GuardChange;
use crate::hostnet::{Route, Rule, Sysctl, table_name};
use crate::nexthops::NexthopChange;
use crate::observed::ObservedRoute;
use crate::services::ServicesChange;
use crate::submariner::Removal;
use crate::vxlan::VxlanChange;

/// One step. Each is independent: if one fails, the others are still worth trying.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Writes a device setting.
    Set(Sysctl, u32),
    /// Adds a route; fails if its place is taken.
    AddRoute(Route),
    /// Puts a route in the place of one of ours.
    ReplaceRoute(Route),
    /// Removes one of our routes.
    RemoveRoute(ObservedRoute),
    /// Adds a rule.
    AddRule(Rule),
    /// Removes one instance of one of our rules.
    RemoveRule(Rule),
    /// Changes the packet filter, in one transaction.
    Guard(GuardChange),
    /// Changes what becomes of packets for services, in one transaction.
    Services(ServicesChange),
    /// Changes where clusterset IPs lead, in one transaction.
    Clusterset(ServicesChange),
    /// Changes another program's packet filter.
    Foreign(ForeignChange),
    /// Changes the device between nodes or what is on it.
    BetweenNodes(VxlanChange),
    /// Changes next hops.
    Nexthops(NexthopChange),
    /// Removes what Submariner's programs have left.
    Takeover(Removal),
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Set(sysctl, value) => write!(f, "set {sysctl} = {value}"),
            Self::AddRoute(route) => write!(f, "add {route}"),
            Self::ReplaceRoute(route) => write!(f, "replace {route}"),
            Self::RemoveRoute(route) => {
                write!(f, "remove {} table {}", route.destination, table_name(route.table))?;
                if let Some(device) = &route.device {
                    write!(f, " dev {device}")?;
                }
                write!(f, " metric {}", route.metric)
            }
            Self::AddRule(rule) => write!(f, "add {rule}"),
            Self::RemoveRule(rule) => write!(f, "remove {rule}"),
            Self::Guard(change) => change.fmt(f),
            Self::Services(change) | Self::Clusterset(change) => change.fmt(f),
            Self::Foreign(change) => change.fmt(f),
            Self::BetweenNodes(change) => change.fmt(f),
            Self::Nexthops(change) => change.fmt(f),
            Self::Takeover(removal) => removal.fmt(f),
        }
    }
}

/// One step that concerns a route alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouteChange<'a> {
    /// Adds it; fails if its place is taken.
    Add(&'a Route),
    /// Puts it in the place of one of ours.
    Replace(&'a Route),
    /// Removes one of ours.
    Remove(&'a ObservedRoute),
}

impl RouteChange<'_> {
    /// Returns the route that is written or removed.
    #[must_use]
    pub fn route(&self) -> ObservedRoute {
        match self {
            Self::Add(route) | Self::Replace(route) => ObservedRoute::from_route(route),
            Self::Remove(route) => (*route).clone(),
        }
    }
}

impl Change {
    /// Returns the change of a route that it is, if it is one.
    #[must_use]
    pub fn of_route(&self) -> Option<RouteChange<'_>> {
        match self {
            Self::AddRoute(route) => Some(RouteChange::Add(route)),
            Self::ReplaceRoute(route) => Some(RouteChange::Replace(route)),
            Self::RemoveRoute(route) => Some(RouteChange::Remove(route)),
            Self::Set(..)
            | Self::AddRule(_)
            | Self::RemoveRule(_)
            | Self::Guard(_)
            | Self::Services(_)
            | Self::Clusterset(_)
            | Self::Foreign(_)
            | Self::BetweenNodes(_)
            | Self::Nexthops(_)
            | Self::Takeover(_) => None,
        }
    }

    /// Returns `true` if it must not be made while the packet filter is not in place: it opens the VXLAN between nodes, or
    /// leads there.
    #[must_use]
    pub fn needs_guard(&self) -> bool {
        match self {
            // The first next hop there needs the filter, and a group needs a next hop.
            Self::Nexthops(NexthopChange::Set(_, nexthop)) => nexthop.device == VX_DEVICE,
            // Without the filter's chains what Submariner kept from masquerade would be masqueraded.
            Self::Foreign(_) | Self::BetweenNodes(_) | Self::Takeover(_) => true,
            Self::AddRoute(route) | Self::ReplaceRoute(route) => route.hop.device() == Some(VX_DEVICE),
            Self::Set(sysctl, _) => sysctl.device == VX_DEVICE,
            Self::Nexthops(_)
            | Self::RemoveRoute(_)
            | Self::AddRule(_)
            | Self::RemoveRule(_)
            | Self::Guard(_)
            | Self::Services(_)
            | Self::Clusterset(_) => false,
        }
    }

    /// Returns `true` if both are the same change, apart from the number that a new rule gets.
    #[must_use]
    pub fn repeats(&self, last: &Self) -> bool {
        match (self, last) {
            (Self::Foreign(this), Self::Foreign(last)) => this.repeats(last),
            _ => self == last,
        }
    }
}
