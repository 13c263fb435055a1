//! What an account may do, and why.

/// Some verbs on some resources, and what for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Right {
    /// The API group; empty for Kubernetes' core group.
    pub group: &'static str,
    /// The resources, subresources as `pods/log`.
    pub resources: &'static [&'static str],
    /// The only objects that may be touched; empty means all.
    pub names: &'static [&'static str],
    /// The verbs.
    pub verbs: &'static [&'static str],
    /// What needs it.
    pub reason: &'static str,
}

/// An account of a member's cluster.
#[derive(Debug, Clone, Copy)]
pub struct Account {
    /// The name of the ServiceAccount and of its Roles.
    pub name: &'static str,
    /// What it may do in the member's namespace.
    pub here: &'static [Right],
    /// What it may do in the namespace beside it, in which gateways tell of themselves.
    pub beside: &'static [Right],
    /// What it may do in the whole cluster.
    pub everywhere: &'static [Right],
}

pub(super) const SUBMARINER: &str = "submariner.io";
pub(super) const MULTI_CLUSTER: &str = "multicluster.x-k8s.io";
