//! The DNS server: sockets and objects around `trieste-dns`.
//!
//! ```text
//!  store ─▶ follow ─▶ index, reach ─▶ Writer ─▶ Records ◀── udp (threads), tcp (tasks) ◀── clients
//!                                                  └──────▶ http: /health, /ready, /metrics
//! ```
//!
//! * [`config`], [`corefile`], [`lighthouse`] — flags and environment; Lighthouse's arguments and its Corefile.
//! * [`objects`] — one object as the responder needs it. * [`index`] — which changes follow from an event.
//! * [`reach`] — which clusters the gateways reach. * [`follow`] — the store's events, one by one.
//! * [`udp`], [`tcp`] — queries. * [`counters`], [`metrics`], [`http`](crate::http) — what is said of it all. * [`run`] — start and stop.
//! * [`snapshot`] — answers from the objects of one moment.

pub mod config;
pub mod corefile;
pub mod counters;
pub mod follow;
pub mod index;
pub mod lighthouse;
pub mod metrics;
pub mod objects;
pub mod reach;
pub mod run;
pub mod snapshot;
pub mod tcp;
pub mod udp;

pub use config::{NAME, Options};
pub use run::main_with;
