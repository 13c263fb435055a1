//! What this node is, and what its gateway says of itself: the Endpoint, put together from configuration, node
//! settings, addresses and what was found out about the public address.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use anyhow::Context as _;
use ipnet::IpNet;
use trieste_cables::Overhead;
use trieste_control::api::{ClusterNetworks, EndpointSpec, backend_config, cable_name};
use trieste_control::hash::fnv1a;

use crate::config::Config;
use crate::host::{self, HostAddress};
use crate::settings::{ENDPOINT_INTERFACE, ENDPOINT_IP, NodeSettings};

/// Bytes that outer headers take at most: IPv6 and UDP. The same for both outer families, so that a peer may roam from
/// one to the other.
const OUTER_BYTES: u16 = 48;

/// Facts about this node, determined once at start.
#[derive(Debug, Clone)]
pub struct Node {
    /// The gateway's name: in Endpoint, Gateway and Lease.
    pub hostname: String,
    /// The address that peers in the same network use.
    pub private_ip: IpAddr,
    /// The MTU of the interface that has it, in bytes.
    pub underlay_mtu: u16,
    /// The cable's port.
    pub udp_port: u16,
}

impl Node {
    /// Reads the host's addresses and the Node's settings.
    ///
    /// # Errors
    /// That no address can be found, and what to set.
    pub fn discover(config: &Config, settings: &NodeSettings) -> anyhow::Result<Self> {
        let addresses = host::addresses();
        let private_ip = private_ip(config, settings, &addresses)?;
        Ok(Self {
            hostname: config.hostname.clone().unwrap_or_else(host::hostname),
            private_ip,
            underlay_mtu: host::underlay_mtu(&addresses, private_ip),
            udp_port: settings.udp_port.unwrap_or(config.udp_port),
        })
    }

    /// Returns the largest inner packet that fits a cable of this overhead, in bytes.
    #[must_use]
    pub fn path_mtu(&self, config: &Config, overhead: Overhead) -> u16 {
        let taken = OUTER_BYTES + overhead.message_bytes;
        config.path_mtu.unwrap_or_else(|| self.underlay_mtu.saturating_sub(taken))
    }

    /// Returns what peers have to learn with a new key, because upstream ignores other changes under a known one (wireformat §3).
    #[must_use]
    pub fn key_facts(&self, networks: &ClusterNetworks) -> String {
        let (services, pods) = (&networks.services, networks.cluster_cidrs());
        let mut facts = format!("{services:?} {pods:?} {} {}", self.private_ip, self.udp_port);
        if !networks.global.is_empty() {
            facts.push_str(&format!(" {:?}", networks.global));
        }
        facts
    }
}

/// Returns the private address: the configured one, the Node's setting, the chosen interface's, or the default route's.
pub(crate) fn private_ip(
    config: &Config,
    settings: &NodeSettings,
    addresses: &[HostAddress],
) -> anyhow::Result<IpAddr> {
    if let Some(address) = config.private_ip.or(settings.endpoint_ip) {
        return Ok(address);
    }
    let interface = settings.endpoint_interface.as_ref().or(config.endpoint_interface.as_ref());
    if let Some(interface) = interface {
        let mut of_it: Vec<IpAddr> =
            addresses.iter().filter(|host| host.interface == *interface).map(|host| host.address).collect();
        of_it.sort_by_key(IpAddr::is_ipv6);
        return of_it.first().copied().with_context(|| {
            format!(
                "interface {interface} has no address or is not there: check endpoint-interface \
                 (or the Node's annotation {ENDPOINT_INTERFACE})"
            )
        });
    }
    host::default_source().with_context(|| {
        format!(
            "this node has no route to the world to learn its address from: set private-ip \
             (or the Node's annotation {ENDPOINT_IP})"
        )
    })
}

