//! `Fabric` of group `operator.tkestack.io/v1alpha1`, called `Knitnet` later: the resource that the first users of an operator have.
//!
//! Fields and defaults are theirs. What a cluster is to be by them is translated into the spec of our own [`Fabric`](super::Fabric);
//! the status is that one's, in which only the phases `Running` and `Failed` are written.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{FabricStatus, ObjectMeta};

/// What a cluster is in a cluster set: its broker, a member, or both. `action` says which parts are begun.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TkestackResource {
    /// Metadata.
    #[schemars(with = "Map<String, Value>")]
    pub metadata: ObjectMeta,
    /// What is wanted.
    #[serde(default)]
    pub spec: TkestackSpec,
    /// What there is. Others may have written it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<FabricStatus>")]
    pub status: Option<Map<String, Value>>,
}

/// The annotation by which a broker's join data is published as a ConfigMap too. Its value is `ConfigMap`.
pub const PUBLISH_BROKER_INFO: &str = "trieste.io/publish-broker-info";

/// `Fabric.spec`, `Knitnet.spec`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TkestackSpec {
    /// Which parts are begun. Where it is missing: of a Fabric those that are there, of a Knitnet the broker.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("enum" = ["broker", "join", "all"]))]
    pub action: Option<TkestackAction>,
    /// Makes this cluster the broker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broker_config: Option<TkestackBroker>,
    /// Makes this cluster a member.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub join_config: Option<TkestackJoin>,
    /// Prepares the cluster's cloud, if it is AWS: credentialsSecret (a name, or an object with a name), infraID, region, aws with
    /// gatewayInstance (m5n.large) and gateways (1). Begun with joinConfig's action.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cloud_prepare_config: Option<Map<String, Value>>,
}

/// Which parts are begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TkestackAction {
    /// `brokerConfig`.
    Broker,
    /// `joinConfig`.
    Join,
    /// Both.
    All,
}

/// `brokerConfig`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TkestackBroker {
    /// The address under which members reach this cluster's API server, such as `https://east.example.com:6443`. Where it is
    /// missing, the address in the ConfigMap cluster-info of kube-public is taken.
    #[serde(rename = "publicAPIServerURL", skip_serializing_if = "Option::is_none")]
    pub public_api_server_url: Option<String>,
    /// Whether pods and services of members reach one another.
    pub connectivity_enabled: bool,
    /// Whether services are found by name.
    pub service_discovery_enabled: bool,
    /// Whether members get global addresses, for sets whose clusters' networks overlap.
    pub globalnet_enable: bool,
    /// Where global addresses are taken from.
    #[serde(rename = "globalnetCIDRRange")]
    pub globalnet_cidr_range: String,
    /// How many global addresses a member gets, rounded up to a power of two.
    #[schemars(with = "i32", range(min = 0, max = 16_777_216))]
    pub default_globalnet_cluster_size: u32,
    /// Domains beside clusterset.local.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub default_custom_domains: Vec<String>,
}

impl Default for TkestackBroker {
    fn default() -> Self {
        Self {
            public_api_server_url: None,
            connectivity_enabled: true,
            service_discovery_enabled: false,
            globalnet_enable: false,
            globalnet_cidr_range: "242.0.0.0/8".to_owned(),
            // So it is there; rounded up it is what was meant.
            default_globalnet_cluster_size: 65_336,
            default_custom_domains: Vec::new(),
        }
    }
}

