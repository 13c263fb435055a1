//! Endpoint: one way into a cluster. The object that peers build their cables from.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::cluster::check_id_length;
use super::lenient::null_as_default;
use super::{ApiError, ObjectMeta, check_cluster_id, endpoint_object_name, limits, parse_cidrs, parse_ip};

/// Keys of [`EndpointSpec::backend_config`]. Keys beyond upstream's carry the prefix `trieste.`.
pub mod backend_config {
    /// The cable's UDP port, decimal.
    pub const UDP_PORT: &str = "udp-port";
    /// The UDP port that answers NAT discovery, decimal; `0` turns discovery off.
    pub const NAT_DISCOVERY_PORT: &str = "natt-discovery-port";
    /// How the public address is found: a list of resolvers.
    pub const PUBLIC_IP: &str = "public-ip";
    /// Whether this side prefers to be connected to: `true` or `false`.
    pub const PREFERRED_SERVER: &str = "preferred-server";
    /// Whether the public address is a load balancer's: `true` or absent.
    pub const USING_LOAD_BALANCER: &str = "using-loadbalancer";
    /// WireGuard's public key, base64.
    pub const PUBLIC_KEY: &str = "publicKey";
    /// The device that route agents send host traffic to.
    pub const INTERFACE_NAME: &str = "interface-name";
    /// Bytes received over the cable; only in `Gateway.status`, as upstream leaks it there.
    pub const RECEIVE_BYTES: &str = "ReceiveBytes";
    /// Bytes sent over the cable; only in `Gateway.status`.
    pub const TRANSMIT_BYTES: &str = "TransmitBytes";
    /// When the two counters were read, Unix milliseconds; only in `Gateway.status`.
    pub const LAST_CHECKED: &str = "LastChecked";
    /// Ours: `1` says that this cluster knows of several gateways at once; also on the Endpoint that upstream reads.
    pub const PATHS: &str = "trieste.paths";
    /// Ours: a gateway's share of new flows, 1 to 1000, decimal; absent means 100.
    pub const WEIGHT: &str = "trieste.weight";
    /// Ours: [`DRAINING`] where a gateway is to get no new flows; else absent. In `Gateway.status` also [`DRAINED`].
    pub const STATE: &str = "trieste.state";
    /// Ours: a mark of `subnets`, where gateways that do not look at these have to see that they have changed.
    pub const NETWORKS: &str = "trieste.networks";
    /// The value of [`STATE`] of a gateway that is to get no new flows.
    pub const DRAINING: &str = "draining";
    /// The value of [`STATE`] in `Gateway.status` once nothing comes any more.
    pub const DRAINED: &str = "drained";
    /// Ours: the cable driver that a gateway offers besides `backend`, while its cluster set changes from it to that one.
    pub const FORMER_DRIVER: &str = "trieste.former-driver";
    /// Ours: the Ed25519 public key, base64, that a gateway signs its notices with; only in its own cluster.
    pub const NOTICE_KEY: &str = "trieste.notice-key";
    /// Ours: the first of a gateway's shares of outside ports, 0 to 7, decimal; only in its own cluster.
    pub const NAT_SLOT: &str = "trieste.nat-slot";
}

/// A gateway that can be connected to. The object's name is `<cluster>-<cable name>`, made valid.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Endpoint {
    /// Metadata.
    #[schemars(with = "Map<String, Value>")]
    pub metadata: ObjectMeta,
    /// What the gateway says of itself.
    pub spec: EndpointSpec,
    /// Unknown top-level fields, kept.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl Endpoint {
    /// Returns a new Endpoint object in `namespace`, named after its cluster and cable.
    ///
    /// # Errors
    /// [`ApiError::Field`] when cluster ID or cable name are empty, or no object name can be made of them.
    pub fn new(namespace: &str, spec: EndpointSpec) -> Result<Self, ApiError> {
        let name = endpoint_object_name(&spec.cluster_id, &spec.cable_name)
            .map_err(|error| ApiError::field("spec.cable_name", error.to_string()))?;
        Ok(Self { metadata: ObjectMeta::new(namespace, name), spec, extra: Map::new() })
    }
}

