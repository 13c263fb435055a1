//! The writes of the leading gateway, which is its cluster's one Endpoint.
//!
//! * [`plan()`] says what to write so that the local namespace says so, in upstream's order, since peers react to each
//!   write: the cluster's other Endpoints go first, then the Cluster is written, then the Endpoint. It is
//!   **level-driven**: the same view gives the same plan, whatever happened before, and the plan of the result is
//!   empty; deletions and creations that arrive late or in either order end in the same state.
//! * **Fenced**: our writes carry the term of our leadership as annotation [`TERM_ANNOTATION`]. A gateway that finds a
//!   newer term writes nothing. Objects without a term are upstream's, and are taken over.
//! * [`Announcer`] adds what a view does not say: an Endpoint of ours that has vanished is only made again after a
//!   renewal that was asked for later, so that a successor's deletion is never undone.
//! * [`spawn`] executes plans on a store, for as long as the election says that we lead.

mod announcer;
mod controller;
mod global_ip;
mod plan;

pub use announcer::Announcer;
pub use controller::{
    EndpointController, LeaderConfig, LeaderHandle, LeaderInput, LeaderState, LeaderStatus, spawn,
};
pub use global_ip::global_health_check_ip;
pub(crate) use plan::{ENDPOINT_FIELDS, make, object};
pub use plan::{Fence, Plan, View, plan};

/// The annotation that says in which term of leadership an object was written: a decimal number. Upstream leaves
/// annotations alone, and so does an API server with upstream's definitions.
pub const TERM_ANNOTATION: &str = "trieste.io/term";
