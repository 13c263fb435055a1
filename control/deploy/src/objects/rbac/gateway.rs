//! What gateways may do.

use trieste_control::api::ClusterNetworks;
use trieste_control::settings;

use super::right::{Right, SUBMARINER};

pub(super) const GATEWAY_HERE: &[Right] = &[
    Right {
        group: SUBMARINER,
        resources: &["clusters", "endpoints"],
        names: &[],
        verbs: &["list", "watch", "create", "update", "delete"],
        reason: "the leader writes its own, copies others' from the broker, and removes both when uninstalled",
    },
    Right {
        group: SUBMARINER,
        resources: &["gateways"],
        names: &[],
        verbs: &["get", "list", "watch", "create", "update", "patch", "delete"],
        reason: "each gateway publishes its status, and between times its sign of life alone; the leader removes those of gateways that are gone",
    },
    Right {
        group: SUBMARINER,
        resources: &["routeagents"],
        names: &[],
        verbs: &["list", "watch"],
        reason: "a gateway learns which nodes take packets for services",
    },
    Right {
        group: "coordination.k8s.io",
        resources: &["leases"],
        names: &["submariner-gateway-lock"],
        verbs: &["get", "list", "watch", "update", "delete"],
        reason: "gateways elect their leader; the last one removes the Lease when uninstalled",
    },
    Right {
        group: "coordination.k8s.io",
        resources: &["leases"],
        names: &[],
        verbs: &["create"],
        reason: "the first gateway makes the Lease; Kubernetes cannot restrict creation to a name",
    },
    Right {
        group: "",
        resources: &["pods"],
        names: &[],
        verbs: &["list", "watch", "update"],
        reason: "a gateway labels its own pod as active or passive, for the load balancer, and keeps it so",
    },
    Right {
        group: "",
        resources: &["configmaps"],
        names: &[ClusterNetworks::OBJECT],
        verbs: &["get", "list", "watch", "update"],
        reason: "gateways follow the cluster's networks, which may change while they run, and keep those that objects of the cluster say",
    },
    Right {
        group: "",
        resources: &["configmaps"],
        names: &[settings::OBJECT],
        verbs: &["get", "list", "watch"],
        reason: "gateways follow the settings of the cluster's programs, which may change while they run",
    },
    Right {
        group: "",
        resources: &["services"],
        names: &[],
        verbs: &["get", "list", "watch"],
        reason: "a gateway behind a load balancer publishes the address that the Service got; lb:NAME says which",
    },
    Right {
        group: "",
        resources: &["events"],
        names: &[],
        verbs: &["create"],
        reason: "a gateway tells what happened to it",
    },
];

pub(super) const GATEWAY_BESIDE: &[Right] = &[
    Right {
        group: SUBMARINER,
        resources: &["endpoints"],
        names: &[],
        verbs: &["list", "watch", "create", "update", "delete"],
        reason: "each gateway tells the others of itself; what one that has vanished has said is removed by the others",
    },
    Right {
        group: "coordination.k8s.io",
        resources: &["leases"],
        names: &[],
        verbs: &["list", "create", "update", "delete"],
        reason: "each gateway has shares of the outside ports of translation; the last one removes them when uninstalled",
    },
];

pub(super) const GATEWAY_EVERYWHERE: &[Right] = &[
    Right {
        group: "networking.k8s.io",
        resources: &["servicecidrs"],
        names: &[],
        verbs: &["list", "watch"],
        reason: "the cluster's networks for services, which may get more",
    },
    Right {
        group: "",
        resources: &["nodes"],
        names: &[],
        verbs: &["get", "list", "watch"],
        reason: "a gateway follows the settings on its own Node; which one that is, a Role cannot say",
    },
    Right {
        group: "",
        resources: &["services"],
        names: &[],
        verbs: &["list", "watch"],
        reason: "gateways send packets for a service to a node that has a back end",
    },
    Right {
        group: "discovery.k8s.io",
        resources: &["endpointslices"],
        names: &[],
        verbs: &["list", "watch"],
        reason: "which nodes those are",
    },
];
