//! The route agent: programs routes, rules and packet filter on every node of a cluster.
//!
//! Level-driven: every pass computes what the node should look like from the whole cluster state, reads what it does
//! look like, and applies the difference. A second pass plans nothing; a restart repairs whatever drifted.
//!
//! ```text
//!   store ──▶ source ──▶ ClusterState ──▶ driver ──▶ HostNet ─┐
//!                             ▲                               ├─▶ plan ──▶ changes ──▶ port (kernel)
//!                             └─ addresses ◀── Observed ──────┘                          │
//!                                                 ▲──────────────────────────────────────┘
//! ```
//!
//! What remote clusters change is followed from the last answer of the driver (`driver.rs`) and planned from the network as the
//! last pass left it (`reconcile/reading.rs`): only what it concerns is sorted, routed and compared again.
//!
//! Gateways' notices about each other change groups of next hops at once, outside of passes (`notices.rs`).
//!
//! Its status is in the node's `RouteAgent` object (`publish.rs`, which also pings the remote gateways from nodes
//! without a gateway) and by a file for the pod's probe (`liveness.rs`).
//!
//! Imports lead one way. Plain data first: `constants`, `family`, `vxlan`, `nexthops`, `nft`, `services`, `hostnet`,
//! `state`, `condition`; then the state of the kernel (`guard`, `foreign`, `observed`) and what changes it (`change`); then
//! what decides (`admit`, `driver` and `events`, `plan`) and the port; `reconcile` and `agent` come last.
//!
//! Everything left of `port` is pure. Failing closed is part of the wanted state: traffic for a remote cluster is
//! refused, never sent in clear, while the gateway process is dead, and while this process is. What is written to a
//! node, and how to remove it by hand, is in `docs/packet-filter.md`.

#![forbid(unsafe_code)]

pub mod admit;
pub mod agent;
pub mod change;
pub mod cilium;
pub mod clusterset;
pub mod condition;
pub mod config;
pub mod constants;
pub mod deliverer;
pub mod departures;
pub mod driver;
pub mod events;
pub mod family;
pub mod foreign;
pub mod grace;
pub mod guard;
pub mod hostnet;
pub mod keep;
pub mod leftover;
pub mod live;
pub mod liveness;
pub mod names;
mod networks;
pub mod nexthops;
pub mod nft;
pub mod node_index;
pub mod nodes;
pub mod notices;
pub mod observed;
mod own_networks;
pub mod plan;
pub mod port;
pub mod publish;
pub mod reconcile;
pub mod restore;
pub mod schedule;
pub mod services;
pub mod source;
pub mod state;
pub mod status;
pub mod submariner;
pub mod taint;
pub mod takeover;
pub mod view;
pub mod vxlan;
pub mod wait;
pub mod zone;
