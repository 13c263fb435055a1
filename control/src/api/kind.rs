//! The kinds of objects that the stores hold, and what the API server calls them.

use std::fmt;
use std::str::FromStr;

/// Group and version of upstream's kinds.
pub const API_VERSION: &str = "submariner.io/v1";
/// Group and version of our own kinds.
pub const OWN_API_VERSION: &str = "trieste.io/v1alpha1";
/// Group and version of the kinds of upstream's operator.
pub const OPERATOR_API_VERSION: &str = "submariner.io/v1alpha1";

/// Group and version of the resource that the first users of an operator have.
pub const TKESTACK_API_VERSION: &str = "operator.tkestack.io/v1alpha1";

/// A kind of object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// A member of the cluster set: its ID and CIDRs.
    Cluster,
    /// One way into a cluster: a gateway's addresses, keys and subnets.
    Endpoint,
    /// A gateway's own status, connections included.
    Gateway,
    /// A route agent's own status, one per node.
    RouteAgent,
    /// OVN-Kubernetes: next hops towards remote CIDRs on the gateway's zone.
    GatewayRoute,
    /// OVN-Kubernetes: next hops towards remote CIDRs in every other zone.
    NonGatewayRoute,
    /// Globalnet: the cluster's egress addresses.
    ClusterGlobalEgressIp,
    /// Globalnet: a namespace's or some pods' egress addresses.
    GlobalEgressIp,
    /// Globalnet: an exported service's or pod's address.
    GlobalIngressIp,
    /// The choices made when this cluster joined.
    Submariner,
    /// The choices made when the broker was deployed.
    Broker,
    /// The choices made of service discovery.
    ServiceDiscovery,
    /// Kubernetes: who leads.
    Lease,
    /// Kubernetes: a node, with its settings in labels and annotations.
    Node,
    /// Kubernetes: a pod, the gateway's own.
    Pod,
    /// Kubernetes: a service, for its load balancer's address.
    Service,
    /// Kubernetes: something that happened.
    Event,
    /// Kubernetes: where a service without selector leads. Its plural is [`Kind::Endpoint`]'s, in another group.
    CoreEndpoints,
    /// Multi-cluster services: that other clusters may reach the service of this name.
    ServiceExport,
    /// Kubernetes: some of the addresses behind a service.
    EndpointSlice,
    /// Kubernetes: a namespace.
    Namespace,
    /// Multi-cluster services: a service that clusters of the set export.
    ServiceImport,
    /// Calico: addresses that pods have, or, switched off, addresses towards which they are not masqueraded.
    IpPool,
    /// Kubernetes: settings, the networks of the own cluster for one.
    ConfigMap,
    /// Cilium: a node, with the networks that its pods have.
    CiliumNode,
    /// Spiderpool: how pods' routes are made where nothing else is set, with networks that lead to the node.
    SpiderCoordinator,
    /// Spiderpool: a kind of second device for pods; it may have a list of networks of its own.
    SpiderMultusConfig,
    /// Spiderpool: addresses that pods have on the nodes' own networks.
    SpiderIpPool,
    /// Kubernetes: networks that services are given addresses of.
    ServiceCidr,
    /// Cilium: networks that pods are given addresses of, where it has several pools.
    CiliumPodIpPool,
    /// OpenShift: the cluster's networks.
    OpenShiftNetwork,
    /// Ours: what a cluster is to be in its set, for the operator.
    Fabric,
    /// Kubernetes: pods on every node.
    DaemonSet,
    /// Kubernetes: pods anywhere.
    Deployment,
    /// What a cluster is to be in its set, as the first users of an operator wrote it. Its name is [`Kind::Fabric`]'s, in another
    /// group.
    TkestackFabric,
    /// The same under its later name.
    Knitnet,
}

/// The names and properties by which the API server serves a kind.
struct Facts {
    kind: Kind,
    name: &'static str,
    plural: &'static str,
    short_names: &'static [&'static str],
    api_version: &'static str,
    /// Group and version of another version with the same fields.
    newer_version: Option<&'static str>,
    is_namespaced: bool,
    has_status_subresource: bool,
}

