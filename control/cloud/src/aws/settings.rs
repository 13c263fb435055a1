//! What is given of a cluster in AWS.

/// The type of machines that OpenShift makes for gateways, which is upstream's.
pub const DEFAULT_INSTANCE: &str = "c5d.large";

/// What is given of a cluster in AWS; whatever is not is found out.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// What the cluster's resources are named by: OpenShift's infrastructure ID, EKS' cluster name.
    pub infra_id: Option<String>,
    /// The region.
    pub region: Option<String>,
    /// The VPC's ID, or its tag `Name`.
    pub vpc: Option<String>,
    /// IDs or names of the subnets in which OpenShift's gateways are to be.
    pub subnets: Vec<String>,
    /// ID or name of the workers' security group.
    pub worker_group: Option<String>,
    /// ID or name of the control plane's security group.
    pub control_plane_group: Option<String>,
    /// Where EC2 is reached instead of its own address, as `AWS_ENDPOINT_URL` names it.
    pub endpoint: Option<String>,
    /// Where the token service is reached instead of its own address, as `AWS_ENDPOINT_URL_STS` names it.
    pub sts_endpoint: Option<String>,
}
