//! Submariner: what was chosen when a cluster joined, in the form of upstream's operator.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::ObjectMeta;
use super::lenient::null_as_default;

/// A member of a cluster set, as its administrator wants it. Upstream's operator acts on such an object, and so does ours; one
/// that a join has made is a record that commands read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Submariner {
    /// Metadata.
    #[schemars(with = "Map<String, Value>")]
    pub metadata: ObjectMeta,
    /// What is wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<SubmarinerSpec>,
    /// What there is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<SubmarinerStatus>,
    /// Unknown top-level fields, kept.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// A token or key in an object. Its `Debug` form does not show it.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
pub struct Hidden(pub String);

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

/// `Submariner.spec`. What is not required is upstream's default when it is missing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SubmarinerSpec {
    /// Whether nobody outside is asked for the public address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub air_gapped_deployment: Option<bool>,
    /// The kind of broker; `k8s`.
    pub broker: String,
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
    /// The kind of cable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cable_driver: Option<String>,
    /// Whether the IPsec cable logs more.
    #[serde(rename = "ceIPSecDebug")]
    pub ipsec_debug: bool,
    /// Whether IPsec is always encapsulated in UDP.
    #[serde(rename = "ceIPSecForceUDPEncaps", default, skip_serializing_if = "Option::is_none")]
    pub force_udp_encaps: Option<bool>,
    /// UDP port of IKE.
    #[serde(rename = "ceIPSecIKEPort", default, skip_serializing_if = "Option::is_none")]
    pub ike_port: Option<i64>,
    /// UDP port of the cables.
    #[serde(rename = "ceIPSecNATTPort", default, skip_serializing_if = "Option::is_none")]
    pub natt_port: Option<i64>,
    /// The pre-shared key in base64, in clear. [`Self::psk_secret`] is better.
    #[serde(rename = "ceIPSecPSK", default, skip_serializing_if = "Option::is_none")]
    pub psk: Option<Hidden>,
    /// The Secret with the pre-shared key as `psk`.
    #[serde(rename = "ceIPSecPSKSecret", default, skip_serializing_if = "Option::is_none")]
    pub psk_secret: Option<String>,
    /// Whether gateways wait for peers to connect to them.
    #[serde(rename = "ceIPSecPreferredServer", default, skip_serializing_if = "Option::is_none")]
    pub preferred_server: Option<bool>,
    /// Pod CIDRs, separated by commas; empty means that they are discovered.
    #[serde(rename = "clusterCIDR")]
    pub cluster_cidr: String,
    /// The cluster's ID.
    #[serde(rename = "clusterID")]
    pub cluster_id: String,
    /// Addresses for services of the set.
    #[serde(rename = "clustersetIPCIDR", default, skip_serializing_if = "Option::is_none")]
    pub clusterset_ip_cidr: Option<String>,
    /// Whether services of the set get an address unless they say otherwise.
    #[serde(rename = "clustersetIPEnabled", default, skip_serializing_if = "Option::is_none")]
    pub clusterset_ip_enabled: Option<bool>,
    /// Vestigial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub color_codes: Option<String>,
    /// How connections are checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection_health_check: Option<HealthCheckSpec>,
    /// Where the cluster's DNS server has its settings, if not in the usual place.
    #[serde(rename = "coreDNSCustomConfig", default, skip_serializing_if = "Option::is_none")]
    pub core_dns_custom_config: Option<Map<String, Value>>,
    /// Domains beside `clusterset.local`.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<String>")]
    pub custom_domains: Vec<String>,
    /// Whether programs log more.
    pub debug: bool,
    /// Globalnet's CIDRs, separated by commas.
    #[serde(rename = "globalCIDR", default, skip_serializing_if = "Option::is_none")]
    pub global_cidr: Option<String>,
    /// Whether programs end when the broker's certificate is not accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub halt_on_certificate_error: Option<bool>,
    /// Images of single components.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub image_overrides: BTreeMap<String, String>,
    /// Whether a Service of type LoadBalancer leads to the active gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_balancer_enabled: Option<bool>,
    /// The namespace of everything.
    pub namespace: String,
    /// Whether peers should use the public address where NAT discovery does not tell.
    pub nat_enabled: bool,
    /// Labels that nodes must have.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Where the image is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repository: Option<String>,
    /// Service CIDRs, separated by commas; empty means that they are discovered.
    #[serde(rename = "serviceCIDR")]
    pub service_cidr: String,
    /// Whether services are found by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_discovery_enabled: Option<bool>,
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

/// How connections are checked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HealthCheckSpec {
    /// Whether they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Seconds between two pings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval_seconds: Option<i64>,
    /// Unanswered pings above which a connection has failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_packet_loss_count: Option<i64>,
    /// Unknown fields, kept.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// `Submariner.status`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SubmarinerStatus {
    /// As in the specification.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub air_gapped_deployment: Option<bool>,
    /// Pod CIDRs in use, separated by commas.
    #[serde(rename = "clusterCIDR", default, skip_serializing_if = "Option::is_none")]
    pub cluster_cidr: Option<String>,
    /// The cluster's ID.
    #[serde(rename = "clusterID", default, skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<String>,
    /// Addresses for services of the set.
    #[serde(rename = "clustersetIPCIDR", default, skip_serializing_if = "Option::is_none")]
    pub clusterset_ip_cidr: Option<String>,
    /// Vestigial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub color_codes: Option<String>,
    /// What kind of cluster this is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployment_info: Option<Map<String, Value>>,
    /// The gateways' DaemonSet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway_daemon_set_status: Option<Map<String, Value>>,
    /// What the gateways publish.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub gateways: Vec<Map<String, Value>>,
    /// Globalnet's CIDRs, separated by commas.
    #[serde(rename = "globalCIDR", default, skip_serializing_if = "Option::is_none")]
    pub global_cidr: Option<String>,
    /// Globalnet's DaemonSet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub globalnet_daemon_set_status: Option<Map<String, Value>>,
    /// The load balancer's Service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_balancer_status: Option<Map<String, Value>>,
    /// As in the specification.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nat_enabled: Option<bool>,
    /// The network plugin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_plugin: Option<String>,
    /// The route agents' DaemonSet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route_agent_daemon_set_status: Option<Map<String, Value>>,
    /// Service CIDRs in use, separated by commas.
    #[serde(rename = "serviceCIDR", default, skip_serializing_if = "Option::is_none")]
    pub service_cidr: Option<String>,
    /// The version in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Unknown fields, kept.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}
