//! Inbound: the destination of a packet, a global IP of ours, becomes the address behind it.

use std::time::Instant;

use trieste_nat::{Facts, Kind, Quote, Refusal, Rewrite, Rules};
use trieste_packet::wire::Inner;
use trieste_packet::{Batch, DropReason, Packet};

use super::away::{Owner, inbound_owner};
use super::{Exit, Flow, Key, Plan, Stage, Way, reason};
use crate::classify;
use crate::inbound::mark_congestion;
use crate::owner::{Crossing, Handoff, HandoffKind};
use crate::pipeline::Pipeline;
use crate::probe::{self, Fate, Probes};
use crate::steer::Steering;
use crate::tables::Tables;

impl Pipeline {
    /// Lets only those packets stay whose source belongs to the peer that sealed them (those that come `Back` were
    /// sent inside) and whose destination is a global IP with something behind it, and translates them. Packets that
    /// other workers own go there; probes from tunnel addresses become replies in `ready`.
    pub(crate) fn out2in(
        &mut self,
        batch: &mut Batch,
        crossing: Crossing,
        tables: &Tables,
        rules: &Rules,
        now: Instant,
    ) {
        let Some(translator) = self.translator.as_deref_mut() else { return };
        let (headers, known) = (&mut self.headers, &mut self.known);
        let mut stage = Stage {
            worker: self.config.worker,
            tables,
            steering: Steering { tables, board: &self.config.board },
            version: self.version,
            rules,
            view: &self.view,
            crossing,
            translator,
            flows: &mut self.flows,
            now,
        };
        let mut probes = Probes {
            lanes: &mut self.lanes,
            replies: &mut self.ready,
            pool: &mut self.pool,
            counters: &mut self.counters,
            now,
        };
        let (config, drops, to_workers) = (&self.config, &mut self.drops, &mut self.to_workers);
        let (mut read, mut kept) = (0, 0);
        let check = |packet: &mut Packet| {
            let (inner, flow) = (headers[read], known[read]);
            read += 1;
            stage.inbound(packet, &inner, flow, crossing)?;
            headers[kept] = inner;
            kept += 1;
            Ok(())
        };
        let (mut away, mut away_headers) = (
            std::mem::replace(&mut self.relayed, Batch::with_limit(0)),
            std::mem::take(&mut self.relayed_headers),
        );
        away_headers.clear();
        batch.retain_or(check, |mut packet, exit| match exit {
            Exit::Hand(to, crossing, facts) if to.0 < config.workers && to != config.worker => {
                to_workers.push(Handoff { to, kind: HandoffKind::Translate(crossing, facts), packet });
            }
            Exit::Hand(..) => drops.discard(packet, DropReason::NoLane, probes.pool),
            Exit::Away(decision, inner) => {
                packet.decision = decision;
                away_headers.push(inner);
                away.append(packet);
            }
            Exit::Drop(reason) | Exit::Tell(reason, _) => drops.discard(packet, reason, probes.pool),
            Exit::Probe => probes.answer(packet, drops),
        });
        headers.truncate(kept);
        known.clear();
        if !away.is_empty() {
            mark_congestion(&mut away, &mut away_headers, &mut self.pool, &mut self.drops);
            self.counters.relayed_out += away.segments();
            self.fit(&mut away, &away_headers, tables, now);
        }
        self.relayed = away;
        self.relayed_headers = away_headers;
    }
}