const fn ours(kind: Kind, name: &'static str, plural: &'static str) -> Facts {
    let api_version = API_VERSION;
    Facts {
        kind,
        name,
        plural,
        short_names: &[],
        api_version,
        newer_version: None,
        is_namespaced: true,
        has_status_subresource: false,
    }
}

const fn operators(kind: Kind, name: &'static str, plural: &'static str) -> Facts {
    let api_version = OPERATOR_API_VERSION;
    Facts { api_version, has_status_subresource: true, ..ours(kind, name, plural) }
}

const fn kubernetes(kind: Kind, name: &'static str, plural: &'static str) -> Facts {
    Facts { api_version: "v1", has_status_subresource: false, ..ours(kind, name, plural) }
}

const fn apps(kind: Kind, name: &'static str, plural: &'static str) -> Facts {
    Facts { api_version: "apps/v1", has_status_subresource: true, ..ours(kind, name, plural) }
}

const fn spiderpool(kind: Kind, name: &'static str, plural: &'static str) -> Facts {
    Facts { api_version: "spiderpool.spidernet.io/v2beta1", is_namespaced: false, ..ours(kind, name, plural) }
}

const fn tkestack(kind: Kind, name: &'static str, plural: &'static str) -> Facts {
    Facts { api_version: TKESTACK_API_VERSION, has_status_subresource: true, ..ours(kind, name, plural) }
}

const fn multicluster(kind: Kind, name: &'static str, plural: &'static str) -> Facts {
    Facts {
        api_version: "multicluster.x-k8s.io/v1alpha1",
        newer_version: Some("multicluster.x-k8s.io/v1beta1"),
        has_status_subresource: true,
        ..ours(kind, name, plural)
    }
}

