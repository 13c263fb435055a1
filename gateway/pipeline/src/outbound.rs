//! From the cluster towards its peers: the table of contents, one call per stage.

use std::time::Instant;

use trieste_packet::wire::Inner;
use trieste_packet::{Batch, Packet};

use crate::answers::Answers;
use crate::classify;
use crate::globalnet::EXPIRY_PER_BATCH;
use crate::mtu::{self, Fit};
use crate::owner::Crossing;
use crate::pipeline::Pipeline;
use crate::steer::Steering;
use crate::tables::Tables;
use crate::tap::Point;
use crate::watching::health_checks;

impl Pipeline {
    /// Carries one batch from the cluster towards its peers. One table load and one clock value per batch.
    pub fn outbound(&mut self, batch: &mut Batch, now: Instant) {
        let tables = self.begin(now);
        self.counters.tun_in += batch.segments();
        Self::look(&mut self.tap, Point::InnerRx, batch.as_slice(), now);
        classify::parse(batch, &mut self.headers, &mut self.pool, &mut self.drops);
        self.counters.health_checks += health_checks(batch.as_slice(), &self.headers);
        if let Some(rules) = tables.rules() {
            self.know(batch, Crossing::Out, rules, now);
        }
        self.carry_out(batch, Crossing::Out, &tables, now);
        self.take_arrivals(&tables, now);
        self.seal_ready(now);
        self.expire_translations(EXPIRY_PER_BATCH, now);
        self.tell_siblings(now);
    }

    /// Carries parsed packets as far as `ready`: decided, with globalnet translated, and made fit for their paths.
    pub(crate) fn carry_out(&mut self, batch: &mut Batch, crossing: Crossing, tables: &Tables, now: Instant) {
        match tables.rules() {
            Some(rules) => self.in2out(batch, crossing, tables, rules, now),
            None => classify::outbound(
                batch,
                &mut self.headers,
                &Steering { tables, board: &self.config.board },
                (&mut self.flows, self.version),
                &mut self.pool,
                &mut self.drops,
            ),
        }
        if !tables.siblings().is_empty() {
            let passed_on = batch.as_slice().iter().filter(|packet| tables.is_relay(packet.decision.path));
            self.counters.relayed_out += passed_on.map(Packet::segments).sum::<u64>();
        }
        let headers = std::mem::take(&mut self.headers);
        self.fit(batch, &headers, tables, now);
        self.headers = headers;
    }

    /// Carries packets with a decision to `ready`, made fit for their paths.
    pub(crate) fn fit(&mut self, batch: &mut Batch, headers: &[Inner], tables: &Tables, now: Instant) {
        let answers = self.to_tun.len();
        mtu::clamp_mss(batch, headers, &self.config.board, &mut self.counters);
        let mut fit = Fit {
            answers: Answers {
                tables,
                to_tun: &mut self.to_tun,
                limiter: &mut self.limiter,
                counters: &mut self.counters,
                now,
            },
            pool: &mut self.pool,
            drops: &mut self.drops,
        };
        fit.run(batch, headers, &mut self.ready);
        Self::look(&mut self.tap, Point::InnerTx, &self.to_tun.as_slice()[answers..], now);
    }
}
