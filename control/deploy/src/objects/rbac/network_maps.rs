//! What gateways may do in namespaces of others: read the ConfigMaps in which the cluster's networks were found, one by one.

use std::collections::{BTreeMap, BTreeSet};

use trieste_control::api::ObjectKey;
use trieste_control::live_networks::{Source, TrackedLists};

use super::right::Right;

/// Every ConfigMap that may be followed, with its namespace.
pub const NETWORK_MAPS: &[(&str, Right)] = &[
    (
        "kube-flannel",
        Right {
            names: &["kube-flannel-cfg"],
            reason: "with flannel only: the cluster's networks for pods, which may change",
            ..READ
        },
    ),
    (
        "kube-system",
        Right {
            names: &["kube-flannel-cfg"],
            reason: "likewise: where flannel's ConfigMap is there, as it was before version 0.20",
            ..READ
        },
    ),
    (
        "kube-system",
        Right {
            names: &["canal-config"],
            reason: "with canal only: the cluster's networks for pods, which may change",
            ..READ
        },
    ),
    (
        "kube-system",
        Right {
            names: &["cilium-config"],
            reason: "with Cilium's ipam cluster-pool only: the cluster's networks for pods, which may get more",
            ..READ
        },
    ),
    (
        "ovn-kubernetes",
        Right {
            names: &["ovn-config"],
            reason: "with OVN-Kubernetes only: the cluster's networks for pods and services, which may change",
            ..READ
        },
    ),
    (
        "kube-system",
        Right {
            names: &["kube-proxy"],
            reason: "where nothing better names the cluster's networks for pods",
            ..READ
        },
    ),
    (
        "kube-system",
        Right {
            names: &["kubeadm-config"],
            reason: "where nothing better names the cluster's networks for pods or services",
            ..READ
        },
    ),
];

const READ: Right =
    Right { group: "", resources: &["configmaps"], names: &[], verbs: &["list", "watch"], reason: "" };

/// Returns what gateways need to follow these lists, by namespace.
pub(super) fn rights(followed: &TrackedLists) -> BTreeMap<&'static str, Vec<Right>> {
    let keys: BTreeSet<ObjectKey> = followed.0.keys().filter_map(|source| Source::object(*source)).collect();
    let mut rights: BTreeMap<&'static str, Vec<Right>> = BTreeMap::new();
    for (namespace, right) in NETWORK_MAPS {
        let is_it = |key: &ObjectKey| key.namespace == *namespace && right.names.contains(&key.name.as_str());
        if keys.iter().any(is_it) {
            rights.entry(namespace).or_default().push(*right);
        }
    }
    rights
}

/// Returns the namespaces in which there may be such Roles.
pub fn network_map_namespaces() -> BTreeSet<&'static str> {
    NETWORK_MAPS.iter().map(|(namespace, _)| *namespace).collect()
}
