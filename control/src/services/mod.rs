//! Services of the own cluster: which back ends each of their addresses and ports has, and on which nodes.
//!
//! ```text
//!   Services ────────┐
//!                    ├─▶ ServiceIndex (the fields used) ─▶ Catalogue: address, protocol, port ─▶ back ends
//!   EndpointSlices ──┘
//! ```
//!
//! Both ends of service delivery read it: a gateway to find a node for a packet, a route agent to find the back ends on
//! its own node. Which back ends get new connections is decided as kube-proxy decides it.

mod catalogue;
mod follow;
mod read;

pub use catalogue::{Backend, Catalogue, Frontend, Protocol, Service};
pub use follow::{Watched, follow};
pub use read::ServiceIndex;
