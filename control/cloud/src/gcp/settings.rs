//! What somebody gives for a preparation.

use std::sync::Arc;

use super::key::ServiceAccount;

/// As whom Google is asked.
#[derive(Debug, Clone, Default)]
pub enum Credentials {
    /// As the service account of this key.
    Key(Arc<ServiceAccount>),
    /// As the service account of the machine on which this runs, whose metadata server gives out tokens.
    #[default]
    MetadataServer,
}

/// Where and as whom. What is `None` is read from the cluster.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// What the names of the cluster's machines and rules begin with. Read on OpenShift alone.
    pub infra_id: Option<String>,
    /// The region in which OpenShift makes machines for gateways.
    pub region: Option<String>,
    /// The project of the cluster's machines; without it the one of the nodes, then the one of the key.
    pub project: Option<String>,
    /// As whom.
    pub credentials: Credentials,
    /// The VPC network: its name, or `projects/PROJECT/global/networks/NAME` where it is shared by another project.
    pub network: Option<String>,
    /// The subnet of machines that OpenShift makes for gateways.
    pub subnet: Option<String>,
    /// The network tags of the cluster's nodes, between which the inside rule opens ports.
    pub node_tags: Vec<String>,
    /// The address of Compute Engine's API: what `CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE` names.
    pub endpoint: Option<String>,
    /// The address of the Resource Manager's API: what `CLOUDSDK_API_ENDPOINT_OVERRIDES_CLOUDRESOURCEMANAGER` names.
    pub resource_manager: Option<String>,
    /// The address of the metadata server: `http://` and what `GCE_METADATA_HOST` names.
    pub metadata_server: Option<String>,
}
