//! Tests of the control plane: objects and stores, sync, elections, members, Globalnet, NAT discovery, and simulations.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod bad_objects;
mod crds;
mod dir_store;
mod dir_store_cost;
mod election;
mod globalnet;
mod golden_objects;
mod members;
mod members_simulation;
mod memory_store;
mod natdiscovery;
mod publicip;
mod publish;
mod recorded;
mod runner;
mod simulation;
mod structural;
mod sync;
mod sync_faults;
mod sync_lab;
mod sync_rivals;
mod sync_scale;
