//! A client of Open vSwitch databases (OVSDB, RFC 7047).
//!
//! Imports lead one way: `uuid`, `value`, `operation`, `outcome`, `schema`, `spec`, `replica`, `updates`, `wire`, `server`,
//! `session`.

#![forbid(unsafe_code)]

pub mod operation;
pub mod outcome;
pub mod replica;
pub mod schema;
pub mod server;
pub mod session;
pub mod spec;
pub mod updates;
pub mod uuid;
pub mod value;
pub mod wire;
