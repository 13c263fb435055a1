#![forbid(unsafe_code)]
//! Service discovery: the programs that run in a cluster.
//!
//! * [`agent`] — exports and imports services. * [`dns`] — answers names of services of other clusters.

pub mod agent;
pub mod dns;
mod logs;
