//! ClusterGlobalEgressIP and GlobalEgressIP: addresses under which a cluster's pods appear to others.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::lenient::null_as_default;
use super::{ApiError, Condition, LabelSelector, ObjectMeta, check_object_name};

/// How many addresses an object that does not say gets.
const DEFAULT_NUMBER: i64 = 1;

/// Most addresses that an object may ask for.
const MAX_NUMBER: i64 = 20;

/// Addresses for the pods of the whole cluster that no GlobalEgressIP is for. Only the object of one name counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClusterGlobalEgressIp {
    /// Metadata.
    #[schemars(with = "Map<String, Value>")]
    pub metadata: ObjectMeta,
    /// What is asked for.
    pub spec: ClusterGlobalEgressIpSpec,
    /// What was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<EgressStatus>,
    /// Unknown top-level fields, kept.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl ClusterGlobalEgressIp {
    /// The name of the one object that counts.
    pub const NAME: &str = "cluster-egress.submariner.io";

    /// Creates the specification of the one object that counts, asking for this many addresses.
    pub fn new(number: i64) -> Self {
        let spec = ClusterGlobalEgressIpSpec { number: Some(number), extra: Map::new() };
        Self { metadata: ObjectMeta::new("", Self::NAME), spec, status: None, extra: Map::new() }
    }

    /// Checks the number's range, as upstream's schema does beyond types.
    pub(super) fn check_shape(&self) -> Result<(), ApiError> {
        check_number("spec.numGlobalIPs", self.spec.number)
    }
}

/// `ClusterGlobalEgressIP.spec`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClusterGlobalEgressIpSpec {
    /// How many addresses are wanted; 1 if absent.
    #[serde(rename = "numGlobalIPs", default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 20))]
    pub number: Option<i64>,
    /// Unknown fields, kept.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl ClusterGlobalEgressIpSpec {
    /// Returns the number of addresses wanted, the default applied.
    pub fn number(&self) -> i64 {
        self.number.unwrap_or(DEFAULT_NUMBER)
    }
}

/// Addresses for a namespace's pods, or for those that a selector picks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GlobalEgressIp {
    /// Metadata.
    #[schemars(with = "Map<String, Value>")]
    pub metadata: ObjectMeta,
    /// What is asked for.
    pub spec: GlobalEgressIpSpec,
    /// What was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<EgressStatus>,
    /// Unknown top-level fields, kept.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl GlobalEgressIp {
    /// Returns a new GlobalEgressIP object.
    ///
    /// # Errors
    /// [`ApiError::Field`] when `name` is not an object name.
    pub fn new(namespace: &str, name: &str, spec: GlobalEgressIpSpec) -> Result<Self, ApiError> {
        check_object_name(name).map_err(|error| ApiError::field("metadata.name", error.to_string()))?;
        Ok(Self { metadata: ObjectMeta::new(namespace, name), spec, status: None, extra: Map::new() })
    }

    /// Checks the number's range, as upstream's schema does beyond types.
    pub(super) fn check_shape(&self) -> Result<(), ApiError> {
        check_number("spec.numberOfIPs", self.spec.number)
    }
}

/// `GlobalEgressIP.spec`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GlobalEgressIpSpec {
    /// How many addresses are wanted; 1 if absent.
    #[serde(rename = "numberOfIPs", default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 20))]
    pub number: Option<i64>,
    /// The pods that the addresses are for; all of the namespace's if absent. Cannot be changed later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_selector: Option<LabelSelector>,
    /// Unknown fields, kept.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl GlobalEgressIpSpec {
    /// Returns the number of addresses wanted, the default applied.
    pub fn number(&self) -> i64 {
        self.number.unwrap_or(DEFAULT_NUMBER)
    }
}

/// The status of both kinds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EgressStatus {
    /// The addresses given.
    #[serde(
        rename = "allocatedIPs",
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub allocated_ips: Vec<String>,
    /// `Allocated`, and `Updated` where a change was refused.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Unknown fields, kept.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

fn check_number(field: &str, number: Option<i64>) -> Result<(), ApiError> {
    match number {
        None | Some(0..=MAX_NUMBER) => Ok(()),
        Some(number) => Err(ApiError::field(field, format!("is {number}, must be 0 to {MAX_NUMBER}"))),
    }
}
