//! The configuration of a gateway for Globalnet.

/// The facts of a gateway that Globalnet needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GlobalnetConfig {
    /// The namespace of Cluster and Gateway objects.
    pub namespace: String,
    /// This cluster's ID.
    pub cluster_id: String,
    /// The name of this gateway's own Gateway object, if the gateway has an address inside of the cluster at which it can
    /// be pinged.
    pub gateway: Option<String>,
}
