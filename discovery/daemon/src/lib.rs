#![forbid(unsafe_code)]
//! Service discovery: the programs that run in a cluster.
//!
//! * [`agent`] — exports and imports services. * [`dns`] — answers names of services of other clusters.
//! * [`ask`] — asks a DNS server, as a client does. * [`options`], [`http`] — settings and pages of both.

pub mod agent;
pub mod ask;
pub mod dns;
mod go_flags;
pub mod http;
pub mod options;
mod sockets;
