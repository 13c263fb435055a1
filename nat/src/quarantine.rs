//! Ports that no mapping has any more and that siblings may still know as somebody's.
//!
//! A sibling keeps copies of our sessions. Until it has heard that the last one of a mapping is gone, it may go on with
//! that mapping, if it comes to take the bucket for its own; so the port is given to nobody else before. Where nobody
//! keeps copies nothing is quarantined.

use std::collections::VecDeque;

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

#[derive(Debug, Default)]
pub(crate) struct Quarantine {
    pub(crate) is_on: bool,
    waiting: VecDeque<Waiting>,
}

impl Quarantine {
    /// Takes a port in. Gives one back that has to leave for it.
    pub(crate) fn push(&mut self, pool: u32, end: End, news: u64, second: u32) -> Option<(u32, End)> {
        let oldest = if self.waiting.len() >= MOST { self.waiting.pop_front() } else { None };
        self.waiting.push_back(Waiting { pool, end, news, second });
        oldest.map(|oldest| (oldest.pool, oldest.end))
    }

    /// The next port that may be used again: siblings have heard the first `news` news, or it went before `second`.
    pub(crate) fn pop(&mut self, news: u64, second: u32) -> Option<(u32, End)> {
        let first = self.waiting.front()?;
        let is_over = first.news <= news || first.second < second;
        if !is_over {
            return None;
        }
        self.waiting.pop_front().map(|first| (first.pool, first.end))
    }

    /// Takes a port out, because it is somebody's again.
    pub(crate) fn take(&mut self, end: &End) -> Option<u32> {
        let at = self.waiting.iter().position(|waiting| waiting.end == *end)?;
        self.waiting.remove(at).map(|waiting| waiting.pool)
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }
}