/// The part of the Endpoint that may change while a gateway runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    /// The Node's settings.
    pub settings: NodeSettings,
    /// The configured share of flows, where it has changed since the start.
    pub weight: Option<Option<u16>>,
    /// The cluster's networks.
    pub networks: ClusterNetworks,
    /// Whether gateways are to take the Endpoint for another one than before, for its networks.
    pub is_renewed: bool,
    /// The public address, if one is known.
    pub public_ip: Option<IpAddr>,
    /// Whether that is a load balancer's.
    pub is_load_balancer: bool,
    /// This node's address inside the cluster CIDRs.
    pub inside: Option<IpAddr>,
    /// This node's global IP, from Globalnet.
    pub global_ip: Option<IpAddr>,
}

impl Found {
    /// Returns the address that remote gateways ping: none without health checks; with Globalnet the global IP alone
    /// (behaviour §3.2).
    #[must_use]
    pub fn health_check_ip(&self, config: &Config) -> Option<IpAddr> {
        config.health_check?;
        if config.has_globalnet() {
            return self.global_ip;
        }
        config.health_check_ip.or(self.inside)
    }

    /// Returns the text of the resolvers for the public address: the Node's wins (behaviour §3.3).
    #[must_use]
    pub fn resolvers<'a>(&'a self, config: &'a Config) -> Option<&'a str> {
        self.settings.public_ip.as_deref().or(config.public_ip.as_deref())
    }

    /// Returns the port that answers NAT discovery; 0 is off.
    #[must_use]
    pub fn nat_discovery_port(&self, config: &Config) -> u16 {
        self.settings.nat_discovery_port.unwrap_or(config.nat_discovery_port)
    }
}

/// Returns the Endpoint's spec. `driver` is the cable driver's name, `from_driver` its own settings.
#[must_use]
pub fn endpoint(
    config: &Config,
    node: &Node,
    found: &Found,
    driver: &str,
    from_driver: BTreeMap<String, String>,
) -> EndpointSpec {
    let mut settings = from_driver;
    settings.insert(backend_config::UDP_PORT.to_owned(), node.udp_port.to_string());
    let discovery = found.nat_discovery_port(config).to_string();
    settings.insert(backend_config::NAT_DISCOVERY_PORT.to_owned(), discovery);
    if let Some(resolvers) = found.settings.public_ip.clone() {
        // Only the Node's own setting is published, word for word (api §8.3).
        settings.insert(backend_config::PUBLIC_IP.to_owned(), resolvers);
    }
    if let Some(preferred) = found.settings.preferred_server {
        // A driver that goes by it has said what it goes by, from its start to its end.
        let key = backend_config::PREFERRED_SERVER.to_owned();
        settings.entry(key).or_insert_with(|| preferred.to_string());
    }
    if found.is_renewed {
        let published = found.networks.published().iter().map(IpNet::to_string).collect::<Vec<_>>();
        let mark = format!("{:016x}", fnv1a(published.join(" ").bytes()));
        settings.insert(backend_config::NETWORKS.to_owned(), mark);
    }
    if found.is_load_balancer {
        settings.insert(backend_config::USING_LOAD_BALANCER.to_owned(), "true".to_owned());
    }
    let text = |address: Option<IpAddr>| address.map(|ip| ip.to_string()).unwrap_or_default();
    let mut spec = EndpointSpec {
        cluster_id: config.cluster_id.clone(),
        cable_name: cable_name(&config.cluster_id, node.private_ip),
        health_check_ip: text(found.health_check_ip(config)),
        hostname: node.hostname.clone(),
        subnets: found.networks.published().iter().map(IpNet::to_string).collect(),
        private_ip: node.private_ip.to_string(),
        public_ip: text(found.public_ip),
        nat_enabled: config.nat_enabled,
        backend: driver.to_owned(),
        backend_config: settings,
        ..EndpointSpec::default()
    };
    if let Some(weight) = found.settings.weight.or_else(|| found.weight.unwrap_or(config.weight)) {
        spec.set_weight(weight);
    }
    spec
}

