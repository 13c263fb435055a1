//! The route agent against a real kernel, in namespaces. Needs root.
//!
//! ```text
//!   pod ── veth ── cni0 ┌──────┐ eth0 ── veth ── eth0 ┌─────┐
//!   10.1.1.10           │ node │                      │ wan │  the node's default route; counts what must not
//!   fd00:1::10   submariner ───┘ 172.31.1.11          └─────┘  leave in clear
//!                (a real TUN)    fd31::11              172.31.1.1, fd31::1
//! ```
//!
//! Cluster `a` is 10.1.0.0/16, 100.65.0.0/16, fd00:1::/48; remote cluster `b` is 10.2.0.0/16, 100.66.0.0/16,
//! fd00:2::/48.
//!
//! `cluster.rs` has a cluster of three nodes behind one another's firewalls.

mod between_nodes;
mod broken_off;
mod cluster;
mod clusterset;
mod fail_closed;
mod globalnet;
mod lab;
mod others_filters;
mod plugin_cilium;
mod plugin_macvlan;
mod plugin_ovn;
mod reconcile;
mod routes;
mod services;
mod several;
mod source_guard;
mod strangers;
mod takeover;
mod takeover_back;
mod voices;
