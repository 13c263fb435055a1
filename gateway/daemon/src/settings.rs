//! A node's own settings: labels and annotations of its Node object.
//!
//! Upstream's keys begin with `gateway.submariner.io/`; an annotation wins over a label (api §8.1). Upstream refuses to
//! start at an unknown one; here it is a condition. Our own keys begin with `trieste.io/`, so that upstream's gateway,
//! should the node go back to it, does not trip over them.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use trieste_control::api::{MAX_WEIGHT, Object};
use trieste_control::parse::parse_bool;

/// Prefix of upstream's keys.
const PREFIX: &str = "gateway.submariner.io/";
/// The label of nodes that run gateways (api §8.1).
const GATEWAY_LABEL: &str = "submariner.io/gateway";
/// Ours: the address that peers should use, where a node has several.
pub const ENDPOINT_IP: &str = "trieste.io/endpoint-ip";
/// Ours: the interface whose address peers should use.
pub const ENDPOINT_INTERFACE: &str = "trieste.io/endpoint-interface";
/// Ours: the gateway's share of other clusters' flows.
pub const WEIGHT: &str = "trieste.io/weight";

/// Settings of a Node object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct NodeSettings {
    /// `gateway.submariner.io/udp-port`.
    pub udp_port: Option<u16>,
    /// `gateway.submariner.io/natt-discovery-port`; 0 switches discovery off.
    pub nat_discovery_port: Option<u16>,
    /// `gateway.submariner.io/public-ip`: resolvers.
    pub public_ip: Option<String>,
    /// `gateway.submariner.io/preferred-server`.
    pub preferred_server: Option<bool>,
    /// [`ENDPOINT_IP`].
    pub endpoint_ip: Option<IpAddr>,
    /// [`ENDPOINT_INTERFACE`].
    pub endpoint_interface: Option<String>,
    /// [`WEIGHT`].
    pub weight: Option<u16>,
    /// Whether the node is labelled as a gateway.
    pub is_gateway: bool,
    /// Problems, as key and sentence. Such a key has no effect.
    pub problems: Vec<(String, String)>,
}

impl NodeSettings {
    /// Reads a Node object.
    #[must_use]
    pub fn read(node: &Object) -> Self {
        let mut settings = Self::default();
        let metadata = &node.metadata;
        settings.is_gateway = metadata.labels.get(GATEWAY_LABEL).is_some_and(|value| value == "true");
        let is_ours = |key: &str| [ENDPOINT_IP, ENDPOINT_INTERFACE, WEIGHT].contains(&key);
        let is_setting = |key: &&String| key.starts_with(PREFIX) || is_ours(key);
        let mut keys: Vec<&String> =
            metadata.labels.keys().chain(metadata.annotations.keys()).filter(is_setting).collect();
        keys.sort();
        keys.dedup();
        for key in keys {
            let value = metadata.annotations.get(key).or_else(|| metadata.labels.get(key));
            let Some(value) = value else { continue };
            if let Err(problem) = settings.take(key, value) {
                settings.problems.push((key.clone(), problem));
            }
        }
        settings
    }

    fn take(&mut self, key: &str, value: &str) -> Result<(), String> {
        match key.strip_prefix(PREFIX).unwrap_or(key) {
            "udp-port" => {
                self.udp_port = Some(port(value).filter(|port| *port != 0).ok_or_else(|| no_port(value))?)
            }
            "natt-discovery-port" => {
                self.nat_discovery_port = Some(port(value).ok_or_else(|| no_port(value))?)
            }
            "public-ip" => self.public_ip = Some(value.to_owned()),
            "preferred-server" => self.preferred_server = Some(boolean(value)?),
            ENDPOINT_IP => {
                let address = value.parse().map_err(|_| format!("`{value}` is not an IP address"))?;
                self.endpoint_ip = Some(address);
            }
            ENDPOINT_INTERFACE => self.endpoint_interface = Some(value.to_owned()),
            WEIGHT => {
                let weight = value.parse().ok().filter(|weight| is_weight(*weight));
                let no_weight =
                    || format!("`{value}` is not a number from 1 to {MAX_WEIGHT} and has no effect");
                self.weight = Some(weight.ok_or_else(no_weight)?);
            }
            _ => {
                return Err(
                    "is no setting of a gateway and has no effect; known are udp-port, natt-discovery-port, \
                            public-ip and preferred-server"
                        .to_owned(),
                );
            }
        }
        Ok(())
    }
}

