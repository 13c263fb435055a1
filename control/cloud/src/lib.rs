//! What a cloud has to let pass for a cluster's gateways, and which of its machines are gateways.
//!
//! ```text
//!   cloud, cluster ──observe──▶ State ──plan (pure)──▶ Plan: changes in order ──apply──▶ cloud, cluster
//!                     ▲                                     │ none left: done                    │
//!                     └─────────────────────────────────────┴────────────────────────────────────┘
//! ```
//!
//! Nothing is remembered between runs: what has been done is read from the cloud, so that every run can be repeated, ends where
//! another one was interrupted, and takes back no more than was done. [`rules`] says what has to pass, for all clouds alike.

#![forbid(unsafe_code)]

pub mod aws;
pub mod azure;
pub mod choice;
pub mod cluster;
mod error;
pub mod exchange;
mod form;
pub mod gcp;
pub mod generic;
pub mod metadata;
#[cfg(test)]
mod played_answers;
#[cfg(test)]
mod played_cluster;
pub mod provider;
pub mod rest;
pub mod rhos;
pub mod rules;
pub mod run;

pub use error::CloudError;
pub use provider::{Goal, Plan, Provider};
pub use rules::{Ports, Rule, Wanted};
