//! Finds the broken hop.
//!
//! ```text
//!   node    what runs on a node: report, watch, send, listen      (in the route agent's pods: `trieste node …`)
//!   agents  how to reach those nodes: commands in pods, by way of the API server
//!   facts   what the API server of a cluster knows
//!   path    the walk along one connection: gather evidence, judge it
//!   checks  the checks of `trieste diagnose`, one cluster or two at a time
//! ```
//!
//! Used by the command `trieste`, on an operator's machine and (as `trieste node`) inside the pods of the route agent.

#![forbid(unsafe_code)]

pub mod agents;
pub mod checks;
pub mod facts;
pub mod node;
pub mod path;
