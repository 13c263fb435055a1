//! What can be chosen about a member.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use serde_json::Value;
use trieste_control::live_networks::TrackedLists;
use trieste_control::requirements::{is_calico, is_cilium, is_ovn_kubernetes};

use super::names::{BROKER_NAMESPACE, NAMESPACE};
use super::{CpuRequest, Image, MemoryLimit, Secret};

/// Ports that peers expect (api §8.1, §10.1).
const NATT_PORT: u16 = 4500;
const NAT_DISCOVERY_PORT: u16 = 4490;
/// Where gateways serve metrics and what a kubelet asks (env-metrics §1).
const METRICS_PORT: u16 = 32780;

/// The domain that every set has, of the Multi-Cluster Services API.
pub const SET_DOMAIN: &str = "clusterset.local";

/// What can be chosen about a member.
#[derive(Debug, Clone)]
pub struct MemberOptions {
    /// The cluster's ID, a DNS label.
    pub cluster_id: String,
    /// The namespace of everything that is in one.
    pub namespace: String,
    /// The image of all pods.
    pub image: Image,
    /// Names of Secrets of type `kubernetes.io/dockerconfigjson` in the namespace.
    pub pull_secrets: Vec<String>,
    /// Pod CIDRs.
    pub cluster_cidrs: Vec<IpNet>,
    /// Service CIDRs.
    pub service_cidrs: Vec<IpNet>,
    /// Other networks that are reached by way of this cluster.
    pub extra_cidrs: Vec<IpNet>,
    /// The lists of pod and service CIDRs that gateways keep as objects of the cluster say.
    pub followed: TrackedLists,
    /// The version of the object with the cluster's networks that these were read from; `None` without one.
    pub networks_version: Option<String>,
    /// Globalnet's CIDRs; empty without it.
    pub global_cidrs: Vec<IpNet>,
    /// What other members may claim; empty for private space.
    pub allow_remote_cidrs: Vec<IpNet>,
    /// The addresses that this cluster gives services for the whole set; empty without them.
    pub clusterset_ip_cidrs: Vec<IpNet>,
    /// Where all clusters' are, one range of each family, as far as that is known.
    pub clusterset_ip_ranges: Vec<IpNet>,
    /// Whether services have such an address whose exports say nothing of it.
    pub clusterset_ips_by_default: bool,
    /// The network plugin, in upstream's words; empty means `generic`.
    pub network_plugin: String,
    /// What was found of OVN-Kubernetes; empty with other plugins.
    pub ovn: OvnLayout,
    /// Whether the cluster has Spiderpool, whose lists workers keep.
    pub has_spiderpool: bool,
    /// The kind of cable.
    pub cable_driver: String,
    /// The kind that the set changes from: clusters that have not changed yet are connected by it.
    pub former_cable_driver: Option<String>,
    /// Whether peers should use the public address where NAT discovery does not tell.
    pub nat_enabled: bool,
    /// UDP port of the cables.
    pub natt_port: u16,
    /// UDP port of NAT discovery; 0 is off.
    pub nat_discovery_port: u16,
    /// TCP port of metrics and health on gateway nodes.
    pub metrics_port: u16,
    /// Whether gateways wait for peers to connect to them.
    pub preferred_server: bool,
    /// Whether IPsec is always encapsulated in UDP.
    pub force_udp_encaps: bool,
    /// How connections are checked.
    pub health_check: HealthCheck,
    /// Whether nobody outside may be asked for the public address.
    pub air_gapped: bool,
    /// Whether a Service of type LoadBalancer leads to the active gateway.
    pub load_balancer: bool,
    /// Upstream's wish for several active gateways, kept for its tools: here they all are, unless something else is chosen.
    pub multi_active_gateway: bool,
    /// Which of the cluster's gateways are active; `None` leaves it to them, who go by the network plugin.
    pub active_gateways: Option<ActiveGateways>,
    /// How outer packets cross the kernel of gateway nodes; `None` leaves it to the gateway, which uses sockets.
    pub outer_io: Option<OuterIo>,
    /// Whether programs log more.
    pub debug: bool,
    /// Whether the IPsec cable logs more.
    pub ipsec_debug: bool,
    /// How the broker is reached.
    pub broker: BrokerAccess,
    /// The cluster set's pre-shared key: bytes, as in the join file.
    pub psk: Secret,
    /// How the world is reached.
    pub proxy: Proxy,
    /// Whether a gateway ends when the broker's certificate is not accepted, so that it reads its Secret anew.
    pub halt_on_certificate_error: bool,
    /// Whether the set has service discovery.
    pub service_discovery: bool,
    /// Whether the cluster takes no part in it.
    pub declines_service_discovery: bool,
    /// Whether names of services are answered whose namespace the cluster does not have.
    pub answers_missing_namespaces: bool,
    /// Domains beside `clusterset.local`.
    pub custom_domains: Vec<String>,
    /// The ConfigMap, `NAME` in `kube-system` or `NAMESPACE/NAME`, from which the cluster's DNS takes further servers; empty
    /// leaves it to what is found.
    pub coredns_custom_config: String,
    /// Labels that nodes must have beside those that the programs need.
    pub node_selector: BTreeMap<String, String>,
    /// Whether [`Self::node_selector`] and [`Self::tolerations`] are about Deployments alone, as upstream's operator has it: its
    /// gateways and route agents run on all nodes, whatever taints those have.
    pub deployments_alone: bool,
    /// Whether service discovery gives out global addresses where no CIDRs of theirs are known: it was installed by itself.
    pub discovers_global: bool,
    /// Whether route agents take the taint [`super::names::NODE_TAINT_KEY`] from their nodes.
    pub node_taint: bool,
    /// The most memory that a gateway may have.
    pub gateway_memory: MemoryLimit,
    /// The most memory that a route agent may have.
    pub route_agent_memory: MemoryLimit,
    /// Taints that pods bear, as in a pod's specification; empty means: all, as upstream's do.
    pub tolerations: Vec<Value>,
    /// What is set aside of a node's CPUs for a gateway.
    pub gateway_cpu: CpuRequest,
    /// What is set aside for a route agent.
    pub route_agent_cpu: CpuRequest,
    /// The priority class of pods on nodes; `None` for Kubernetes' own for such.
    pub priority_class: Option<String>,
    /// The settings of programs that have no field here: [`MemberOptions::set`].
    pub settings: BTreeMap<String, String>,
}

