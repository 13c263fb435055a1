//! When work that costs what a set has is done again: as soon as it is asked for, and then after a rest for its share of
//! a core, which is bounded. Pure.

use std::time::{Duration, Instant};

use trieste_control::timer::rest_after;

/// Work that is asked for by many, and done once for all of them.
#[derive(Debug)]
pub(super) struct Throttle {
    /// Rest after a piece of work, as a multiple of what that took.
    rest: u32,
    longest: Duration,
    /// Until when it rests.
    rests_until: Option<Instant>,
    /// From when on somebody wants it.
    asked: Option<Instant>,
}

impl Throttle {
    /// Rests so that the work takes `percent` of a core, but for no longer than `longest`.
    pub(super) fn new(percent: u32, longest: Duration) -> Self {
        Self { rest: (100 / percent.clamp(1, 100)) - 1, longest, rests_until: None, asked: None }
    }

    /// Asks for the work from this moment on; an earlier wish stands.
    pub(super) fn ask(&mut self, from: Instant) {
        self.asked = Some(self.asked.map_or(from, |asked| asked.min(from)));
    }

    /// Returns when it is to be done; `None` while nobody wants it.
    pub(super) fn due(&self) -> Option<Instant> {
        self.asked.map(|asked| self.rests_until.map_or(asked, |until| until.max(asked)))
    }

    /// Records that the work was done for all requests.
    pub(super) fn done(&mut self, began: Instant, now: Instant) {
        let took = now.saturating_duration_since(began);
        self.rests_until = Some(now + rest_after(took, self.rest, self.longest));
        self.asked = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_quick_is_done_at_once_and_what_is_not_rests_for_its_share_and_no_longer() {
        let (start, ms) = (Instant::now(), Duration::from_millis);
        let mut throttle = Throttle::new(25, ms(500));
        assert_eq!(throttle.due(), None);
        throttle.ask(start);
        throttle.ask(start + ms(7));
        assert_eq!(throttle.due(), Some(start));
        throttle.done(start, start + ms(20));
        assert_eq!(throttle.due(), None);
        throttle.ask(start + ms(21));
        assert_eq!(throttle.due(), Some(start + ms(80)), "three times as long as it took");
        throttle.done(start + ms(80), start + ms(1080));
        throttle.ask(start + ms(1090));
        assert_eq!(throttle.due(), Some(start + ms(1580)));
        throttle.done(start + ms(1580), start + ms(1580));
        throttle.ask(start + ms(9999));
        assert_eq!(throttle.due(), Some(start + ms(9999)));
    }
}
