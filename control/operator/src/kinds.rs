//! The kinds of objects that say what the cluster is to be.

use trieste_control::api::Kind;
use trieste_deploy::objects::names::{BROKER_NAMESPACE, NAMESPACE};

/// Which kinds are carried out beside Fabrics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Others {
    /// Those of upstream's operator: `Broker`, `Submariner`, `ServiceDiscovery`.
    pub upstream: bool,
    /// `Fabric` and `Knitnet` of group `operator.tkestack.io`.
    pub tkestack: bool,
}

/// The kinds of objects that say what the cluster is to be, each with the namespace in which they count; none is all of them.
pub(crate) const KINDS: [(Kind, &str); 6] = [
    (Kind::Fabric, ""),
    (Kind::Broker, BROKER_NAMESPACE),
    (Kind::Submariner, NAMESPACE),
    (Kind::ServiceDiscovery, NAMESPACE),
    (Kind::TkestackFabric, ""),
    (Kind::Knitnet, ""),
];

impl Others {
    /// Returns `true` if objects of that kind are carried out.
    pub(crate) fn has(self, kind: Kind) -> bool {
        match kind {
            kind if is_of_tkestack(kind) => self.tkestack,
            kind if is_of_upstream(kind) => self.upstream,
            other => other == Kind::Fabric,
        }
    }
}

/// Returns `true` for the kinds of upstream's operator.
pub(crate) fn is_of_upstream(kind: Kind) -> bool {
    matches!(kind, Kind::Broker | Kind::Submariner | Kind::ServiceDiscovery)
}

/// Returns `true` for the resource of the first users.
pub(crate) fn is_of_tkestack(kind: Kind) -> bool {
    matches!(kind, Kind::TkestackFabric | Kind::Knitnet)
}
