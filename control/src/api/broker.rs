//! Broker: what was chosen when a broker was deployed, in the form of upstream's operator.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::ObjectMeta;
use super::lenient::null_as_default;

/// What a cluster set offers, as its administrator wants it. Members read it when they join.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Broker {
    /// Metadata.
    #[schemars(with = "Map<String, Value>")]
    pub metadata: ObjectMeta,
    /// What is wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<BrokerSpec>,
    /// Conditions of our operator; upstream's is empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Map<String, Value>>,
    /// Unknown top-level fields, kept.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// `Broker.spec`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BrokerSpec {
    /// What the set offers: `service-discovery`, `connectivity`.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub components: Vec<String>,
    /// Where addresses for services of the set are taken from.
    #[serde(rename = "clustersetIPCIDRRange", default, skip_serializing_if = "Option::is_none")]
    pub clusterset_ip_cidr_range: Option<String>,
    /// Whether services of the set get an address unless they say otherwise.
    #[serde(rename = "clustersetIPEnabled", default, skip_serializing_if = "Option::is_none")]
    pub clusterset_ip_enabled: Option<bool>,
    /// Domains beside `clusterset.local`.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub default_custom_domains: Vec<String>,
    /// How many global addresses a member gets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub default_globalnet_cluster_size: Option<i64>,
    /// Where global addresses are taken from.
    #[serde(rename = "globalnetCIDRRange", default, skip_serializing_if = "Option::is_none")]
    pub globalnet_cidr_range: Option<String>,
    /// Whether members get global addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub globalnet_enabled: Option<bool>,
    /// Unknown fields, kept.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}
