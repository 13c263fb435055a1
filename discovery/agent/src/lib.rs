//! The agent of service discovery: it exports this cluster's services through the broker, and imports those of the others.
//!
//! ```text
//!      this cluster                                         broker                          every other cluster
//!   ServiceExport, Service, ──▶ own slices, own import ──▶ slices with the cluster's label ──▶ copies in the namespace
//!   its EndpointSlices           (what DNS here answers)   one import of all, each cluster's part ──▶ its copy
//! ```
//!
//! * Objects, names of labels, annotations and conditions are those of upstream's Lighthouse agent; either may run in any
//!   cluster of a set.
//! * A service is the unit: everything that is known of one stands in a row, and a plan looks at nothing else.
//! * The oldest export also decides whether the service has addresses that stand for it in all clusters, one of each family that
//!   it has, and takes them out of its cluster's blocks: such that no import on the broker has, and are promised to no other.
//! * The import on the broker has several authors. A cluster writes its own timestamp, its own entry in the status, and the
//!   ports where its own count; the one that exported first decides type and session affinity. What somebody
//!   deletes is made again by those whose part it is.
//! * What the others say is checked before it is taken in, and addresses that are not theirs are left out; a copy never takes the
//!   place of an object that is none.
//! * While the broker is away nothing is removed here; one that has lost everybody's services is not believed for
//!   [`EMPTY_GRACE`].

#![forbid(unsafe_code)]

mod accepted;
mod admit;
mod aggregate;
mod clusterset;
mod conditions;
mod config;
mod conflicts;
mod controller;
mod facts;
mod family;
mod handle;
mod holds;
mod ingress;
mod metadata;
mod name;
mod owned;
mod place;
mod plan;
mod preferences;
mod publish_grace;
mod rate_limit;
mod row;
mod service;
mod slices;
mod state;
mod status;
mod sync_lag;
mod taken;
mod transitions;

pub use config::AgentConfig;
pub use controller::{AgentController, EMPTY_GRACE};
pub use handle::{AgentHandle, spawn};
pub use name::{Key, ServiceName};
pub use status::{AgentStatus, RefusedObject, Transition};
pub use sync_lag::Lag;
