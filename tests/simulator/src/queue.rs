//! A virtual clock and what is to come.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

/// A virtual clock with the events that are to come, by time and then in the order in which they were put in.
#[derive(Debug)]
pub struct Queue<E> {
    start: Instant,
    now: Instant,
    keys: Keys,
    /// Events by slot, so that the heap moves keys alone.
    events: Vec<Option<E>>,
    free: Vec<usize>,
}

/// When, which of all, and in which slot. Not generic: it is compiled once, optimised.
#[derive(Debug, Default)]
struct Keys {
    heap: BinaryHeap<Reverse<(Instant, u64, usize)>>,
    count: u64,
}

impl<E> Default for Queue<E> {
    fn default() -> Self {
        Self::new()
    }
}

impl<E> Queue<E> {
    /// Makes an empty queue whose clock starts at an arbitrary time: an `Instant` cannot be made from a number.
    #[must_use]
    pub fn new() -> Self {
        let start = Instant::now();
        Self { start, now: start, keys: Keys::default(), events: Vec::new(), free: Vec::new() }
    }

    /// Returns when the clock started.
    pub const fn start(&self) -> Instant {
        self.start
    }

    /// Returns what the clock shows.
    pub const fn now(&self) -> Instant {
        self.now
    }

    /// Returns the time since the clock started.
    pub fn elapsed(&self) -> Duration {
        self.now - self.start
    }

    /// Returns the whole milliseconds since the clock started.
    ///
    /// # Panics
    /// After 500 million years.
    pub fn millis(&self) -> u64 {
        u64::try_from(self.elapsed().as_millis()).expect("a simulation is short")
    }

    /// Puts in an event that happens at `when`, or at once if that is over.
    pub fn at(&mut self, when: Instant, event: E) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.events.push(None);
            self.events.len() - 1
        });
        self.events[slot] = Some(event);
        self.keys.push(when, slot);
    }

    /// Puts in an event that happens after `wait`.
    pub fn after(&mut self, wait: Duration, event: E) {
        self.at(self.now + wait, event);
    }

    /// Returns when the next event happens.
    pub fn next(&self) -> Option<Instant> {
        self.keys.next()
    }

    /// Takes out the next event if it happens by `limit`, and sets the clock to its time.
    pub fn pop(&mut self, limit: Instant) -> Option<E> {
        let (when, slot) = self.keys.pop(limit)?;
        self.advance(when);
        self.free.push(slot);
        self.events[slot].take()
    }

    /// Sets the clock to `to`; it never goes back.
    pub fn advance(&mut self, to: Instant) {
        self.now = self.now.max(to);
    }
}

impl Keys {
    fn push(&mut self, when: Instant, slot: usize) {
        self.count += 1;
        self.heap.push(Reverse((when, self.count, slot)));
    }

    fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse((when, ..))| *when)
    }

    fn pop(&mut self, limit: Instant) -> Option<(Instant, usize)> {
        if self.next()? > limit {
            return None;
        }
        self.heap.pop().map(|Reverse((when, _, slot))| (when, slot))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_then_in_the_order_of_insertion_and_move_the_clock() {
        let mut queue = Queue::new();
        let second = Duration::from_secs(1);
        for (wait, event) in [(2, "c"), (1, "a"), (2, "d"), (1, "b"), (9, "late")] {
            queue.after(wait * second, event);
        }
        let limit = queue.start() + 5 * second;
        let popped: Vec<_> =
            std::iter::from_fn(|| Some((queue.pop(limit)?, queue.elapsed().as_secs()))).collect();
        assert_eq!(popped, [("a", 1), ("b", 1), ("c", 2), ("d", 2)]);
        assert_eq!(queue.next(), Some(queue.start() + 9 * second));
    }

    #[test]
    fn what_was_due_before_happens_at_once_and_the_clock_does_not_go_back() {
        let mut queue = Queue::new();
        queue.advance(queue.start() + Duration::from_secs(3));
        queue.at(queue.start(), ());
        assert_eq!(queue.pop(queue.now()), Some(()));
        assert_eq!(queue.elapsed(), Duration::from_secs(3));
    }
}
