//! The agent: stores, election and pages around `trieste-discovery-agent`.
//!
//! * [`config`] — flags and environment, which are upstream's. * [`lighthouse`] — under the name of upstream's program.
//! * [`stores`] — this cluster's and the broker's. * [`events`] — Kubernetes Events about exports. * [`metrics`] — the page for Prometheus. * [`run`] — start and stop.

pub mod config;
pub mod events;
pub mod lighthouse;
pub mod metrics;
pub mod run;
pub mod stores;

pub use config::{NAME, Options};
pub use run::main_with;
