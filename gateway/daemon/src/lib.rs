//! The gateway as a library: threads, wiring, configuration, metrics, admin socket. The binary registers the kinds
//! of cable and calls [`run::main_with`].
//!
//! ```text
//!   store ──▶ engine ──▶ tables (snapshot) ─────┐
//!     ▲          └─────▶ commands ──▶ workers ◀─┘  one thread each: TUN queue, sockets, pipeline
//!     │                                 │ views (10 a second)
//!   publisher ◀── status ◀──────────────┴──▶ admin socket, /metrics, captures
//! ```
//!
//! No decision about a packet is made here (`gateway/pipeline`), and no object is interpreted outside
//! [`tables`].

#![forbid(unsafe_code)]

pub mod admin;
pub mod capture;
pub mod config;
pub mod devices;
pub mod engine;
pub mod handoff;
pub mod host;
pub mod metrics;
pub mod natdiscovery;
pub mod run;
pub mod state;
pub mod status;
pub mod tables;
pub mod worker;
