//! What a cluster needs to become a member of a cluster set, as objects, and the steps that put them there.
//!
//! Used by the command `trieste`; nothing here prints or asks.

#![forbid(unsafe_code)]

pub mod objects;
