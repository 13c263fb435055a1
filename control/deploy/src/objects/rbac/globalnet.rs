//! What a gateway may do beside, in a cluster with Globalnet. Without it the gateway's account has none of these.

use super::right::{Right, SUBMARINER};

/// In the member's namespace.
pub const GLOBALNET_HERE: &[Right] = &[Right {
    group: "coordination.k8s.io",
    resources: &["leases"],
    names: &["submariner-globalnet-lock"],
    verbs: &["get", "list", "watch", "update", "delete"],
    reason: "one gateway gives out global addresses; the last one removes the Lease when uninstalled",
}];

const STATUS: &[&str] = &["update"];

/// In the whole cluster: services are exported from any namespace.
pub const GLOBALNET_EVERYWHERE: &[Right] = &[
    Right {
        group: SUBMARINER,
        resources: &["clusterglobalegressips"],
        names: &[],
        verbs: &["list", "watch", "create", "delete"],
        reason: "the leader makes the one that counts, if nobody has, and removes it when uninstalled",
    },
    Right {
        group: SUBMARINER,
        resources: &["globalegressips"],
        names: &[],
        verbs: &["list", "watch", "update"],
        reason: "the leader follows what namespaces ask for, and notes the selector that each had first",
    },
    Right {
        group: SUBMARINER,
        resources: &["globalingressips"],
        names: &[],
        verbs: &["list", "watch", "create", "update", "delete"],
        reason: "the leader makes one for each exported service, and removes it with the export",
    },
    Right {
        group: SUBMARINER,
        resources: &["clusterglobalegressips/status", "globalegressips/status", "globalingressips/status"],
        names: &[],
        verbs: STATUS,
        reason: "the leader says which addresses were given, or why none were",
    },
    Right {
        group: "multicluster.x-k8s.io",
        resources: &["serviceexports"],
        names: &[],
        verbs: &["list", "watch"],
        reason: "the leader follows which services are exported",
    },
    Right {
        group: "",
        resources: &["services", "endpoints"],
        names: &[],
        verbs: &["get", "list", "watch", "create", "update", "delete"],
        reason: "the leader keeps an internal service per exported one, as upstream does, and its endpoints",
    },
    Right {
        group: "network.openshift.io",
        resources: &["service/externalips"],
        names: &[],
        verbs: &["create"],
        reason: "OpenShift asks for it where a service has external addresses, as internal services have",
    },
    Right {
        group: "",
        resources: &["pods"],
        names: &[],
        verbs: &["list", "watch"],
        reason: "pods leave under their namespace's or selector's addresses; headless services lead to pods",
    },
];
