//! What is asked for.

use std::time::Duration;

/// What is asked for.
#[derive(Debug, Clone)]
pub struct Uninstall {
    /// The member's namespace.
    pub namespace: String,
    /// The broker's namespace, if this cluster is one.
    pub broker_namespace: String,
    /// How long nodes may take to be cleaned.
    pub patience: Duration,
    /// Whether nodes that cannot be cleaned are left as they are.
    pub force: bool,
}

/// What stays on a node that was not cleaned, and how it is removed there.
pub(super) const LEFT: &str = "there stays what the kernel has until a reboot, and the folder /var/lib/trieste: rm -r /var/lib/trieste; with \
     OVN-Kubernetes and a database per node also its rows: docs/operations/install.md says how they go by hand";
