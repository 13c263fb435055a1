//! The DNS server: sockets and objects around `trieste-dns`.
//!
//! ```text
//!  store ─▶ follow ─▶ index, reach ─▶ Writer ─▶ Records ◀── udp (threads), tcp (tasks) ◀── clients
//!                                                  └──────▶ http: /health, /ready, /metrics
//! ```
//!
//! * [`config`], [`corefile`], [`lighthouse`] — flags and environment; Lighthouse's arguments and its Corefile.
//! * [`follow`] — the store's events, one by one; what follows from each is said by `trieste-discovery-objects`.
//! * [`udp`], [`tcp`] — queries. * [`counters`], [`metrics`], [`pages`](trieste_control::pages) — what is said of it all. * [`run`] — start and stop.
//! * [`snapshot`] — answers from the objects of one moment.

pub mod config;
pub mod corefile;
pub mod counters;
pub mod follow;
pub mod lighthouse;
pub mod metrics;
pub mod run;
pub mod snapshot;
pub mod tcp;
pub mod udp;

pub use config::{NAME, Options};
pub use run::main_with;