/// `joinConfig`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TkestackJoin {
    /// The cluster's ID in the set. Where it is missing it is made of the resource's name.
    #[serde(rename = "clusterID", skip_serializing_if = "String::is_empty")]
    pub cluster_id: String,
    /// The networks of services, separated by commas. Discovered where it is missing.
    #[serde(rename = "serviceCIDR", skip_serializing_if = "String::is_empty")]
    pub service_cidr: String,
    /// The networks of pods, separated by commas. Discovered where it is missing.
    #[serde(rename = "clusterCIDR", skip_serializing_if = "String::is_empty")]
    pub cluster_cidr: String,
    /// The cluster's global addresses. Chosen where it is missing.
    #[serde(rename = "globalnetCIDR", skip_serializing_if = "String::is_empty")]
    pub globalnet_cidr: String,
    /// The repository of the image.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub repository: String,
    /// The version of the image.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub image_version: String,
    /// The image, as COMPONENT=REFERENCE for the components submariner-gateway and submariner-routeagent, which are one image.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub image_override_arr: Vec<String>,
    /// The UDP port of cables.
    #[schemars(with = "i32", range(min = 1, max = 65_535))]
    pub natt_port: u16,
    /// Only 500 is carried out: the UDP port of IKE.
    #[schemars(with = "i32", range(min = 1, max = 65_535))]
    pub ike_port: u16,
    /// Whether other clusters connect to this one, rather than the other way round.
    pub preferred_server: bool,
    /// Whether IPsec is sent over UDP without a NAT as well.
    #[serde(rename = "forceUDPEncaps")]
    pub force_udp_encaps: bool,
    /// Whether there may be a NAT between the clusters.
    pub nat_traversal: bool,
    /// Whether the cluster gets global addresses where the set has them.
    pub globalnet_enabled: bool,
    /// How many global addresses the cluster gets; 0: as many as the set's clusters get.
    #[schemars(with = "i32", range(min = 0, max = 16_777_216))]
    pub globalnet_cluster_size: u32,
    /// Whether more is logged of IPsec.
    pub ipsec_debug: bool,
    /// Whether more is logged.
    pub submariner_debug: bool,
    /// Whether a worker node is labelled as a gateway where none is.
    pub label_gateway: bool,
    /// Whether gateways are reached by a load balancer.
    pub load_balancer_enabled: bool,
    /// The cable driver: libreswan, wireguard or vxlan. Where it is missing, libreswan.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cable_driver: String,
    /// Domains beside clusterset.local.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub custom_domains: Vec<String>,
    /// A ConfigMap of custom settings of CoreDNS, NAME or NAMESPACE/NAME.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub coredns_custom_config_map: String,
    /// Whether connections are watched by probes.
    pub health_check_enable: bool,
    /// Seconds between probes.
    #[schemars(with = "i32", range(min = 1))]
    pub health_check_interval: u32,
    /// How many probes may be missing in a row.
    #[schemars(with = "i32", range(min = 1))]
    pub health_check_max_packet_loss_count: u32,
}

impl Default for TkestackJoin {
    fn default() -> Self {
        Self {
            cluster_id: String::new(),
            service_cidr: String::new(),
            cluster_cidr: String::new(),
            globalnet_cidr: String::new(),
            repository: String::new(),
            image_version: String::new(),
            image_override_arr: Vec::new(),
            natt_port: 4500,
            ike_port: 500,
            preferred_server: false,
            force_udp_encaps: false,
            nat_traversal: true,
            globalnet_enabled: false,
            globalnet_cluster_size: 0,
            ipsec_debug: false,
            submariner_debug: false,
            label_gateway: true,
            load_balancer_enabled: false,
            cable_driver: String::new(),
            custom_domains: Vec::new(),
            coredns_custom_config_map: String::new(),
            health_check_enable: true,
            health_check_interval: 1,
            health_check_max_packet_loss_count: 5,
        }
    }
}

/// `cloudPrepareConfig`, of which AWS is the only cloud that has fields.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TkestackCloud {
    /// The Secret with the credentials.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credentials_secret: Option<TkestackSecret>,
    /// The ID by which the cloud's objects of this cluster are found.
    #[serde(rename = "infraID", skip_serializing_if = "String::is_empty")]
    pub infra_id: String,
    /// The region.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub region: String,
    /// The cluster is in AWS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aws: Option<TkestackAws>,
}

/// A Secret, as the two kinds write it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum TkestackSecret {
    /// A Fabric has its name.
    Name(String),
    /// A Knitnet has an object with its name.
    Reference {
        /// The name.
        #[serde(default)]
        name: String,
    },
}

impl TkestackSecret {
    /// Returns the Secret's name.
    pub fn name(&self) -> &str {
        match self {
            Self::Name(name) | Self::Reference { name } => name,
        }
    }
}

/// `cloudPrepareConfig.aws`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TkestackAws {
    /// The type of machines that are made for gateways.
    pub gateway_instance: String,
    /// How many gateways there are to be.
    pub gateways: u32,
}

impl Default for TkestackAws {
    fn default() -> Self {
        Self { gateway_instance: "m5n.large".to_owned(), gateways: 1 }
    }
}