/// How a member reaches the broker.
#[derive(Debug, Clone)]
pub struct BrokerAccess {
    /// `host:port`, without scheme.
    pub api_server: String,
    /// The members' namespace there.
    pub namespace: String,
    /// The authority that signs the server's certificate, PEM; `None` if the nodes know it anyway.
    pub ca: Option<Vec<u8>>,
    /// The member's token.
    pub token: Secret,
    /// Whether the server's certificate is not checked.
    pub insecure: bool,
}

/// Where OVN-Kubernetes keeps what a worker writes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OvnLayout {
    /// The northbound database of all nodes, `tcp:HOST:PORT` or `ssl:HOST:PORT`; empty where each worker is to look for a unix
    /// socket on its own node.
    pub northbound: String,
    /// Which zones there are and what tells so, for people; empty if nobody looked.
    pub zones: String,
    /// Where the databases are and what tells so, for people; empty if nobody looked.
    pub databases: String,
}

/// Which of a cluster's gateways carry traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ActiveGateways {
    /// All of them.
    All,
    /// One, while the others stand by.
    One,
}

impl ActiveGateways {
    /// Returns the word of the gateway's setting.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::One => "one",
        }
    }

    /// Reads that word; `None` for any other.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::All, Self::One].into_iter().find(|choice| choice.as_str() == text)
    }
}

