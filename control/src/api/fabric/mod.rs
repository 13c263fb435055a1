//! Fabric: what a cluster is to be in its set. The operator carries it out.
//!
//! Defaults stand in the definition, so that an API server shows them; they are those of the types here, which the
//! definition is made of, and so hold where a field is missing, too. Rules are checked when an object is applied: what could
//! not be carried out is refused there, with what to do instead.

mod broker;
mod cloud;
mod join;
mod status;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use broker::BrokerConfig;
pub use cloud::{
    AwsConfig, AzureConfig, CloudPrepareConfig, CredentialsSecret, GcpConfig, GenericConfig, RhosConfig,
};
pub use join::{BrokerInfoRef, BrokerInfoSource, JoinConfig, ProxyConfig};
pub use status::{FabricGateway, FabricNetworks, FabricPhase, FabricStatus, PublishedBrokerInfo};

use super::ObjectMeta;

/// What a cluster is in a cluster set: its broker, a member, or both; and what its cloud is to let pass. The operator carries it out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!has(self.status) || !has(self.status.clusterID) || !has(self.spec.joinConfig) || \
!has(self.spec.joinConfig.clusterID) || self.spec.joinConfig.clusterID == self.status.clusterID",
    "message": "a member keeps its ID (status.clusterID): others know it by that. To give it another one, delete the Fabric, \
and apply it again with the other ID once it is gone"
}]))]
pub struct Fabric {
    /// Metadata.
    #[schemars(with = "Map<String, Value>")]
    pub metadata: ObjectMeta,
    /// What is wanted.
    pub spec: FabricSpec,
    /// What there is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<FabricStatus>,
}

impl Fabric {
    /// The finalizer that stands while anything is left of a broker that was made for the object.
    pub const BROKER_FINALIZER: &str = "trieste.io/broker";
    /// The finalizer that stands while anything is left of a member.
    pub const MEMBER_FINALIZER: &str = "trieste.io/member";
    /// The finalizer that stands while anything may be left of what was prepared in the cloud.
    pub const CLOUD_FINALIZER: &str = "trieste.io/cloud";
    /// The finalizer that stands while anything is left of service discovery that was installed by itself, without a member.
    pub const SERVICE_DISCOVERY_FINALIZER: &str = "trieste.io/service-discovery";
    /// The three that stand for what is installed in the cluster.
    pub const FINALIZERS: [&str; 3] =
        [Self::BROKER_FINALIZER, Self::MEMBER_FINALIZER, Self::SERVICE_DISCOVERY_FINALIZER];
    /// The annotation by which somebody gives up nodes that are not ready, and what was prepared in a cloud that cannot be asked any
    /// more: a removal does not wait for them. Its value is `true`.
    pub const FORCE_REMOVAL: &str = "trieste.io/force-removal";
}

/// `Fabric.spec`: at least one part.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "has(self.brokerConfig) || has(self.joinConfig) || has(self.cloudPrepareConfig)",
        "message": "give brokerConfig to make this cluster the broker, joinConfig to make it a member, cloudPrepareConfig to \
prepare its cloud, or several of these"
    },
    {
        "rule": "!has(self.joinConfig) || has(self.joinConfig.brokerInfoRef) || has(self.brokerConfig)",
        "message": "joinConfig needs brokerInfoRef, the Secret with the broker's join data; only where brokerConfig is in \
the same Fabric, it joins that broker"
    }
]))]
pub struct FabricSpec {
    /// Makes this cluster the broker: the place where members find one another. May run in a member too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broker_config: Option<BrokerConfig>,
    /// Makes this cluster a member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub join_config: Option<JoinConfig>,
    /// Prepares the cluster's cloud: what it lets pass, and which of its machines are gateways. Before the cluster becomes a member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cloud_prepare_config: Option<CloudPrepareConfig>,
}
