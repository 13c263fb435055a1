//! Ports that no mapping has any more and that siblings may still know as somebody's.
//!
//! A sibling keeps copies of our sessions. Until it has heard that the last one of a mapping is gone, it may go on with
//! that mapping, if it comes to take the bucket for its own; so the port is given to nobody else before. Where nobody
//! keeps copies nothing is quarantined.

use std::collections::VecDeque;

use hashbrown::HashMap;
use trieste_packet::KeyedState;

use crate::session::End;

/// Most ports that wait. Ours: eight global addresses' worth of one gateway's slot; beyond it the oldest is free.
const MOST: usize = 1 << 16;

/// A port that waits.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    pool: u32,
    end: End,
    /// How many news there were when it was given back: the last of them says so.
    news: u64,
    second: u32,
}

#[derive(Debug)]
pub(crate) struct Quarantine {
    pub(crate) is_on: bool,
    /// In the order in which they came; `None` where one was taken out.
    waiting: VecDeque<Option<Waiting>>,
    /// Number of the first of them.
    first: u64,
    count: usize,
    /// Their numbers, by which one is found among thousands. Of a TCP port that several mappings shared the newest.
    by_end: HashMap<End, u64, KeyedState>,
}

impl Quarantine {
    pub(crate) fn new(state: &KeyedState) -> Self {
        let by_end = HashMap::with_hasher(state.clone());
        Self { is_on: false, waiting: VecDeque::new(), first: 0, count: 0, by_end }
    }

    /// Takes a port in. Gives one back that has to leave for it.
    pub(crate) fn push(&mut self, pool: u32, end: End, news: u64, second: u32) -> Option<(u32, End)> {
        let oldest = if self.count >= MOST { self.leave_first() } else { None };
        self.by_end.insert(end, self.first + self.waiting.len() as u64);
        self.waiting.push_back(Some(Waiting { pool, end, news, second }));
        self.count += 1;
        oldest
    }

    /// Returns the next port that may be used again: siblings have heard the first `news` news, or it went before `second`.
    pub(crate) fn pop(&mut self, news: u64, second: u32) -> Option<(u32, End)> {
        let first = self.waiting.front().copied().flatten()?;
        let is_over = first.news <= news || first.second < second;
        if is_over { self.leave_first() } else { None }
    }

    /// Takes a port out, because it is somebody's again.
    pub(crate) fn take(&mut self, end: &End) -> Option<u32> {
        let number = self.by_end.remove(end)?;
        let at = usize::try_from(number - self.first).ok()?;
        let waiting = self.waiting.get_mut(at)?.take()?;
        self.count -= 1;
        self.skip_gaps();
        Some(waiting.pool)
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    fn leave_first(&mut self) -> Option<(u32, End)> {
        let first = self.waiting.pop_front()??;
        if self.by_end.get(&first.end) == Some(&self.first) {
            self.by_end.remove(&first.end);
        }
        self.first += 1;
        self.count -= 1;
        self.skip_gaps();
        Some((first.pool, first.end))
    }

    /// The first is always one that waits.
    fn skip_gaps(&mut self) {
        while self.waiting.front().is_some_and(Option::is_none) {
            self.waiting.pop_front();
            self.first += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(port: u16) -> End {
        End { protocol: 17, address: [242, 1, 0, 1].into(), port }
    }

    #[test]
    fn ports_leave_in_the_order_they_came_and_one_alone_when_it_is_wanted() {
        let mut quarantine = Quarantine::new(&KeyedState::new(1));
        for port in 0..100 {
            assert_eq!(quarantine.push(7, end(port), port.into(), 5), None);
        }
        assert_eq!((quarantine.take(&end(0)), quarantine.take(&end(50))), (Some(7), Some(7)));
        assert_eq!((quarantine.take(&end(50)), quarantine.take(&end(200))), (None, None));
        assert_eq!(quarantine.len(), 98);
        let mut left = Vec::new();
        while let Some((_, end)) = quarantine.pop(60, 5) {
            left.push(end.port);
        }
        assert_eq!(left, (1..=60).filter(|port| *port != 50).collect::<Vec<_>>());
        assert_eq!(quarantine.pop(60, 6).map(|(_, end)| end.port), Some(61), "its time is over");
    }

    #[test]
    fn there_are_never_more_than_so_many_and_a_port_may_be_in_it_twice() {
        let mut quarantine = Quarantine::new(&KeyedState::new(1));
        quarantine.push(1, end(9), 0, 0);
        quarantine.push(2, end(9), 0, 0);
        for port in 0..u16::MAX {
            quarantine.push(3, end(port), 1, 0);
            assert!(quarantine.len() <= MOST);
        }
        assert_eq!(quarantine.push(3, end(7), 1, 0), Some((2, end(9))));
        assert_eq!(quarantine.len(), MOST);
        let mut count = 0;
        while quarantine.pop(u64::MAX, 0).is_some() {
            count += 1;
        }
        assert_eq!((count, quarantine.by_end.len()), (MOST, 0));
    }
}