/// How outer packets cross the kernel of gateway nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OuterIo {
    /// Through its stack.
    Sockets,
    /// Past its stack by AF_XDP, in the best mode that interface and kernel offer.
    AfXdp,
    /// By AF_XDP where nothing is copied.
    Auto,
}

impl OuterIo {
    /// Returns the word of the gateway's setting.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Sockets => "sockets",
            Self::AfXdp => "af-xdp",
            Self::Auto => "auto",
        }
    }

    /// Reads that word; `None` for any other.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Sockets, Self::AfXdp, Self::Auto].into_iter().find(|choice| choice.as_str() == text)
    }
}

/// How connections are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HealthCheck {
    /// Whether they are.
    pub enabled: bool,
    /// Seconds between two pings.
    pub interval_seconds: u32,
    /// Unanswered pings above which a connection has failed.
    pub max_packet_loss: u32,
}

/// How the world is reached: the usual variables. Empty means: directly.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Proxy {
    /// `HTTP_PROXY`.
    pub http: String,
    /// `HTTPS_PROXY`.
    pub https: String,
    /// `NO_PROXY`.
    pub no_proxy: String,
}

impl MemberOptions {
    /// A member with upstream's defaults, but for the cable: WireGuard.
    pub fn new(cluster_id: impl Into<String>, broker: BrokerAccess, psk: Secret) -> Self {
        Self {
            cluster_id: cluster_id.into(),
            namespace: NAMESPACE.to_owned(),
            image: Image::default(),
            pull_secrets: Vec::new(),
            cluster_cidrs: Vec::new(),
            service_cidrs: Vec::new(),
            extra_cidrs: Vec::new(),
            followed: TrackedLists::default(),
            networks_version: None,
            global_cidrs: Vec::new(),
            allow_remote_cidrs: Vec::new(),
            clusterset_ip_cidrs: Vec::new(),
            clusterset_ip_ranges: Vec::new(),
            clusterset_ips_by_default: false,
            network_plugin: String::new(),
            ovn: OvnLayout::default(),
            has_spiderpool: false,
            cable_driver: "wireguard".to_owned(),
            former_cable_driver: None,
            nat_enabled: false,
            natt_port: NATT_PORT,
            nat_discovery_port: NAT_DISCOVERY_PORT,
            metrics_port: METRICS_PORT,
            preferred_server: false,
            force_udp_encaps: false,
            health_check: HealthCheck::default(),
            air_gapped: false,
            load_balancer: false,
            multi_active_gateway: false,
            active_gateways: None,
            outer_io: None,
            debug: false,
            ipsec_debug: false,
            broker,
            psk,
            proxy: Proxy::default(),
            halt_on_certificate_error: true,
            service_discovery: false,
            declines_service_discovery: false,
            answers_missing_namespaces: false,
            custom_domains: Vec::new(),
            coredns_custom_config: String::new(),
            node_selector: BTreeMap::new(),
            deployments_alone: false,
            discovers_global: false,
            node_taint: false,
            gateway_memory: MemoryLimit::GATEWAY,
            route_agent_memory: MemoryLimit::ROUTE_AGENT,
            tolerations: Vec::new(),
            gateway_cpu: CpuRequest::GATEWAY,
            route_agent_cpu: CpuRequest::ROUTE_AGENT,
            priority_class: None,
            settings: BTreeMap::new(),
        }
    }

    /// Returns the domains of the set's names.
    pub fn zones(&self) -> Vec<String> {
        zones(&self.custom_domains)
    }

    /// Returns `true` if the cluster takes part in service discovery.
    pub fn has_service_discovery(&self) -> bool {
        self.service_discovery && !self.declines_service_discovery
    }

    /// Returns `true` if services of the cluster are known by global addresses.
    pub fn has_global_services(&self) -> bool {
        self.discovers_global || !self.global_cidrs.is_empty()
    }

