//! The largest packet that gets through, by padded probes (datagram packetization layer PMTU discovery).
//!
//! ```text
//!   largest ──heard──▶ complete ── every 10 s: still? ──no──┐
//!      └──not heard──▶ base ─▶ search between what was heard and what was not ─▶ complete
//!                       ▲                                                           │ after 10 min: larger?
//!                       └───────────────────────────────────────────────────────────┘
//! ```
//!
//! Data is not sent with DF on the outside, so nothing is lost while this is being found out: it is carried in
//! fragments, at a cost. Probes have DF.

use std::time::{Duration, Instant};

//= https://www.rfc-editor.org/rfc/rfc8899#section-5.1.2
//# MAX_PROBES represents the limit for the number of consecutive probe attempts of any size.  Search algorithms benefit
//# from a MAX_PROBES value greater than 1 because this can provide robustness to isolated packet loss.
const MAX_PROBES: u8 = 3;
//= https://www.rfc-editor.org/rfc/rfc8899#section-5.1.1
//# This value MUST NOT be smaller than 1 second
const PROBE_TIMER: Duration = Duration::from_secs(1);
//= https://www.rfc-editor.org/rfc/rfc8899#section-5.1.1
//# The PMTU_RAISE_TIMER is configured to the period a sender will continue to use the current PLPMTU, after which it
//# reenters the Search Phase.
const RAISE_TIMER: Duration = Duration::from_mins(10);
/// How often it is made sure that the size in use still gets through. Ours: a black hole is left after 13 s.
const CONFIRM_TIMER: Duration = Duration::from_secs(10);
/// The size to begin from when the largest does not get through: what IPv6 asks of every link, for inner packets.
const BASE: u16 = 1280;
/// Sizes closer than this are not told apart.
const GRAIN: u16 = 8;

/// What a search is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The largest size that could be.
    Largest,
    /// The size that every path should take.
    Base,
    /// Between a size that was heard and one that was not.
    Between { lost: u16 },
    /// Done; this size is confirmed now and then.
    Complete,
}

/// A probe under way.
#[derive(Debug, Clone, Copy)]
struct Attempt {
    id: u16,
    bytes: u16,
    tries: u8,
    sent: Option<Instant>,
}

/// The search on one path.
#[derive(Debug, Clone)]
pub(super) struct MtuSearch {
    most: u16,
    phase: Phase,
    /// The largest size that was heard.
    found: Option<u16>,
    attempt: Option<Attempt>,
    /// When the next attempt begins once this phase is complete.
    confirm: Instant,
    raise: Instant,
    ids: u16,
}

impl MtuSearch {
    pub(super) fn new(most_bytes: u16, now: Instant) -> Self {
        let mut search = Self {
            most: most_bytes,
            phase: Phase::Largest,
            found: None,
            attempt: None,
            confirm: now,
            raise: now,
            ids: 0,
        };
        search.attempt(most_bytes);
        search
    }

    /// Largest inner packet that gets through, in bytes, where that has been found out.
    pub(super) fn found(&self) -> Option<u16> {
        self.found
    }

    /// When [`Self::poll_transmit`] has something to do. Only while the path is up.
    pub(super) fn poll_timeout(&self) -> Instant {
        match &self.attempt {
            Some(attempt) => attempt.sent.map_or(self.confirm, |sent| sent + PROBE_TIMER),
            None => self.confirm.min(self.raise),
        }
    }

    /// The padded probe to send now, as number and bytes of inner packet, if any. Only while the path is up: what is
    /// lost on a path that is down says nothing of its size.
    pub(super) fn poll_transmit(&mut self, now: Instant) -> Option<(u16, u16)> {
        if self.poll_timeout() > now {
            return None;
        }
        match self.attempt {
            Some(Attempt { tries: MAX_PROBES, bytes, .. }) => self.lose(bytes, now),
            None if now >= self.raise && self.found.is_some_and(|found| found < self.most) => {
                self.phase = Phase::Largest;
                self.attempt(self.most);
            }
            None => self.attempt(self.found.unwrap_or(self.most)),
            Some(_) => {}
        }
        self.ids = self.ids.checked_add(1).unwrap_or(1);
        let attempt = self.attempt.as_mut()?;
        attempt.id = self.ids;
        attempt.tries += 1;
        attempt.sent = Some(now);
        Some((attempt.id, attempt.bytes))
    }

    /// The far end says which padded probe it has heard last. Returns whether that was the one under way.
    pub(super) fn handle_heard(&mut self, id: u16, now: Instant) -> bool {
        let Some(attempt) = self.attempt.filter(|attempt| attempt.sent.is_some() && attempt.id == id) else {
            return false;
        };
        self.attempt = None;
        match self.phase {
            Phase::Largest | Phase::Complete => self.complete(attempt.bytes, now),
            Phase::Base => {
                self.found = Some(attempt.bytes);
                self.between(self.most, now);
            }
            Phase::Between { lost } => {
                self.found = Some(attempt.bytes);
                self.between(lost, now);
            }
        }
        true
    }

    /// The path was down: what was under way is tried again from the start.
    pub(super) fn interrupt(&mut self, now: Instant) {
        self.confirm = self.confirm.max(now);
        if let Some(attempt) = &mut self.attempt {
            (attempt.tries, attempt.sent) = (0, None);
            self.confirm = now;
        }
    }

