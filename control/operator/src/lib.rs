//! The operator: it makes clusters what their `Fabric` resources say ([what they say](trieste_control::api::FabricSpec)), or the
//! resources of upstream's operator.
//!
//! ```text
//!   Fabric ──watch──▶ controller ──orders──▶ worker ──▶ deploy_broker, join, uninstall (control/deploy)
//!     ▲                │    ▲                  │
//!     └── finalizers, ─┘    └──── reports ─────┤
//!         status                               └──▶ Events
//! ```
//!
//! * [`controller`] — pure: which object a part belongs to, what is to be carried out, what became of it. * [`worker`] —
//!   carries out one part after the other, again and again. * [`translate`] — from a Fabric, and from resources of others, to
//!   the options of the library. * [`config`], [`run`], [`metrics`] — the program.

#![forbid(unsafe_code)]

pub mod config;
pub mod controller;
mod holders;
mod kinds;
#[cfg(test)]
#[expect(dead_code, reason = "it is shared with tests that need more of it")]
#[path = "../../tests/all/memory_store.rs"]
mod memory_store;
pub mod metrics;
pub mod order;
pub mod run;
mod source;
mod sources;
mod status;
#[cfg(test)]
mod tests;
pub mod translate;
pub mod worker;

use std::time::Duration;

pub use kinds::Others;

/// How long a part that could not be carried out waits, first and at most.
pub const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
