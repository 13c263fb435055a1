//! The part that makes a cluster a member.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// `Fabric.spec.joinConfig`: what `trieste join` has flags for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "self.nattPort != self.natDiscoveryPort",
        "message": "cables (nattPort) and NAT discovery (natDiscoveryPort) cannot share a UDP port"
    },
    {
        "rule": "self.nattPort != 4800 && self.natDiscoveryPort != 4800",
        "message": "UDP port 4800 is the one that nodes use among themselves: choose another one"
    },
    {
        "rule": "!has(self.globalnetCIDR) || self.globalnetClusterSize == 0",
        "message": "give globalnetCIDR or globalnetClusterSize, not both"
    },
    {
        "rule": "self.labelGateway || self.gateways <= 1",
        "message": "gateways says how many nodes to label, and labelGateway says that none is: switch labelGateway on"
    }
]))]
pub struct JoinConfig {
    /// Where the broker's join data is. May be missing where brokerConfig is in the same Fabric.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broker_info_ref: Option<BrokerInfoRef>,
    /// The broker's address, if it is another one from here than the join data says.
    #[serde(rename = "brokerURL", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512), extend("x-kubernetes-validations" = [{
        "rule": "self.matches('^(https://)?[^/@ ]+/?$')",
        "message": "expected https://HOST:PORT or HOST:PORT"
    }]))]
    pub broker_url: Option<String>,
    /// Whether the broker's certificate is checked.
    pub check_broker_certificate: bool,
    /// This cluster's ID in the set. Where it is missing, that of an earlier join, or else the name of the Fabric.
    #[serde(rename = "clusterID", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63), extend("x-kubernetes-validations" = [{
        "rule": "self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",
        "message": "expected a-z, 0-9 and dashes, none of these at either end, at most 63 characters"
    }]))]
    pub cluster_id: Option<String>,
    /// Pod CIDRs, separated by commas. Discovered where they are missing.
    #[serde(rename = "clusterCIDR", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024), extend("x-kubernetes-validations" = [{
        "rule": "self.matches('^[0-9a-fA-F:.]+/[0-9]{1,3}( *, *[0-9a-fA-F:.]+/[0-9]{1,3})*$')",
        "message": "expected CIDRs separated by commas, such as 10.0.0.0/16,fd00::/48"
    }]))]
    pub cluster_cidr: Option<String>,
    /// Service CIDRs, separated by commas. Discovered where they are missing.
    #[serde(rename = "serviceCIDR", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024), extend("x-kubernetes-validations" = [{
        "rule": "self.matches('^[0-9a-fA-F:.]+/[0-9]{1,3}( *, *[0-9a-fA-F:.]+/[0-9]{1,3})*$')",
        "message": "expected CIDRs separated by commas, such as 10.0.0.0/16,fd00::/48"
    }]))]
    pub service_cidr: Option<String>,
    /// Other networks that are reached by way of this cluster, separated by commas.
    #[serde(rename = "extraCIDRs", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024), extend("x-kubernetes-validations" = [{
        "rule": "self.matches('^[0-9a-fA-F:.]+/[0-9]{1,3}( *, *[0-9a-fA-F:.]+/[0-9]{1,3})*$')",
        "message": "expected CIDRs separated by commas, such as 10.0.0.0/16,fd00::/48"
    }]))]
    pub extra_cidrs: Option<String>,
    /// What other members may claim parts of, separated by commas, instead of private space.
    #[serde(rename = "allowRemoteCIDRs", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024), extend("x-kubernetes-validations" = [{
        "rule": "self.matches('^[0-9a-fA-F:.]+/[0-9]{1,3}( *, *[0-9a-fA-F:.]+/[0-9]{1,3})*$')",
        "message": "expected CIDRs separated by commas, such as 10.0.0.0/16,fd00::/48"
    }]))]
    pub allow_remote_cidrs: Option<String>,
    /// Whether the cluster takes part in globalnet, if the broker has it: the others know it by global addresses alone then.
    pub globalnet_enabled: bool,
    /// The global addresses of this cluster. Where they are missing, those of an earlier join, else the first that are free.
    #[serde(rename = "globalnetCIDR", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), extend("x-kubernetes-validations" = [{
        "rule": "self.matches('^[0-9]{1,3}([.][0-9]{1,3}){3}/[0-9]{1,2}$')",
        "message": "expected a CIDR of IPv4 such as 242.1.0.0/16"
    }]))]
    pub globalnet_cidr: Option<String>,
    /// How many global addresses, rounded up to a power of two; 0 leaves it to the broker.
    #[schemars(with = "i32", range(min = 0, max = 16_777_216))]
    pub globalnet_cluster_size: u32,
    /// Whether services whose exports say nothing of it get one address for the whole set; as the broker says where it is missing.
    #[serde(rename = "clustersetIPEnabled", skip_serializing_if = "Option::is_none")]
    pub clusterset_ip_enabled: Option<bool>,
    /// The blocks that this cluster gives such addresses of, one of IPv4, one of IPv6 or both, parts of the broker's ranges.
    #[serde(rename = "clustersetIPCIDR", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024), extend("x-kubernetes-validations" = [{
        "rule": "self.matches('^[0-9a-fA-F:.]+/[0-9]{1,3}( *, *[0-9a-fA-F:.]+/[0-9]{1,3})*$')",
        "message": "expected CIDRs separated by commas, such as 10.0.0.0/16,fd00::/48"
    }]))]
    pub clusterset_ip_cidr: Option<String>,
    /// The kind of cable, the same in all clusters: wireguard, libreswan, which is IPsec, or vxlan, which neither encrypts nor
    /// authenticates.
    #[schemars(extend("enum" = ["wireguard", "libreswan", "vxlan"]))]
    pub cable_driver: String,
    /// Whether peers use the public address where NAT discovery does not tell.
    pub nat_traversal: bool,
    /// UDP port of the cables.
    #[schemars(with = "i32", range(min = 1, max = 65_535))]
    pub natt_port: u16,
    /// UDP port of NAT discovery; 0 switches it off.
    #[schemars(with = "i32", range(min = 0, max = 65_535))]
    pub nat_discovery_port: u16,
    /// UDP port of IKE: 500, or nattPort where packets go through UDP.
    #[schemars(with = "i32", extend("x-kubernetes-validations" = [{
        "rule": "self == 500",
        "message": "IKE uses UDP port 500, and nattPort behind a NAT: it cannot be another one"
    }]))]
    pub ike_port: u16,
    /// Whether IPsec packets always go through UDP.
    #[serde(rename = "forceUDPEncaps")]
    pub force_udp_encaps: bool,
    /// Whether IPsec gateways wait for others to connect.
    pub preferred_server: bool,
    /// Whether the other clusters' gateways are pinged.
    pub health_check_enable: bool,
    /// Seconds between two pings.
    #[schemars(with = "i32", range(min = 1, max = 3600))]
    pub health_check_interval: u32,
    /// Unanswered pings above which a connection has failed.
    #[schemars(with = "i32", range(min = 1, max = 1000))]
    pub health_check_max_packet_loss_count: u32,
    /// Whether nodes are labelled as gateways where there are too few.
    pub label_gateway: bool,
    /// How many gateways there are to be: so many nodes are labelled, spread over zones.
    #[schemars(with = "i32", range(min = 1, max = 16))]
    pub gateways: u32,
    /// Which gateways carry traffic: all, or one while the others stand by. Where it is missing the network plugin decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["all", "one"]))]
    pub active_gateways: Option<String>,
    /// How gateways send and receive outer packets: through the kernel's sockets, by AF_XDP, or by AF_XDP where nothing is copied.
    /// With the last two they have further rights. Sockets where it is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["sockets", "af-xdp", "auto"]))]
    pub io: Option<String>,
    /// Whether there is a Service of type LoadBalancer that leads to the active gateway.
    pub load_balancer_enabled: bool,
    /// Whether nobody outside is asked for the public address.
    pub air_gapped: bool,
    /// Whether the cluster takes part in service discovery, if the broker has it.
    pub service_discovery_enabled: bool,
    /// Whether names of services are answered whose namespace the cluster does not have.
    pub missing_namespaces: bool,
    /// Domains beside clusterset.local; the broker's where none is given.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 253)))]
    pub custom_domains: Vec<String>,
    /// The ConfigMap from which the cluster's CoreDNS takes further servers: NAME in kube-system, or NAMESPACE/NAME.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 317), extend("x-kubernetes-validations" = [{
        "rule": "self.matches('^(kube-system/)?[-.a-z0-9]+$')",
        "message": "expected NAME or kube-system/NAME: the operator writes ConfigMaps of DNS in kube-system alone"
    }]))]
    pub coredns_custom_config_map: Option<String>,
    /// Whether route agents take the taint trieste.io/not-ready from nodes that they have closed; they may then update Nodes.
    pub node_taint: bool,
    /// The most memory that a gateway may have, such as 2Gi; 0 is no limit. 1Gi where it is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32), extend("x-kubernetes-validations" = [{
        "rule": "self.matches('^[0-9]+(Ki|Mi|Gi|Ti|k|M|G|T)?$')",
        "message": "expected a quantity such as 512Mi or 2Gi, at least 64Mi, or 0 for no limit"
    }]))]
    pub gateway_memory: Option<String>,
    /// The most memory that a route agent may have; 0 is no limit. 512Mi where it is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32), extend("x-kubernetes-validations" = [{
        "rule": "self.matches('^[0-9]+(Ki|Mi|Gi|Ti|k|M|G|T)?$')",
        "message": "expected a quantity such as 512Mi or 2Gi, at least 64Mi, or 0 for no limit"
    }]))]
    pub route_agent_memory: Option<String>,
    /// CPUs set aside for a gateway, such as 2 or 500m; 100m where it is missing.
    #[serde(rename = "gatewayCPU", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16), extend("x-kubernetes-validations" = [{
        "rule": "self.matches('^[0-9]+m?$')",
        "message": "expected CPUs such as 2, or thousandths of one such as 250m"
    }]))]
    pub gateway_cpu: Option<String>,
    /// CPUs set aside for a route agent; 20m where it is missing.
    #[serde(rename = "routeAgentCPU", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16), extend("x-kubernetes-validations" = [{
        "rule": "self.matches('^[0-9]+m?$')",
        "message": "expected CPUs such as 2, or thousandths of one such as 250m"
    }]))]
    pub route_agent_cpu: Option<String>,
    /// The priority class of pods on nodes; system-node-critical where it is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub priority_class_name: Option<String>,
    /// Number of workers of a gateway; 1 where it is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i32>", range(min = 1, max = 256))]
    pub workers: Option<u32>,
    /// Settings of gateways and route agents; docs/operations/settings.md lists them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, String>,
    /// The image of all pods, such as registry.example.com/trieste:0.1.0. The operator's own where it is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub image: Option<String>,
    /// When nodes pull the image.
    #[schemars(extend("enum" = ["Always", "IfNotPresent", "Never"]))]
    pub image_pull_policy: String,
    /// Names of Secrets in the member's namespace with which nodes pull the image.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(max = 253)))]
    pub image_pull_secrets: Vec<String>,
    /// Labels that nodes must have beside those that the programs need.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Taints that pods bear, as in a pod's specification; all where none is given.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub tolerations: Vec<Map<String, Value>>,
    /// How pods reach the world.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy: Option<ProxyConfig>,
    /// Whether programs log more.
    pub debug: bool,
    /// Whether negotiations of IPsec are logged in detail.
    pub ipsec_debug: bool,
    /// Whether it is tried even if this version of Kubernetes or this network plugin is not supported.
    pub ignore_requirements: bool,
    /// Whether a pre-shared key other than the one that the cluster has joined with is taken from the join data.
    #[serde(rename = "replacePSK")]
    pub replace_psk: bool,
}

