#![forbid(unsafe_code)]
//! Service discovery: the programs that run in a cluster.
//!
//! * [`agent`] — exports and imports services. * [`dns`] — answers names of services of other clusters.
//! * [`ask`] — asks a DNS server, as a client does. * [`options`] — settings of both.

pub mod agent;
pub mod ask;
pub mod dns;
mod go_flags;
pub mod options;
