//! Object metadata, and the labels and annotations that mean something to us.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::lenient::null_as_default;

/// Label keys.
pub mod label {
    /// Which cluster an object came from. Present on the broker's copies and on imported copies, never on originals.
    /// Written with a dash after `submariner`, as upstream does.
    pub const CLUSTER_ID: &str = "submariner-io/clusterID";
    /// Ours: which cluster a further Endpoint is of. Upstream neither imports nor removes what has this label alone.
    pub const PATHS_CLUSTER_ID: &str = "trieste.io/clusterID";
    /// The namespace an object had in its own cluster, where the copy's namespace differs by design.
    pub const ORIGINATING_NAMESPACE: &str = "submariner-io/originatingNamespace";
    /// The exported headless service that a GlobalIngressIP belongs to.
    pub const SERVICE_REF: &str = "submariner.io/serviceRef";
    /// The exported service that an internal service with its global IP stands for.
    pub const EXPORTED_SERVICE_REF: &str = "submariner.io/exportedServiceRef";
    /// The Endpoints object that this one, of an internal service, is a copy of.
    pub const CLONED_FROM: &str = "endpoints.submariner.io/cloned-from";
    /// Service discovery: the exported service that an import or a slice stands for.
    pub const SERVICE_NAME: &str = "multicluster.kubernetes.io/service-name";
    /// Service discovery: which cluster's part of an exported service an import or a slice is.
    pub const SOURCE_CLUSTER: &str = "multicluster.kubernetes.io/source-cluster";
    /// Service discovery: the exported service's namespace.
    pub const SOURCE_NAMESPACE: &str = "lighthouse.submariner.io/sourceNamespace";
    /// Service discovery, on slices: `true` if they are of a headless service.
    pub const IS_HEADLESS: &str = "lighthouse.submariner.io/is-headless";
    /// Service discovery, on slices of a headless service: the name of the slice that they are made of.
    pub const SOURCE_NAME: &str = "lighthouse.submariner.io/source-name";
    /// Calico, on IPPools: `true` if they are for a network of a remote cluster, whoever made them (api §8.5).
    pub const REMOTE_POOL: &str = "submariner.io/ippool";
    /// Kubernetes, on slices: who writes them.
    pub const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
    /// [`MANAGED_BY`] of the slices of exported services.
    pub const LIGHTHOUSE_AGENT: &str = "lighthouse-agent.submariner.io";
    /// Kubernetes, on Nodes: what the node calls itself.
    pub const HOSTNAME: &str = "kubernetes.io/hostname";
}

/// Finalizers.
pub mod finalizer {
    /// Keeps internal services until Globalnet itself removes them.
    pub const INTERNAL_SERVICE: &str = "submariner.io/globalnet-internal-service";
}

/// Annotation keys.
pub mod annotation {
    /// When a Gateway object was last written: Unix seconds, decimal. 15 s without a newer one means a dead gateway.
    pub const UPDATE_TIMESTAMP: &str = "update-timestamp";
    /// Ours, on RouteAgent objects: what is not as it should be on the node; a JSON list of
    /// [`NodeCondition`](crate::api::NodeCondition)s, absent if there is nothing to say.
    pub const CONDITIONS: &str = "trieste.io/conditions";
    /// Ours, on RouteAgent objects: which version of Trieste's route agent wrote the status. Of use while it is the
    /// status's own version: upstream's agent, which says another one there, leaves annotations as they are.
    pub const ROUTE_AGENT: &str = "trieste.io/route-agent";
    /// Ours, on RouteAgent objects: the address at which the node takes packets for services that have a back end on it, or
    /// [`NO_SERVICES`]. Absent while its route agent does not know yet.
    pub const SERVICES: &str = "trieste.io/services";
    /// Value of [`SERVICES`]: the node takes none.
    pub const NO_SERVICES: &str = "none";
    /// Ours, on the own Cluster object: those of its `cluster_cidr` that are not pods' networks, separated by commas; absent or
    /// empty if there are none.
    pub const EXTRA_CIDRS: &str = "trieste.io/extra-cidrs";
    /// Ours, on Gateway objects: `true` asks that gateway to hand its flows over to others.
    pub const DRAIN: &str = "trieste.io/drain";
    /// Ours, on Gateway objects beside [`DRAIN`]: that the drain belongs to the replacement of gateways' pods one by one, which ends
    /// it.
    pub const DRAINED_FOR_UPDATE: &str = "trieste.io/drained-for-update";
    /// Ours, on Gateway objects: how many connections the status has no space for; a [`LeftOut`](crate::api::LeftOut) as
    /// JSON, absent if all are there.
    pub const CONNECTIONS_LEFT_OUT: &str = "trieste.io/connections-left-out";
    /// Ours, on Gateway objects: the IDs of clusters that no path of this gateway reaches any more, separated by commas; absent
    /// if there are none. It is there within milliseconds, long before the connections' status says so.
    pub const UNREACHABLE: &str = "trieste.io/unreachable";
    /// The node's global IP, written by globalnet onto the Gateway object.
    pub const GLOBAL_IP: &str = "submariner.io/globalIp";
    /// The pod's own address, on a headless service's GlobalIngressIP.
    pub const HEADLESS_POD_IP: &str = "submariner.io/headless-svc-pod-ip";
    /// The endpoint's own address, on the GlobalIngressIP of a headless service without selector.
    pub const HEADLESS_ENDPOINTS_IP: &str = "submariner.io/headless-svc-endpoints-ip";
    /// Service discovery: that addresses count which are not ready.
    pub const PUBLISH_NOT_READY: &str = "lighthouse.submariner.io/publish-not-ready-addresses";
    /// Service discovery, on slices: whether their cluster's addresses are global ones.
    pub const GLOBALNET_ENABLED: &str = "lighthouse.submariner.io/globalnet-enabled";
    /// Service discovery: that one address for the whole set is wanted, or is not.
    pub const USE_CLUSTERSET_IP: &str = "lighthouse.submariner.io/use-clusterset-ip";
    /// Service discovery, on imports: which cluster has given the address for the whole set.
    pub const CLUSTERSET_IP_ALLOCATED_BY: &str = "lighthouse.submariner.io/clusterset-ip-allocated-by";
    /// Ours, on imports: the service's IPv6 address for the whole set. Upstream's definition of the kind lets `spec.ips` have one
    /// address, which is the IPv4 one.
    pub const CLUSTERSET_IPV6: &str = "trieste.io/clusterset-ipv6";
    /// Ours, on imports and slices in the operator's namespace: `true` says that they stand there for want of their own namespace.
    pub const DISPLACED: &str = "trieste.io/displaced";
    /// Service discovery, on imports: with a cluster's ID behind it, when that cluster began to export the service, in Unix
    /// nanoseconds.
    pub const TIMESTAMP_PREFIX: &str = "timestamp.submariner.io/";
    /// Ours, on imports: with a cluster's ID behind it, in what its export differs from the oldest. The others learn of it by
    /// that; upstream's agents keep it.
    pub const CONFLICT_PREFIX: &str = "conflict.trieste.io/";
    /// Ours, on exports, and on imports by the oldest: which cluster clients are sent to.
    pub const ROUTING: &str = "trieste.io/routing";
    /// Ours, on exports: the cluster's share of those who are sent to some cluster in turn.
    pub const WEIGHT: &str = "trieste.io/weight";
    /// Ours, on imports: with a cluster's ID behind it, that cluster's share.
    pub const WEIGHT_PREFIX: &str = "weight.trieste.io/";
    /// Ours, on GlobalEgressIP objects: the pod selector that they had first, which stays theirs; as JSON, `null` for none.
    pub const POD_SELECTOR: &str = "trieste.io/pod-selector";
    /// OVN-Kubernetes, on Nodes: of which zone the node is, which has a northbound database of its own.
    pub const OVN_ZONE: &str = "k8s.ovn.org/zone-name";
}

