//! Changes of the VXLAN device between a cluster's nodes; what it should be is `trieste_vxlan::Vxlan`. Pure.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use trieste_vxlan::{Forward, Mac, Vxlan};

use crate::constants::VX_DEVICE;

/// A change of the device between nodes or of what is on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VxlanChange {
    /// Creates the device, without peers.
    Make(Vxlan),
    /// Makes upstream's device ours: its own address, no peer and no learning. Nothing that leads there is lost.
    Convert(Vxlan),
    /// Sets its MTU and MAC address, sets it up, and tells all nodes the MAC address by gratuitous ARP.
    Adjust(Vxlan),
    /// Removes it.
    Remove,
    /// Adds an address to it.
    AddAddress(IpNet),
    /// Removes an address from it.
    RemoveAddress(IpNet),
    /// Adds a forwarding entry to it.
    AddForward(Forward),
    /// Removes a forwarding entry from it.
    RemoveForward(Forward),
    /// Writes a permanent neighbour on it.
    SetNeighbour(IpAddr, Mac),
    /// Removes a permanent neighbour from it.
    RemoveNeighbour(IpAddr),
}

impl fmt::Display for VxlanChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Make(vxlan) => write!(f, "make {VX_DEVICE} local {}", vxlan.local),
            Self::Adjust(vxlan) => {
                write!(f, "set {VX_DEVICE} mtu {} address {} up", vxlan.mtu, vxlan.mac())
            }
            Self::Convert(vxlan) => write!(f, "set {VX_DEVICE} local {}, without peers", vxlan.local),
            Self::Remove => write!(f, "remove {VX_DEVICE}"),
            Self::AddAddress(address) => write!(f, "add address {address} to {VX_DEVICE}"),
            Self::RemoveAddress(address) => write!(f, "remove address {address} from {VX_DEVICE}"),
            Self::AddForward(entry) => write!(f, "add {VX_DEVICE} entry {} to {}", entry.mac, entry.to),
            Self::RemoveForward(entry) => write!(f, "remove {VX_DEVICE} entry {} to {}", entry.mac, entry.to),
            Self::SetNeighbour(address, mac) => write!(f, "set {VX_DEVICE} neighbour {address} at {mac}"),
            Self::RemoveNeighbour(address) => write!(f, "remove {VX_DEVICE} neighbour {address}"),
        }
    }
}
