//! The exchange with the other gateways of this cluster.

use std::collections::BTreeSet;

use tokio::sync::watch;
use trieste_control::api::ensure_valid_name;
use trieste_control::members::MembersHandle;
use trieste_control::publish::Spared;

/// The exchange with the other gateways of this cluster.
pub(crate) struct Peers {
    /// The others.
    pub(crate) handle: MembersHandle,
    /// Whether this one is to get no new flows.
    pub(crate) draining: watch::Sender<bool>,
    /// The cables to siblings that are not dead.
    pub(crate) live_siblings: watch::Sender<BTreeSet<String>>,
}

impl Peers {
    /// Returns whose Gateway objects are kept, however old: those of siblings whose cables are up. They may be cut off from the
    /// store, and still carry traffic.
    pub(crate) fn spared(&self) -> Spared {
        let (members, live) = (self.handle.members.clone(), self.live_siblings.subscribe());
        Spared::new(move |name| {
            let live = live.borrow();
            members.borrow().siblings.iter().any(|member| {
                let host = &member.endpoint.spec.hostname;
                live.contains(member.cable_name()) && ensure_valid_name(host) == name
            })
        })
    }
}
