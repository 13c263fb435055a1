//! The worker that writes what remote clusters need into a network plugin's own database.
//!
//! ```text
//!   leading gateway's route agent ─▶ GatewayRoute objects ─▶ trieste-plugin-sync ─┬─▶ Calico's IPPools
//!                                                                                 └─▶ OVN's northbound database
//! ```
//!
//! What remote clusters may have is decided by the route agent of the leading gateway's node; this program carries it out
//! and decides about no claim. Which plugin the cluster has, it is told (`SUBMARINER_NETWORKPLUGIN`).
//!
//! Modules: `config` (flags and environment), `calico` (pure controller of IPPools), `ovn` (shell around `trieste-ovn`),
//! `status` (how far it is), `run` (start, work and stop).

#![forbid(unsafe_code)]

pub mod calico;
pub mod config;
pub mod ovn;
pub mod run;
pub mod status;
