//! Numbers for cables: lanes, which name the worker that owns them, and rows of counters. Neither depends on how many
//! there are.

use std::collections::BTreeSet;

use trieste_packet::{CableId, LaneId, WorkerId};
use trieste_pipeline::owner_of;

use crate::tables::Lane;

/// Most cables at a time, those that end included: rows are 16 bits wide, and row 0 stands for no cable.
pub(super) const MOST: u16 = u16::MAX;

/// Which numbers are out.
#[derive(Debug)]
pub(super) struct Numbers {
    /// Workers, and how many cables each has.
    workers: Vec<(WorkerId, usize)>,
    next_lane: u32,
    lanes: BTreeSet<LaneId>,
    /// Rows below `rows` that nobody has.
    free_rows: BTreeSet<u16>,
    rows: u16,
}

impl Numbers {
    /// Returns an allocator with all numbers free. Lanes start at `first_lane`.
    pub(super) fn new(workers: impl Iterator<Item = WorkerId>, first_lane: u16) -> Self {
        Self {
            workers: workers.map(|worker| (worker, 0)).collect(),
            next_lane: u32::from(first_lane),
            lanes: BTreeSet::new(),
            free_rows: BTreeSet::new(),
            rows: 0,
        }
    }

    /// Allocates a lane on the worker with the fewest cables, and the lowest free row. `None` if all are in use.
    pub(super) fn allocate(&mut self) -> Option<Lane> {
        let (worker, cables) = self.workers.iter_mut().min_by_key(|(_, cables)| *cables)?;
        let row = match self.free_rows.pop_first() {
            Some(row) => row,
            None if self.rows < MOST => {
                self.rows += 1;
                self.rows
            }
            None => return None,
        };
        *cables += 1;
        loop {
            // There are as many lanes for each worker as there are rows and one more, so one of them is free.
            self.next_lane = (self.next_lane + 1) & 0xffff;
            let lane = LaneId((self.next_lane << 8) | u32::from(worker.0 & 0xff));
            if self.lanes.insert(lane) {
                return Some(Lane { lane, cable: CableId(row) });
            }
        }
    }

    /// Marks a cable as cut: its worker has one less, but its numbers stay allocated while they may be in use.
    pub(super) fn cut(&mut self, lane: Lane) {
        let owner = owner_of(lane.lane);
        if let Some((_, cables)) = self.workers.iter_mut().find(|(worker, _)| *worker == owner) {
            *cables = cables.saturating_sub(1);
        }
    }

    /// Frees the numbers of a cut cable.
    pub(super) fn release(&mut self, lane: Lane) {
        self.lanes.remove(&lane.lane);
        self.free_rows.insert(lane.cable.0);
        // Rows at the end need no entry each: a set that has shrunk keeps nothing of those that have left.
        while self.rows > 0 && self.free_rows.last() == Some(&self.rows) {
            self.free_rows.pop_last();
            self.rows -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cables_are_spread_over_workers_and_rows_are_used_again() {
        let mut numbers = Numbers::new([0, 1, 2].into_iter().map(WorkerId), 0xfffe);
        let lanes: Vec<Lane> = (0..600).map(|_| numbers.allocate().unwrap()).collect();
        for worker in 0..3 {
            let count = lanes.iter().filter(|lane| owner_of(lane.lane) == WorkerId(worker)).count();
            assert_eq!(count, 200);
        }
        let rows: Vec<u16> = lanes.iter().map(|lane| lane.cable.0).collect();
        assert_eq!(rows, (1..=600).collect::<Vec<u16>>());
        numbers.cut(lanes[300]);
        assert_eq!(numbers.allocate().unwrap().cable, CableId(601), "a cut cable's row is still looked at");
        numbers.release(lanes[300]);
        assert_eq!(numbers.allocate().unwrap().cable, lanes[300].cable);
    }

    #[test]
    fn nothing_is_kept_of_cables_that_have_left() {
        let mut numbers = Numbers::new([WorkerId(0)].into_iter(), 7);
        let lanes: Vec<Lane> = (0..100).map(|_| numbers.allocate().unwrap()).collect();
        for &lane in lanes.iter().skip(1).step_by(2).chain(lanes.iter().step_by(2)) {
            numbers.cut(lane);
            numbers.release(lane);
        }
        assert_eq!((numbers.rows, numbers.free_rows.len(), numbers.lanes.len()), (0, 0, 0));
        assert_eq!(numbers.allocate().unwrap().cable, CableId(1));
    }

    #[test]
    fn all_numbers_can_be_out_and_then_there_is_none() {
        let mut numbers = Numbers::new([WorkerId(0)].into_iter(), 7);
        let first = numbers.allocate().unwrap();
        for _ in 1..MOST {
            numbers.allocate().unwrap();
        }
        assert_eq!(numbers.allocate(), None);
        numbers.cut(first);
        numbers.release(first);
        assert_eq!(numbers.allocate().unwrap().cable, first.cable);
        assert!(
            Numbers::new(std::iter::empty(), 0).allocate().is_none(),
            "without workers there is none either"
        );
    }
}
