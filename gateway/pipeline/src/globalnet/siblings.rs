//! The gateways of a cluster together: who they are to each other, and what they say.

use std::sync::Arc;
use std::time::{Duration, Instant};

use trieste_nat::Share;
use trieste_packet::{Batch, DropReason, GatewayKey, Packet, WorkerId};

use super::away::{is_up, sibling_paths};
use super::copies::{Copier, SharingStats, Taken};
use super::message::{ENTRY_BYTES, Entry, Head, Message};
use crate::inside::{self, Kind};
use crate::owner::{Handoff, HandoffKind};
use crate::pipeline::Pipeline;
use crate::tables::{LaneEnd, Path, Tables};

/// How often siblings greet each other, beside every change. Ours: a lost greeting costs no more than that.
const GREET: Duration = Duration::from_millis(100);
/// The addresses of messages between siblings, whose cables take any: that of hosts without one (RFC 7600).
const NOWHERE: std::net::IpAddr = std::net::IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 0, 8));

fn is_sibling_message(packet: &Packet) -> bool {
    inside::is_message(packet.bytes())
        && inside::parse(packet.bytes()).is_ok_and(|(kind, _)| kind == Kind::Sessions)
}

impl Pipeline {
    /// Looks at what has changed of siblings, before a batch is decided.
    pub(crate) fn look_at_siblings(&mut self, tables: &Tables, now: Instant) {
        let has_siblings = tables.rules().is_some() && !tables.siblings().is_empty();
        if !has_siblings {
            if self.copier.take().is_some() {
                self.view = super::View::alone();
            }
            self.attend(false, now);
            return;
        }
        let copier = self.copier.get_or_insert_with(|| Box::new(Copier::new(self.config.worker, now)));
        copier.wake(now);
        let (fleet, board) = (&self.config.fleet, &self.config.board);
        let is_known = |key: GatewayKey| sibling_paths(tables).any(|path| path.key == key);
        for path in sibling_paths(tables).filter(|path| path.owner == self.config.worker) {
            fleet.set_up(path.key, is_up(board, path), now, is_known);
        }
        fleet.settle(sibling_paths(tables).map(|path| path.key), now);
        self.view.renew(tables, board, fleet);
        copier.see(&self.view);
        let life = |path: &Path| (path.key, is_up(board, path).then(|| fleet.life_of(path.key)).flatten());
        copier.follow(sibling_paths(tables).map(life), (fleet.boot(), fleet.epoch(now)));
        self.attend(true, now);
    }

    fn attend(&mut self, has_siblings: bool, now: Instant) {
        let fleet = &self.config.fleet;
        let Some(translator) = self.translator.as_deref_mut() else { return };
        // Who does not know yet what siblings have mapped at its ports maps nothing new there.
        let is_blind = has_siblings && !fleet.is_ready();
        let share = if is_blind { Share::NONE } else { fleet.share(now) };
        Copier::attend(&mut translator.nat, has_siblings, share);
    }

    /// Tells siblings what has changed, at the end of every call.
    pub(crate) fn tell_siblings(&mut self, now: Instant) {
        let Some(mut copier) = self.copier.take() else { return };
        let tables = Arc::clone(self.tables.load());
        if let Some(rules) = tables.rules() {
            self.begin_translating(now);
            self.exchange(&mut copier, &tables, rules, now);
        }
        self.copier = Some(copier);
        self.seal_ready(now);
    }

    fn exchange(&mut self, copier: &mut Copier, tables: &Tables, rules: &trieste_nat::Rules, now: Instant) {
        let fleet = Arc::clone(&self.config.fleet);
        let Some(translator) = self.translator.as_deref_mut() else { return };
        let nat = &mut translator.nat;
        copier.forget(nat, rules, now);
        copier.collect(nat, rules, &self.view, &fleet);
        copier.tell(nat, rules, &self.view, &fleet, now);
        let told = nat.copies_told();
        copier.flush(told, now, |key, body| {
            let path = sibling_paths(tables).find(|path| path.key == key);
            path.is_some_and(|path| self.say(path, body))
        });
        let Some(translator) = self.translator.as_deref_mut() else { return };
        let is_settled = copier.release(&mut translator.nat, &self.view, now);
        fleet.set_settled(self.config.worker.0, is_settled);
        self.greet(copier, tables, now);
    }

    /// Greets the siblings whose lanes this worker owns, if it is time or there is news.
    fn greet(&mut self, copier: &mut Copier, tables: &Tables, now: Instant) {
        let fleet = Arc::clone(&self.config.fleet);
        let generation = fleet.generation();
        if copier.greet.is_some_and(|due| now < due) && copier.greeted == generation {
            return;
        }
        copier.greet = Some(now + GREET);
        copier.greeted = generation;
        let (board, worker) = (Arc::clone(&self.config.board), self.config.worker);
        for path in sibling_paths(tables).filter(|path| path.owner == worker) {
            if is_up(&board, path) {
                let greeting = fleet.greeting(path.key, self.config.workers, now);
                self.say(path, &greeting.emit());
            }
        }
    }

