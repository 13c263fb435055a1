//! What is allowed besides in a cluster whose network plugin has a database that workers write, OVN-Kubernetes or Calico, or whose
//! objects are read, Cilium; and in one with Spiderpool, whose lists workers keep.

use trieste_control::live_networks::Source;

use super::right::{Account, Right, SUBMARINER};
use crate::objects::MemberOptions;
use crate::objects::names::{PLUGIN_SYNC, PLUGIN_SYNC_LOCK, SPIDERPOOL_SYNC, SPIDERPOOL_SYNC_LOCK};

/// The workers' account with OVN-Kubernetes. Where the database is, `join` has found out with rights of its own: a worker has none in the plugin's
/// namespace.
pub const OVN_ACCOUNT: Account =
    Account { name: PLUGIN_SYNC, here: OVN_HERE, beside: &[], everywhere: OVN_EVERYWHERE };

/// The workers' account with Calico. Objects that are written are what Calico calls its database, of the whole cluster.
pub const CALICO_ACCOUNT: Account =
    Account { name: PLUGIN_SYNC, here: CALICO_HERE, beside: &[], everywhere: CALICO_EVERYWHERE };

/// The account of the workers that keep Spiderpool's lists, beside that of the plugin's workers, if there is one. Lists are in objects
/// of the whole cluster, and of namespaces that are anybody's.
pub const SPIDERPOOL_ACCOUNT: Account =
    Account { name: SPIDERPOOL_SYNC, here: SPIDERPOOL_HERE, beside: &[], everywhere: SPIDERPOOL_EVERYWHERE };

/// Returns the accounts of the workers that a member needs.
pub(super) fn accounts(options: &MemberOptions) -> Vec<Account> {
    let all = [
        (options.has_ovn(), OVN_ACCOUNT),
        (options.has_calico(), CALICO_ACCOUNT),
        (options.has_spiderpool, SPIDERPOOL_ACCOUNT),
    ];
    all.into_iter().filter(|(is_needed, _)| *is_needed).map(|(_, account)| account).collect()
}

/// What a route agent may do besides, in the member's namespace.
pub const PLUGIN_ROUTES_HERE: &[Right] = &[Right {
    group: SUBMARINER,
    resources: &["gatewayroutes", "nongatewayroutes"],
    names: &[],
    verbs: &["create", "get", "list", "watch", "update", "delete"],
    reason: "with OVN-Kubernetes, Calico and Spiderpool only: the gateway's route agent says which next hops lead to which remote networks",
}];

/// What a route agent may do besides in the whole cluster with Cilium.
pub const CILIUM_NODES: &[Right] = &[Right {
    group: "cilium.io",
    resources: &["ciliumnodes"],
    names: &[],
    verbs: &["list", "watch"],
    reason: "with Cilium only: which networks the pods of a node have, as Cilium gives them out",
}];

/// What a gateway may do besides in the whole cluster with Calico.
pub const CALICO_POOLS: &[Right] = &[
    Right {
        group: "projectcalico.org",
        resources: &["ippools"],
        names: &[],
        verbs: &["list", "watch"],
        reason: "with Calico only: the cluster's networks for pods, which may get more",
    },
    Right {
        group: "crd.projectcalico.org",
        resources: &["ippools"],
        names: &[],
        verbs: &["list", "watch"],
        reason: "likewise: the same pools, where Calico's own API server is not installed",
    },
];

/// What a gateway may do besides in the whole cluster where the networks of pods stand in Cilium's pools.
pub const CILIUM_POOLS: &[Right] = &[Right {
    group: "cilium.io",
    resources: &["ciliumpodippools"],
    names: &[],
    verbs: &["list", "watch"],
    reason: "with Cilium's ipam multi-pool only: the cluster's networks for pods, which may get more",
}];

/// What a gateway may do besides in the whole cluster on OpenShift.
pub const OPENSHIFT_NETWORK: &[Right] = &[Right {
    group: "config.openshift.io",
    resources: &["networks"],
    names: &[],
    verbs: &["list", "watch"],
    reason: "on OpenShift only: the cluster's networks for pods and services, which may get more",
}];

/// Returns what a gateway may do besides in the whole cluster, to follow the objects in which its networks stand.
pub(super) fn of_networks(options: &MemberOptions) -> Vec<Right> {
    let has = |source: Source| options.followed.0.contains_key(&source);
    let all = [
        (options.has_calico(), CALICO_POOLS),
        (has(Source::CiliumPools), CILIUM_POOLS),
        (has(Source::OpenShiftPods) || has(Source::OpenShiftServices), OPENSHIFT_NETWORK),
    ];
    all.into_iter().filter(|(is_needed, _)| *is_needed).flat_map(|(_, rights)| rights.to_vec()).collect()
}

