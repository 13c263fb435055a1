//! What this gateway and the others tell each other.

use std::collections::BTreeSet;

use tokio::sync::watch;
use trieste_control::api::ensure_valid_name;
use trieste_control::members::MembersHandle;
use trieste_control::publish::Spared;

/// What this gateway and the others tell each other.
pub(crate) struct Peers {
    /// The others.
    pub(crate) handle: MembersHandle,
    /// Whether this one is to get no new flows.
    pub(crate) draining: watch::Sender<bool>,
    /// The cables to siblings that are not dead.
    pub(crate) heard: watch::Sender<BTreeSet<String>>,
}

impl Peers {
    /// Whose Gateway objects stay however old: those of siblings whose cables live. They cannot write, and carry on.
    pub(crate) fn spared(&self) -> Spared {
        let (members, heard) = (self.handle.members.clone(), self.heard.subscribe());
        Spared::new(move |name| {
            let heard = heard.borrow();
            members.borrow().siblings.iter().any(|member| {
                let host = &member.endpoint.spec.hostname;
                heard.contains(member.cable_name()) && ensure_valid_name(host) == name
            })
        })
    }
}
