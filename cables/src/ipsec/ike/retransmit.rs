//! When a request is repeated and when its peer is given up, and when failed things are tried again.

use std::time::{Duration, Instant};

use super::EngineConfig;

/// What a request that waits for its answer wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    /// To wait on.
    Nothing,
    /// To be sent once more, bit for bit.
    Again,
    /// The peer is dead.
    GiveUp,
}

/// The timer of an outstanding request.
//= https://www.rfc-editor.org/rfc/rfc7296#section-2.4
//# The number of retries and length of timeouts are not covered in this
//# specification because they do not affect interoperability.
#[derive(Debug, Clone, Copy)]
pub(super) struct Retransmit {
    next: Instant,
    /// When it was sent last.
    sent: Instant,
    first: Duration,
    wait: Duration,
    give_up: Instant,
    is_hurried: bool,
}

impl Retransmit {
    /// For a request sent at `now`.
    pub(super) fn new(config: &EngineConfig, now: Instant) -> Self {
        Self::until(config.retransmit_first, now + config.give_up, now)
    }

    /// For one that is not worth waiting for as long as that.
    pub(super) fn until(first: Duration, give_up: Instant, now: Instant) -> Self {
        Self { next: (now + first).min(give_up), sent: now, first, wait: first, give_up, is_hurried: false }
    }

    /// What is due. Saying [`Due::Again`], it sets the next time.
    pub(super) fn due(&mut self, now: Instant) -> Due {
        if now >= self.give_up {
            return Due::GiveUp;
        }
        if now < self.next {
            return Due::Nothing;
        }
        // What the peer brought about says nothing of how full the network is.
        if !std::mem::take(&mut self.is_hurried) {
            self.wait *= 2;
        }
        self.sent = now;
        self.next = (now + self.wait).min(self.give_up);
        Due::Again
    }

    /// The peer is there: it has asked for something itself. Then the request or its answer was lost, and is repeated
    /// without waiting for as long as if the peer were away.
    pub(super) fn hurry(&mut self, now: Instant) {
        let soon = now.max(self.sent + self.first);
        if soon < self.next {
            self.next = soon;
            self.is_hurried = true;
        }
    }

    /// When something is due.
    pub(super) fn deadline(&self) -> Instant {
        self.next
    }
}

/// When something that failed is tried again: waits double, from a first to a longest.
#[derive(Debug, Clone, Copy)]
pub(super) struct Backoff {
    /// From when it may be tried.
    pub(super) next: Instant,
    wait: Duration,
}

impl Backoff {
    /// May be tried from `next` on.
    pub(super) fn new(next: Instant) -> Self {
        Self { next, wait: Duration::ZERO }
    }

    /// It failed.
    pub(super) fn failed(&mut self, config: &EngineConfig, now: Instant) {
        let (first, longest) = config.retry;
        self.wait = if self.wait.is_zero() { first } else { (self.wait * 2).min(longest) };
        self.next = now + self.wait;
    }

    /// It went well; if it is lost it may be tried from `next` on.
    pub(super) fn reset(&mut self, next: Instant) {
        *self = Self::new(next);
    }

    /// Whether it may be tried.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        now >= self.next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_repeated_at_doubling_intervals_until_the_peer_is_given_up() {
        #[expect(clippy::disallowed_methods, reason = "any start will do")]
        let start = Instant::now();
        let mut timer = Retransmit::new(&EngineConfig::default(), start);
        let (mut sent, mut now) = (Vec::new(), start);
        loop {
            now = timer.deadline().max(now);
            match timer.due(now) {
                Due::Nothing => panic!("a deadline at which nothing is due"),
                Due::Again => sent.push((now - start).as_millis()),
                Due::GiveUp => break,
            }
        }
        assert_eq!(sent, [500, 1500, 3500, 7500, 15_500, 31_500]);
        assert_eq!(now - start, Duration::from_secs(60));
    }

    #[test]
    fn a_peer_that_asks_itself_is_asked_again_soon() {
        #[expect(clippy::disallowed_methods, reason = "any start will do")]
        let start = Instant::now();
        let second = Duration::from_secs(1);
        let mut timer = Retransmit::new(&EngineConfig::default(), start);
        timer.hurry(start);
        assert_eq!(timer.deadline(), start + second / 2, "not at once: the answer may be under way");
        assert_eq!(timer.due(start + second / 2), Due::Again);
        assert_eq!(timer.deadline(), start + second * 3 / 2);
        timer.due(start + second * 3 / 2);
        assert_eq!(timer.deadline(), start + second * 7 / 2);
        timer.hurry(start + second * 3);
        assert_eq!(timer.due(start + second * 3), Due::Again);
        assert_eq!(timer.deadline(), start + second * 5, "as long as before");
        timer.hurry(start + second * 70);
        assert_eq!(timer.due(start + second * 70), Due::GiveUp);
    }

    #[test]
    fn what_fails_is_tried_less_and_less_often() {
        #[expect(clippy::disallowed_methods, reason = "any start will do")]
        let start = Instant::now();
        let (config, mut backoff) = (EngineConfig::default(), Backoff::new(start));
        let waits: Vec<u64> = (0..7)
            .map(|_| {
                backoff.failed(&config, start);
                (backoff.next - start).as_secs()
            })
            .collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30]);
        backoff.reset(start);
        assert!(backoff.is_due(start));
    }
}
