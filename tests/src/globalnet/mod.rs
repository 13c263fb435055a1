//! Clusters whose pods and services have the same addresses, and how each is known to the other.
//!
//! ```text
//!  east: pods 10.1.0.0/16, services 10.101.0.0/16            west: the same
//!  known as 242.1.0.0/16 ─────── encrypted cable ─────────── known as 242.2.0.0/16
//! ```
//!
//! * [`Objects`] puts what Kubernetes would have into a cluster's directory, and reads what globalnet has made of it.
//! * [`proxy`] stands in for kube-proxy, and for a network plugin that masquerades, where there is neither.
//! * [`Scene`] is two such clusters with pods of every kind; [`rows`] is the list that upstream's end-to-end tests go
//!   through: who asks whom, and whose address the other must see.

mod flow;
mod objects;
pub mod proxy;
mod scene;

pub use flow::{Actors, Client, Flow, SIZES, Server, Site, hairpins, list, rows};
pub use objects::{EGRESS, Objects, allocated, egress, export, service};
pub use scene::{PODS, Scene, actors, inhabit};
