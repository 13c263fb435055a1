//! Names of network devices that upstream's programs and ours make on nodes, and the hardware addresses of ours.

use std::net::IpAddr;

use crate::hash::fnv1a;

/// The gateway's own device, unless it is told another name.
pub const TUN: &str = "submariner";
/// The VXLAN device between a cluster's nodes.
pub const VX_DEVICE: &str = "vx-submariner";
/// The device of upstream's VXLAN cable; its Endpoints do not name it.
pub const UPSTREAM_VXLAN_CABLE: &str = "vxlan-tunnel";
/// Its VNI.
pub const UPSTREAM_VXLAN_CABLE_VNI: u32 = 1000;

/// UDP port of the VXLAN between a cluster's nodes.
pub const VX_PORT: u16 = 4800;
/// First two bytes of a MAC address made from an IPv4 address, which follows: unicast, locally administered.
const MAC_PREFIX_V4: [u8; 2] = [0x02, 0x54];
/// First byte of a MAC address made from an IPv6 address; 40 bits of its hash follow.
const MAC_PREFIX_V6: u8 = 0x06;

/// Returns the MAC address of [`VX_DEVICE`] on the node that is reached at `underlay`, where our route agent made the
/// device. It follows from the node's address, so that nobody has to ask.
#[must_use]
pub fn vx_mac(underlay: IpAddr) -> [u8; 6] {
    match underlay {
        IpAddr::V4(address) => {
            let ([a, b], [c, d, e, f]) = (MAC_PREFIX_V4, address.octets());
            [a, b, c, d, e, f]
        }
        IpAddr::V6(address) => {
            let [_, _, _, b, c, d, e, f] = fnv1a(address.octets()).to_be_bytes();
            [MAC_PREFIX_V6, b, c, d, e, f]
        }
    }
}
