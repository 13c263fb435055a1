//! The worker that writes what remote clusters need into a network plugin's own database.
//!
//! ```text
//!   leading gateway's route agent ─▶ GatewayRoute objects ─▶ trieste-plugin-sync ─┬─▶ Calico's IPPools
//!                                                                                 ├─▶ Spiderpool's hijackCIDR lists
//!                                                                                 └─▶ OVN's northbound database
//! ```
//!
//! What remote clusters may have is decided by the route agent of the leading gateway's node; this program carries it out
//! and decides about no claim. Which plugin the cluster has, it is told (`SUBMARINER_NETWORKPLUGIN`).
//!
//! Modules: `config` (flags and environment), `remote` (the networks of GatewayRoutes), `calico` and `spiderpool` (pure
//! controllers of IPPools and of lists), `ovn` (shell around `trieste-ovn`), `status` (how far it is), `run` (start, work and
//! stop).

#![forbid(unsafe_code)]

pub mod calico;
pub mod config;
pub mod ovn;
mod remote;
pub mod run;
pub mod spiderpool;
pub mod status;
