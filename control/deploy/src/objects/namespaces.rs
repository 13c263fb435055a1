//! The namespaces.

use trieste_control::members::paths_namespace;

use super::Manifest;

/// A member's: its pods use the node's network and some of its files, which Pod Security allows the privileged only.
pub(super) fn member(name: &str) -> Manifest {
    ["enforce", "audit", "warn"].into_iter().fold(namespace(name), |namespace, mode| {
        namespace.labelled(&format!("pod-security.kubernetes.io/{mode}"), "privileged")
    })
}

/// A broker's: no pods run there.
pub(super) fn broker(name: &str) -> Manifest {
    namespace(name).labelled("pod-security.kubernetes.io/enforce", "restricted")
}

/// Where a member's gateways tell one another of themselves: no pods run there, and upstream's agents do not look there.
pub(super) fn paths(member: &str) -> Manifest {
    namespace(&paths_namespace(member)).labelled("pod-security.kubernetes.io/enforce", "restricted")
}

fn namespace(name: &str) -> Manifest {
    Manifest::make("v1", "Namespace", "", name)
}
