//! VXLAN (RFC 7348), once for all who use it: addresses and frames of both overlays, and the kernel's device of one of them.
//!
//! ```text
//!   between gateways:                          between a cluster's nodes:
//!   VNI 1000, 241.x                            VNI 100, 240.x, UDP port 4800
//!
//!   cables: frames, ARP ──┐                ┌── pipeline: frames to nodes with back ends
//!   daemon: tables ───────┼──▶  vxlan  ◀───┼── daemon: those nodes' MAC addresses
//!                         │                ├── routeagent: what the kernel's device should be
//!                         │                └── diagnose: what was captured between nodes
//!                         └── routeagent, daemon: Submariner's device, which they remove
//! ```
//!
//! On the wire both are upstream's. The MAC addresses of our stations are derived ([`Mac::of_vtep`], [`Mac::of_node`]), so that
//! every gateway and node can compute every other's.
//!
//! Without sockets, clocks and randomness; it depends on nothing of ours.

#![forbid(unsafe_code)]

mod address;
mod device;
mod frame;
mod mac;

pub use address::{OVERHEAD_V4, OVERHEAD_V6, VTEP_GATEWAYS, VTEP_NODES, VX_PORT, VX_PREFIX, next_hop, vtep};
pub use device::{Forward, Vxlan};
pub use frame::{ARP_BYTES, Arp, HEAD_BYTES, Head, Protocol, Vni};
pub use mac::{InvalidMac, Mac};
