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
//! `assembly` puts all of this together, in phases, and ends it in order; [`run`] is the process around it.
//!
//! No decision about a packet is made here (`gateway/pipeline`), and no object is interpreted outside
//! [`tables`].

#![forbid(unsafe_code)]

pub mod admin;
mod assembly;
pub mod capture;
pub mod config;
mod control;
pub mod devices;
pub mod engine;
pub mod globalnet;
pub mod handoff;
pub mod host;
pub mod ike;
pub mod kinds;
mod live;
pub mod marks;
pub mod memory;
pub mod metrics;
pub mod natdiscovery;
pub mod node;
pub mod notice;
pub mod paths;
mod privileges;
pub mod probe;
mod rings;
mod role;
pub mod run;
mod services;
pub mod settings;
mod shared;
pub mod state;
pub mod status;
mod stores;
mod submariner;
pub mod tables;
mod threads;
pub mod uninstall;
mod unreachable;
pub mod wire;
pub mod worker;
