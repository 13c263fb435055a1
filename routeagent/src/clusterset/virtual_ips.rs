//! Where clusterset IPs lead: what the watches publish, and the table is made of.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
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

impl VirtualIps {
    /// Returns those of some ranges.
    pub(super) fn within(&self, ranges: &[IpNet]) -> Self {
        let is_inside = |frontend: &Frontend| ranges.iter().any(|range| range.contains(&frontend.address));
        let leads = self.leads.iter().filter(|(frontend, _)| is_inside(frontend));
        Self {
            leads: leads.map(|(frontend, pick)| (*frontend, pick.clone())).collect(),
            pods: self.pods.clone(),
        }
    }
}

/// Clusterset IPs, as far as they are known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Clusterset {
    /// Where they lead; `None` before all was read that they follow from.
    pub ips: Option<Arc<VirtualIps>>,
    /// Why that is not, or not in full, what it should be.
    pub error: Option<String>,
}
