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
/// How long what was learnt is remembered: ten minutes, in pieces of 20 s. A delay is counted on while its piece and the
/// next one last: what comes once is an accident (a machine that is moved to another host). What has been seen in two
/// pieces with another between them is the path's way, and is counted on for as long as both are remembered.
const PIECES: usize = 30;
const PIECE: Duration = Duration::from_secs(20);

/// What is known of the lateness of one far end.
#[derive(Debug, Clone)]
pub(super) struct Jitter {
    /// The largest lateness of each piece of the last minutes, the newest first.
    largest: [Duration; PIECES],
    /// The lateness to be counted on, by these.
    expected: Duration,
    turned: Instant,
    cautious_until: Instant,
}

impl Jitter {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            largest: [Duration::ZERO; PIECES],
            expected: Duration::ZERO,
            turned: now,
            cautious_until: now + CAUTIOUS_FOR,
        }
    }

    /// The path has come (back): it is not known how it behaves.
    pub(super) fn beware(&mut self, now: Instant) {
        self.cautious_until = now + CAUTIOUS_FOR;
    }

    /// Something arrived `lateness` after it had been promised, without having been lost meanwhile.
    pub(super) fn learn(&mut self, lateness: Duration, now: Instant) {
        self.turn(now);
        let is_beginning = self.cautious_until.saturating_duration_since(now) > CAUTIOUS_FOR - BEGINNING;
        if lateness < OUTAGE && !is_beginning && lateness > self.largest[0] {
            self.largest[0] = lateness;
            self.expect();
        }
    }

    /// How long it may be silent when it has promised to send every `interval`.
    pub(super) fn timeout(&self, config: &Config, interval: Duration, now: Instant) -> Duration {
        let learnt = if self.expected.is_zero() { Duration::ZERO } else { self.expected * 5 / 4 + interval };
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
        self.expect();
    }

    /// Works out what is to be counted on: the largest of this piece and the one before, and what was reached in two
    /// pieces that do not follow one upon the other.
    fn expect(&mut self) {
        let (mut most, mut twice, mut next) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
        for &lateness in &self.largest {
            twice = twice.max(lateness.min(most));
            most = most.max(std::mem::replace(&mut next, lateness));
        }
        self.expected = self.largest[0].max(self.largest[1]).max(twice);
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
    fn what_comes_once_is_counted_on_for_a_while_and_what_comes_back_for_ten_minutes() {
        let start = Instant::now();
        let mut jitter = Jitter::new(start);
        let config = Config::default();
        let second = |seconds: u64| start + Duration::from_secs(seconds);
        let timeout = |jitter: &mut Jitter, at: u64| {
            jitter.learn(Duration::ZERO, second(at));
            jitter.timeout(&config, INTERVAL, second(at))
        };
        jitter.learn(ms(100), second(60));
        assert_eq!(timeout(&mut jitter, 60), ms(165));
        assert_eq!(timeout(&mut jitter, 99), ms(165));
        assert_eq!(timeout(&mut jitter, 100), ms(75), "it came once");
        // It comes back, somewhat smaller: the smaller one is the path's way.
        jitter.learn(ms(80), second(300));
        assert_eq!(timeout(&mut jitter, 300), ms(140));
        assert_eq!(timeout(&mut jitter, 659), ms(140));
        assert_eq!(timeout(&mut jitter, 660), ms(75), "the first one is forgotten");
        // Twice within a piece or two is once.
        jitter.learn(ms(90), second(719));
        jitter.learn(ms(90), second(721));
        assert_eq!(timeout(&mut jitter, 760), ms(140), "80 ms at least came twice within ten minutes");
        assert_eq!(timeout(&mut jitter, 900), ms(75));
    }

    #[test]
    fn outages_are_not_learnt_and_a_long_silence_forgets_all() {
        let start = Instant::now();
        let mut jitter = Jitter::new(start);
        let config = Config::default();
        let minute = |minutes: u64| start + Duration::from_mins(minutes);
        jitter.learn(ms(300), minute(12));
        assert_eq!(jitter.timeout(&config, INTERVAL, minute(12)), ms(75));
        jitter.learn(ms(249), minute(13));
        let worst = jitter.timeout(&config, INTERVAL, minute(13));
        assert!(worst > ms(249) && worst <= LONGEST, "{worst:?}");
        jitter.learn(ms(0), minute(600));
        assert_eq!(jitter.timeout(&config, INTERVAL, minute(600)), ms(75));
    }
}
