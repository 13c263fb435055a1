//! What a cluster's networks are: the network plugin, the CIDRs of pods and services, and where each is written.
//!
//! ```text
//!   API server ──observe──▶ Observed ──infer──▶ Network (facts with their sources, warnings)
//! ```
//!
//! Upstream's order of plugins and its sources, with two differences: every CIDR counts, of both families, and the
//! sources are compared, so that a contradiction is said instead of guessed over.

mod candidates;
mod clouds;
mod flags;
mod found;
mod infer;
mod observe;
mod ovn;
mod plugin;
mod spiderpool;
mod tracked;

use std::collections::BTreeSet;

use ipnet::IpNet;
use trieste_control::live_networks::{Source, TrackedLists};

pub use infer::infer;
pub use observe::{Observed, observe};
pub use ovn::{Ovn, Zones};
pub use spiderpool::{Pool, Spiderpool};
pub(crate) use tracked::is_served;

use crate::error::DeployError;
use crate::server::Server;

/// A network plugin that upstream has no name for.
pub const GENERIC: &str = "generic";

/// What was found out.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Network {
    /// The plugin, by upstream's name for it (`kindnet`, `generic`), and how we know.
    pub plugin: Plugin,
    /// How OVN-Kubernetes is laid out, if that is the plugin.
    pub ovn: Option<Ovn>,
    /// What was found of Spiderpool, if the cluster has it: it may be beside any plugin.
    pub spiderpool: Option<Spiderpool>,
    /// The lists of CIDRs that stand in objects which gateways can follow.
    pub followed: TrackedLists,
    /// The plugins' ConfigMaps that are there, also while what they say cannot be read.
    pub present: BTreeSet<Source>,
    /// Pod CIDRs and who says so; empty if nobody does.
    pub pods: Subnets,
    /// Service CIDRs and who says so; empty if nobody does.
    pub services: Subnets,
    /// Other networks that are reached by way of the cluster, as the user says.
    pub extra: Vec<IpNet>,
    /// What somebody should look at: sources that contradict one another.
    pub warnings: Vec<String>,
}

/// A network plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plugin {
    /// Upstream's name for it.
    pub name: String,
    /// What makes us think so.
    pub source: String,
    /// Its own name, if it is recognised and upstream has none for it.
    pub called: Option<&'static str>,
}

/// CIDRs of one sort.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Subnets {
    /// The CIDRs.
    pub cidrs: Vec<IpNet>,
    /// Where they are written; two sources if each knew one family.
    pub source: String,
}

/// What the user has said; it wins over what is found.
#[derive(Debug, Clone, Default)]
pub struct Given {
    /// `--clustercidr`.
    pub pods: Vec<IpNet>,
    /// `--servicecidr`.
    pub services: Vec<IpNet>,
    /// Whether pods', and services', were not said but settled by an earlier join.
    pub is_settled: [bool; 2],
}

impl Default for Plugin {
    fn default() -> Self {
        Self { name: GENERIC.to_owned(), source: "no known plugin was found".to_owned(), called: None }
    }
}

/// Finds out.
///
/// # Errors
/// [`DeployError::Api`] if the server does not answer or does not allow to read nodes and pods.
pub async fn discover(server: &Server, given: &Given) -> Result<Network, DeployError> {
    Ok(infer(&observe(server).await?, given))
}

#[cfg(test)]
mod tests;
