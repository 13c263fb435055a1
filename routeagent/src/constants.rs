//! Numbers and names that this node shares with its kernel and the cluster's other nodes.

// --- from the specification: numbers every Submariner-compatible node uses -----------------------------------

/// Routing table of a gateway node's routes to remote clusters.
pub const TABLE_GATEWAY: u32 = 150;
/// Priority of the rule that looks up [`TABLE_GATEWAY`]; upstream makes priority and table id equal.
pub const PRIORITY_GATEWAY: u32 = 150;
/// Routing table by which a gateway node hands packets of remote clusters to the other nodes.
pub const TABLE_DELIVERY: u32 = 149;
/// Priority of the rule that looks up [`TABLE_DELIVERY`].
pub const PRIORITY_DELIVERY: u32 = 149;
/// The kernel's main routing table (`RT_TABLE_MAIN`).
pub const TABLE_MAIN: u32 = 254;
/// Route protocol of everything written here (`RTPROT_STATIC`), as upstream.
pub const PROTOCOL: u8 = 4;
/// Routing table of upstream's VXLAN cable on its gateway nodes.
pub const TABLE_UPSTREAM_CABLE: u32 = 100;
/// Priority of the rule that leads to [`TABLE_UPSTREAM_CABLE`].
pub const PRIORITY_UPSTREAM_CABLE: u32 = 100;
/// The intra-cluster VXLAN device between a gateway node and the other nodes; its numbers are in `trieste_vxlan`.
pub use trieste_control::devices::VX_DEVICE;
/// OVN-Kubernetes' management port: the device by which a node is on its own logical switch.
pub const MANAGEMENT_PORT: &str = "ovn-k8s-mp0";
/// The bridge to OVN's external switch in OVN-Kubernetes' local gateway mode.
pub const EXTERNAL_BRIDGE: &str = "br-local";
/// The places on that bridge's network that `submariner_router` takes the first of, but for the node's own (`trieste-ovn`).
pub const SUBMARINER_ROUTER_HOSTS: std::ops::Range<u32> = 7..11;
/// Port a gateway's cables use when its Endpoint names none.
pub const DEFAULT_CABLE_PORT: u16 = 4500;
/// Port of NAT discovery when an Endpoint names none.
pub const DEFAULT_NATT_PORT: u16 = 4490;

// --- ours ----------------------------------------------------------------------------------------------------

/// Priority of the rule that keeps marked sockets out of every cluster-set table: before 149 and 150, after the kernel's local
/// table, which Cilium moves from 0 to 100.
pub const PRIORITY_MARK: u32 = 140;
/// Priority of that rule in earlier versions.
pub const FORMER_PRIORITY_MARK: u32 = 90;
/// Protocol of our rules. A number of our own, because the kernel removes the first rule that has what the request
/// names, whatever else it selects by; with this in the request it can only be one of ours. 4 would not do:
/// systemd-networkd gives it to every rule.
pub const RULE_PROTOCOL: u8 = 150;
/// Mark on the sockets of cables, probes and discovery.
pub const MARK: u32 = 0x0054_0000;
/// Bits of a packet's mark that [`MARK`] occupies.
pub const MARK_MASK: u32 = 0x00ff_0000;
/// Metric of the fail-closed routes: FRRouting reads the upper byte as an administrative distance, and 255 there
/// means "never use, never redistribute", so a routing daemon on the node cannot prefer or announce them.
pub const METRIC_FAIL_CLOSED: u32 = 0xff00_2000;
/// Added to the metric of a gateway's route for the fallback when its device has no carrier.
pub const METRIC_OTHERS_MORE: u32 = 100;
/// Metric of an IPv6 route that is added without one (`IP6_RT_PRIO_USER`); IPv4 routes have 0.
pub const METRIC_IPV6_DEFAULT: u32 = 1024;
