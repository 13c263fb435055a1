//! From the peers to the cluster: the table of contents, one call per stage.

use std::time::Instant;

use trieste_packet::coalesce::coalesce;
use trieste_packet::wire::Inner;
use trieste_packet::{Batch, DropReason, Drops, Pool};

use crate::classify;
use crate::ecn;
use crate::globalnet::EXPIRY_PER_BATCH;
use crate::mtu;
use crate::owner::{Crossing, Handoff, HandoffKind};
use crate::pipeline::Pipeline;
use crate::probe::Probes;
use crate::tables::Tables;
use crate::tap::Point;
use crate::watching::health_checks;

impl Pipeline {
    /// Carries one batch of datagrams from the wire to the cluster.
    pub fn inbound(&mut self, batch: &mut Batch, now: Instant) {
        self.notice(now);
        let tables = self.begin(now);
        self.counters.wire_in += batch.segments();
        Self::look(&mut self.tap, Point::OuterRx, batch.as_slice(), now);
        classify::prefetch_headers(batch.as_slice());
        for packet in batch.drain() {
            self.demux(packet, &tables, now);
        }
        self.open_group(now);
        self.deliver(&tables, now);
        self.take_arrivals(&tables, now);
        self.seal_ready(now);
        self.expire_translations(EXPIRY_PER_BATCH, now);
        self.tell_siblings(now);
        self.handle_probes(now);
    }

    /// Takes packets that other workers handed over, in order: one batch, translated, sealed and opened lane by lane.
    pub fn handed_over(&mut self, handoffs: impl IntoIterator<Item = Handoff>, now: Instant) {
        self.notice(now);
        let tables = self.begin(now);
        for handoff in handoffs {
            self.counters.handed_in += handoff.packet.segments();
            match handoff.kind {
                HandoffKind::Seal => self.ready.push(handoff.packet),
                HandoffKind::Open => self.gather(handoff.packet, now),
                HandoffKind::Control(lane) => self.deliver_control(handoff.packet, lane, now),
                HandoffKind::Translate(..) => self.arrivals.push(handoff),
                HandoffKind::Sessions { left, is_all_done } => {
                    self.hear_sibling(handoff.packet, (left, is_all_done), &tables, now);
                }
            }
        }
        self.open_group(now);
        self.deliver(&tables, now);
        self.take_arrivals(&tables, now);
        self.seal_ready(now);
        self.expire_translations(EXPIRY_PER_BATCH, now);
        self.tell_siblings(now);
        self.handle_probes(now);
    }

    /// Carries what has been opened to the TUN device; replies to probes are left in `ready`.
    fn deliver(&mut self, tables: &Tables, now: Instant) {
        if self.opened.is_empty() {
            return;
        }
        Self::look(&mut self.tap, Point::Opened, self.opened.as_slice(), now);
        // A batch without memory of its own stands in for it meanwhile.
        let mut batch = std::mem::replace(&mut self.inner, Batch::with_limit(0));
        build_trains(&mut self.opened, &mut batch, &mut self.pool, &mut self.drops);
        self.take_sibling_messages(&mut batch, tables, now);
        classify::parse(&mut batch, &mut self.headers, &mut self.pool, &mut self.drops);
        self.relay(&mut batch, tables, now);
        if let Some(rules) = tables.rules() {
            self.set_relayed_apart(&mut batch, tables);
            self.know(&mut batch, Crossing::In, rules, now);
        }
        self.carry_in(&mut batch, Crossing::In, tables, now);
        self.inner = batch;
    }

    /// Carries parsed packets to the TUN device, or to the nodes of the services that they are for: checked, with
    /// globalnet translated.
    pub(crate) fn carry_in(&mut self, batch: &mut Batch, crossing: Crossing, tables: &Tables, now: Instant) {
        match tables.rules() {
            Some(rules) => self.out2in(batch, crossing, tables, rules, now),
            None => classify::inbound(
                batch,
                &mut self.headers,
                tables,
                (&mut self.flows, self.version),
                &mut self.drops,
                &mut Probes {
                    lanes: &mut self.lanes,
                    replies: &mut self.ready,
                    pool: &mut self.pool,
                    counters: &mut self.counters,
                    now,
                },
            ),
        }
        mark_congestion(batch, &mut self.headers, &mut self.pool, &mut self.drops);
        mtu::clamp_mss(batch, &self.headers, &self.config.board, &mut self.counters);
        Self::look(&mut self.tap, Point::InnerTx, batch.as_slice(), now);
        self.counters.health_checks += health_checks(batch.as_slice(), &self.headers);
        self.deliver_services(batch);
        for packet in batch.drain() {
            if let Err(packet) = self.to_tun.push(packet) {
                self.drops.discard(packet, DropReason::TunFull, &mut self.pool);
            }
        }
    }
}

fn build_trains(opened: &mut Batch, inner: &mut Batch, pool: &mut Pool, drops: &mut Drops) {
    for packet in opened.drain() {
        coalesce(packet, |packet| {
            if let Err(packet) = inner.push(packet) {
                drops.discard(packet, DropReason::NoBuffer, pool);
            }
        });
    }
}

/// Carries the outer header's congestion mark into the inner one (RFC 6040).
pub(crate) fn mark_congestion(
    batch: &mut Batch,
    headers: &mut Vec<Inner>,
    pool: &mut Pool,
    drops: &mut Drops,
) {
    classify::filter_both(batch, headers, pool, drops, |packet, _| ecn::mark(packet));
}
