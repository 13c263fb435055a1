//! What became of queries, counted by every thread at one place each.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use trieste_dns::{Answer, DropReason, Outcome, QueryType, Transport};

/// Bounds of the times between the reading of a query and its answer, in microseconds.
pub const LATENCY_BOUNDS: [u64; 10] = [10, 25, 50, 100, 250, 500, 1_000, 5_000, 25_000, 100_000];

/// Counters of one transport. Threads for datagrams have their own, and what is said is the sum.
#[derive(Debug)]
pub struct Counters {
    /// The transport.
    pub transport: Transport,
    answers: Vec<AtomicU64>,
    truncated: AtomicU64,
    drops: Vec<AtomicU64>,
    latency: [AtomicU64; LATENCY_BOUNDS.len() + 1],
    latency_sum: AtomicU64,
}

impl Counters {
    /// Creates counters at zero.
    #[must_use]
    pub fn new(transport: Transport) -> Self {
        let counters = |count| std::iter::repeat_with(AtomicU64::default).take(count).collect();
        Self {
            transport,
            answers: counters(QueryType::ALL.len() * Answer::ALL.len()),
            truncated: AtomicU64::default(),
            drops: counters(DropReason::ALL.len()),
            latency: Default::default(),
            latency_sum: AtomicU64::default(),
        }
    }

    /// Counts what became of a query.
    pub fn count(&self, outcome: Outcome) {
        match outcome {
            Outcome::Reply(summary) => {
                add(&self.answers[place(summary.query, summary.result)], 1);
                if summary.is_truncated {
                    add(&self.truncated, 1);
                }
            }
            Outcome::Drop(reason) => self.count_drop(reason),
        }
    }

    /// Counts what got no answer.
    pub fn count_drop(&self, reason: DropReason) {
        add(&self.drops[reason.index()], 1);
    }

    /// Counts some queries that took this long together.
    pub fn observe(&self, queries: u64, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let bucket = LATENCY_BOUNDS.partition_point(|bound| *bound < micros);
        add(&self.latency[bucket], queries);
        add(&self.latency_sum, u64::try_from(took.as_nanos()).unwrap_or(u64::MAX).saturating_mul(queries));
    }

    /// Returns how many queries of a type had a result.
    #[must_use]
    pub fn answers(&self, query: QueryType, result: Answer) -> u64 {
        get(&self.answers[place(query, result)])
    }

    /// Returns how many answers left records out.
    #[must_use]
    pub fn truncated(&self) -> u64 {
        get(&self.truncated)
    }

    /// Returns how many queries got no answer for a reason.
    #[must_use]
    pub fn drops(&self, reason: DropReason) -> u64 {
        get(&self.drops[reason.index()])
    }

    /// Returns the number of queries between each bound and the one before, those beyond the last, and the sum of all times.
    #[must_use]
    pub fn latency(&self) -> ([u64; LATENCY_BOUNDS.len() + 1], Duration) {
        (self.latency.each_ref().map(get), Duration::from_nanos(get(&self.latency_sum)))
    }
}

fn place(query: QueryType, result: Answer) -> usize {
    query.index() * Answer::ALL.len() + result.index()
}

fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use trieste_dns::Summary;

    use super::*;

    #[test]
    fn every_outcome_has_its_own_counter() {
        let counters = Counters::new(Transport::Udp);
        for query in QueryType::ALL {
            for result in Answer::ALL {
                let summary =
                    Summary { query: *query, result: *result, is_truncated: *result == Answer::Records };
                counters.count(Outcome::Reply(summary));
                assert_eq!(counters.answers(*query, *result), 1, "{query:?} {result:?}");
            }
        }
        counters.count(Outcome::Drop(DropReason::Response));
        assert_eq!(counters.drops(DropReason::Response), 1);
        assert_eq!(counters.drops(DropReason::TooShort), 0);
        let types = u64::try_from(QueryType::ALL.len()).unwrap();
        assert_eq!(counters.truncated(), types);
    }

    #[test]
    fn times_are_counted_up_to_their_bound() {
        let counters = Counters::new(Transport::Udp);
        counters.observe(3, Duration::from_micros(10));
        counters.observe(1, Duration::from_micros(11));
        counters.observe(2, Duration::from_secs(1));
        let (buckets, sum) = counters.latency();
        assert_eq!((buckets[0], buckets[1], buckets[LATENCY_BOUNDS.len()]), (3, 1, 2));
        assert_eq!(sum, Duration::from_micros(41) + Duration::from_secs(2));
    }
}
