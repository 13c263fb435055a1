//! Ports of servers, as Neutron has them (<https://docs.openstack.org/api-ref/network/v2/#ports>).

use std::collections::HashSet;
use std::net::IpAddr;

use serde_json::Value;

use super::group::Family;

/// A port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    /// Its ID.
    pub id: String,
    /// The ID of its server; empty if it is none of a server.
    pub server: String,
    /// The IDs of its groups.
    pub groups: Vec<String>,
    /// Whether it can have groups: Neutron wants port security and an address for that. Without port security everything passes.
    pub takes_groups: bool,
    /// The families of its addresses.
    pub families: Vec<Family>,
    /// Whether others reach it: it has a floating IP or a public address.
    pub is_public: bool,
}

impl Port {
    /// Returns a port of Neutron's; `None` without an ID. `floating` has the IDs of the ports with a floating IP.
    pub fn parse(port: &Value, floating: &HashSet<String>) -> Option<Self> {
        let id = port["id"].as_str()?;
        let text = |field: &str| port[field].as_str().unwrap_or_default();
        let server = if text("device_owner").starts_with("compute:") { text("device_id") } else { "" };
        let addresses = port["fixed_ips"].as_array().into_iter().flatten();
        let addresses = addresses.filter_map(|fixed| fixed["ip_address"].as_str()?.parse().ok());
        let addresses: Vec<IpAddr> = addresses.collect();
        let mut families: Vec<Family> = addresses.iter().map(family).collect();
        families.sort();
        families.dedup();
        Some(Self {
            id: id.to_owned(),
            server: server.to_owned(),
            groups: groups(port),
            takes_groups: port["port_security_enabled"] != false && !addresses.is_empty(),
            families,
            is_public: floating.contains(id) || addresses.iter().any(is_public),
        })
    }
}

/// Returns the IDs of a port's groups.
pub(crate) fn groups(port: &Value) -> Vec<String> {
    let ids = port["security_groups"].as_array().into_iter().flatten();
    ids.filter_map(|id| id.as_str().map(str::to_owned)).collect()
}

/// Returns the ID of a node's server: `openstack:///ID`, or with a region before the last slash.
pub(crate) fn server_id(provider_id: &str) -> Option<&str> {
    let rest = provider_id.strip_prefix("openstack://")?;
    let (_, id) = rest.rsplit_once('/')?;
    (!id.is_empty()).then_some(id)
}

const fn family(address: &IpAddr) -> Family {
    match address {
        IpAddr::V4(_) => Family::V4,
        IpAddr::V6(_) => Family::V6,
    }
}

/// Returns `true` if an address is none of a private network: of IPv6, those of 2000::/3 (RFC 4291, section 2.4).
fn is_public(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => {
            let [first, second, ..] = address.octets();
            // 100.64.0.0/10 is shared between customers of a provider (RFC 6598).
            let is_shared = first == 100 && second & 0xc0 == 64;
            !(address.is_private() || address.is_link_local() || address.is_loopback() || is_shared)
        }
        IpAddr::V6(address) => address.segments().first().is_some_and(|first| first & 0xe000 == 0x2000),
    }
}