/// In the order of [`Kind`]'s variants.
const FACTS: [Facts; 36] = [
    ours(Kind::Cluster, "Cluster", "clusters"),
    ours(Kind::Endpoint, "Endpoint", "endpoints"),
    ours(Kind::Gateway, "Gateway", "gateways"),
    ours(Kind::RouteAgent, "RouteAgent", "routeagents"),
    Facts { short_names: &["gwrt"], ..ours(Kind::GatewayRoute, "GatewayRoute", "gatewayroutes") },
    Facts { short_names: &["ngwrt"], ..ours(Kind::NonGatewayRoute, "NonGatewayRoute", "nongatewayroutes") },
    Facts {
        short_names: &["cgeip"],
        is_namespaced: false,
        has_status_subresource: true,
        ..ours(Kind::ClusterGlobalEgressIp, "ClusterGlobalEgressIP", "clusterglobalegressips")
    },
    Facts {
        short_names: &["geip"],
        has_status_subresource: true,
        ..ours(Kind::GlobalEgressIp, "GlobalEgressIP", "globalegressips")
    },
    Facts {
        short_names: &["giip"],
        has_status_subresource: true,
        ..ours(Kind::GlobalIngressIp, "GlobalIngressIP", "globalingressips")
    },
    operators(Kind::Submariner, "Submariner", "submariners"),
    operators(Kind::Broker, "Broker", "brokers"),
    operators(Kind::ServiceDiscovery, "ServiceDiscovery", "servicediscoveries"),
    Facts { api_version: "coordination.k8s.io/v1", ..ours(Kind::Lease, "Lease", "leases") },
    Facts { is_namespaced: false, has_status_subresource: true, ..kubernetes(Kind::Node, "Node", "nodes") },
    Facts { has_status_subresource: true, ..kubernetes(Kind::Pod, "Pod", "pods") },
    Facts { has_status_subresource: true, ..kubernetes(Kind::Service, "Service", "services") },
    kubernetes(Kind::Event, "Event", "events"),
    kubernetes(Kind::CoreEndpoints, "Endpoints", "endpoints"),
    multicluster(Kind::ServiceExport, "ServiceExport", "serviceexports"),
    Facts {
        api_version: "discovery.k8s.io/v1",
        ..ours(Kind::EndpointSlice, "EndpointSlice", "endpointslices")
    },
    Facts {
        is_namespaced: false,
        has_status_subresource: true,
        ..kubernetes(Kind::Namespace, "Namespace", "namespaces")
    },
    multicluster(Kind::ServiceImport, "ServiceImport", "serviceimports"),
    // Calico's own API where it is served, else its definitions, in which that API keeps them.
    Facts {
        api_version: "projectcalico.org/v3",
        newer_version: Some("crd.projectcalico.org/v1"),
        is_namespaced: false,
        ..ours(Kind::IpPool, "IPPool", "ippools")
    },
    kubernetes(Kind::ConfigMap, "ConfigMap", "configmaps"),
    Facts {
        api_version: "cilium.io/v2",
        is_namespaced: false,
        has_status_subresource: true,
        ..ours(Kind::CiliumNode, "CiliumNode", "ciliumnodes")
    },
    Facts {
        has_status_subresource: true,
        ..spiderpool(Kind::SpiderCoordinator, "SpiderCoordinator", "spidercoordinators")
    },
    Facts {
        is_namespaced: true,
        ..spiderpool(Kind::SpiderMultusConfig, "SpiderMultusConfig", "spidermultusconfigs")
    },
    Facts { has_status_subresource: true, ..spiderpool(Kind::SpiderIpPool, "SpiderIPPool", "spiderippools") },
    Facts {
        api_version: "networking.k8s.io/v1",
        newer_version: Some("networking.k8s.io/v1beta1"),
        is_namespaced: false,
        has_status_subresource: true,
        ..ours(Kind::ServiceCidr, "ServiceCIDR", "servicecidrs")
    },
    Facts {
        api_version: "cilium.io/v2alpha1",
        newer_version: Some("cilium.io/v2"),
        is_namespaced: false,
        ..ours(Kind::CiliumPodIpPool, "CiliumPodIPPool", "ciliumpodippools")
    },
    // Its status is written with the object.
    Facts {
        api_version: "config.openshift.io/v1",
        is_namespaced: false,
        ..ours(Kind::OpenShiftNetwork, "Network", "networks")
    },
    Facts {
        api_version: OWN_API_VERSION,
        is_namespaced: false,
        has_status_subresource: true,
        ..ours(Kind::Fabric, "Fabric", "fabrics")
    },
    apps(Kind::DaemonSet, "DaemonSet", "daemonsets"),
    apps(Kind::Deployment, "Deployment", "deployments"),
    tkestack(Kind::TkestackFabric, "Fabric", "fabrics"),
    Facts { short_names: &["fb"], ..tkestack(Kind::Knitnet, "Knitnet", "knitnets") },
];

impl Kind {
    /// Every kind; upstream's first, in the order in which a gateway writes them.
    pub const ALL: [Self; 36] = {
        let mut all = [Self::Cluster; 36];
        let mut index = 0;
        while index < all.len() {
            all[index] = FACTS[index].kind;
            index += 1;
        }
        all
    };

    /// The kinds of group `submariner.io`, those that have definitions of ours.
    pub const SUBMARINER: [Self; 12] = {
        let mut some = [Self::Cluster; 12];
        let mut index = 0;
        while index < some.len() {
            some[index] = FACTS[index].kind;
            index += 1;
        }
        some
    };