impl Default for JoinConfig {
    fn default() -> Self {
        Self {
            broker_info_ref: None,
            broker_url: None,
            check_broker_certificate: true,
            cluster_id: None,
            cluster_cidr: None,
            service_cidr: None,
            extra_cidrs: None,
            allow_remote_cidrs: None,
            globalnet_enabled: true,
            globalnet_cidr: None,
            globalnet_cluster_size: 0,
            clusterset_ip_enabled: None,
            clusterset_ip_cidr: None,
            cable_driver: "wireguard".to_owned(),
            nat_traversal: true,
            natt_port: 4500,
            nat_discovery_port: 4490,
            ike_port: 500,
            force_udp_encaps: false,
            preferred_server: false,
            health_check_enable: true,
            health_check_interval: 1,
            health_check_max_packet_loss_count: 5,
            label_gateway: true,
            gateways: 1,
            active_gateways: None,
            io: None,
            load_balancer_enabled: false,
            air_gapped: false,
            service_discovery_enabled: true,
            missing_namespaces: false,
            custom_domains: Vec::new(),
            coredns_custom_config_map: None,
            node_taint: false,
            gateway_memory: None,
            route_agent_memory: None,
            gateway_cpu: None,
            route_agent_cpu: None,
            priority_class_name: None,
            workers: None,
            settings: BTreeMap::new(),
            image: None,
            image_pull_policy: "IfNotPresent".to_owned(),
            image_pull_secrets: Vec::new(),
            node_selector: BTreeMap::new(),
            tolerations: Vec::new(),
            proxy: None,
            debug: false,
            ipsec_debug: false,
            ignore_requirements: false,
            replace_psk: false,
        }
    }
}

