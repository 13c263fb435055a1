//! What an agent is told at its start.

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
            withdraws: false,
        }
    }
}