/// A gateway's identity, addresses, subnets and cable. Addresses are text, as on the wire; [`EndpointSpec::parse`]
/// reads them.
///
/// Newer releases of upstream write lists of addresses, one per family, and repeat the IPv4 one in the single field.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("required" = ["backend", "cable_name", "cluster_id", "hostname", "nat_enabled", "subnets"]))]
pub struct EndpointSpec {
    /// The owning cluster.
    #[schemars(length(min = 1, max = 63))]
    pub cluster_id: String,
    /// The cable's name, its identity everywhere.
    pub cable_name: String,
    /// The address that remote gateways ping. Empty: no health check.
    #[serde(rename = "healthCheckIP", default, skip_serializing_if = "String::is_empty")]
    pub health_check_ip: String,
    /// The addresses that remote gateways ping, one per family.
    #[serde(
        rename = "healthCheckIPs",
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub health_check_ips: Vec<String>,
    /// The gateway node's host name; a route agent compares it with its own to learn whether it is the gateway.
    pub hostname: String,
    /// CIDRs reachable through this gateway: global CIDRs alone with Globalnet, else service then pod CIDRs.
    #[serde(deserialize_with = "null_as_default")]
    pub subnets: Vec<String>,
    /// The address that the gateway's kernel uses towards the world.
    #[serde(default)]
    pub private_ip: String,
    /// The addresses that the gateway's kernel uses towards the world, one per family.
    #[serde(
        rename = "privateIPs",
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub private_ips: Vec<String>,
    /// The address under which the world sees the gateway; empty when unknown.
    #[serde(default)]
    pub public_ip: String,
    /// The addresses under which the world sees the gateway, one per family.
    #[serde(
        rename = "publicIPs",
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub public_ips: Vec<String>,
    /// Whether the cluster was joined with NAT in mind; used only where NAT discovery gives no answer.
    #[serde(default)]
    pub nat_enabled: bool,
    /// The cable driver: `wireguard`, `libreswan`, `vxlan`.
    pub backend: String,
    /// The driver's settings, such as its port and public key; see [`backend_config`].
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub backend_config: BTreeMap<String, String>,
    /// Unknown fields, kept.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl EndpointSpec {
    /// Returns `true` if two specs stand for the same endpoint, by upstream's rule: cluster, cable, host, driver and
    /// driver's settings. Subnets and addresses do not count, and the settings do not where both are behind a load
    /// balancer.
    pub fn is_same_endpoint(&self, other: &Self) -> bool {
        self.cluster_id == other.cluster_id
            && self.cable_name == other.cable_name
            && self.hostname == other.hostname
            && self.backend == other.backend
            && (self.backend_config == other.backend_config
                || (self.uses_load_balancer() && other.uses_load_balancer()))
    }

    /// Returns `true` if the public address is a load balancer's.
    pub fn uses_load_balancer(&self) -> bool {
        self.backend_config.get(backend_config::USING_LOAD_BALANCER).is_some_and(|value| value == "true")
    }

    /// Returns the gateway's address for routing purposes: the public one if there is one, else the private one.
    pub fn gateway_ip(&self) -> &str {
        let public = self.public_address();
        if public.is_empty() { self.private_address() } else { public }
    }

    /// Returns the private address that counts: the single field's, else the list's first of IPv4, else its first;
    /// empty if there is none.
    pub fn private_address(&self) -> &str {
        single_or_first(&self.private_ip, &self.private_ips)
    }

    /// Returns the public address that counts, chosen like [`EndpointSpec::private_address`].
    pub fn public_address(&self) -> &str {
        single_or_first(&self.public_ip, &self.public_ips)
    }

    /// Returns the address to ping that counts, chosen like [`EndpointSpec::private_address`].
    pub fn health_check_address(&self) -> &str {
        single_or_first(&self.health_check_ip, &self.health_check_ips)
    }