impl Stage<'_> {
    fn inbound(
        &mut self,
        packet: &mut Packet,
        inner: &Inner,
        flow: Flow,
        crossing: Crossing,
    ) -> Result<(), Exit> {
        let way = match crossing {
            Crossing::Back | Crossing::RelayedBack => Way::Back,
            Crossing::In | Crossing::Out | Crossing::RelayedIn | Crossing::RelayedOut => {
                let lane = self.tables.lane(packet.decision.lane).ok_or(Exit::Drop(DropReason::NoLane))?;
                packet.decision.mtu_bytes = lane.mtu_bytes;
                Way::From(lane.end)
            }
        };
        let (facts, hash) = match (flow, way) {
            (Flow::Known(facts, hash), _) => (facts, hash),
            (Flow::Message, _) => return self.inbound_message(packet, inner, way, crossing),
            (Flow::Foreign, Way::From(end)) => {
                let flows = (&mut *self.flows, self.version);
                let result = classify::inbound_one(inner, end, self.tables, flows);
                return result.map_err(|reason| self.judge(packet, inner, reason));
            }
            (Flow::Foreign, _) => return Err(Exit::Drop(DropReason::NoRoute)),
        };
        let key = Key::of(&facts, crossing);
        let (version, is_its) = (self.version, |decided| decided == way);
        let plan = match self.translator.remembered((&key, hash), &facts, version, self.now, is_its) {
            Some(plan) => plan,
            None => match self.decide_inbound(packet, &facts, (key, hash), way) {
                Ok(plan) => plan,
                Err(reason) => return Err(self.judge(packet, inner, reason)),
            },
        };
        match plan {
            Plan::Go { rewrite, .. } => rewrite.apply(packet, inner).map_err(Exit::Drop),
            Plan::Hand(owner) => Err(Exit::Hand(owner, crossing, Some(facts))),
            Plan::Away { path, .. } => Err(self.away(path, inner)),
            Plan::Refuse(reason) => Err(self.judge(packet, inner, reason)),
        }
    }

    /// Decides for a flow, and remembers what holds for its next packets as well.
    fn decide_inbound(
        &mut self,
        packet: &Packet,
        facts: &Facts,
        (key, hash): (Key, u64),
        way: Way,
    ) -> Result<Plan, DropReason> {
        admit(self.tables, facts, way)?;
        let plan = match inbound_owner(self.view, self.rules, facts, self.crossing) {
            Owner::Sibling(path) => Plan::Away { way, path },
            Owner::Worker(owner) if owner != self.worker => Plan::Hand(owner),
            Owner::Worker(_) => {
                let translated = self.translator.nat.out2in(facts, self.rules, self.now);
                let translation = translated.map_err(|refusal| self.refuse(packet, facts, refusal))?;
                Plan::Go { way, rewrite: translation.rewrite, session: translation.session }
            }
        };
        self.translator.memo.learn(hash, key, self.version, plan);
        Ok(plan)
    }

    /// A packet as it is goes to the gateway that translates it.
    fn away(&self, path: trieste_packet::PathId, inner: &Inner) -> Exit {
        match self.tables.path(path) {
            Some(path) => Exit::Away(self.steering.decision(path), *inner),
            None => Exit::Drop(DropReason::NoLane),
        }
    }

    /// Counts a refusal; the first packet of a connection that nobody waits for is kept, to be answered later.
    fn refuse(&mut self, packet: &Packet, facts: &Facts, refusal: Refusal) -> DropReason {
        if refusal == Refusal::UnsolicitedSyn {
            // When too many are kept this one is not answered.
            let _ = self.translator.nat.hold_unsolicited(facts, packet.bytes(), self.now);
        }
        reason(refusal)
    }

    /// An ICMP error about a packet that we sent: translated as an answer to that would be.
    fn inbound_message(
        &mut self,
        packet: &mut Packet,
        inner: &Inner,
        way: Way,
        crossing: Crossing,
    ) -> Result<(), Exit> {
        let quote = Quote::read(packet, inner).map_err(Exit::Drop)?;
        // Whoever sends the error, and whoever the quoted packet was for, belongs to the peer.
        admit(self.tables, &quote.answer, way).map_err(Exit::Drop)?;
        if let Way::From(end) = way
            && !self.tables.may_send(end, inner.flow.source())
        {
            return Err(Exit::Drop(DropReason::SourceNotAllowed));
        }
        match inbound_owner(self.view, self.rules, &quote.answer, crossing) {
            Owner::Sibling(path) => return Err(self.away(path, inner)),
            Owner::Worker(owner) if owner != self.worker => return Err(Exit::Hand(owner, crossing, None)),
            Owner::Worker(_) => {}
        }
        //= https://www.rfc-editor.org/rfc/rfc5508#section-4.2.1
        //# If a NAT device receives an ICMP Error packet from an external
        //# realm, and the NAT device does not have an active mapping for
        //# the embedded payload, the NAT SHOULD silently drop the ICMP
        //# Error packet.
        let rewrite = self.translator.nat.peek_inbound(&quote.answer, self.rules, self.now);
        let rewrite = rewrite.ok_or(Exit::Drop(DropReason::NoMapping))?;
        quote.apply(packet, &rewrite);
        Ok(())
    }

    /// What becomes of a packet that may not come in: probes are answered.
    fn judge(&self, packet: &Packet, inner: &Inner, reason: DropReason) -> Exit {
        match probe::judge(packet, inner, self.tables, reason) {
            Fate::Drop(reason) => Exit::Drop(reason),
            Fate::Answer => Exit::Probe,
        }
    }
}

/// Whether a flow may come in: from the peer's addresses, or from inside, and to our global IPs.
pub(crate) fn admit(tables: &Tables, facts: &Facts, way: Way) -> Result<(), DropReason> {
    if let Way::From(end) = way
        && !tables.may_send(end, facts.source.into())
    {
        return Err(DropReason::SourceNotAllowed);
    }
    if tables.is_local(facts.destination.into()) {
        Ok(())
    } else if tables.cluster_of(facts.destination.into()).is_some() {
        Err(DropReason::Loop)
    } else {
        Err(DropReason::DestinationNotLocal)
    }
}

/// The flow after its destination was translated.
pub(crate) fn after(facts: &Facts, rewrite: &Rewrite) -> Facts {
    let port = if facts.kind == Kind::Other { 0 } else { rewrite.port };
    let is_query = matches!(facts.kind, Kind::Request | Kind::Reply);
    let source_port = if is_query { port } else { facts.source_port };
    Facts { destination: rewrite.address, destination_port: port, source_port, ..*facts }
}
