//! A million sessions that end: how much each batch removes, and what that does to the time of a batch.

use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::ensure;
use serde::Serialize;
use trieste_packet::{Batch, MAX_BATCH};

use crate::measure::Sample;
use crate::pair::{Joint, Pair, Translated};
use crate::traffic::Shape;

/// Sessions that end.
const SESSIONS: u32 = 1_000_000;
/// Most that a batch may remove.
const BOUND: u64 = trieste_pipeline::EXPIRY_PER_BATCH as u64;

/// Batches of 64 packets of other flows, while a million sessions end.
#[derive(Debug, Serialize)]
pub(crate) struct Expiry {
    sessions: u32,
    batches: usize,
    most_removed_by_a_batch: u64,
    bound: u64,
    /// CPU time of a batch in us while nothing ends, and while sessions do.
    idle: Quantiles,
    busy: Quantiles,
}

#[derive(Debug, Serialize)]
struct Quantiles {
    median: f64,
    p99: f64,
    p999: f64,
    max: f64,
}

impl Quantiles {
    fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        let last = times.len().saturating_sub(1);
        let at = |per_mille: usize| {
            times.get(last * per_mille / 1000).map_or(0.0, |time| time.as_secs_f64() * 1e6)
        };
        Self { median: at(500), p99: at(990), p999: at(999), max: at(1000) }
    }
}

/// Measures.
///
/// # Errors
/// When a batch removes more than it may, or sessions stay.
pub(crate) fn measure() -> anyhow::Result<Expiry> {
    let shape = Shape::single(64, SESSIONS);
    let mut pair = Pair::translated(Joint::Sink, shape, MAX_BATCH, Translated::East)?;
    pair.sink_east();
    let mut batch = Batch::new();
    for _ in 0..SESSIONS.div_ceil(u32::try_from(MAX_BATCH)?) {
        pair.outbound(&mut batch);
    }
    ensure!(pair.sessions() == SESSIONS, "{} sessions instead of {SESSIONS}", pair.sessions());
    // From here on the same few flows.
    pair.change_source(Shape::single(64, 64), Ipv4Addr::new(10, 2, 0, 2));
    let mut idle = Vec::new();
    for _ in 0..20_000 {
        idle.push(time(&mut pair, &mut batch));
    }
    pair.wait(Duration::from_secs(3 * 3600));
    let (mut busy, mut most) = (Vec::new(), 0);
    let mut left = pair.sessions();
    while left > 64 {
        busy.push(time(&mut pair, &mut batch));
        let now = pair.sessions();
        // The batch may have begun some as well, in its first turn.
        let removed = u64::from(left.saturating_sub(now));
        ensure!(removed <= BOUND, "a batch removed {removed} sessions, {BOUND} are allowed");
        most = most.max(removed);
        left = now;
        ensure!(busy.len() < 1_000_000, "sessions do not end");
    }
    Ok(Expiry {
        sessions: SESSIONS,
        batches: busy.len(),
        most_removed_by_a_batch: most,
        bound: BOUND,
        idle: Quantiles::of(idle),
        busy: Quantiles::of(busy),
    })
}

fn time(pair: &mut Pair, batch: &mut Batch) -> Duration {
    pair.fill_one(batch);
    Sample::of(|| {
        pair.line_out(batch);
        0
    })
    .elapsed
}

impl Expiry {
    /// For people.
    pub(crate) fn text(&self) -> String {
        let line = |name: &str, q: &Quantiles| {
            format!(
                "  {name}: median {:.1} us, p99 {:.1}, p99.9 {:.1}, most {:.1}\n",
                q.median, q.p99, q.p999, q.max
            )
        };
        format!(
            "\n{} sessions end while batches of 64 packets of other flows pass: at most {} removed by a batch ({} allowed), {} batches\n",
            self.sessions, self.most_removed_by_a_batch, self.bound, self.batches
        ) + &line("while nothing ends", &self.idle)
            + &line("while sessions end", &self.busy)
    }
}
