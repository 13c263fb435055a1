//! How long the far end may be silent, by how late it has been before.

use std::time::{Duration, Instant};

use super::config::Config;

/// A stall that every machine has now and then (a cgroup out of quota, a compaction, a host that is busy) and that is
/// no lost path, with a tenth on top: 50 ms.
const COMMON_STALL: Duration = Duration::from_millis(55);
/// The shortest time-out of a path that is not known yet.
const CAUTIOUS: Duration = Duration::from_millis(250);
/// How long a path is not known.
const CAUTIOUS_FOR: Duration = Duration::from_secs(10);
/// For so long in the beginning, delays are those of programs that start, and nothing is learnt from them.
const BEGINNING: Duration = Duration::from_secs(5);
/// The longest time-out for a path that is used.
const LONGEST: Duration = Duration::from_secs(1);
/// What is later than this was no jitter but an outage, from which nothing is to be learnt.
const OUTAGE: Duration = Duration::from_millis(250);
/// How long what was learnt is remembered: pieces of a minute each.
const PIECES: usize = 10;
const PIECE: Duration = Duration::from_mins(1);

/// What is known of the lateness of one far end.
#[derive(Debug, Clone)]
pub(super) struct Jitter {
    /// The largest lateness of each of the last minutes, the newest first.
    largest: [Duration; PIECES],
    turned: Instant,
    cautious_until: Instant,
}

impl Jitter {
    pub(super) fn new(now: Instant) -> Self {
        Self { largest: [Duration::ZERO; PIECES], turned: now, cautious_until: now + CAUTIOUS_FOR }
    }

    /// The path has come (back): it is not known how it behaves.
    pub(super) fn beware(&mut self, now: Instant) {
        self.cautious_until = now + CAUTIOUS_FOR;
    }

    /// Something arrived `lateness` after it had been promised, without having been lost meanwhile.
    pub(super) fn learn(&mut self, lateness: Duration, now: Instant) {
        self.turn(now);
        let is_beginning = self.cautious_until.saturating_duration_since(now) > CAUTIOUS_FOR - BEGINNING;
        if lateness < OUTAGE && !is_beginning {
            self.largest[0] = self.largest[0].max(lateness);
        }
    }

    /// How long it may be silent when it has promised to send every `interval`.
    pub(super) fn timeout(&self, config: &Config, interval: Duration, now: Instant) -> Duration {
        let largest = self.largest.iter().copied().max().unwrap_or_default();
        let learnt = if largest.is_zero() { Duration::ZERO } else { largest * 5 / 4 + interval };
        let missed = interval * u32::from(config.multiplier.saturating_sub(1));
        let timeout = interval + missed.max(COMMON_STALL).max(learnt);
        let timeout = if now < self.cautious_until { timeout.max(CAUTIOUS) } else { timeout };
        // Slow probes may take their intervals, whatever these are.
        timeout.min(LONGEST.max(interval + missed))
    }

    fn turn(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.turned).as_secs() / PIECE.as_secs();
        let passed32 = u32::try_from(passed).unwrap_or(u32::MAX);
        if passed == 0 {
            return;
        }
        let gone = usize::try_from(passed).unwrap_or(PIECES).min(PIECES);
        self.largest.rotate_right(gone);
        self.largest[..gone].fill(Duration::ZERO);
        self.turned += PIECE.saturating_mul(passed32);
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "an arbitrary start, from which the test counts")]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_millis(20);

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_calm_path_comes_down_to_the_shortest_time_out_after_ten_seconds() {
        let start = Instant::now();
        let jitter = Jitter::new(start);
        let config = Config::default();
        assert_eq!(jitter.timeout(&config, INTERVAL, start), ms(250));
        assert_eq!(jitter.timeout(&config, INTERVAL, start + ms(9_999)), ms(250));
        assert_eq!(jitter.timeout(&config, INTERVAL, start + ms(10_000)), ms(75));
        assert_eq!(jitter.timeout(&config, ms(200), start + ms(10_000)), ms(600));
        let patient = Config { multiplier: 8, ..config };
        assert_eq!(jitter.timeout(&patient, INTERVAL, start + ms(10_000)), ms(160));
    }

    #[test]
    fn delays_of_the_first_five_seconds_are_not_learnt() {
        let start = Instant::now();
        let mut jitter = Jitter::new(start);
        let config = Config::default();
        jitter.learn(ms(200), start + ms(4_999));
        assert_eq!(jitter.timeout(&config, INTERVAL, start + ms(4_999)), ms(250));
        assert_eq!(jitter.timeout(&config, INTERVAL, start + ms(10_000)), ms(75));
        jitter.learn(ms(100), start + ms(5_000));
        assert_eq!(jitter.timeout(&config, INTERVAL, start + ms(10_000)), ms(165));
        // The far end has started again: what is known of the path stays.
        jitter.beware(start + ms(20_000));
        jitter.learn(ms(200), start + ms(21_000));
        assert_eq!(jitter.timeout(&config, INTERVAL, start + ms(30_000)), ms(165));
    }

    #[test]
    fn lateness_is_learnt_for_ten_minutes_and_outages_are_not() {
        let start = Instant::now();
        let mut jitter = Jitter::new(start);
        let config = Config::default();
        let minute = |minutes: u64| start + Duration::from_mins(minutes);
        jitter.learn(ms(100), minute(1));
        assert_eq!(jitter.timeout(&config, INTERVAL, minute(1)), ms(165));
        jitter.learn(ms(40), minute(10));
        assert_eq!(jitter.timeout(&config, INTERVAL, minute(10)), ms(165));
        jitter.learn(ms(30), minute(11));
        assert_eq!(jitter.timeout(&config, INTERVAL, minute(11)), ms(90));
        jitter.learn(ms(300), minute(12));
        assert_eq!(jitter.timeout(&config, INTERVAL, minute(12)), ms(90));
        jitter.learn(ms(249), minute(13));
        let worst = jitter.timeout(&config, INTERVAL, minute(13));
        assert!(worst > ms(249) && worst <= LONGEST, "{worst:?}");
        jitter.learn(ms(0), minute(600));
        assert_eq!(jitter.timeout(&config, INTERVAL, minute(600)), ms(75));
    }
}
