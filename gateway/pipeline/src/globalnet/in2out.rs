//! Outbound: the source of a packet becomes a global IP.

use std::net::IpAddr;
use std::time::Instant;

use trieste_nat::{Facts, Kind, Quote, Refusal, Rewrite, Rules};
use trieste_packet::wire::Inner;
use trieste_packet::{Batch, Decision, DropReason, FlowKey, Packet, icmp};

use super::away::{Owner, inbound_owner, outbound_owner};
use super::{Exit, Flow, Key, Plan, Stage, Way, reason};
use crate::answers::Answers;
use crate::classify;
use crate::inside;
use crate::owner::{Crossing, Handoff, HandoffKind};
use crate::pipeline::Pipeline;
use crate::steer::{Origin, Steering};
use crate::tables::{Selection, Tables};

impl Pipeline {
    /// Translates a batch and gives each packet its decision. Packets that other workers own go there, those for our own
    /// global IPs go back inside, and those without a decision leave the batch. `headers` keep saying what the packets
    /// were inside.
    pub(crate) fn in2out(
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
        let mut answers = Answers {
            tables,
            to_tun: &mut self.to_tun,
            limiter: &mut self.limiter,
            counters: &mut self.counters,
            now,
        };
        let (pool, drops, to_workers) = (&mut self.pool, &mut self.drops, &mut self.to_workers);
        let (config, arrivals) = (&self.config, &mut self.arrivals);
        let (mut read, mut kept) = (0, 0);
        let check = |packet: &mut Packet| {
            let (inner, flow) = (headers[read], known[read]);
            read += 1;
            stage.outbound(packet, &inner, flow)?;
            headers[kept] = inner;
            kept += 1;
            Ok(())
        };
        batch.retain_or(check, |packet, exit| match exit {
            Exit::Hand(to, crossing, facts) => {
                let handoff = Handoff { to, kind: HandoffKind::Translate(crossing, facts), packet };
                if to == config.worker {
                    arrivals.push(handoff);
                } else if to.0 < config.workers {
                    to_workers.push(handoff);
                } else {
                    drops.discard(handoff.packet, DropReason::NoLane, pool);
                }
            }
            Exit::Drop(reason) => drops.discard(packet, reason, pool),
            Exit::Tell(reason, inner) => {
                let is_told = answers.tell(&packet, &inner, pool, |from, out| {
                    icmp::prohibited(packet.bytes(), &inner, from, out)
                });
                answers.counters.prohibited += u64::from(is_told);
                drops.discard(packet, reason, pool);
            }
            Exit::Away(..) | Exit::Probe => drops.discard(packet, DropReason::SourceNotAllowed, pool),
        });
        headers.truncate(kept);
        known.clear();
    }
}