    fn attempt(&mut self, bytes: u16) {
        self.attempt = Some(Attempt { id: 0, bytes, tries: 0, sent: None });
    }

    /// A size was tried as often as any is.
    fn lose(&mut self, bytes: u16, now: Instant) {
        self.confirm = now;
        match self.phase {
            Phase::Largest if self.found.is_some_and(|found| found > BASE) => {
                // It was looked for something larger, and what is known still holds.
                self.between(bytes, now);
            }
            Phase::Largest | Phase::Complete if bytes > BASE => {
                self.phase = Phase::Base;
                self.attempt(BASE);
            }
            Phase::Between { .. } => self.between(bytes, now),
            // Nothing of a reasonable size gets through whole: fragments have to do.
            Phase::Largest | Phase::Base | Phase::Complete => {
                self.complete(bytes.min(BASE), now);
            }
        }
    }

    fn between(&mut self, lost: u16, now: Instant) {
        let found = self.found.unwrap_or(BASE);
        if lost.saturating_sub(found) <= GRAIN {
            self.complete(found, now);
            return;
        }
        self.phase = Phase::Between { lost };
        self.confirm = now;
        self.attempt(found + (lost - found) / 2);
    }

    fn complete(&mut self, bytes: u16, now: Instant) {
        if self.phase != Phase::Complete {
            self.raise = now + RAISE_TIMER;
        }
        self.phase = Phase::Complete;
        self.found = Some(bytes);
        self.attempt = None;
        self.confirm = now + CONFIRM_TIMER;
        if bytes >= self.most {
            self.raise = now + RAISE_TIMER;
        }
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "an arbitrary start, from which the test counts")]
mod tests {
    use super::*;

    /// Runs a search for a while over a path that takes `size` bytes; returns how many padded probes it took.
    fn run(search: &mut MtuSearch, now: &mut Instant, for_secs: u64, size: u16) -> usize {
        let end = *now + Duration::from_secs(for_secs);
        let mut probes = 0;
        while search.poll_timeout() <= end {
            *now = search.poll_timeout().max(*now);
            if let Some((id, bytes)) = search.poll_transmit(*now) {
                probes += 1;
                *now += Duration::from_millis(10);
                if bytes <= size {
                    assert!(search.handle_heard(id, *now));
                }
            }
        }
        *now = end;
        probes
    }

    #[test]
    fn a_path_that_takes_the_largest_size_costs_one_probe_and_one_every_ten_seconds() {
        let mut now = Instant::now();
        let mut search = MtuSearch::new(1420, now);
        assert_eq!(search.found(), None);
        assert_eq!(run(&mut search, &mut now, 1, 1500), 1);
        assert_eq!(search.found(), Some(1420));
        let probes = run(&mut search, &mut now, 3600, 1500);
        assert!((350..=360).contains(&probes), "{probes}");
        assert_eq!(search.found(), Some(1420));
    }

    #[test]
    fn any_size_is_found_to_eight_bytes_and_never_exceeded() {
        for size in (1280..=8920).step_by(37) {
            let mut now = Instant::now();
            let mut search = MtuSearch::new(8920, now);
            run(&mut search, &mut now, 60, size);
            let found = search.found().unwrap();
            assert!(found <= size && size - found <= GRAIN, "{found} of {size}");
        }
    }

    #[test]
    fn a_path_that_takes_less_than_the_base_is_left_at_the_base() {
        let mut now = Instant::now();
        let mut search = MtuSearch::new(1420, now);
        run(&mut search, &mut now, 60, 1000);
        assert_eq!(search.found(), Some(BASE));
        let mut small = MtuSearch::new(1100, now);
        run(&mut small, &mut now, 60, 1000);
        assert_eq!(small.found(), Some(1100));
    }

    #[test]
    fn a_black_hole_is_found_in_seconds_and_a_larger_path_in_minutes() {
        let mut now = Instant::now();
        let mut search = MtuSearch::new(1420, now);
        run(&mut search, &mut now, 5, 1500);
        run(&mut search, &mut now, 14, 1300);
        assert!(search.found().unwrap() <= 1300, "{:?}", search.found());
        run(&mut search, &mut now, 30, 1300);
        assert!((1292..=1300).contains(&search.found().unwrap()), "{:?}", search.found());
        run(&mut search, &mut now, 300, 1500);
        assert!(search.found().unwrap() <= 1300, "larger sizes are tried every ten minutes only");
        run(&mut search, &mut now, 320, 1500);
        assert_eq!(search.found(), Some(1420));
    }

    #[test]
    fn what_was_lost_while_the_path_was_down_says_nothing() {
        let mut now = Instant::now();
        let mut search = MtuSearch::new(1420, now);
        run(&mut search, &mut now, 1, 1500);
        for _ in 0..20 {
            now += CONFIRM_TIMER;
            assert!(search.poll_transmit(now).is_some());
            now += PROBE_TIMER;
            assert!(search.poll_transmit(now).is_some());
            search.interrupt(now);
        }
        assert_eq!(search.found(), Some(1420));
        assert!(!search.handle_heard(7, now), "that was not asked");
    }
}