    /// Reads the texts into types that cannot be wrong.
    ///
    /// # Errors
    /// [`ApiError::Field`] for the first field whose value cannot be, or that is beyond [`limits`].
    pub fn parse(&self) -> Result<EndpointFacts, ApiError> {
        self.check_limits()?;
        check_cluster_id(&self.cluster_id)
            .map_err(|error| ApiError::field("spec.cluster_id", error.to_string()))?;
        if self.cable_name.is_empty() {
            return Err(ApiError::field("spec.cable_name", "is empty"));
        }
        if self.hostname.is_empty() {
            return Err(ApiError::field("spec.hostname", "is empty"));
        }
        Ok(EndpointFacts {
            cluster_id: self.cluster_id.clone(),
            cable_name: self.cable_name.clone(),
            hostname: self.hostname.clone(),
            subnets: parse_cidrs("spec.subnets", &self.subnets)?,
            private_ip: parse_ip("spec.private_ip", self.private_address())?,
            public_ip: parse_optional_ip("spec.public_ip", self.public_address())?,
            health_check_ip: parse_optional_ip("spec.healthCheckIP", self.health_check_address())?,
            udp_port: self.parse_port(backend_config::UDP_PORT)?.filter(|port| *port != 0),
            nat_discovery_port: self.parse_port(backend_config::NAT_DISCOVERY_PORT)?,
            backend: self.backend.to_lowercase(),
        })
    }

    /// Checks the ID's length, as upstream's schema does beyond types. `at` is the spec's own path.
    pub(super) fn check_shape(&self, at: &str) -> Result<(), ApiError> {
        check_id_length(&format!("{at}.cluster_id"), &self.cluster_id)
    }

    fn check_limits(&self) -> Result<(), ApiError> {
        limits::check_text("spec.cable_name", &self.cable_name, limits::MAX_TEXT_LEN)?;
        limits::check_text("spec.hostname", &self.hostname, limits::MAX_TEXT_LEN)?;
        limits::check_text("spec.backend", &self.backend, limits::MAX_TEXT_LEN)?;
        limits::check_list("spec.privateIPs", self.private_ips.len(), limits::MAX_ADDRESSES)?;
        limits::check_list("spec.publicIPs", self.public_ips.len(), limits::MAX_ADDRESSES)?;
        limits::check_list("spec.healthCheckIPs", self.health_check_ips.len(), limits::MAX_ADDRESSES)?;
        limits::check_settings("spec.backend_config", &self.backend_config)
    }

    fn parse_port(&self, key: &str) -> Result<Option<u16>, ApiError> {
        // An empty setting is none, as upstream reads it.
        let Some(text) = self.backend_config.get(key).filter(|text| !text.is_empty()) else {
            return Ok(None);
        };
        text.parse().map(Some).map_err(|_| {
            ApiError::field(format!("spec.backend_config.{key}"), format!("`{text}` is not a port"))
        })
    }
}

/// Returns the single field's text if there is one, else the list's first of IPv4, else its first.
fn single_or_first<'a>(single: &'a str, list: &'a [String]) -> &'a str {
    if !single.is_empty() {
        return single;
    }
    let ipv4 = list.iter().find(|text| text.parse::<Ipv4Addr>().is_ok());
    ipv4.or_else(|| list.first()).map_or("", String::as_str)
}

fn parse_optional_ip(field: &str, text: &str) -> Result<Option<IpAddr>, ApiError> {
    if text.is_empty() { Ok(None) } else { parse_ip(field, text).map(Some) }
}

/// An [`EndpointSpec`] whose every value has been checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndpointFacts {
    /// The owning cluster, a DNS-1123 label.
    pub cluster_id: String,
    /// The cable's name.
    pub cable_name: String,
    /// The gateway node's host name.
    pub hostname: String,
    /// CIDRs behind the gateway, host bits cleared, in published order.
    pub subnets: Vec<IpNet>,
    /// The gateway's own address.
    pub private_ip: IpAddr,
    /// The address the world sees, if known.
    pub public_ip: Option<IpAddr>,
    /// The address to ping, if there is a health check.
    pub health_check_ip: Option<IpAddr>,
    /// The cable's UDP port, if published.
    pub udp_port: Option<u16>,
    /// NAT discovery's UDP port, if published; 0 means that discovery is off.
    pub nat_discovery_port: Option<u16>,
    /// The cable driver, lower case.
    pub backend: String,
}
