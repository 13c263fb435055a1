//! Cluster: a member of the cluster set.

use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::lenient::null_as_default;
use super::{
    ApiError, ObjectMeta, check_cluster_id, check_object_name, ensure_valid_name, parse_cidrs, published,
};

/// A cluster's CIDRs, as published by its gateway. The object's name is the cluster ID, made valid.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Cluster {
    /// Metadata.
    #[schemars(with = "Map<String, Value>")]
    pub metadata: ObjectMeta,
    /// What the cluster says of itself.
    pub spec: ClusterSpec,
    /// Unknown top-level fields, kept.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl Cluster {
    /// Returns a new Cluster object in `namespace`, named after its ID.
    ///
    /// # Errors
    /// [`ApiError::Field`] when no object name can be made of the cluster ID.
    pub fn new(namespace: &str, spec: ClusterSpec) -> Result<Self, ApiError> {
        let name = ensure_valid_name(&spec.cluster_id);
        check_object_name(&name).map_err(|error| ApiError::field("spec.cluster_id", error.to_string()))?;
        Ok(Self { metadata: ObjectMeta::new(namespace, name), spec, extra: Map::new() })
    }
}

/// A cluster's ID and CIDRs. CIDRs are text, as on the wire; [`ClusterSpec::parse`] reads them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClusterSpec {
    /// The cluster's ID: a DNS-1123 label, unique in the set.
    #[schemars(length(min = 1, max = 63))]
    pub cluster_id: String,
    /// Vestigial; upstream always writes `["blue"]`.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub color_codes: Vec<String>,
    /// Service CIDRs. Present even if empty.
    #[serde(deserialize_with = "null_as_default")]
    pub service_cidr: Vec<String>,
    /// Pod CIDRs. Present even if empty.
    #[serde(deserialize_with = "null_as_default")]
    pub cluster_cidr: Vec<String>,
    /// Globalnet CIDRs. Present even if empty, and empty without Globalnet.
    #[serde(deserialize_with = "null_as_default")]
    pub global_cidr: Vec<String>,
    /// Unknown fields, kept.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl ClusterSpec {
    /// Creates the spec of a cluster without Globalnet.
    pub fn new(cluster_id: impl Into<String>, service_cidr: &[IpNet], cluster_cidr: &[IpNet]) -> Self {
        let texts = |nets: &[IpNet]| nets.iter().map(IpNet::to_string).collect();
        Self {
            cluster_id: cluster_id.into(),
            color_codes: vec!["blue".to_owned()],
            service_cidr: texts(service_cidr),
            cluster_cidr: texts(cluster_cidr),
            ..Self::default()
        }
    }

    /// Reads the texts into types that cannot be wrong.
    ///
    /// # Errors
    /// [`ApiError::Field`] for the first field that is not a cluster ID or a CIDR.
    pub fn parse(&self) -> Result<ClusterFacts, ApiError> {
        check_cluster_id(&self.cluster_id)
            .map_err(|error| ApiError::field("spec.cluster_id", error.to_string()))?;
        Ok(ClusterFacts {
            cluster_id: self.cluster_id.clone(),
            service_cidr: parse_cidrs("spec.service_cidr", &self.service_cidr)?,
            cluster_cidr: parse_cidrs("spec.cluster_cidr", &self.cluster_cidr)?,
            global_cidr: parse_cidrs("spec.global_cidr", &self.global_cidr)?,
        })
    }

    /// Checks the ID's length, as upstream's schema does beyond types.
    pub(super) fn check_shape(&self) -> Result<(), ApiError> {
        check_id_length("spec.cluster_id", &self.cluster_id)
    }
}

/// Checks that a cluster's ID has 1 to 63 characters, as upstream's schema does; it checks no more than that.
pub(super) fn check_id_length(field: &str, id: &str) -> Result<(), ApiError> {
    match id.chars().count() {
        1..=63 => Ok(()),
        length => Err(ApiError::field(field, format!("has {length} characters, must have 1 to 63"))),
    }
}

/// A [`ClusterSpec`] whose every value has been checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterFacts {
    /// The cluster's ID.
    pub cluster_id: String,
    /// Service CIDRs, host bits cleared.
    pub service_cidr: Vec<IpNet>,
    /// Pod CIDRs, host bits cleared.
    pub cluster_cidr: Vec<IpNet>,
    /// Globalnet CIDRs, host bits cleared.
    pub global_cidr: Vec<IpNet>,
}

impl ClusterFacts {
    /// Returns the subnets that the cluster's Endpoints publish ([`published`]).
    pub fn published_subnets(&self) -> Vec<IpNet> {
        published(&self.global_cidr, &self.service_cidr, &self.cluster_cidr)
    }
}
