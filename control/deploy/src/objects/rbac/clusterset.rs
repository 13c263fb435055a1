//! What a route agent may do beside, in a set with a range of clusterset IPs. Without one its account has none of these.

use super::right::{MULTI_CLUSTER, Right, SUBMARINER};

/// In the member's namespace.
pub const CLUSTERSET_HERE: &[Right] = &[Right {
    group: SUBMARINER,
    resources: &["gateways"],
    names: &[],
    verbs: &["list", "watch"],
    reason: "a clusterset IP leads to clusters that gateways reach",
}];

/// In the whole cluster: services are imported into any namespace.
pub const CLUSTERSET_EVERYWHERE: &[Right] = &[Right {
    group: MULTI_CLUSTER,
    resources: &["serviceimports"],
    names: &[],
    verbs: &["list", "watch"],
    reason: "which services have clusterset IPs, and which ports",
}];
