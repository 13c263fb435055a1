//! Every object that makes a cluster a member of a cluster set, or a broker, generated from a few choices.
//!
//! ```text
//!   MemberOptions ── member() ────────┐
//!   BrokerOptions ── broker() ────────┼─▶ [Manifest], in the order in which they are applied
//!   a cluster's ID ─ broker_member() ─┘
//! ```
//!
//! `join` and `deploy-broker` apply what comes out here: there is one place that knows what a member consists of.
//! Nothing here talks to a cluster. [`files`](files()) writes the same for those who apply YAML with their own tools.

mod broker;
mod cpu;
mod crds;
mod custom;
mod deployment;
mod discovery;
mod files;
mod gateway;
mod image;
mod manifest;
mod member;
mod memory;
pub mod names;
mod namespaces;
mod networks;
mod operator;
mod options;
mod plugin;
mod pod;
mod policy;
mod ranges;
pub mod rbac;
mod routeagent;
mod secret;
mod secrets;
mod services;
mod settings;

pub use broker::{BrokerOptions, ClusterSetIp, Component, Globalnet, broker, broker_member};
pub use cpu::{CpuRequest, CpuRequestError};
pub use crds::{definitions, service_export, service_import};
pub use custom::{broker_resource, submariner_resource, submariner_status};
pub use files::{File, example, files};
pub use image::{Image, PullPolicy, UnknownPullPolicy};
pub use manifest::{Manifest, to_yaml};
pub use member::{member, service_discovery};
pub use memory::{MemoryLimit, MemoryLimitError};
pub use operator::{broker_info_config_map, broker_info_secret, operator, operator_namespaces};
pub use options::{
    ActiveGateways, BrokerAccess, HealthCheck, MemberOptions, OuterIo, OvnLayout, Proxy, SET_DOMAIN, zones,
};
pub use policy::admission_policy;
pub use ranges::RangeError;
pub(crate) use ranges::{addresses, share as share_of_range, usable as usable_range};
pub use secret::Secret;
