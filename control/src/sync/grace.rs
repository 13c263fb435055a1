//! Not believing at once that every other cluster has left.

use std::time::{Duration, Instant};

/// Since when the broker has had nothing of anybody else, although we have copies.
#[derive(Debug, Default)]
pub(super) struct Grace {
    since: Option<Instant>,
}

impl Grace {
    /// Returns how much longer, at `now`, the copies are kept; `None` when the broker's state counts.
    pub(super) fn left(&mut self, is_emptied: bool, grace: Duration, now: Instant) -> Option<Duration> {
        if !is_emptied {
            self.reset();
            return None;
        }
        let since = *self.since.get_or_insert(now);
        Some(grace.saturating_sub(now.duration_since(since))).filter(|left| !left.is_zero())
    }

    /// Returns `true` if copies are being kept.
    pub(super) fn is_running(&self) -> bool {
        self.since.is_some()
    }

    /// Starts anew: only what a broker says without a break counts.
    pub(super) fn reset(&mut self) {
        self.since = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_emptied_broker_is_believed_after_the_whole_grace_without_a_break() {
        let (grace, start) = (Duration::from_secs(60), Instant::now());
        let at = |second| start + Duration::from_secs(second);
        let mut emptied = Grace::default();
        assert_eq!(emptied.left(true, grace, at(0)), Some(grace));
        assert_eq!(emptied.left(true, grace, at(59)), Some(Duration::from_secs(1)));
        assert_eq!(emptied.left(true, grace, at(60)), None);
        assert_eq!(emptied.left(false, grace, at(61)), None);
        assert_eq!(emptied.left(true, grace, at(62)), Some(grace), "it was filled meanwhile");
        assert_eq!(Grace::default().left(true, Duration::ZERO, start), None);
    }
}
