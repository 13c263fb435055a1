//! What API servers tell those that follow them.

use trieste_control::api::Kind;
use trieste_control::store::StoreEvent;
use trieste_control::sync::Side;

use super::super::node::STREAMS;
use super::super::store::Change;
use super::{Event, Seen, World, event_of};

impl World {
    fn followers(&self, store: usize) -> Vec<(usize, Side)> {
        let side = if store == self.members.len() { Side::Broker } else { Side::Local };
        let follows = |node: &usize| side == Side::Broker || self.nodes[*node].cluster == store;
        (0..self.nodes.len()).filter(follows).map(|node| (node, side)).collect()
    }

    pub(super) fn tell_lease(&mut self, store: usize) {
        for (node, _) in self.followers(store) {
            let lease = self.stores[store].lease.clone();
            self.watch(node, 0, Seen::Lease(lease));
        }
    }

    pub(super) fn tell(&mut self, store: usize, change: &Change) {
        let (Change::Applied(object) | Change::Deleted(object)) = change;
        let kind = object.kind;
        for (node, side) in self.followers(store) {
            let stream = STREAMS.iter().position(|stream| *stream == (side, kind));
            if let Some(stream) = stream {
                self.watch(node, stream, Seen::Objects(event_of(change)));
            }
        }
    }

    /// Sends an event of a watch on its way: in order, unless something goes wrong, and then the watch starts anew.
    fn watch(&mut self, node: usize, stream: usize, seen: Seen) {
        if self.places[node].is_down {
            return;
        }
        let to = self.sender(node);
        let mut when = self.queue.millis() + self.random.between(1, 20);
        let goes_wrong = !self.is_calm && self.random.percent(6);
        if goes_wrong {
            let relist = self.queue.millis() + self.random.between(1_000, 6_000);
            self.at(relist, Event::Relist { to, stream });
            if self.random.percent(40) {
                return;
            }
            // Late, and overtaken by others.
            when += self.random.between(0, 4_000);
        } else if self.is_cut(node, STREAMS[stream].0) {
            return;
        } else {
            if !self.is_calm && self.random.percent(3) {
                when += self.random.between(0, 5_000);
            }
            when = when.max(self.places[node].last_seen[stream]);
            self.places[node].last_seen[stream] = when;
        }
        let epoch = self.places[node].epochs[stream];
        self.at(when, Event::Watch { to, stream, epoch, seen: Box::new(seen) });
    }

    /// Starts a watch anew: with everything that there is.
    pub(super) fn relist(&mut self, node: usize, stream: usize) {
        let (side, kind) = STREAMS[stream];
        if self.places[node].is_down || self.is_cut(node, side) {
            return;
        }
        let store = &self.stores[self.store_of(node, side)];
        let seen = if kind == Kind::Lease {
            Seen::Lease(store.lease.clone())
        } else {
            let objects = store.objects.values().filter(|object| object.kind == kind);
            Seen::Objects(StoreEvent::Listed(objects.cloned().collect()))
        };
        let to = self.sender(node);
        let when = self.queue.millis() + self.random.between(1, 20);
        let place = &mut self.places[node];
        place.epochs[stream] += 1;
        place.last_seen[stream] = when;
        let epoch = place.epochs[stream];
        self.at(when, Event::Watch { to, stream, epoch, seen: Box::new(seen) });
    }
}