const FOLLOW: &[&str] = &["get", "list", "watch"];

const OVN_HERE: &[Right] = &[
    Right {
        group: SUBMARINER,
        resources: &["gatewayroutes", "nongatewayroutes"],
        names: &[],
        verbs: FOLLOW,
        reason: "with OVN-Kubernetes only: a worker writes what they say into OVN's northbound database",
    },
    Right {
        group: SUBMARINER,
        resources: &["clusters", "endpoints"],
        names: &[],
        verbs: FOLLOW,
        reason: "likewise: which networks are the cluster's own, and where the gateway is",
    },
    Right {
        group: "coordination.k8s.io",
        resources: &["leases"],
        names: &[PLUGIN_SYNC_LOCK],
        verbs: &["get", "list", "watch", "update", "delete"],
        reason: "likewise: where all nodes share a database, workers elect the one that writes; the last one removes the Lease",
    },
    Right {
        group: "coordination.k8s.io",
        resources: &["leases"],
        names: &[],
        verbs: &["create"],
        reason: "likewise: the first worker makes the Lease; Kubernetes cannot restrict creation to a name",
    },
];

const OVN_EVERYWHERE: &[Right] = &[Right {
    group: "",
    resources: &["nodes"],
    names: &[],
    verbs: FOLLOW,
    reason: "with OVN-Kubernetes only: a worker learns which nodes its zone has, and whether the gateway's is one of them",
}];

const CALICO_HERE: &[Right] = &[
    Right {
        group: SUBMARINER,
        resources: &["gatewayroutes"],
        names: &[],
        verbs: FOLLOW,
        reason: "with Calico only: a worker keeps an IPPool for each network that they name",
    },
    Right {
        group: "",
        resources: &["services"],
        names: &[],
        verbs: FOLLOW,
        reason: "with Calico only: the gateways' Service shows whether the cluster is one of IBM's ROKS, where the default pool has another mode",
    },
    Right {
        group: "coordination.k8s.io",
        resources: &["leases"],
        names: &[PLUGIN_SYNC_LOCK],
        verbs: &["get", "list", "watch", "update", "delete"],
        reason: "with Calico only: workers elect the one that writes; the last one removes the Lease",
    },
    Right {
        group: "coordination.k8s.io",
        resources: &["leases"],
        names: &[],
        verbs: &["create"],
        reason: "with Calico only: the first worker makes the Lease; Kubernetes cannot restrict creation to a name",
    },
];

const WRITE: &[&str] = &["get", "list", "watch", "create", "update", "delete"];

const CALICO_EVERYWHERE: &[Right] = &[
    Right {
        group: "projectcalico.org",
        resources: &["ippools"],
        names: &[],
        verbs: WRITE,
        reason: "with Calico only: a worker writes the pools of remote networks, and on IBM's ROKS the default pool's mode; Kubernetes cannot restrict it to those",
    },
    Right {
        group: "crd.projectcalico.org",
        resources: &["ippools"],
        names: &[],
        verbs: WRITE,
        reason: "likewise: the same pools, where Calico's own API server is not installed",
    },
];

const SPIDERPOOL_HERE: &[Right] = &[
    Right {
        group: SUBMARINER,
        resources: &["gatewayroutes"],
        names: &[],
        verbs: FOLLOW,
        reason: "with Spiderpool only: a worker keeps the networks that they name in Spiderpool's hijackCIDR lists",
    },
    Right {
        group: "coordination.k8s.io",
        resources: &["leases"],
        names: &[SPIDERPOOL_SYNC_LOCK],
        verbs: &["get", "list", "watch", "update", "delete"],
        reason: "with Spiderpool only: workers elect the one that writes; the last one removes the Lease",
    },
    Right {
        group: "coordination.k8s.io",
        resources: &["leases"],
        names: &[],
        verbs: &["create"],
        reason: "with Spiderpool only: the first worker makes the Lease; Kubernetes cannot restrict creation to a name",
    },
];

const SPIDERPOOL_EVERYWHERE: &[Right] = &[
    Right {
        group: "spiderpool.spidernet.io",
        resources: &["spidercoordinators", "spidermultusconfigs"],
        names: &[],
        verbs: &["get", "list", "watch", "update"],
        reason: "with Spiderpool only: their hijackCIDR lists; Kubernetes cannot restrict an update to a field",
    },
    Right {
        group: "spiderpool.spidernet.io",
        resources: &["spiderippools"],
        names: &[],
        verbs: FOLLOW,
        reason: "with Spiderpool only: which networks pods have themselves, which are in no list",
    },
];
