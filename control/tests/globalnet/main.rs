//! Globalnet's plans on a world that behaves as an API server does: from upstream's recorded objects, and from others.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod egress;
mod exports;
#[path = "../memory_store/mod.rs"]
mod memory_store;
mod properties;
mod quarrels;
mod recorded;
mod run;
mod world;
