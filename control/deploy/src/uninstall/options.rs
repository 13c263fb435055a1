//! What is asked for.

use std::time::Duration;

use trieste_control::members::paths_namespace;

use crate::object_ref::ObjectRef;

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
    /// Which parts go.
    pub scope: Scope,
    /// Objects that stay, since they say what is wanted, or are going by themselves; with them stay the definitions.
    pub keeps: Vec<ObjectRef>,
}

/// Which parts go. The other ones are left as if they were somebody else's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scope {
    /// The member.
    pub member: bool,
    /// The broker.
    pub broker: bool,
    /// The namespaces of these, too: not where others have made them, with rights of theirs in them.
    pub namespaces: bool,
}

impl Scope {
    /// Everything.
    pub const ALL: Self = Self { member: true, broker: true, namespaces: true };
    /// What the operator has made of a member.
    pub const MEMBER: Self = Self { member: true, broker: false, namespaces: false };
    /// What the operator has made of a broker.
    pub const BROKER: Self = Self { member: false, broker: true, namespaces: false };
}

impl Uninstall {
    /// Returns the namespaces that are cleared.
    pub(super) fn namespaces(&self) -> Vec<String> {
        let member = [self.namespace.clone(), paths_namespace(&self.namespace)];
        let member = member.into_iter().filter(|_| self.scope.member);
        member.chain(self.scope.broker.then(|| self.broker_namespace.clone())).collect()
    }
}

/// What stays on a node that was not cleaned, and how it is removed there.
pub(super) const LEFT: &str = "there stays what the kernel has until a reboot, and the folder /var/lib/trieste: rm -r /var/lib/trieste; with \
     OVN-Kubernetes and a database per node also its rows: docs/operations/install.md says how they go by hand";
