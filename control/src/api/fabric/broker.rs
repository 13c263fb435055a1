//! The part that makes a cluster the broker.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `Fabric.spec.brokerConfig`: what `trieste deploy-broker` has flags for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "self.connectivityEnabled || self.serviceDiscoveryEnabled",
        "message": "a set offers connectivity, service discovery, or both: switch one of them on"
    }
]))]
pub struct BrokerConfig {
    /// The address under which members reach this cluster's API server, such as `https://east.example.com:6443`. Where it is
    /// missing, the address in the ConfigMap cluster-info of kube-public is taken.
    #[serde(rename = "publicAPIServerURL", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512), extend("x-kubernetes-validations" = [{
        "rule": "self.matches('^(https://)?[^/@ ]+/?$')",
        "message": "expected https://HOST:PORT or HOST:PORT"
    }]))]
    pub public_api_server_url: Option<String>,
    /// Whether pods and services of members reach one another.
    pub connectivity_enabled: bool,
    /// Whether services are found by name.
    pub service_discovery_enabled: bool,
    /// Domains beside clusterset.local.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 253)))]
    pub custom_domains: Vec<String>,
    /// Whether members get global addresses, for sets whose clusters' networks overlap.
    pub globalnet_enable: bool,
    /// Where global addresses are taken from. Cannot change while a member has some of them.
    #[serde(rename = "globalnetCIDRRange")]
    #[schemars(length(max = 64), extend("x-kubernetes-validations" = [{
        "rule": "self.matches('^[0-9]{1,3}([.][0-9]{1,3}){3}/[0-9]{1,2}$')",
        "message": "expected a range of IPv4 such as 242.0.0.0/8"
    }]))]
    pub globalnet_cidr_range: String,
    /// How many global addresses a member gets, rounded up to a power of two.
    #[schemars(with = "i32", range(min = 1, max = 16_777_216))]
    pub default_globalnet_cluster_size: u32,
    /// Whether exported services get an address of the set unless they say otherwise.
    #[serde(rename = "clustersetIPEnable")]
    pub clusterset_ip_enable: bool,
    /// Where addresses of the set are taken from: a range of IPv4, and one of IPv6 if there are to be any.
    #[serde(rename = "clustersetIPCIDRRange")]
    #[schemars(length(max = 128), extend("x-kubernetes-validations" = [{
        "rule": "self.matches('^[0-9.]+/[0-9]{1,2}(,[0-9a-fA-F:]+/[0-9]{1,3})?$')",
        "message": "expected a range of IPv4, and behind a comma one of IPv6 if there are to be any, such as \
243.0.0.0/8,fd00:243::/48"
    }]))]
    pub clusterset_ip_cidr_range: String,
}

impl Default for BrokerConfig {
    fn default() -> Self {
        Self {
            public_api_server_url: None,
            connectivity_enabled: true,
            service_discovery_enabled: true,
            custom_domains: Vec::new(),
            globalnet_enable: false,
            globalnet_cidr_range: "242.0.0.0/8".to_owned(),
            default_globalnet_cluster_size: 65_536,
            clusterset_ip_enable: false,
            clusterset_ip_cidr_range: "243.0.0.0/8,fdf1:5f29:2642::/48".to_owned(),
        }
    }
}