/// Returns this node's address inside the cluster CIDRs, as upstream finds it: that of the first interface that has one,
/// IPv4 before IPv6.
#[must_use]
pub fn inside(networks: &ClusterNetworks) -> Option<IpAddr> {
    host::inside(&host::addresses(), &networks.pods).first().copied()
}

/// Returns every address of this node outside of tunnels, loopback and link-local ones left out.
#[must_use]
pub fn addresses(config: &Config) -> BTreeSet<IpAddr> {
    host::outside_tunnels(&host::addresses(), &config.tun_name).collect()
}

/// Returns our source addresses of ICMP errors: the configured one, else those inside the cluster's own networks, else the
/// endpoint's, else any. Errors go to senders of this cluster, whose nodes accept them from addresses that they know. A
/// node without pods often has no address inside these networks, and without errors packets that are too big would be lost silently.
#[must_use]
pub fn icmp_sources(config: &Config, networks: &ClusterNetworks, private_ip: IpAddr) -> Vec<IpAddr> {
    let addresses = host::addresses();
    // With Globalnet those are not what is published.
    let own: Vec<IpNet> = networks.services.iter().chain(&networks.pods).copied().collect();
    let mut sources = host::inside(&addresses, &own);
    let mut others: Vec<IpAddr> = host::outside_tunnels(&addresses, &config.tun_name).collect();
    others.sort_by_key(|other| *other != private_ip);
    for other in others {
        if sources.iter().all(|source| source.is_ipv4() != other.is_ipv4()) {
            sources.push(other);
        }
    }
    sources.sort_by_key(IpAddr::is_ipv6);
    if let Some(configured) = config.health_check_ip {
        sources.retain(|address| address.is_ipv4() != configured.is_ipv4());
        sources.push(configured);
    }
    sources
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Options;

    const BASE: &str = "cluster-id: cluster-a\ncluster-cidrs: [10.1.0.0/16]\nservice-cidrs: [100.1.0.0/16]\n\
                        nat-enabled: true\n";

    fn config(more: &str) -> Config {
        Options::parse_file(&format!("{BASE}{more}")).unwrap().resolve().unwrap()
    }

    fn node() -> Node {
        Node {
            hostname: "a-gw1".to_owned(),
            private_ip: "172.31.1.11".parse().unwrap(),
            underlay_mtu: 1500,
            udp_port: 4500,
        }
    }

    /// Compares with the recorded Endpoint of an upstream gateway with the WireGuard driver, except for its key.
    #[test]
    fn the_endpoint_is_the_one_that_upstream_publishes() {
        let found = Found {
            settings: NodeSettings {
                public_ip: Some("ipv4:172.31.1.11".to_owned()),
                ..NodeSettings::default()
            },
            public_ip: Some("172.31.1.11".parse().unwrap()),
            inside: Some("10.1.1.1".parse().unwrap()),
            networks: config("").networks,
            ..Found::default()
        };
        let driver: BTreeMap<_, _> = [("publicKey", "KEY"), ("interface-name", "submariner")]
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .into();
        let spec = endpoint(&config(""), &node(), &found, "wireguard", driver);
        let expected = serde_json::json!({
            "backend": "wireguard",
            "backend_config": {
                "interface-name": "submariner",
                "natt-discovery-port": "4490",
                "public-ip": "ipv4:172.31.1.11",
                "publicKey": "KEY",
                "udp-port": "4500",
            },
            "cable_name": "submariner-cable-cluster-a-172-31-1-11",
            "cluster_id": "cluster-a",
            "healthCheckIP": "10.1.1.1",
            "hostname": "a-gw1",
            "nat_enabled": true,
            "private_ip": "172.31.1.11",
            "public_ip": "172.31.1.11",
            "subnets": ["100.1.0.0/16", "10.1.0.0/16"],
        });
        assert_eq!(serde_json::to_value(spec).unwrap(), expected);
    }

    #[test]
    fn with_globalnet_only_its_cidr_is_published_and_the_global_ip_is_pinged() {
        let config = config("global-cidrs: [242.1.0.0/16]\n");
        let inside = Some("10.1.1.1".parse().unwrap());
        let mut found = Found { inside, networks: config.networks.clone(), ..Found::default() };
        let spec = endpoint(&config, &node(), &found, "wireguard", BTreeMap::new());
        assert_eq!((spec.subnets, spec.health_check_ip.as_str()), (vec!["242.1.0.0/16".to_owned()], ""));
        found.global_ip = Some("242.1.255.254".parse().unwrap());
        let spec = endpoint(&config, &node(), &found, "wireguard", BTreeMap::new());
        assert_eq!(spec.health_check_ip, "242.1.255.254");
    }

    #[test]
    fn without_health_checks_no_address_is_published_and_settings_win_over_configuration() {
        let config = config("health-check: false\nnat-discovery-port: 4490\n");
        let found = Found {
            settings: NodeSettings {
                nat_discovery_port: Some(0),
                preferred_server: Some(true),
                ..NodeSettings::default()
            },
            is_load_balancer: true,
            inside: Some("10.1.1.1".parse().unwrap()),
            ..Found::default()
        };
        let spec = endpoint(&config, &node(), &found, "wireguard", BTreeMap::new());
        assert_eq!(spec.health_check_ip, "");
        assert_eq!(spec.backend_config["natt-discovery-port"], "0");
        assert_eq!(spec.backend_config["preferred-server"], "true");
        assert_eq!(spec.backend_config["using-loadbalancer"], "true");
    }

    #[test]
    fn an_address_that_was_chosen_wins_over_the_one_that_leads_to_the_world() {
        let addresses = [
            HostAddress { interface: "eth0".to_owned(), address: "192.0.2.1".parse().unwrap() },
            HostAddress { interface: "eth1".to_owned(), address: "fd00::1".parse().unwrap() },
            HostAddress { interface: "eth1".to_owned(), address: "198.51.100.1".parse().unwrap() },
        ];
        let mut settings =
            NodeSettings { endpoint_interface: Some("eth1".to_owned()), ..NodeSettings::default() };
        let chosen = private_ip(&config(""), &settings, &addresses).unwrap();
        assert_eq!(chosen, IpAddr::from([198, 51, 100, 1]));
        settings.endpoint_interface = Some("eth9".to_owned());
        let error = private_ip(&config(""), &settings, &addresses).unwrap_err().to_string();
        assert!(error.contains("eth9"), "{error}");
        settings.endpoint_ip = Some("203.0.113.9".parse().unwrap());
        let chosen = private_ip(&config(""), &settings, &addresses).unwrap();
        assert_eq!(chosen, IpAddr::from([203, 0, 113, 9]));
    }

    #[test]
    fn a_nodes_weight_goes_before_the_configurations() {
        let weight = |lines: &str, changed: Option<Option<u16>>, of_node: Option<u16>| {
            let settings = NodeSettings { weight: of_node, ..NodeSettings::default() };
            let found = Found { settings, weight: changed, ..Found::default() };
            let spec = endpoint(&config(lines), &node(), &found, "wireguard", BTreeMap::new());
            (spec.weight(), spec.backend_config.get(backend_config::WEIGHT).cloned())
        };
        assert_eq!(weight("", None, None), (100, None), "nothing is said that upstream would not say");
        assert_eq!(weight("weight: 50\n", None, None), (50, Some("50".to_owned())));
        assert_eq!(weight("weight: 50\n", None, Some(300)), (300, Some("300".to_owned())));
        assert_eq!(weight("weight: 50\n", Some(Some(60)), None), (60, Some("60".to_owned())));
        assert_eq!(weight("weight: 50\n", Some(None), None), (100, None));
    }
}
