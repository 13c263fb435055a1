//! The rights of service discovery in a member's cluster.

use super::right::{Account, MULTI_CLUSTER, Right, SUBMARINER};
use crate::objects::names::{DISCOVERY_AGENT, DISCOVERY_DNS};

/// The accounts of a cluster that takes part in service discovery.
pub const DISCOVERY_ACCOUNTS: [Account; 2] = [
    Account { name: DISCOVERY_AGENT, here: AGENT_HERE, beside: &[], everywhere: AGENT_EVERYWHERE },
    Account { name: DISCOVERY_DNS, here: &[], beside: &[], everywhere: DNS_EVERYWHERE },
];

const SLICES: &str = "discovery.k8s.io";
const FOLLOW: &[&str] = &["list", "watch"];

const AGENT_HERE: &[Right] = &[
    Right {
        group: "coordination.k8s.io",
        resources: &["leases"],
        names: &["trieste-discovery-agent-lock"],
        verbs: &["get", "list", "watch", "update"],
        reason: "agents elect the one that writes",
    },
    Right {
        group: "coordination.k8s.io",
        resources: &["leases"],
        names: &[],
        verbs: &["create"],
        reason: "the first agent makes the Lease; Kubernetes cannot restrict creation to a name",
    },
];

const AGENT_EVERYWHERE: &[Right] = &[
    Right {
        group: "",
        resources: &["services", "namespaces"],
        names: &[],
        verbs: FOLLOW,
        reason: "the agent exports services, and imports those of namespaces that are here",
    },
    Right {
        group: SLICES,
        resources: &["endpointslices"],
        names: &[],
        verbs: &["list", "watch", "create", "update", "delete"],
        reason: "the agent follows the back ends of exported services, and writes the addresses of imported ones",
    },
    Right {
        group: SLICES,
        resources: &["endpointslices/restricted"],
        names: &[],
        verbs: &["create"],
        reason: "OpenShift asks for it of whoever writes slices with addresses of pods",
    },
    Right {
        group: MULTI_CLUSTER,
        resources: &["serviceexports"],
        names: &[],
        verbs: FOLLOW,
        reason: "the agent acts on what users export",
    },
    Right {
        group: MULTI_CLUSTER,
        resources: &["serviceexports/status", "serviceimports/status"],
        names: &[],
        verbs: &["update"],
        reason: "the agent says what became of an export, and which clusters export a service",
    },
    Right {
        group: MULTI_CLUSTER,
        resources: &["serviceimports"],
        names: &[],
        verbs: &["list", "watch", "create", "update", "delete"],
        reason: "the agent writes what the set exports",
    },
    Right {
        group: "",
        resources: &["events"],
        names: &[],
        verbs: &["create"],
        reason: "the agent reports on a ServiceExport what became of it, in the namespace of that",
    },
];

/// What the agent may do besides where there is Globalnet.
pub const DISCOVERY_GLOBALNET: &[Right] = &[Right {
    group: SUBMARINER,
    resources: &["globalingressips"],
    names: &[],
    verbs: FOLLOW,
    reason: "with Globalnet only: the agent exports global addresses",
}];

const DNS_EVERYWHERE: &[Right] = &[
    Right {
        group: MULTI_CLUSTER,
        resources: &["serviceimports"],
        names: &[],
        verbs: FOLLOW,
        reason: "the DNS server knows which services there are",
    },
    Right {
        group: SLICES,
        resources: &["endpointslices"],
        names: &[],
        verbs: FOLLOW,
        reason: "the DNS server answers their addresses",
    },
    Right {
        group: SUBMARINER,
        resources: &["gateways"],
        names: &[],
        verbs: FOLLOW,
        reason: "the DNS server answers clusters that gateways reach",
    },
];
