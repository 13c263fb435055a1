//! Names and tags: upstream's, so that what its tool has prepared is recognised and taken over, and those of Kubernetes.

/// The tag of subnets with gateways.
pub(super) const GATEWAY_TAG: &str = "submariner.io/gateway";
/// Ours: what the tag of subnets with gateways of a cluster begins with, whose infrastructure ID follows. The tag above names no
/// cluster, and clusters may share a VPC, and subnets.
pub(super) const GATEWAY_OF_TAG: &str = "trieste.io/gateway-of/";
/// The value of that tag where upstream's tool, which sets the next tag too, had chosen the subnet before.
pub(super) const WITH_INTERNAL_ELB: &str = "internal-elb";
/// Kubernetes' tag of subnets for internal load balancers.
pub(super) const INTERNAL_ELB_TAG: &str = "kubernetes.io/role/internal-elb";
/// What Kubernetes' tag of a cluster's resources begins with; its name follows.
pub(super) const CLUSTER_TAG: &str = "kubernetes.io/cluster/";
/// Ours: the tag of machines whose check of sources was switched off, with what it was before.
pub(super) const CHECKED_TAG: &str = "trieste.io/source-dest-check-before";
/// What permissions between nodes are described as, first of all.
pub(super) const INSIDE: &str = "Internal Submariner traffic";
/// What permissions of gateways are described as.
pub(super) const PUBLIC: &str = "Public Submariner traffic";
/// What the gateways' group is described as.
pub(super) const GROUP: &str = "Submariner Gateway";

/// Returns the name of the gateways' group.
pub(super) fn gateway_group(infra_id: &str) -> String {
    format!("{infra_id}-submariner-gw-sg")
}

/// Returns the tag of subnets with gateways of a cluster.
pub(super) fn gateway_of(infra_id: &str) -> String {
    format!("{GATEWAY_OF_TAG}{infra_id}")
}

/// Returns `true` if a permission between nodes was made by us for a cluster.
pub(super) fn is_inside_of(infra_id: &str, description: &str) -> bool {
    description.starts_with(INSIDE) && description.ends_with(&format!("({infra_id})"))
}