impl Stage<'_> {
    fn outbound(&mut self, packet: &mut Packet, inner: &Inner, flow: Flow) -> Result<(), Exit> {
        let (facts, hash) = match flow {
            Flow::Known(facts, hash) => (facts, hash),
            Flow::Message => return self.outbound_message(packet, inner),
            Flow::Foreign => {
                let flows = (&mut *self.flows, self.version);
                return classify::outbound_one(packet, inner, &self.steering, flows).map_err(Exit::Drop);
            }
        };
        let key = Key::of(&facts, self.crossing);
        let version = self.version;
        let plan = match self.translator.remembered((&key, hash), &facts, version, self.now, |_| true) {
            Some(plan) => plan,
            None => self.decide_outbound(&facts, (key, hash), inner)?,
        };
        match plan {
            Plan::Go { way, rewrite, .. } => {
                rewrite.apply(packet, inner).map_err(Exit::Drop)?;
                self.send(packet, way, || Some(after(&facts, &rewrite)))
            }
            Plan::Hand(owner) => Err(Exit::Hand(owner, self.crossing, Some(facts))),
            Plan::Away { path, .. } => self.send_away(packet, path),
            Plan::Refuse(reason) => Err(Exit::Drop(reason)),
        }
    }

    /// Decides for a flow, and remembers what holds for its next packets as well.
    fn decide_outbound(
        &mut self,
        facts: &Facts,
        (key, hash): (Key, u64),
        inner: &Inner,
    ) -> Result<Plan, Exit> {
        let owner = outbound_owner(self.view, self.rules, facts, self.crossing);
        let plan = match (route(self.tables, facts), owner) {
            (Err(reason), _) => Plan::Refuse(reason),
            (_, Owner::Sibling(path)) => Plan::Away { way: Way::Path(path), path },
            (_, Owner::Worker(owner)) if owner != self.worker => Plan::Hand(owner),
            (Ok(route), _) => {
                let translated = self.translator.nat.in2out(facts, self.rules, self.now);
                let translation = translated.map_err(|refusal| exit(refusal, inner))?;
                let rewrite = translation.rewrite;
                match self.steer(route, &after(facts, &rewrite)) {
                    Ok(way) => Plan::Go { way, rewrite, session: translation.session },
                    Err(reason) => Plan::Refuse(reason),
                }
            }
        };
        self.translator.memo.learn(hash, key, self.version, plan);
        Ok(plan)
    }

    /// An ICMP error from inside, about a packet that was delivered: translated as an answer to that would be.
    fn outbound_message(&mut self, packet: &mut Packet, inner: &Inner) -> Result<(), Exit> {
        let quote = Quote::read(packet, inner).map_err(Exit::Drop)?;
        // Not the error's own source: a router inside may have sent it, wherever it has its address.
        let route = route(self.tables, &quote.answer).map_err(Exit::Drop)?;
        match outbound_owner(self.view, self.rules, &quote.answer, self.crossing) {
            Owner::Sibling(path) => return self.send_away(packet, path),
            Owner::Worker(owner) if owner != self.worker => {
                return Err(Exit::Hand(owner, self.crossing, None));
            }
            Owner::Worker(_) => {}
        }
        //= https://www.rfc-editor.org/rfc/rfc5508#section-4.2.2
        //# If a NAT device receives an ICMP Error packet from the private
        //# realm, and the NAT does not have an active mapping for the
        //# embedded payload, the NAT SHOULD silently drop the ICMP Error
        //# packet.
        let rewrite = self.translator.nat.peek_outbound(&quote.answer, self.rules, self.now);
        let rewrite = rewrite.ok_or(Exit::Drop(DropReason::NoMapping))?;
        let way = self.steer(route, &after(&quote.answer, &rewrite)).map_err(Exit::Drop)?;
        quote.apply(packet, &rewrite);
        self.send(packet, way, || None)
    }

    /// The path of a translated flow: chosen by what the peer sees of it, so that both directions choose alike.
    fn steer(&self, route: Route<'_>, facts: &Facts) -> Result<Way, DropReason> {
        let Some(paths) = route else { return Ok(Way::Hairpin) };
        // Also what a sibling gave us to translate: translated it may go to a sibling once, and from there only out.
        Ok(Way::Path(self.steering.take(&flow_key(facts), paths, Origin::Inside)?.path))
    }

    /// A packet as it is goes to the gateway that translates it.
    fn send_away(&self, packet: &mut Packet, path: trieste_packet::PathId) -> Result<(), Exit> {
        let path = self.tables.path(path).ok_or(Exit::Drop(DropReason::NoLane))?;
        packet.decision = self.steering.decision(path);
        Ok(())
    }

    /// The decision for a packet that has been translated; one for our own global IPs is handed on, to whom it is for.
    fn send(&self, packet: &mut Packet, way: Way, facts: impl FnOnce() -> Option<Facts>) -> Result<(), Exit> {
        match way {
            Way::Path(path) => self.send_away(packet, path),
            Way::Hairpin => {
                // Nothing on its way is smaller than where it came from.
                packet.decision.mtu_bytes = u16::MAX;
                let facts = facts();
                // Who owns the other end may be another gateway again, also for what a sibling has sent: from there it
                // goes nowhere but inside.
                let owner = facts.map_or(Owner::Worker(self.worker), |facts| {
                    inbound_owner(self.view, self.rules, &facts, Crossing::Back)
                });
                match owner {
                    Owner::Worker(owner) => Err(Exit::Hand(owner, Crossing::Back, facts)),
                    Owner::Sibling(path) => self.send_away(packet, path),
                }
            }
            Way::From(_) | Way::Back => Err(Exit::Drop(DropReason::NoRoute)),
        }
    }
}

/// Where a flow goes, before it is translated: `Paths` of a cluster, or `None` for back inside.
type Route<'a> = Option<&'a [trieste_packet::PathId]>;

/// Whether a flow may leave, and where to.
pub(crate) fn route<'a>(tables: &'a Tables, facts: &Facts) -> Result<Route<'a>, DropReason> {
    if facts.protocol == inside::PROTOCOL {
        return Err(DropReason::ReservedProtocol);
    }
    //= https://www.rfc-editor.org/rfc/rfc4787#section-6
    //# A NAT MUST support "Hairpinning".
    if tables.is_local(facts.destination.into()) {
        return if tables.is_inside(facts.source) { Ok(None) } else { Err(DropReason::SourceNotLocal) };
    }
    match tables.select_translated(facts.source, facts.destination) {
        Selection::Paths(paths) => Ok(Some(paths)),
        Selection::NoRoute => Err(DropReason::NoRoute),
        Selection::SourceNotLocal => Err(DropReason::SourceNotLocal),
    }
}

/// The decision for a packet that is made here for a peer, with a source that it knows.
pub(super) fn back_to_peer(steering: &Steering<'_>, facts: &Facts) -> Option<Decision> {
    let tables = steering.tables;
    let cluster = tables.cluster_of(facts.destination.into()).and_then(|id| tables.cluster(id))?;
    steering.take(&flow_key(facts), &cluster.paths, Origin::Inside).ok()
}

/// The flow as untranslated packets are known.
pub(crate) fn flow_key(facts: &Facts) -> FlowKey {
    let (source, destination) = (IpAddr::V4(facts.source), IpAddr::V4(facts.destination));
    FlowKey::new(source, destination, facts.protocol, facts.source_port, facts.destination_port)
}

/// The flow after its source was translated.
pub(crate) fn after(facts: &Facts, rewrite: &Rewrite) -> Facts {
    let port = if facts.kind == Kind::Other { 0 } else { rewrite.port };
    let is_query = matches!(facts.kind, Kind::Request | Kind::Reply);
    let destination_port = if is_query { port } else { facts.destination_port };
    Facts { source: rewrite.address, source_port: port, destination_port, ..*facts }
}

fn exit(refusal: Refusal, inner: &Inner) -> Exit {
    if refusal.is_told() { Exit::Tell(reason(refusal), *inner) } else { Exit::Drop(reason(refusal)) }
}