    /// Sends a message to a sibling. `false` when there is no buffer.
    fn say(&mut self, path: &Path, body: &[u8]) -> bool {
        let Some(mut buf) = self.pool.alloc() else { return false };
        if !inside::emit((NOWHERE, NOWHERE), Kind::Sessions, body, 0, &mut buf) {
            self.pool.recycle(buf);
            return false;
        }
        let mut packet = Packet::new(buf);
        packet.decision = path.decision();
        self.counters.made += 1;
        self.ready.push(packet);
        true
    }

    /// Takes what siblings say out of a batch that has been opened and cut into packets and trains.
    pub(crate) fn take_sibling_messages(&mut self, batch: &mut Batch, tables: &Tables, now: Instant) {
        if tables.siblings().is_empty() || !batch.as_slice().iter().any(is_sibling_message) {
            return;
        }
        let mut messages = std::mem::take(&mut self.loose);
        let check = |packet: &mut Packet| if is_sibling_message(packet) { Err(()) } else { Ok(()) };
        batch.retain_or(check, |packet, ()| messages.push(packet));
        let left = self.config.workers - 1;
        for packet in messages.drain(..) {
            self.hear_sibling(packet, (left, true), tables, now);
        }
        self.loose = messages;
    }

    /// Takes what a sibling says. It goes from worker to worker, `left` of whom are still to see it; `is_all_done` says
    /// whether those before did all that it says.
    pub(crate) fn hear_sibling(
        &mut self,
        packet: Packet,
        (left, is_all_done): (u16, bool),
        tables: &Tables,
        now: Instant,
    ) {
        let path = tables.lane(packet.decision.lane).and_then(|lane| match lane.end {
            LaneEnd::Sibling(id) => tables.path(tables.sibling(id)?.path),
            LaneEnd::Cluster(_) => None,
        });
        let (Some(path), Ok((Kind::Sessions, body))) = (path, inside::parse(packet.bytes())) else {
            return self.drops.discard(packet, DropReason::BadControl, &mut self.pool);
        };
        let Some(message) = Message::read(body) else {
            return self.drops.discard(packet, DropReason::BadControl, &mut self.pool);
        };
        let to = match message {
            Message::Greeting(greeting) => {
                let is_known = |key: GatewayKey| sibling_paths(tables).any(|path| path.key == key);
                self.config.fleet.hear(path.key, &greeting, now, is_known);
                None
            }
            Message::Heard(head, _) if head.worker != self.config.worker.0 => {
                (head.worker < self.config.workers).then_some((WorkerId(head.worker), 0, true))
            }
            Message::Heard(head, is_all_done) => {
                if let Some(copier) = &mut self.copier {
                    copier.hear(path.key, &head, is_all_done, now);
                }
                None
            }
            Message::News(head, entries) => {
                self.hear_news((path, &head, entries), (left, is_all_done), tables, now)
            }
        };
        match to {
            Some((to, left, is_all_done)) => {
                let kind = HandoffKind::Sessions { left, is_all_done };
                self.to_workers.push(Handoff { to, kind, packet });
            }
            None => {
                self.counters.control_in += 1;
                self.pool.recycle(packet.buf);
            }
        }
    }

    /// Takes news, and says who is to see them next.
    fn hear_news(
        &mut self,
        (path, head, entries): (&Path, &Head, &[u8]),
        (left, is_all_done): (u16, bool),
        tables: &Tables,
        now: Instant,
    ) -> Option<(WorkerId, u16, bool)> {
        let rules = tables.rules()?;
        let mut copier = self.copier.take()?;
        let nat = &mut self.begin_translating(now).nat;
        let taken = copier.take((path.key, head, entries), nat, rules, now);
        self.copier = Some(copier);
        let Taken::Upto(next, done) = taken else { return None };
        let is_all_done = is_all_done && done;
        if left > 0 {
            let next = (self.config.worker.0 + 1) % self.config.workers;
            return Some((WorkerId(next), left - 1, is_all_done));
        }
        for entry in entries.chunks_exact(ENTRY_BYTES).filter_map(Entry::read) {
            if let Entry::End(incarnation) = entry {
                self.config.fleet.has_ended(path.key, (head.boot, head.worker), incarnation);
            }
        }
        let heard = Head { number: next, ..*head };
        self.say(path, &heard.emit_heard(is_all_done));
        None
    }

    /// What this worker shares with siblings; `None` without any.
    #[must_use]
    pub fn sharing(&self) -> Option<SharingStats> {
        self.copier.as_ref().map(|copier| copier.stats(self.nat()))
    }
}
