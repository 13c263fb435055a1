//! Tests of the command `trieste` from outside.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod command;
mod discovery;
mod discovery_cluster;
mod gather;
