//! Which lanes have something due, the earliest first: what is done at a time-out costs what is due then, and not what
//! lanes there are.

use std::collections::BTreeSet;
use std::time::Instant;

use trieste_packet::LaneId;

/// When each lane wants to be called. A lane holds its own entry, so that it has one at most.
#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    order: BTreeSet<(Instant, LaneId)>,
}

/// A lane's entry: the time at which it is called, if it is.
pub(crate) type Entry = Option<Instant>;

impl Deadlines {
    /// Returns how many lanes have something due at some time.
    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }

    /// Returns when the first lane is to be called.
    pub(crate) fn first(&self) -> Option<Instant> {
        self.order.first().map(|(due, _)| *due)
    }

    /// Sets when a lane is called: at `due` and not before, or not at all.
    pub(crate) fn set(&mut self, lane: LaneId, entry: &mut Entry, due: Option<Instant>) {
        if *entry == due {
            return;
        }
        if let Some(before) = std::mem::replace(entry, due) {
            self.order.remove(&(before, lane));
        }
        self.order.extend(due.map(|due| (due, lane)));
    }

    /// Sees to it that a lane is called at `due` at the latest. One that is called before finds nothing to do then: cheaper than to move
    /// it with every batch.
    pub(crate) fn hasten(&mut self, lane: LaneId, entry: &mut Entry, due: Instant) {
        if entry.is_none_or(|before| due < before) {
            self.set(lane, entry, Some(due));
        }
    }

    /// Appends the lanes that are due at `now`, which keep their entries until these are set anew.
    pub(crate) fn due(&self, now: Instant, lanes: &mut Vec<LaneId>) {
        lanes.extend(self.order.iter().take_while(|(due, _)| *due <= now).map(|(_, lane)| *lane));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_lane_has_one_entry_and_is_due_at_the_earliest_time_it_was_given() {
        #[expect(clippy::disallowed_methods, reason = "an Instant cannot be made from a number")]
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let (mut deadlines, mut entries) = (Deadlines::default(), [None; 3]);
        for (lane, entry) in (0..).zip(&mut entries) {
            deadlines.set(LaneId(lane), entry, Some(at(10 + u64::from(lane))));
        }
        deadlines.hasten(LaneId(2), &mut entries[2], at(5));
        deadlines.hasten(LaneId(1), &mut entries[1], at(20));
        let due = |deadlines: &Deadlines, seconds| {
            let mut lanes = Vec::new();
            deadlines.due(at(seconds), &mut lanes);
            lanes.iter().map(|lane| lane.0).collect::<Vec<_>>()
        };
        assert_eq!((due(&deadlines, 4), due(&deadlines, 10)), (vec![], vec![2, 0]));
        deadlines.set(LaneId(2), &mut entries[2], Some(at(30)));
        deadlines.set(LaneId(0), &mut entries[0], None);
        assert_eq!((due(&deadlines, 30), deadlines.first()), (vec![1, 2], Some(at(11))));
        assert_eq!((deadlines.len(), entries), (2, [None, Some(at(11)), Some(at(30))]));
    }
}