    const fn facts(self) -> &'static Facts {
        &FACTS[self as usize]
    }

    /// Returns the name in an object's `kind` field.
    pub const fn as_str(self) -> &'static str {
        self.facts().name
    }

    /// Returns the lower-case plural, as in resource paths.
    pub const fn plural(self) -> &'static str {
        self.facts().plural
    }

    /// Returns the name of a directory of objects of this kind: the plural, but for those that two kinds share.
    pub const fn directory(self) -> &'static str {
        if matches!(self, Self::CoreEndpoints) {
            "core-endpoints"
        } else if matches!(self, Self::TkestackFabric) {
            "tkestack-fabrics"
        } else {
            self.plural()
        }
    }

    /// Returns the kind of an object of this kind's name that has this group and version: this one but for the name that two kinds
    /// share.
    #[must_use]
    pub fn of_api_version(self, text: &str) -> Self {
        if self == Self::Fabric && text == TKESTACK_API_VERSION { Self::TkestackFabric } else { self }
    }

    /// Returns the abbreviations that `kubectl` takes.
    pub const fn short_names(self) -> &'static [&'static str] {
        self.facts().short_names
    }

    /// Returns group and version as in an object's `apiVersion` field; the core group has no name.
    pub const fn api_version(self) -> &'static str {
        self.facts().api_version
    }

    /// Returns group and version of another version of this kind with the same fields, mostly a newer one, which a server may serve beside the other
    /// one or in its place.
    pub const fn newer_version(self) -> Option<&'static str> {
        self.facts().newer_version
    }

    /// Returns `true` if this is the group and version of this kind in one of its versions.
    pub fn has_api_version(self, text: &str) -> bool {
        text == self.api_version() || self.newer_version() == Some(text)
    }

    /// Returns the API group; empty for Kubernetes' core group.
    pub fn group(self) -> &'static str {
        self.api_version().split_once('/').map_or("", |(group, _)| group)
    }

    /// Returns the version within the group.
    pub fn version(self) -> &'static str {
        self.api_version().rsplit_once('/').map_or_else(|| self.api_version(), |(_, version)| version)
    }

    /// Returns `true` if objects of this kind live in namespaces; those that do not have an empty one in their key.
    pub const fn is_namespaced(self) -> bool {
        self.facts().is_namespaced
    }

    /// Returns `true` if the API server keeps the status apart, with a resource of its own. Where it does not, writers
    /// replace the whole object.
    pub const fn has_status_subresource(self) -> bool {
        self.facts().has_status_subresource
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // As kubectl takes it: the name alone is the other one's.
        let is_shared = matches!(self, Self::TkestackFabric);
        f.pad(if is_shared { "Fabric.operator.tkestack.io" } else { self.as_str() })
    }
}

/// Of two kinds that share a name the first: [`Kind::of_api_version`] separates them.
impl FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.as_str() == text)
            .ok_or_else(|| format!("unknown kind `{text}`"))
    }
}

impl serde::Serialize for Kind {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> serde::Deserialize<'de> for Kind {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_finds_its_own_facts_and_its_name_back() {
        for (index, kind) in Kind::ALL.into_iter().enumerate() {
            assert_eq!((kind as usize, kind.facts().kind), (index, kind));
            let named: Kind = kind.as_str().parse().unwrap();
            assert_eq!(named.of_api_version(kind.api_version()), kind);
        }
        assert!(Kind::SUBMARINER.iter().all(|kind| kind.group() == "submariner.io"));
        assert_eq!((Kind::Cluster.version(), Kind::Broker.version()), ("v1", "v1alpha1"));
        assert_eq!((Kind::Lease.group(), Kind::Lease.version()), ("coordination.k8s.io", "v1"));
        assert_eq!((Kind::Node.group(), Kind::Node.version()), ("", "v1"));
        for kind in [Kind::ServiceExport, Kind::ServiceImport] {
            assert_eq!((kind.group(), kind.version()), ("multicluster.x-k8s.io", "v1alpha1"));
            assert!(kind.is_namespaced() && kind.has_status_subresource());
            let versions =
                ["v1alpha1", "v1beta1", "v1", ""].map(|version| format!("multicluster.x-k8s.io/{version}"));
            assert_eq!(versions.map(|version| kind.has_api_version(&version)), [true, true, false, false]);
        }
        assert!(!Kind::Namespace.is_namespaced());
        let mut directories: Vec<_> = Kind::ALL.into_iter().map(Kind::directory).collect();
        directories.sort_unstable();
        directories.dedup();
        assert_eq!(directories.len(), Kind::ALL.len(), "two kinds share a directory");
    }
}
