//! Packets that a sibling passes on because it has no path that works: they leave by a path of our own, or not at all.
//!
//! They have been classified and, with globalnet, translated where they came from; here they are checked like packets from
//! inside and take the rest of the outbound line. Nothing of it depends on globalnet.

use std::time::Instant;

use trieste_packet::wire::Inner;
use trieste_packet::{Batch, Decision, DropReason, FlowKey, Packet};

use crate::flow::Verdict;
use crate::inbound::mark_congestion;
use crate::pipeline::Pipeline;
use crate::steer::{Origin, Steered, Steering, Why};
use crate::tables::{Selection, Tables};

/// What becomes of a packet that came by a lane.
enum Fate {
    /// On to its cluster.
    Relay(Decision, Inner),
    Drop(DropReason),
}

impl Pipeline {
    /// Takes packets that siblings pass on to remote clusters out of a batch that has been parsed, as far as `ready`.
    pub(crate) fn relay(&mut self, batch: &mut Batch, tables: &Tables, now: Instant) {
        let comes_from_sibling = |packet: &Packet| tables.is_siblings(packet.decision.lane);
        if tables.siblings().is_empty() || !batch.as_slice().iter().any(comes_from_sibling) {
            return;
        }
        let mut relayed = std::mem::replace(&mut self.relayed, Batch::with_limit(0));
        let mut headers = std::mem::take(&mut self.relayed_headers);
        headers.clear();
        let steering = Steering { tables, board: &self.config.board };
        let (version, flows, all) = (self.version, &mut self.flows, &mut self.headers);
        let (mut read, mut kept) = (0, 0);
        let check = |packet: &mut Packet| {
            let inner = all[read];
            read += 1;
            if comes_from_sibling(packet) && is_outbound(&inner, tables) {
                let way = inner.way();
                if let Some(decision) = flows.lookup(&way, version).and_then(|verdict| own(verdict, tables)) {
                    return Err(Fate::Relay(decision, inner));
                }
                let steered = decide(&way, &steering).map_err(Fate::Drop)?;
                let decision = steering.decision(steered.path);
                // Remembered is what holds from inside as well: there a sibling would come before what seems dead.
                if matches!(steered.why, Why::Pinned | Why::Up | Why::Draining) {
                    flows.learn(way, version, Verdict::Take(decision));
                }
                return Err(Fate::Relay(decision, inner));
            }
            all[kept] = inner;
            kept += 1;
            Ok(())
        };
        let (pool, drops, counters) = (&mut self.pool, &mut self.drops, &mut self.counters);
        batch.retain_or(check, |mut packet, fate| match fate {
            Fate::Relay(decision, inner) => {
                packet.decision = decision;
                counters.relayed_in += packet.segments();
                headers.push(inner);
                relayed.append(packet);
            }
            Fate::Drop(reason) => drops.discard(packet, reason, pool),
        });
        self.headers.truncate(kept);
        mark_congestion(&mut relayed, &mut headers, &mut self.pool, &mut self.drops);
        self.fit(&mut relayed, &headers, tables, now);
        self.relayed = relayed;
        self.relayed_headers = headers;
    }
}

/// Whether the packet is to leave: its destination is a remote cluster's, and its source is published. With globalnet one
/// that is not has yet to be translated.
fn is_outbound(inner: &Inner, tables: &Tables) -> bool {
    tables.cluster_of(inner.flow.destination()).is_some()
        && (tables.rules().is_none() || tables.is_local(inner.flow.source()))
}

/// What was decided for a flow, if it holds for what siblings pass on: not when it was passed on here.
fn own(verdict: Verdict, tables: &Tables) -> Option<Decision> {
    match verdict {
        Verdict::Take(decision) => (!tables.is_relay(decision.path)).then_some(decision),
        Verdict::Accept(_) | Verdict::Refuse(_) => None,
    }
}

fn decide<'a>(way: &FlowKey, steering: &Steering<'a>) -> Result<Steered<'a>, DropReason> {
    match steering.tables.select(way.source(), way.destination()) {
        Selection::Paths(paths) => steering.choose(way, paths, Origin::Sibling),
        Selection::NoRoute => Err(DropReason::NoRoute),
        Selection::SourceNotLocal => Err(DropReason::SourceNotLocal),
    }
}
