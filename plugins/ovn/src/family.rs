//! The two families of addresses, as they stand in matches.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::constants::{REROUTE_PRIORITY_V4, REROUTE_PRIORITY_V6};

/// IPv4 or IPv6.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Both.
    pub(crate) const ALL: [Self; 2] = [Self::V4, Self::V6];

    /// Returns the family of a network.
    pub(crate) const fn of(network: &IpNet) -> Self {
        match network {
            IpNet::V4(_) => Self::V4,
            IpNet::V6(_) => Self::V6,
        }
    }

    /// Returns the family of an address.
    pub(crate) const fn of_address(address: &IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }

    /// Returns its name for people.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        }
    }

    /// Returns the field of a packet's destination in OVN's matches (ovn-sb(5), Logical_Flow).
    pub(crate) const fn destination(self) -> &'static str {
        match self {
            Self::V4 => "ip4.dst",
            Self::V6 => "ip6.dst",
        }
    }

    /// Returns the priority of upstream's policies.
    pub(crate) const fn reroute_priority(self) -> i64 {
        match self {
            Self::V4 => REROUTE_PRIORITY_V4,
            Self::V6 => REROUTE_PRIORITY_V6,
        }
    }
}

/// Returns the match of all packets to a network, letter by letter as upstream writes it.
pub(crate) fn match_of(network: &IpNet) -> String {
    format!("{} == {network}", Family::of(network).destination())
}

/// Returns the network of a match that [`match_of`] or upstream wrote.
pub(crate) fn network_of(text: &str) -> Option<IpNet> {
    let (field, network) = text.split_once(" == ")?;
    let network: IpNet = network.parse().ok()?;
    (field == Family::of(&network).destination()).then_some(network)
}
