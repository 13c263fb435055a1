//! The two address families.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;

/// An address family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Both families, in the order they are written.
    pub const ALL: [Self; 2] = [Self::V4, Self::V6];

    /// Returns the family of an address.
    #[must_use]
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    /// Returns the family of a network.
    #[must_use]
    pub fn of_net(net: &IpNet) -> Self {
        Self::of(net.addr())
    }

    /// Returns `ipv4` or `ipv6`, the name of the family's directory below `/proc/sys/net`.
    #[must_use]
    pub fn sysctl_name(self) -> &'static str {
        match self {
            Self::V4 => "ipv4",
            Self::V6 => "ipv6",
        }
    }

    /// Returns `4` or `6`, the suffix of the family's nftables sets.
    #[must_use]
    pub fn digit(self) -> char {
        match self {
            Self::V4 => '4',
            Self::V6 => '6',
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}
