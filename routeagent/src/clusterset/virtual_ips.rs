//! Where clusterset IPs lead: what the watches publish, and the table is made of.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use trieste_control::services::Frontend;

use crate::services::Pick;

/// Where clusterset IPs lead at present.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VirtualIps {
    /// By address and port. Those that lead nowhere are missing.
    pub leads: BTreeMap<Frontend, Arc<Pick>>,
    /// Pods of the own cluster among the targets: one that is led to itself needs another source.
    pub pods: BTreeSet<IpAddr>,
}

/// Clusterset IPs, as far as they are known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Clusterset {
    /// Where they lead; `None` before all was read that they follow from.
    pub ips: Option<Arc<VirtualIps>>,
    /// Why that is not, or not in full, what it should be.
    pub error: Option<String>,
}
