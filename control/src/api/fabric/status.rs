//! What became of a Fabric.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::super::Condition;
use super::{BrokerInfoRef, CloudPrepareConfig};

/// In one word how far a Fabric is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum FabricPhase {
    /// Nothing was done yet.
    #[default]
    Pending,
    /// It is being carried out, or pods come up.
    Deploying,
    /// Everything that is wanted runs.
    Running,
    /// Something cannot be carried out; a condition says what.
    Failed,
    /// It is being taken back.
    Removing,
}

/// `Fabric.status`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FabricStatus {
    /// In one word how far it is.
    #[schemars(with = "String", extend("enum" = ["Pending", "Deploying", "Running", "Failed", "Removing"]))]
    pub phase: FabricPhase,
    /// The generation that the operator has seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The version of the operator, and of what it has installed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Where the join data of this broker is published: for members to copy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broker_info: Option<PublishedBrokerInfo>,
    /// The join data that the cluster has joined with: by it the member leaves its broker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub join_info: Option<BrokerInfoRef>,
    /// The cloudPrepareConfig by which the cloud was prepared: by it that is taken back.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Map<String, Value>>")]
    pub cloud: Option<CloudPrepareConfig>,
    /// The broker that the cluster is a member of: HOST:PORT.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broker: Option<String>,
    /// The cluster's ID in the set.
    #[serde(rename = "clusterID", skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<String>,
    /// The cluster's networks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub networks: Option<FabricNetworks>,
    /// The gateways.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gateways: Vec<FabricGateway>,
    /// What is so, and what is not: BrokerReady, CloudPrepared, Joined, Ready.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// A Secret with join data.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PublishedBrokerInfo {
    /// The Secret's namespace.
    pub namespace: String,
    /// The Secret's name.
    pub name: String,
}

/// The networks of a cluster, as they were found or given.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FabricNetworks {
    /// The network plugin.
    pub plugin: String,
    /// Pod CIDRs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pods: Vec<String>,
    /// Service CIDRs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<String>,
    /// Global addresses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub global: Vec<String>,
}

/// A gateway at a glance.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FabricGateway {
    /// The node.
    pub name: String,
    /// Whether it carries traffic: active or passive.
    pub ha_status: String,
    /// Its connections to other clusters that work.
    #[schemars(with = "i32")]
    pub connected: u32,
    /// All of its connections to other clusters.
    #[schemars(with = "i32")]
    pub connections: u32,
}
