//! Services of the own cluster: which back ends each of their addresses and ports has, and on which nodes.
//!
//! ```text
//!   Services ────────┐
//!                    ├─▶ ServiceIndex (the fields used): address, protocol, port ─▶ back ends, and which have changed
//!   EndpointSlices ──┘
//! ```
//!
//! Both ends of service delivery read it: a gateway to find a node for a packet, a route agent to find the back ends on
//! its own node. Which back ends get new connections is decided as kube-proxy decides it.

mod claims;
mod follow;
mod read;
mod service;

pub use follow::ServiceWatch;
pub use read::ServiceIndex;
pub use service::{Backend, Frontend, Protocol, Service};