    /// Returns namespace and name of the ConfigMap with further servers for the cluster's DNS, if one was said.
    pub fn coredns_custom_place(&self) -> Option<(&str, &str)> {
        let chosen = self.coredns_custom_config.as_str();
        (!chosen.is_empty()).then(|| chosen.split_once('/').unwrap_or(("kube-system", chosen)))
    }

    /// Returns `true` if the network plugin is OVN-Kubernetes, whose database workers write.
    pub fn has_ovn(&self) -> bool {
        is_ovn_kubernetes(&self.network_plugin)
    }

    /// Returns `true` if the network plugin is Calico, whose IPPools workers write.
    pub fn has_calico(&self) -> bool {
        is_calico(&self.network_plugin)
    }

    /// Returns `true` if the network plugin is Cilium, whose objects route agents read.
    pub fn has_cilium(&self) -> bool {
        is_cilium(&self.network_plugin)
    }

    /// The network plugin, never empty.
    pub(super) fn plugin(&self) -> &str {
        if self.network_plugin.is_empty() { "generic" } else { &self.network_plugin }
    }
}

impl BrokerAccess {
    /// Access to the usual namespace of a server, whose certificate is checked.
    pub fn new(api_server: impl Into<String>, ca: Option<Vec<u8>>, token: Secret) -> Self {
        let api_server = Self::bare_address(&api_server.into()).to_owned();
        Self { api_server, namespace: BROKER_NAMESPACE.to_owned(), ca, token, insecure: false }
    }

    /// Returns a server's address as memberships have it: without `https://`, and without a slash at its end.
    pub fn bare_address(url: &str) -> &str {
        url.trim_start_matches("https://").trim_end_matches('/')
    }

    /// Returns the server's address, where it is said by one and not by a name.
    pub fn address(&self) -> Option<IpAddr> {
        let host = self.api_server.split('/').next().unwrap_or_default();
        let address = |host: &str| host.trim_matches(['[', ']']).parse().ok();
        address(host).or_else(|| address(self.host()))
    }

    /// Returns the server's host name or address, without a port.
    pub fn host(&self) -> &str {
        let host = self.api_server.split('/').next().unwrap_or_default();
        host.rsplit_once(':').map_or(host, |(host, _)| host)
    }
}

impl Default for HealthCheck {
    /// Upstream's: every second, five losses (behaviour §1).
    fn default() -> Self {
        Self { enabled: true, interval_seconds: 1, max_packet_loss: 5 }
    }
}

/// Returns the domains of a set that has these beside its own: in lower case, without the last dot, each once.
pub fn zones(custom_domains: impl IntoIterator<Item = impl AsRef<str>>) -> Vec<String> {
    let mut zones = vec![SET_DOMAIN.to_owned()];
    for domain in custom_domains {
        let zone = domain.as_ref().trim_matches('.').to_ascii_lowercase();
        if !zone.is_empty() && !zones.contains(&zone) {
            zones.push(zone);
        }
    }
    zones
}

/// A list as the programs' variables have it.
pub(super) fn joined(cidrs: &[IpNet]) -> String {
    cidrs.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broker_is_known_by_its_address_where_it_is_named_by_one() {
        let address = |text: &str| BrokerAccess::new(text, None, Secret::default()).address();
        for (text, is) in [
            ("192.0.2.1:6443", "192.0.2.1"),
            ("https://192.0.2.1:6443/", "192.0.2.1"),
            ("192.0.2.1", "192.0.2.1"),
            ("[fd00::1]:6443", "fd00::1"),
            ("https://[fd00::1]", "fd00::1"),
            ("192.0.2.1:443/api", "192.0.2.1"),
        ] {
            assert_eq!(address(text), Some(is.parse().unwrap()), "{text}");
        }
        assert_eq!(address("broker.example:6443"), None);
        let host =
            |api_server: &str| BrokerAccess::new(api_server, None, Secret::default()).host().to_owned();
        for api_server in ["broker.example", "broker.example:6443", "https://broker.example:6443/path"] {
            assert_eq!(host(api_server), "broker.example");
        }
    }
}
