//! Why a service has no address for all clusters of a family, and what to do.

use std::fmt;
use std::net::IpAddr;

use crate::family::Family;

/// Why this cluster has no address for a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Lacking {
    /// It has no block of the family.
    Block(Family),
    /// All addresses of its blocks of the family are in use: so many.
    Free(Family, u64),
    /// What is free of its block is in this cluster's networks.
    InNetworks(IpAddr, String),
    /// What is free of its block is not in the set's range.
    OutOfRange(IpAddr),
}

impl fmt::Display for Lacking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Block(Family::V4) => f.write_str(
                "this cluster has no block of clusterset IPs; it gets one by join --enable-clusterset-ip, or by the \
                 setting SUBMARINER_CLUSTERSET_IP_CIDR of its agent",
            ),
            Self::Block(Family::V6) => f.write_str(
                "this cluster has no block of IPv6 clusterset IPs; it gets one by join, where the broker has a range of them, or \
                 by the setting SUBMARINER_CLUSTERSET_IP_CIDR of its agent",
            ),
            Self::Free(family, size) => {
                let family = if *family == Family::V6 { "IPv6 " } else { "" };
                write!(
                    f,
                    "all {size} {family}clusterset IPs of this cluster are in use; a larger block is given by join \
                     --clusterset-ip-cidr"
                )
            }
            Self::InNetworks(ip, cluster) => write!(
                f,
                "{ip} of this cluster's block is in the networks of cluster {cluster}; another block is given by join \
                 --clusterset-ip-cidr"
            ),
            Self::OutOfRange(ip) => write!(
                f,
                "{ip} of this cluster's block is not in the range of the set; another block is given by join \
                 --clusterset-ip-cidr"
            ),
        }
    }
}
