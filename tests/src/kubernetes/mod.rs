//! Kubernetes for the lab: real API servers (each with its own etcd, no kubelet, no controllers), and everything that
//! a gateway expects to find there.
//!
//! ```text
//!  east-gw1 ─┐                                        ┌─ west-gw1
//!  east-gw2 ─┼─ tl…-wan ─ broker (its own API server) ┼─ west-gw2
//!  east-worker3 ┘   ├─ east-api (API server)          └─ west-worker3
//!                   └─ west-api (API server)
//! ```
//!
//! * [`ApiServer`] is one server in one namespace; [`Client`] speaks to it in JSON, blocking.
//! * [`credentials`] makes what a pod or a broker's Secret holds; [`rbac`] gives upstream's rights and no more;
//!   [`objects`] plays the kubelet and the operator: nodes, pods, definitions.
//! * [`Faults`] stands before a server and breaks connections to it.
//! * [`KubernetesLab`] is all of it: clusters with several gateways, each with an API server, and a broker.
//! * [`Fleet`] is such a lab with the gateways that run in it; [`Journal`] says what is written to a server, in order.
//!
//! The server is built by `tests/peers/kubernetes`, once, outside of the tree: `./dev deps` or `./dev test` does it.

mod binary;
mod client;
pub mod credentials;
mod faults;
mod fleet;
mod inventory;
mod journal;
mod lab;
pub mod objects;
mod pod;
pub mod rbac;
mod server;

pub use binary::built;
pub(crate) use binary::path as apiserver_path;
pub use client::{Client, Watch, status_code};
pub use faults::{Faults, Mode};
pub use fleet::{Fleet, Place};
pub use journal::{Entry, Journal};
pub use lab::{BROKER_SECRET, KubernetesCluster, KubernetesLab};
pub use pod::{GatewayPod, PodFiles, RouteAgentPod};
pub use server::{ApiServer, Options};
