//! The addresses by which a node and OVN reach each other.

use std::net::IpAddr;

use crate::family::Family;
use crate::state::{ClusterState, DeviceAddress};

/// Returns a device's address of a family, but for the link-local one that every device has with IPv6.
pub(super) fn address_of<'a>(
    state: &'a ClusterState,
    device: &str,
    family: Family,
) -> Option<&'a DeviceAddress> {
    let is_of_family = |own: &&DeviceAddress| Family::of(own.network.addr()) == family;
    state.addresses.iter().filter(|own| own.device == device && is_given(own)).find(is_of_family)
}

/// Returns `true` unless the kernel gave the address.
fn is_given(own: &DeviceAddress) -> bool {
    match own.network.addr() {
        IpAddr::V4(_) => true,
        IpAddr::V6(address) => !address.is_unicast_link_local(),
    }
}
