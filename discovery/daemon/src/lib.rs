#![forbid(unsafe_code)]
//! Service discovery: the programs that run in a cluster.
//!
//! * [`dns`] — answers names of services of other clusters.

pub mod dns;
