//! The cluster's networks as the cluster's own objects say them, also when these change while everything runs.
//!
//! ```text
//!   ServiceCIDR, Network (OpenShift) ──────────────────────────▶ services ─┐
//!   IPPool (Calico), CiliumPodIPPool, Network (OpenShift) ─────▶ pods ─────┼─▶ ConfigMap trieste-networks ─▶ every gateway
//!   ConfigMap (flannel, canal, Cilium, OVN, kube-proxy, kubeadm) ▶ both ────┘
//! ```
//!
//! `join` names in an annotation of the ConfigMap the sources that it has found, with what it has found in each; the lists are kept
//! as these say. Entries that the annotation does not name are somebody's, and stay; a list of which it names no source, since
//! somebody has given another one (`--servicecidr`), is left alone.
//!
//! Whether a network can be announced is the gateways' decision, as when somebody edits the ConfigMap.

mod controller;
mod network_map;
mod source;
mod tracked;

pub use controller::{NAME, NetworksController, spawn};
pub use source::Source;
pub use tracked::TrackedLists;
