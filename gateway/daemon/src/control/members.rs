//! The other gateways, as the control loop has them.

use std::collections::BTreeSet;

use trieste_control::admin::Severity;
use trieste_control::api::{Endpoint, Object, Resource as _};
use trieste_control::members::{Members, NatSlots};
use trieste_pipeline::PathState;

use super::Control;
use crate::engine::Engine;

impl Control<'_> {
    /// Returns the other gateways; none if the leader supports only one gateway per cluster: it and its peers use one Endpoint.
    pub(super) fn members(&self) -> Members {
        let mut members = self.peers.handle.members.borrow().clone();
        if members.is_multi && self.has_older_leader() {
            members.is_multi = false;
        }
        if !members.is_multi {
            members.siblings.clear();
            members.slots = None;
        }
        members
    }

    /// Returns `true` if there are other gateways in this cluster, as [`Self::members`] counts them.
    pub(super) fn has_siblings(&self) -> bool {
        self.shares_with_siblings().is_some()
    }

    /// Returns whether this gateway shares the outside ports with others and has no share yet.
    pub(super) fn lacks_ports(&self) -> bool {
        self.shares_with_siblings().is_some_and(|slots| slots.is_none())
    }

    /// Returns this gateway's shares of the outside ports, where there are others in this cluster.
    fn shares_with_siblings(&self) -> Option<Option<NatSlots>> {
        let members = self.peers.handle.members.borrow();
        let has_siblings = members.is_multi && !members.siblings.is_empty() && !self.has_older_leader();
        has_siblings.then_some(members.slots)
    }

    /// Returns `true` if another gateway of this cluster leads that does not support several at once.
    fn has_older_leader(&self) -> bool {
        let is_older = |object: &&Object| {
            Endpoint::from_object(object).is_ok_and(|endpoint| !endpoint.spec.supports_paths())
        };
        self.state.mirror.is_complete() && self.others_sole_endpoints().any(|object| is_older(&object))
    }

    /// Reports a leader of this cluster that does not support several gateways.
    pub(super) fn report_older_leader(&self) {
        let is_multi = self.peers.handle.members.borrow().is_multi;
        let message = (is_multi && self.has_older_leader()).then(|| {
            "a gateway of this cluster leads that knows one gateway per cluster (upstream's, or an older version of \
             Trieste): the others stand by until it is gone or upgraded"
                .to_owned()
        });
        self.conditions.put("OlderLeader", Severity::Info, "", message);
    }

    /// Publishes which siblings' cables are up, for the removal of stale gateways.
    pub(super) fn publish_live_siblings(&self, engine: &Engine) {
        let is_alive = |name: &str| {
            engine.lane(name).is_some_and(|lane| {
                let state = engine.paths().state(lane.cable);
                matches!(state, PathState::Up | PathState::Draining | PathState::Held)
            })
        };
        let names = engine.siblings().iter().map(|peer| peer.facts.cable_name.clone());
        let live: BTreeSet<String> = names.filter(|name| is_alive(name)).collect();
        self.peers.live_siblings.send_if_modified(|known| {
            let changed = *known != live;
            *known = live;
            changed
        });
    }
}