/// An object's metadata. All other fields are kept in [`ObjectMeta::extra`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectMeta {
    /// Name, unique per kind and namespace.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Prefix from which the store makes a name. Kept in copies; our own objects are always named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generate_name: Option<String>,
    /// Namespace.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Labels, for selection.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations, for everything else.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// When the store created the object, to the second. Set by the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub creation_timestamp: Option<Timestamp>,
    /// Opaque version for compare-and-swap: equal means unchanged, nothing else follows. Set by the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_version: Option<String>,
    /// Identity of this incarnation: a re-created object has another one. Set by the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// Counts changes of everything but metadata, from 1. Set by the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
    /// Everything else, untouched: finalizers, owner references, managed fields.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl ObjectMeta {
    /// Creates the metadata of a new object.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { name: name.into(), namespace: namespace.into(), ..Self::default() }
    }

    /// Returns `true` if this is the same version of the same object as `other`, of whose kind, namespace and name it
    /// is.
    pub fn is_version_of(&self, other: &Self) -> bool {
        self.resource_version == other.resource_version && self.uid == other.uid
    }

    /// Returns `true` if the gateway whose object this is has been asked to hand its flows over to others.
    pub fn is_asked_to_drain(&self) -> bool {
        self.annotations.get(annotation::DRAIN).is_some_and(|value| value == "true")
    }

    /// Returns `true` if the object has this finalizer.
    pub fn has_finalizer(&self, finalizer: &str) -> bool {
        let finalizers = self.extra.get("finalizers").and_then(Value::as_array);
        finalizers.is_some_and(|finalizers| finalizers.iter().any(|known| known == finalizer))
    }

    /// Returns `true` if the object has any finalizer: then it outlives its deletion until somebody has taken it off.
    pub fn has_finalizers(&self) -> bool {
        let finalizers = self.extra.get("finalizers").and_then(Value::as_array);
        finalizers.is_some_and(|finalizers| !finalizers.is_empty())
    }

    /// Adds a finalizer, if the object has not got it.
    pub fn add_finalizer(&mut self, finalizer: &str) {
        if !self.has_finalizer(finalizer) {
            let finalizers = self.extra.entry("finalizers").or_insert_with(|| Value::Array(Vec::new()));
            if let Value::Array(finalizers) = finalizers {
                finalizers.push(Value::from(finalizer));
            }
        }
    }

    /// Removes a finalizer.
    pub fn remove_finalizer(&mut self, finalizer: &str) {
        if let Some(Value::Array(finalizers)) = self.extra.get_mut("finalizers") {
            finalizers.retain(|known| known != finalizer);
        }
    }

    /// Returns `true` if somebody has deleted the object, and it only waits for its finalizers to go.
    pub fn is_terminating(&self) -> bool {
        self.extra.get("deletionTimestamp").is_some_and(|time| !time.is_null())
    }

    /// Returns the cluster that this object was copied from, by its label. `None` on an original.
    pub fn origin(&self) -> Option<&str> {
        self.labels.get(label::CLUSTER_ID).map(String::as_str)
    }
}
