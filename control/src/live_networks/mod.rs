//! The cluster's networks as the cluster's own objects say them, also when these change while everything runs.
//!
//! ```text
//!   ServiceCIDR ──────▶ services ─┐
//!   IPPool (Calico) ──▶ pods ─────┴─▶ ConfigMap trieste-networks ─▶ every gateway
//! ```
//!
//! `join` names in an annotation of the ConfigMap the lists that it has found in such objects, with what it has found; these
//! lists are kept as the objects say. Entries that the annotation does not name are somebody's, and stay; a list that it does
//! not name, since somebody has given another one (`--servicecidr`), is left alone.
//!
//! Whether a network can be announced is the gateways' decision, as when somebody edits the ConfigMap.

mod controller;
mod tracked;

pub use controller::{NAME, NetworksController, spawn};
pub use tracked::{List, TrackedLists};