/// Returns `true` if a gateway may have this weight.
#[must_use]
pub fn is_weight(weight: u16) -> bool {
    (1..=MAX_WEIGHT).contains(&weight)
}

fn port(value: &str) -> Option<u16> {
    value.parse().ok()
}

fn no_port(value: &str) -> String {
    format!("`{value}` is not a port and has no effect")
}

fn boolean(value: &str) -> Result<bool, String> {
    // An empty variable is ignored; an empty label is a mistake.
    let set = Some(value).filter(|value| !value.is_empty());
    set.and_then(|value| parse_bool(value).ok())
        .ok_or_else(|| format!("`{value}` is neither true nor false and has no effect"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use trieste_control::api::{Kind, ObjectMeta};

    fn node(labels: &[(&str, &str)], annotations: &[(&str, &str)]) -> Object {
        let mut node = Object::new(Kind::Node, ObjectMeta::new("", "gw1"));
        let owned =
            |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        node.metadata.labels = owned(labels);
        node.metadata.annotations = owned(annotations);
        node
    }

    #[test]
    fn an_annotation_wins_over_a_label() {
        let node = node(
            &[("gateway.submariner.io/udp-port", "4501"), ("submariner.io/gateway", "true"), ("other", "x")],
            &[
                ("gateway.submariner.io/udp-port", "4502"),
                ("gateway.submariner.io/public-ip", "dns:gw.example.com"),
            ],
        );
        let settings = NodeSettings::read(&node);
        assert_eq!(settings.udp_port, Some(4502));
        assert_eq!(settings.public_ip.as_deref(), Some("dns:gw.example.com"));
        assert!(settings.is_gateway && settings.problems.is_empty());
    }

    #[test]
    fn what_makes_no_sense_is_named_and_has_no_effect() {
        let node = node(
            &[("gateway.submariner.io/udp-prot", "4501")],
            &[
                ("gateway.submariner.io/natt-discovery-port", "70000"),
                ("gateway.submariner.io/preferred-server", "perhaps"),
                ("gateway.submariner.io/udp-port", "0"),
                (ENDPOINT_IP, "gw1"),
                (WEIGHT, "1001"),
            ],
        );
        let settings = NodeSettings::read(&node);
        let keys: Vec<_> = settings.problems.iter().map(|(key, _)| key.as_str()).collect();
        assert_eq!(
            keys,
            [
                "gateway.submariner.io/natt-discovery-port",
                "gateway.submariner.io/preferred-server",
                "gateway.submariner.io/udp-port",
                "gateway.submariner.io/udp-prot",
                ENDPOINT_IP,
                WEIGHT,
            ]
        );
        assert_eq!(NodeSettings { problems: vec![], ..settings }, NodeSettings::default());
    }

    #[test]
    fn zero_switches_discovery_off_and_our_keys_choose_the_address() {
        let node = node(
            &[("gateway.submariner.io/natt-discovery-port", "0")],
            &[(ENDPOINT_IP, "192.0.2.7"), (ENDPOINT_INTERFACE, "eth1"), (WEIGHT, "250")],
        );
        let settings = NodeSettings::read(&node);
        assert_eq!(settings.nat_discovery_port, Some(0));
        assert_eq!(settings.endpoint_ip, Some("192.0.2.7".parse().unwrap()));
        assert_eq!(settings.endpoint_interface.as_deref(), Some("eth1"));
        assert_eq!(settings.weight, Some(250));
    }
}
