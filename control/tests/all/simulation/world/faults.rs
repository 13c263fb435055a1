//! What goes wrong, and that nothing does any more.

use trieste_control::api::{Kind, Object};
use trieste_control::store::StoreEvent;
use trieste_control::sync::Side;

use super::super::node::{Node, STREAMS};
use super::super::store::Op;
use super::{Event, World, away};

impl World {
    pub(super) fn restart(&mut self, node: usize) {
        let (cluster, number) = (self.nodes[node].cluster, self.number_of(node));
        let member = self.members[cluster].clone();
        self.nodes[node] =
            Node::new(cluster, number, &member, self.queue.start(), &mut self.random, self.queue.millis());
        let place = &mut self.places[node];
        place.process += 1;
        place.is_down = false;
        place.pending.clear();
        place.wake = u64::MAX;
        for stream in 0..STREAMS.len() {
            self.relist(node, stream);
        }
    }

    fn number_of(&self, node: usize) -> usize {
        let cluster = self.nodes[node].cluster;
        self.nodes[..node].iter().filter(|other| other.cluster == cluster).count()
    }

    fn kill(&mut self, node: usize) {
        let member = self.members[self.nodes[node].cluster].clone();
        // What it believed is gone with it.
        let number = self.number_of(node);
        self.nodes[node] = Node::new(
            self.nodes[node].cluster,
            number,
            &member,
            self.queue.start(),
            &mut self.random,
            u64::MAX,
        );
        let place = &mut self.places[node];
        place.is_down = true;
        place.process += 1;
    }

    /// One thing goes wrong, somewhere.
    pub(super) fn mischief(&mut self) {
        let node = self.random.below(self.nodes.len());
        let cluster = self.nodes[node].cluster;
        let until = self.queue.millis() + self.random.between(500, 20_000);
        match self.random.below(12) {
            0..=2 => {
                let sides: &[Side] = if self.random.percent(50) { &Side::ALL } else { &[Side::Local] };
                sides.iter().for_each(|side| self.cut(node, *side, until));
            }
            3 => self.cut(node, Side::Broker, until),
            4 => {
                for node in 0..self.nodes.len() {
                    if self.nodes[node].cluster == cluster {
                        self.cut(node, Side::Local, until);
                    }
                }
            }
            5 | 6 => self.places[node].paused_until = until,
            7 | 8 if self.is_up(node) => {
                self.kill(node);
                if self.random.percent(80) {
                    self.at(until, Event::Restart(node));
                }
            }
            9 if self.is_up(node) => {
                let now = self.nodes[node].now(self.queue.millis());
                self.nodes[node].elector.set_eligible(false, now);
                self.wake_at(node, self.queue.millis() + 1);
            }
            10 if self.random.percent(70) => self.edit_lease(cluster),
            10 => self.lose_the_count(cluster, until),
            _ => self.edit_object(cluster),
        }
    }

    /// The hostile member writes on the broker, from where nothing is lost.
    pub(super) fn be_hostile(&mut self) {
        let broker = self.members.len();
        let seen: Vec<Object> = self.stores[broker].objects.values().cloned().collect();
        for op in self.hostile.act(&self.members, &seen) {
            if let (_, Some(change)) = self.stores[broker].apply(op, self.queue.millis()) {
                self.tell(broker, &change);
            }
        }
    }

    fn cut(&mut self, node: usize, side: Side, until: u64) {
        self.places[node].cut_until[side as usize] = until;
        for (stream, (of, kind)) in STREAMS.into_iter().enumerate() {
            if of == side {
                if kind != Kind::Lease && self.random.percent(50) && self.is_up(node) {
                    self.nodes[node].observe(stream, &StoreEvent::Unavailable(away()), self.queue.millis());
                }
                self.at(until, Event::Relist { to: self.sender(node), stream });
            }
        }
    }

    /// Somebody's hand on the Lease.
    fn edit_lease(&mut self, cluster: usize) {
        self.lease_edited[cluster] = Some(self.queue.millis());
        self.terms[cluster].clear();
        let hosts: Vec<String> =
            self.nodes.iter().filter(|node| node.cluster == cluster).map(|node| node.host.clone()).collect();
        let host = self.random.choose(&hosts).clone();
        let transitions = self.random.below(3);
        match self.random.below(5) {
            0 => self.stores[cluster].lease = None,
            1 => self.stores[cluster].edit_lease(|lease| lease.spec.holder_identity.clear()),
            2 => self.stores[cluster].edit_lease(|lease| lease.spec.holder_identity = "somebody".to_owned()),
            3 => self.stores[cluster].edit_lease(|lease| lease.spec.lease_transitions = Some(transitions)),
            _ => self.stores[cluster]
                .edit_lease(|lease| lease.spec.holder_identity = format!("{host}-submariner-gateway")),
        }
        self.tell_lease(cluster);
    }

    /// Somebody deletes the Lease while nobody lives who knows its count.
    fn lose_the_count(&mut self, cluster: usize, until: u64) {
        self.lease_edited[cluster] = Some(self.queue.millis());
        self.terms[cluster].clear();
        self.stores[cluster].lease = None;
        for node in 0..self.nodes.len() {
            if self.nodes[node].cluster == cluster {
                self.kill(node);
                self.at(until, Event::Restart(node));
            }
        }
    }

    /// Somebody's hand on an object of a cluster: deleted, or put back as it was for another gateway.
    fn edit_object(&mut self, cluster: usize) {
        let objects: Vec<Object> = self.stores[cluster].objects.values().cloned().collect();
        if objects.is_empty() {
            return;
        }
        let mut object = self.random.choose(&objects).clone();
        let change = if self.random.percent(60) || object.kind != Kind::Endpoint {
            self.stores[cluster].remove(&object.key()).1
        } else {
            object.metadata.name.push_str("-old");
            self.stores[cluster].apply(Op::Create(object), self.queue.millis()).1
        };
        if let Some(change) = change {
            self.tell(cluster, &change);
        }
    }

    /// Nothing goes wrong any more; every watch starts anew. Some of the dead stay dead.
    pub(super) fn calm(&mut self) {
        self.is_calm = true;
        for node in 0..self.nodes.len() {
            let cluster = self.nodes[node].cluster;
            let others = (0..self.nodes.len()).filter(|other| self.nodes[*other].cluster == cluster);
            let is_last = others.filter(|other| self.is_up(*other)).count() == 0;
            self.places[node].cut_until = [0; 2];
            self.places[node].paused_until = self.places[node].paused_until.min(self.queue.millis());
            if self.is_up(node) {
                let now = self.nodes[node].now(self.queue.millis());
                self.nodes[node].elector.set_eligible(true, now);
                self.wake_at(node, self.queue.millis() + 1);
                for stream in 0..STREAMS.len() {
                    self.relist(node, stream);
                }
            } else if is_last {
                self.restart(node);
                self.wake_at(node, self.queue.millis() + 1);
            }
        }
    }
}
