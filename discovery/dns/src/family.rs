//! The two families of addresses, for what is the same with both.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use domain::base::rdata::ComposeRecordData;
use domain::rdata::{A, Aaaa};

use crate::export::{Address, Export};
use crate::service::Need;

/// A family of addresses.
pub(crate) trait Family {
    /// An address.
    type Ip: Copy;
    /// What a cluster has to have.
    const NEED: Need;

    /// Returns a cluster's addresses.
    fn addresses(export: &Export) -> &[Address<Self::Ip>];
    /// Returns an address if it is of this family.
    fn of(ip: IpAddr) -> Option<Self::Ip>;
    /// Returns an address as the data of a record.
    fn data(ip: Self::Ip) -> impl ComposeRecordData;
}

/// IPv4.
pub(crate) struct V4;
/// IPv6.
pub(crate) struct V6;

impl Family for V4 {
    type Ip = Ipv4Addr;
    const NEED: Need = Need::V4;

    fn addresses(export: &Export) -> &[Address<Ipv4Addr>] {
        &export.v4
    }

    fn of(ip: IpAddr) -> Option<Ipv4Addr> {
        match ip {
            IpAddr::V4(ip) => Some(ip),
            IpAddr::V6(_) => None,
        }
    }

    fn data(ip: Ipv4Addr) -> impl ComposeRecordData {
        A::new(ip)
    }
}

impl Family for V6 {
    type Ip = Ipv6Addr;
    const NEED: Need = Need::V6;

    fn addresses(export: &Export) -> &[Address<Ipv6Addr>] {
        &export.v6
    }

    fn of(ip: IpAddr) -> Option<Ipv6Addr> {
        match ip {
            IpAddr::V4(_) => None,
            IpAddr::V6(ip) => Some(ip),
        }
    }

    fn data(ip: Ipv6Addr) -> impl ComposeRecordData {
        Aaaa::new(ip)
    }
}
