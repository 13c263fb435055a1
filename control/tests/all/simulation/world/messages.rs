//! Requests and answers on their way between nodes and API servers.

use trieste_control::election::{Failure, Timings};
use trieste_control::sync::Side;

use super::super::node::{Answer, Call, Purpose};
use super::super::store::Change;
use super::{Event, Sender, World, away, event_of};

impl World {
    /// Hands an event to a process if that lives; to one that is stopped, when it goes on.
    pub(super) fn deliver(&mut self, to: Sender, event: Event) -> Option<(usize, Event)> {
        if !self.is_current(to) {
            return None;
        }
        let paused = self.places[to.node].paused_until;
        if paused > self.queue.millis() {
            self.at(paused, event);
            return None;
        }
        Some((to.node, event))
    }

    pub(super) fn is_current(&self, sender: Sender) -> bool {
        let place = &self.places[sender.node];
        !place.is_down && place.process == sender.process
    }

    pub(super) fn sender(&self, node: usize) -> Sender {
        Sender { node, process: self.places[node].process }
    }

    pub(super) fn send(&mut self, node: usize, purpose: Purpose, call: Call) {
        let from = self.sender(node);
        let place = &mut self.places[node];
        place.next_id += 1;
        let id = place.next_id;
        place.pending.insert(id, purpose.clone());
        let patience = match &purpose {
            Purpose::ReadLease | Purpose::WriteLease => Timings::default().request_timeout().as_millis(),
            _ => 10_000,
        };
        let patience = u64::try_from(patience).expect("small");
        self.at(self.queue.millis() + patience, Event::Timeout { to: from, id });
        if let Some(delay) = self.delay(node, side_of(&call)) {
            self.at(self.queue.millis() + delay, Event::Arrive { from, purpose, call: Box::new(call), id });
        }
    }

    /// How long a message takes; `None` for one that is lost.
    fn delay(&mut self, node: usize, side: Side) -> Option<u64> {
        if self.is_cut(node, side) {
            return None;
        }
        if !self.is_calm {
            match self.random.below(200) {
                0 | 1 => return None,
                2..=5 => return Some(self.random.between(500, 9_000)),
                _ => {}
            }
        }
        Some(self.random.between(1, 20))
    }

    pub(super) fn is_cut(&self, node: usize, side: Side) -> bool {
        self.places[node].cut_until[side as usize] > self.queue.millis()
    }

    pub(super) fn arrive(&mut self, from: Sender, purpose: Purpose, call: Call, id: u64) {
        let side = side_of(&call);
        let store = self.store_of(from.node, side);
        // What a process that is gone has sent is applied all the same.
        let answer = match call {
            Call::ReadLease => Answer::LeaseRead(Ok(self.stores[store].lease.clone())),
            Call::WriteLease(lease, is_create) => {
                let written = self.stores[store].write_lease(lease, is_create);
                if written.is_ok() {
                    self.tell_lease(store);
                }
                Answer::LeaseWritten(written.map_err(|()| Failure::Race))
            }
            Call::Object(_, op) => {
                let (answer, change) = self.stores[store].apply(op, self.queue.millis());
                if let Some(change) = change {
                    if self.is_current(from) && answer.is_ok() {
                        self.note(from.node, side, &change);
                    }
                    self.tell(store, &change);
                }
                Answer::Object(answer)
            }
        };
        if let Some(delay) = self.delay(from.node, side) {
            let answer = Box::new(answer);
            self.at(self.queue.millis() + delay, Event::Answer { to: from, id, purpose, answer });
        }
    }

    /// A node mostly knows of its own write with the answer; here a little sooner, which changes nothing.
    fn note(&mut self, node: usize, side: Side, change: &Change) {
        if self.places[node].paused_until <= self.queue.millis() && self.random.percent(50) {
            self.nodes[node].note(side, &event_of(change));
        }
    }

    pub(super) fn store_of(&self, node: usize, side: Side) -> usize {
        match side {
            Side::Local => self.nodes[node].cluster,
            Side::Broker => self.members.len(),
        }
    }
}

fn side_of(call: &Call) -> Side {
    match call {
        Call::ReadLease | Call::WriteLease(..) => Side::Local,
        Call::Object(side, _) => *side,
    }
}

pub(super) fn no_answer(purpose: &Purpose) -> Answer {
    match purpose {
        Purpose::ReadLease => Answer::LeaseRead(Err(Failure::Store("no answer".to_owned()))),
        Purpose::WriteLease => Answer::LeaseWritten(Err(Failure::Store("no answer".to_owned()))),
        _ => Answer::Object(Err(away())),
    }
}
