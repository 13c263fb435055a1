//! ServiceDiscovery: what was chosen of service discovery, in the form of upstream's operator.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::lenient::null_as_default;
use super::{Hidden, ObjectMeta};

/// A cluster's part in service discovery, as its administrator wants it. Upstream's operator acts on such an object, and makes
/// one of a Submariner object that switches service discovery on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ServiceDiscovery {
    /// Metadata.
    #[schemars(with = "Map<String, Value>")]
    pub metadata: ObjectMeta,
    /// What is wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<ServiceDiscoverySpec>,
    /// What there is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Map<String, Value>>,
    /// Unknown top-level fields, kept.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// `ServiceDiscovery.spec`. What is not required is upstream's default when it is missing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceDiscoverySpec {
    /// The broker's API server: `host:port`.
    #[serde(rename = "brokerK8sApiServer")]
    pub broker_api_server: String,
    /// The token for it, in clear. [`Self::broker_secret`] is better.
    #[serde(rename = "brokerK8sApiServerToken", default, skip_serializing_if = "Option::is_none")]
    pub broker_token: Option<Hidden>,
    /// The authority that signs its certificate: PEM in base64.
    #[serde(rename = "brokerK8sCA", default, skip_serializing_if = "Option::is_none")]
    pub broker_ca: Option<String>,
    /// Whether its certificate is not checked.
    #[serde(rename = "brokerK8sInsecure", default, skip_serializing_if = "Option::is_none")]
    pub broker_insecure: Option<bool>,
    /// The members' namespace there.
    #[serde(rename = "brokerK8sRemoteNamespace")]
    pub broker_namespace: String,
    /// The Secret with `token`, `ca.crt` and `namespace`.
    #[serde(rename = "brokerK8sSecret", default, skip_serializing_if = "Option::is_none")]
    pub broker_secret: Option<String>,
    /// The cluster's ID.
    #[serde(rename = "clusterID")]
    pub cluster_id: String,
    /// Addresses for services of the set.
    #[serde(rename = "clustersetIPCIDR", default, skip_serializing_if = "Option::is_none")]
    pub clusterset_ip_cidr: Option<String>,
    /// Whether services of the set get an address unless they say otherwise.
    #[serde(rename = "clustersetIPEnabled", default, skip_serializing_if = "Option::is_none")]
    pub clusterset_ip_enabled: Option<bool>,
    /// Where the cluster's DNS server has its settings, if not in the usual place.
    #[serde(rename = "coreDNSCustomConfig", default, skip_serializing_if = "Option::is_none")]
    pub core_dns_custom_config: Option<Map<String, Value>>,
    /// Domains beside `clusterset.local`.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<String>")]
    pub custom_domains: Vec<String>,
    /// Whether programs log more.
    pub debug: bool,
    /// Whether clusters are known by global addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub globalnet_enabled: Option<bool>,
    /// Whether programs end when the broker's certificate is not accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub halt_on_certificate_error: Option<bool>,
    /// Images of single components.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub image_overrides: BTreeMap<String, String>,
    /// The namespace of everything.
    pub namespace: String,
    /// Labels that nodes must have.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Where the image is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repository: Option<String>,
    /// Taints that pods bear.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<Map<String, Value>>,
    /// The image's version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Unknown fields, kept.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}
