//! Flows stay at the node that they began at, as long as a back end of theirs may be there.
//!
//! Maglev alone moves a few flows of others when a node comes or goes, and all of those of a back end that is about to
//! end. What this gateway has seen lately is remembered, as `flow.rs` remembers verdicts: two maps, of which the older
//! one's memory is used again. Another gateway that gets such a flow asks Maglev.

use std::net::IpAddr;

use hashbrown::HashMap;
use trieste_packet::{FlowKey, KeyedState};

use super::table::{NodeId, Services};
use crate::flow::GENERATION;

/// Where a flow goes.
#[derive(Debug, Clone, Copy)]
struct Pin {
    /// Of the snapshot that `node` is a place in.
    generation: u64,
    node: NodeId,
    address: IpAddr,
}

/// A bounded memory of flows.
#[derive(Debug)]
pub(super) struct Pins {
    young: HashMap<FlowKey, Pin, KeyedState>,
    old: HashMap<FlowKey, Pin, KeyedState>,
}

impl Pins {
    /// Remembers nothing. `seed` keys the hash, so that nobody outside can choose flows that collide.
    pub(super) fn new(seed: u64) -> Self {
        let state = KeyedState::new(seed);
        Self { young: HashMap::with_hasher(state.clone()), old: HashMap::with_hasher(state) }
    }

    /// The node of a flow: the one it is at, else a new one.
    pub(super) fn node(&mut self, flow: &FlowKey, services: &Services) -> Option<NodeId> {
        let is_young = self.young.get(flow).copied();
        let known = is_young.or_else(|| self.old.get(flow).copied());
        let generation = services.generation();
        if let Some(pin) = known {
            if pin.generation == generation && is_young.is_some() {
                return Some(pin.node);
            }
            if let Some(node) = services.stays(flow, pin.address) {
                self.put(flow, Pin { generation, node, address: pin.address });
                return Some(node);
            }
        }
        self.pick(flow, services)
    }

    /// The node of a flow that begins, or tries again to: one with a back end for new flows. The one that it was sent to
    /// before may have lost its last.
    pub(super) fn open(&mut self, flow: &FlowKey, services: &Services) -> Option<NodeId> {
        let known = self.young.get(flow).or_else(|| self.old.get(flow)).copied();
        match known.filter(|pin| services.uses(flow, pin.address)) {
            Some(_) => self.node(flow, services),
            None => self.pick(flow, services),
        }
    }

    fn pick(&mut self, flow: &FlowKey, services: &Services) -> Option<NodeId> {
        let node = services.pick(flow)?;
        self.put(flow, Pin { generation: services.generation(), node, address: services.node(node).address });
        Some(node)
    }

    /// The same for what is about a flow and not of it: nothing is remembered.
    pub(super) fn peek(&self, flow: &FlowKey, services: &Services) -> Option<NodeId> {
        let known = self.young.get(flow).or_else(|| self.old.get(flow));
        known.and_then(|pin| services.stays(flow, pin.address)).or_else(|| services.pick(flow))
    }

    fn put(&mut self, flow: &FlowKey, pin: Pin) {
        if self.young.len() >= GENERATION && !self.young.contains_key(flow) {
            std::mem::swap(&mut self.young, &mut self.old);
            self.young.clear();
        }
        self.young.insert(*flow, pin);
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.young.clear();
        self.old.clear();
    }
}
