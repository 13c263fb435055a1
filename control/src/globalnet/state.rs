//! The translation that the objects ask for, as plain data.

use std::fmt;
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};

/// Which addresses this cluster's packets have in other clusters, and who has which.
///
/// A function of the objects alone: every gateway of a cluster comes to the same state, whatever their writer. Only
/// addresses that an object's status holds count; what is planned and not written yet is not in here.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GlobalnetState {
    /// The cluster's first global CIDR, of which all addresses are; `None` without Globalnet.
    pub global_cidr: Option<Ipv4Net>,
    /// The networks of this cluster's pods and services: who is in none of them is not translated.
    pub inside: Vec<Ipv4Net>,
    /// Under which addresses packets leave, first match first: ordered by [`EgressKind`], then by name.
    pub egress: Vec<EgressRule>,
    /// Which addresses lead where, by global address; no address twice.
    pub ingress: Vec<IngressPair>,
    /// The global IPs of this cluster's gateways by their Gateway objects' names; health checks reach them there.
    pub gateways: Vec<(String, Ipv4Addr)>,
    /// How full the pool is; `None` without Globalnet.
    pub pool: Option<PoolFill>,
    /// The problems, by subject.
    #[serde(skip)]
    pub problems: Vec<Problem>,
}

impl GlobalnetState {
    /// Returns the global IP of the gateway whose Gateway object has this name.
    pub fn gateway(&self, name: &str) -> Option<Ipv4Addr> {
        self.gateways.iter().find(|(known, _)| known == name).map(|(_, address)| *address)
    }
}

/// Whom an egress rule is for. Ordered as upstream's chains: the first that matches a source counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EgressKind {
    /// The pods that a GlobalEgressIP selects.
    Pods,
    /// One pod of an exported headless service.
    HeadlessPod,
    /// One address of an exported headless service without selector.
    HeadlessEndpoints,
    /// All pods of a GlobalEgressIP's namespace.
    Namespace,
    /// All that is left of the cluster.
    Cluster,
}

impl EgressKind {
    /// Returns the kind as a metric label and in output.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pods => "pods",
            Self::HeadlessPod => "headless-pod",
            Self::HeadlessEndpoints => "headless-endpoints",
            Self::Namespace => "namespace",
            Self::Cluster => "cluster",
        }
    }
}

impl fmt::Display for EgressKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Under which addresses some sources leave.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EgressRule {
    /// Whom it is for.
    pub kind: EgressKind,
    /// The object that it comes from, `namespace/name`; of a ClusterGlobalEgressIP only the name.
    pub name: String,
    /// The addresses, ascending; never empty.
    pub addresses: Vec<Ipv4Addr>,
    /// The sources: single pods, or networks; ascending. May be empty.
    pub members: Vec<Ipv4Net>,
}

/// The target of a global address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IngressKind {
    /// A service's cluster IP: 1:1 and stateless, both ways.
    Service,
    /// One pod of an exported headless service.
    HeadlessPod,
    /// One address of an exported headless service without selector.
    HeadlessEndpoints,
}

impl IngressKind {
    /// Returns the kind as a metric label and in output.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Service => "service",
            Self::HeadlessPod => "headless-pod",
            Self::HeadlessEndpoints => "headless-endpoints",
        }
    }
}

impl fmt::Display for IngressKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A global address and what it leads to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IngressPair {
    /// Its target.
    pub kind: IngressKind,
    /// The GlobalIngressIP, `namespace/name`.
    pub name: String,
    /// The address in other clusters.
    pub global: Ipv4Addr,
    /// The address in this cluster: a cluster IP, or a pod's or endpoint's address.
    pub inside: Ipv4Addr,
}

/// How many of a pool's addresses are given out, and for what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolFill {
    /// The global CIDR.
    pub cidr: Ipv4Net,
    /// How many addresses can be given out: all but the network's and the broadcast address.
    pub size: u32,
    /// How many of them are given out, to whomever.
    pub allocated: u32,
    /// Of these, to ClusterGlobalEgressIPs.
    pub cluster_egress: u32,
    /// Of these, to GlobalEgressIPs.
    pub egress: u32,
    /// Of these, to GlobalIngressIPs.
    pub ingress: u32,
    /// Of these, to gateways.
    pub gateways: u32,
}

impl PoolFill {
    /// Returns how many addresses are left.
    pub const fn available(&self) -> u32 {
        self.size.saturating_sub(self.allocated)
    }
}

/// Something that is not as somebody wants it: a condition of the gateway's, for as long as it is so.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// The condition's name, in CamelCase.
    pub name: &'static str,
    /// The object, or whatever it is about.
    pub subject: String,
    /// The problem and its remedy, for people.
    pub message: String,
}

/// Every name of a [`Problem`].
const NAMES: [&str; 11] = [
    "GatewayHasNoGlobalIp",
    "GlobalCidrOverlap",
    "GlobalCidrUnusable",
    "GlobalIngressNameTaken",
    "GlobalnetWriteRefused",
    "InternalServiceNameTaken",
    "Ipv6NotExported",
    "ObjectInvalid",
    "PodSelectorInvalid",
    "ServiceExportsUnknown",
    "ServiceNotExported",
];

impl Problem {
    /// Returns the name that a text is; of one that is none of ours, `ObjectInvalid`.
    #[must_use]
    pub fn known(name: &str) -> &'static str {
        NAMES.into_iter().find(|known| *known == name).unwrap_or("ObjectInvalid")
    }
}
