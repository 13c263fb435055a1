//! What an agent is told at its start.

use ipnet::IpNet;

use crate::family::{Family, PerFamily};

/// The settings of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentConfig {
    /// This cluster's ID.
    pub cluster_id: String,
    /// The namespace of this cluster's own imports, the operator's.
    pub namespace: String,
    /// The namespace of all clusters' objects on the broker.
    pub broker_namespace: String,
    /// Whether others reach this cluster's services by global addresses.
    pub has_globalnet: bool,
    /// Whether services are imported whose namespace this cluster does not have: into its own imports' namespace.
    pub imports_missing_namespaces: bool,
    /// Whether services have one address for all clusters whose exports say nothing of it.
    pub gives_clusterset_ips: bool,
    /// The blocks that this cluster gives such addresses of.
    pub clusterset_ip_cidrs: Vec<IpNet>,
    /// Where the blocks of all clusters are; empty if that is not known.
    pub clusterset_ip_ranges: Vec<IpNet>,
    /// Whether everything that an agent has written is to go, here and on the broker.
    pub withdraws: bool,
}

impl AgentConfig {
    /// Creates the settings of a cluster without Globalnet, with the usual namespaces.
    pub fn new(cluster_id: impl Into<String>) -> Self {
        Self {
            cluster_id: cluster_id.into(),
            namespace: "submariner-operator".to_owned(),
            broker_namespace: "submariner-k8s-broker".to_owned(),
            has_globalnet: false,
            imports_missing_namespaces: false,
            gives_clusterset_ips: false,
            clusterset_ip_cidrs: Vec::new(),
            clusterset_ip_ranges: Vec::new(),
            withdraws: false,
        }
    }

    /// Returns the families that the set has such addresses of: IPv4 always, as in upstream's sets; IPv6 where this cluster was
    /// told a range or a block.
    pub(crate) fn clusterset_families(&self) -> PerFamily<bool> {
        let networks = || self.clusterset_ip_ranges.iter().chain(&self.clusterset_ip_cidrs);
        PerFamily::new(|family| match family {
            Family::V4 => true,
            Family::V6 => networks().any(|network| matches!(network, IpNet::V6(_))),
        })
    }
}
