//! Endpoint: one way into a cluster. The object that peers build their cables from.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::cluster::check_id_length;
use super::lenient::null_as_default;
use super::{ApiError, Kind, ObjectMeta, Resource, check_cluster_id, endpoint_object_name, parse_cidrs};

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
}

/// A gateway that can be connected to. The object's name is `<cluster>-<cable name>`, made valid.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// What the gateway says of itself.
    pub spec: EndpointSpec,
    /// Unknown top-level fields, kept.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl Endpoint {
    /// A new Endpoint object in `namespace`, named after its cluster and cable.
    ///
    /// # Errors
    /// [`ApiError::Field`] when cluster ID or cable name are empty, or no object name can be made of them.
    pub fn new(namespace: &str, spec: EndpointSpec) -> Result<Self, ApiError> {
        let name = endpoint_object_name(&spec.cluster_id, &spec.cable_name)
            .map_err(|error| ApiError::field("spec.cable_name", error.to_string()))?;
        Ok(Self { metadata: ObjectMeta::new(namespace, name), spec, extra: Map::new() })
    }
}

impl Resource for Endpoint {
    const KIND: Kind = Kind::Endpoint;

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }
}

/// A gateway's identity, addresses, subnets and cable. Addresses are text, as on the wire; [`EndpointSpec::parse`]
/// reads them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndpointSpec {
    /// The owning cluster.
    pub cluster_id: String,
    /// The cable's name, its identity everywhere.
    pub cable_name: String,
    /// The address that remote gateways ping. Empty: no health check.
    #[serde(rename = "healthCheckIP", default, skip_serializing_if = "String::is_empty")]
    pub health_check_ip: String,
    /// The gateway node's host name; a route agent compares it with its own to learn whether it is the gateway.
    pub hostname: String,
    /// CIDRs reachable through this gateway: global CIDRs alone with Globalnet, else service then pod CIDRs.
    #[serde(deserialize_with = "null_as_default")]
    pub subnets: Vec<String>,
    /// The address that the gateway's kernel uses towards the world.
    pub private_ip: String,
    /// The address under which the world sees the gateway; empty when unknown.
    #[serde(default)]
    pub public_ip: String,
    /// Whether the cluster was joined with NAT in mind; used only where NAT discovery gives no answer.
    #[serde(default)]
    pub nat_enabled: bool,
    /// The cable driver: `wireguard`, `libreswan`, `vxlan`.
    pub backend: String,
    /// The driver's settings; keys in [`backend_config`].
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub backend_config: BTreeMap<String, String>,
    /// Unknown fields, kept.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl EndpointSpec {
    /// Whether two specs stand for the same endpoint, by upstream's rule: cluster, cable, host, driver and driver's
    /// settings. Subnets and addresses do not count, and the settings do not where both are behind a load balancer.
    pub fn is_same_endpoint(&self, other: &Self) -> bool {
        self.cluster_id == other.cluster_id
            && self.cable_name == other.cable_name
            && self.hostname == other.hostname
            && self.backend == other.backend
            && (self.backend_config == other.backend_config
                || (self.uses_load_balancer() && other.uses_load_balancer()))
    }

    /// Whether the public address is a load balancer's.
    pub fn uses_load_balancer(&self) -> bool {
        self.backend_config.get(backend_config::USING_LOAD_BALANCER).is_some_and(|value| value == "true")
    }

    /// The gateway's address for routing purposes: the public one if there is one, else the private one.
    pub fn gateway_ip(&self) -> &str {
        if self.public_ip.is_empty() { &self.private_ip } else { &self.public_ip }
    }

    /// Reads the texts into types that cannot be wrong.
    ///
    /// # Errors
    /// [`ApiError::Field`] for the first field whose value cannot be.
    pub fn parse(&self) -> Result<EndpointFacts, ApiError> {
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
            private_ip: parse_ip("spec.private_ip", &self.private_ip)?,
            public_ip: parse_optional_ip("spec.public_ip", &self.public_ip)?,
            health_check_ip: parse_optional_ip("spec.healthCheckIP", &self.health_check_ip)?,
            udp_port: self.parse_port(backend_config::UDP_PORT)?.filter(|port| *port != 0),
            nat_discovery_port: self.parse_port(backend_config::NAT_DISCOVERY_PORT)?,
            backend: self.backend.to_lowercase(),
        })
    }

    /// What upstream's schema checks beyond types: the ID's length.
    pub(super) fn check_shape(&self) -> Result<(), ApiError> {
        check_id_length(&self.cluster_id)
    }

    fn parse_port(&self, key: &str) -> Result<Option<u16>, ApiError> {
        let Some(text) = self.backend_config.get(key) else { return Ok(None) };
        text.parse().map(Some).map_err(|_| {
            ApiError::field(format!("spec.backend_config.{key}"), format!("`{text}` is not a port"))
        })
    }
}

fn parse_ip(field: &str, text: &str) -> Result<IpAddr, ApiError> {
    let address: IpAddr =
        text.parse().map_err(|_| ApiError::field(field, format!("`{text}` is not an IP address")))?;
    if address.is_unspecified() || address.is_multicast() {
        return Err(ApiError::field(field, format!("`{text}` is not the address of a host")));
    }
    Ok(address)
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
