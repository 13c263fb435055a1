//! From the cluster towards its peers: the table of contents, one call per stage.

use std::time::Instant;

use trieste_packet::Batch;

use crate::classify;
use crate::mtu::{self, Fit};
use crate::pipeline::Pipeline;
use crate::tap::Point;

impl Pipeline {
    /// Carries one batch from the cluster towards its peers. One table load and one clock value per batch.
    pub fn outbound(&mut self, batch: &mut Batch, now: Instant) {
        let tables = std::sync::Arc::clone(self.tables.load());
        self.counters.tun_in += batch.segments();
        Self::look(&mut self.tap, Point::InnerRx, batch.as_slice(), now);
        classify::parse(batch, &mut self.headers, &mut self.pool, &mut self.drops);
        classify::outbound(
            batch,
            &mut self.headers,
            &tables,
            &mut self.flows,
            &mut self.pool,
            &mut self.drops,
        );
        mtu::clamp_mss(batch, &self.headers, &mut self.counters);
        let answers = self.to_tun.len();
        let mut fit = Fit {
            tables: &tables,
            to_tun: &mut self.to_tun,
            limiter: &mut self.limiter,
            pool: &mut self.pool,
            drops: &mut self.drops,
            counters: &mut self.counters,
            now,
        };
        fit.run(batch, &self.headers, &mut self.ready);
        Self::look(&mut self.tap, Point::InnerTx, &self.to_tun.as_slice()[answers..], now);
        self.seal_ready(now);
    }
}
