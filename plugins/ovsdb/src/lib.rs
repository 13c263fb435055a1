//! A client of Open vSwitch databases (OVSDB, RFC 7047).
//!
//! Imports lead one way: `uuid`, `value`, `operation`, `outcome`.

#![forbid(unsafe_code)]

pub mod operation;
pub mod outcome;
pub mod uuid;
pub mod value;
