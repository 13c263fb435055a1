//! Names of network devices that upstream's programs and ours make on nodes. What those of VXLANs are is in `trieste_vxlan`.

/// The gateway's own device, unless it is told another name.
pub const TUN: &str = "submariner";
/// The VXLAN device between a cluster's nodes.
pub const VX_DEVICE: &str = "vx-submariner";
/// The device of upstream's VXLAN cable; its Endpoints do not name it.
pub const UPSTREAM_VXLAN_CABLE: &str = "vxlan-tunnel";