/// The kind of object that has the broker's join data.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum BrokerInfoSource {
    /// A Secret.
    #[default]
    Secret,
    /// A ConfigMap: whoever may read it may let clusters join.
    ConfigMap,
}

/// Where the broker's join data is: the content of `broker-info.subm`, in base64 of either alphabet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct BrokerInfoRef {
    /// Secret, or ConfigMap: whoever may read that may let clusters join.
    #[schemars(with = "String", extend("enum" = ["Secret", "ConfigMap"]))]
    pub kind: BrokerInfoSource,
    /// The object's name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The object's namespace. The operator reads Secrets in these alone.
    #[schemars(extend("enum" = ["trieste-operator", "submariner-operator", "submariner-k8s-broker"]))]
    pub namespace: String,
    /// The key within the object.
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

impl Default for BrokerInfoRef {
    fn default() -> Self {
        Self {
            kind: BrokerInfoSource::Secret,
            name: "submariner-broker-info".to_owned(),
            namespace: "trieste-operator".to_owned(),
            key: "brokerInfo".to_owned(),
        }
    }
}

/// How pods reach the world.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ProxyConfig {
    /// The HTTP proxy.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub http: String,
    /// The HTTPS proxy.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub https: String,
    /// Hosts that are reached without a proxy, separated by commas.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub no_proxy: String,
}
