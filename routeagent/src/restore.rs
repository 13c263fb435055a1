//! Restores the packet filter out of turn, when another program has removed it. Pure.
//!
//! Without the filter, routes, rules or tables of other programs can let packets out in clear, and a pass takes its time.
//! So the filter of the last pass is kept and restored at once, at a limited rate in case another program keeps removing it.

use std::time::{Duration, Instant};

use crate::guard::GuardChange;
use crate::hostnet::Guard;

/// Ours: shortest time between two restorations. A filter that is removed sooner is left to the next pass.
const INTERVAL: Duration = Duration::from_secs(1);

/// The packet filter as the last pass left it, and when it was restored.
#[derive(Debug, Clone, Default)]
pub struct Restoration {
    left: Option<Guard>,
    last: Option<Instant>,
    is_new: bool,
}

impl Restoration {
    /// Returns the change that restores the filter; `None` before the first pass, or if it was restored a short while ago.
    pub fn due(&mut self, now: Instant) -> Option<GuardChange> {
        let is_due = self.last.is_none_or(|last| now.saturating_duration_since(last) >= INTERVAL);
        let guard = self.left.clone().filter(|_| is_due)?;
        self.last = Some(now);
        Some(GuardChange::Restore(guard.into()))
    }

    /// Records that the filter was restored.
    pub fn record(&mut self) {
        self.is_new = true;
    }

    /// Records the filter that a pass leaves, if any; returns what was restored since the pass before.
    pub fn pass(&mut self, left: Option<Guard>) -> Option<GuardChange> {
        let before = std::mem::replace(&mut self.left, left);
        let was_restored = std::mem::take(&mut self.is_new);
        before.filter(|_| was_restored).map(|guard| GuardChange::Restore(guard.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_last_pass_left_is_restored_at_once_but_only_so_often() {
        let (mut restoration, start) = (Restoration::default(), Instant::now());
        assert_eq!(restoration.due(start), None);
        let guard = Guard { vxlan: [4800].into(), ..Guard::default() };
        let restore = Some(GuardChange::Restore(guard.clone().into()));
        assert_eq!(restoration.pass(Some(guard.clone())), None);
        assert_eq!(restoration.due(start), restore);
        restoration.record();
        assert_eq!(restoration.pass(Some(guard.clone())), restore);
        assert_eq!(restoration.pass(Some(guard)), None);
        assert_eq!(restoration.due(start + INTERVAL / 2), None);
        assert_eq!(restoration.due(start + INTERVAL), restore);
    }
}
