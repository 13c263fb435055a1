//! GatewayRoute and NonGatewayRoute: next hops that OVN-Kubernetes' zones need towards a remote cluster.

use std::net::IpAddr;

use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::lenient::null_as_default;
use super::{ApiError, ObjectMeta, check_object_name, limits, parse_cidrs, parse_ip};

/// Ours: the end of the names of objects with networks that are closed and no cluster's. No cluster's ID has a dot.
const CLOSED: &str = ".closed.trieste.io";

/// Returns the name of an object with networks that are closed and no cluster's, the first one's number being 0.
#[must_use]
pub fn closed_routes_name(number: usize) -> String {
    format!("{number}{CLOSED}")
}

/// Returns `true` if an object of this name has networks that are closed and no cluster's.
#[must_use]
pub fn has_closed_routes(name: &str) -> bool {
    name.ends_with(CLOSED)
}

/// Next hops on the gateway's own zone. The object's name is the remote cluster's ID.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GatewayRoute {
    /// Metadata.
    #[schemars(with = "Map<String, Value>")]
    pub metadata: ObjectMeta,
    /// What to reach, and how.
    pub spec: RouteSpec,
    /// Unknown top-level fields, kept.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl GatewayRoute {
    /// Returns a new GatewayRoute object in `namespace`, named after the remote cluster.
    ///
    /// # Errors
    /// [`ApiError::Field`] when the cluster's ID is not an object name.
    pub fn new(namespace: &str, remote_cluster: &str, spec: RouteSpec) -> Result<Self, ApiError> {
        Ok(Self { metadata: named_after(namespace, remote_cluster)?, spec, extra: Map::new() })
    }
}

/// Next hops in every zone but the gateway's own. The object's name is the remote cluster's ID.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NonGatewayRoute {
    /// Metadata.
    #[schemars(with = "Map<String, Value>")]
    pub metadata: ObjectMeta,
    /// What to reach, and how.
    pub spec: RouteSpec,
    /// Unknown top-level fields, kept.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl NonGatewayRoute {
    /// Returns a new NonGatewayRoute object in `namespace`, named after the remote cluster.
    ///
    /// # Errors
    /// [`ApiError::Field`] when the cluster's ID is not an object name.
    pub fn new(namespace: &str, remote_cluster: &str, spec: RouteSpec) -> Result<Self, ApiError> {
        Ok(Self { metadata: named_after(namespace, remote_cluster)?, spec, extra: Map::new() })
    }
}

fn named_after(namespace: &str, remote_cluster: &str) -> Result<ObjectMeta, ApiError> {
    check_object_name(remote_cluster).map_err(|error| ApiError::field("metadata.name", error.to_string()))?;
    Ok(ObjectMeta::new(namespace, remote_cluster))
}

/// CIDRs and the next hops towards them, as text; [`RouteSpec::parse`] reads them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RouteSpec {
    /// Addresses to send to.
    #[serde(deserialize_with = "null_as_default")]
    pub next_hops: Vec<String>,
    /// The remote cluster's CIDRs.
    #[serde(rename = "remoteCIDRs", deserialize_with = "null_as_default")]
    pub remote_cidrs: Vec<String>,
    /// Unknown fields, kept.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl RouteSpec {
    /// Creates a spec of these next hops and CIDRs.
    pub fn new(next_hops: &[IpAddr], remote_cidrs: &[IpNet]) -> Self {
        Self {
            next_hops: next_hops.iter().map(ToString::to_string).collect(),
            remote_cidrs: remote_cidrs.iter().map(ToString::to_string).collect(),
            extra: Map::new(),
        }
    }

    /// Reads the texts into types that cannot be wrong.
    ///
    /// # Errors
    /// [`ApiError::Field`] for the first field whose value cannot be, or that is beyond all measure.
    pub fn parse(&self) -> Result<RouteFacts, ApiError> {
        limits::check_list("spec.nextHops", self.next_hops.len(), limits::MAX_NEXT_HOPS)?;
        let next_hops = self
            .next_hops
            .iter()
            .enumerate()
            .map(|(index, text)| parse_ip(&format!("spec.nextHops[{index}]"), text))
            .collect::<Result<_, _>>()?;
        let remote_cidrs = parse_cidrs("spec.remoteCIDRs", &self.remote_cidrs)?;
        Ok(RouteFacts { next_hops, remote_cidrs })
    }
}

/// A [`RouteSpec`] whose every value has been checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteFacts {
    /// Addresses to send to, in published order.
    pub next_hops: Vec<IpAddr>,
    /// The remote cluster's CIDRs, host bits cleared.
    pub remote_cidrs: Vec<IpNet>,
}
