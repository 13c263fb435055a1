//! How often peers that do not answer are asked: a rate that all of them share.

use std::time::{Duration, Instant};

/// Ours: between two rounds of requests to all peers together that have been asked before without an answer, 20 a second.
/// A round is two datagrams and some 0.05 ms; a thousand members that do not answer, asked every two seconds each, were
/// 1,000 datagrams a second.
const INTERVAL: Duration = Duration::from_millis(50);
/// Ours: so many of these may come at once: forty peers have the specification's two seconds.
const BURST: u32 = 40;

/// The rates of repeated rounds, apart for those that wait for seconds and those that wait for a minute.
#[derive(Debug, Default)]
pub(super) struct RequestRates {
    /// Of peers that are being asked.
    pub(super) asking: RequestRate,
    /// Of peers that have not answered in time.
    pub(super) silent: RequestRate,
}

/// The rate of repeated rounds. A peer takes its next moment when it has used the one before, so all have their turn.
#[derive(Debug, Default)]
pub(super) struct RequestRate {
    /// The moment after all that were given away.
    next: Option<Instant>,
}

impl RequestRate {
    /// Returns the next free moment from `earliest` on, which never goes back, and gives it away.
    pub(super) fn take(&mut self, earliest: Instant) -> Instant {
        let taken = self.next.map_or(earliest, |next| next.max(earliest));
        self.next = Some(taken + INTERVAL);
        // What was not used before is there to be used.
        earliest.max(taken.checked_sub(INTERVAL * (BURST - 1)).unwrap_or(earliest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_have_the_moment_they_want_and_many_share_the_rate() {
        let start = Instant::now();
        let mut rate = RequestRate::default();
        let earliest = |round: u32| start + Duration::from_secs(2) * round;
        for round in 0..30 {
            assert!((0..40).all(|_| rate.take(earliest(round)) == earliest(round)), "round {round}");
        }
        let mut rate = RequestRate::default();
        let given: Vec<Instant> = (0..1000).map(|_| rate.take(start)).collect();
        assert!(given.is_sorted());
        let last = *given.last().unwrap();
        assert_eq!(last - start, INTERVAL * (1000 - BURST));
        let calm = last + Duration::from_secs(60);
        assert_eq!(rate.take(calm), calm);
    }
}
