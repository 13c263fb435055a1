//! RouteAgent: what a node's route agent says about its way to the remote gateways.

use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::lenient::{empty_as_none, null_as_default};
use super::{
    ApiError, ConnectionStatus, EndpointSpec, LatencyRtt, ObjectMeta, annotation, check_object_name,
};
use crate::admin::Severity;

/// One node's published status. The object's name is the node's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RouteAgent {
    /// Metadata.
    #[schemars(with = "Map<String, Value>")]
    pub metadata: ObjectMeta,
    /// The status.
    pub status: RouteAgentStatus,
    /// Unknown top-level fields, kept.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl RouteAgent {
    /// Returns a new RouteAgent object in `namespace`, named after the node.
    ///
    /// # Errors
    /// [`ApiError::Field`] when the node's name is not an object name.
    pub fn new(namespace: &str, node: &str, status: RouteAgentStatus) -> Result<Self, ApiError> {
        check_object_name(node).map_err(|error| ApiError::field("metadata.name", error.to_string()))?;
        Ok(Self { metadata: ObjectMeta::new(namespace, node), status, extra: Map::new() })
    }

    /// Returns the conditions that our route agent reports of the node. Empty if there are none, and with upstream's
    /// agent.
    pub fn conditions(&self) -> Vec<NodeCondition> {
        let text = self.metadata.annotations.get(annotation::CONDITIONS);
        text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
    }

    /// Returns the address at which the node takes packets for services that have a back end on it, if it does.
    pub fn services_address(&self) -> Option<IpAddr> {
        let address = self.metadata.annotations.get(annotation::SERVICES).filter(|_| self.is_ours())?;
        address.parse().ok()
    }

    /// Returns `true` if the node takes no packets for services, and its route agent says so.
    pub fn takes_no_services(&self) -> bool {
        let value = self.metadata.annotations.get(annotation::SERVICES);
        self.is_ours() && value.is_some_and(|value| value == annotation::NO_SERVICES)
    }

    /// Returns `true` if our route agent is the one that wrote the status last.
    pub fn is_ours(&self) -> bool {
        self.metadata.annotations.get(annotation::ROUTE_AGENT) == Some(&self.status.version)
    }

    /// Checks what upstream's schema does beyond types.
    pub(super) fn check_shape(&self) -> Result<(), ApiError> {
        self.status.remote_endpoints.iter().enumerate().try_for_each(|(index, remote)| {
            remote.spec.check_shape(&format!("status.remoteEndpoints[{index}].spec"))
        })
    }
}

/// `RouteAgent.status`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RouteAgentStatus {
    /// The route agent's software version.
    pub version: String,
    /// Why the route agent cannot work; empty if it can.
    pub status_failure: String,
    /// One entry per remote gateway; empty while there is none, never absent.
    #[serde(deserialize_with = "null_as_default")]
    pub remote_endpoints: Vec<RemoteEndpoint>,
    /// Unknown fields, kept.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// Something that is not as it should be on a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeCondition {
    /// Its name, in CamelCase, as in `docs/operations/troubleshooting.md`.
    pub name: String,
    /// How bad it is.
    pub severity: Severity,
    /// What is wrong and what to do, in a sentence.
    pub message: String,
}

/// A remote gateway, as a node sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RemoteEndpoint {
    /// The state: `connected`, `connecting`, `error` or `none`; empty until the first answer.
    #[serde(with = "empty_as_none")]
    #[schemars(with = "String")]
    pub status: Option<ConnectionStatus>,
    /// Why, for people; may be empty.
    pub status_message: String,
    /// The remote gateway's endpoint.
    pub spec: EndpointSpec,
    /// Round trips from this node, if it measures them.
    #[serde(rename = "latencyRTT", default, skip_serializing_if = "Option::is_none")]
    pub latency_rtt: Option<LatencyRtt>,
    /// Unknown fields, kept.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}
