//! Which of many named things have something due, the earliest first: what is done at a time-out costs what is due then,
//! and not how many there are.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// When each of them is due, if it is.
#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    order: BTreeSet<(Instant, String)>,
    by_name: BTreeMap<String, Instant>,
}

impl Deadlines {
    /// Returns when the first one is due.
    pub(crate) fn first(&self) -> Option<Instant> {
        self.order.first().map(|(due, _)| *due)
    }

    /// Sets when one is due, if it is.
    pub(crate) fn set(&mut self, name: &str, due: Option<Instant>) {
        let before = self.by_name.get(name).copied();
        if before == due {
            return;
        }
        if let Some(before) = before {
            self.order.remove(&(before, name.to_owned()));
            self.by_name.remove(name);
        }
        if let Some(due) = due {
            self.order.insert((due, name.to_owned()));
            self.by_name.insert(name.to_owned(), due);
        }
    }

    /// Drains those that are due at `now`.
    pub(crate) fn take_due(&mut self, now: Instant) -> Vec<String> {
        let mut due = Vec::new();
        while let Some((_, name)) = self.order.first().filter(|(at, _)| *at <= now).cloned() {
            self.set(&name, None);
            due.push(name);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn each_is_due_once_at_the_time_it_was_given_last() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut deadlines = Deadlines::default();
        for (name, due) in [("a", Some(3)), ("b", Some(2)), ("a", Some(1)), ("c", Some(1)), ("c", None)] {
            deadlines.set(name, due.map(at));
        }
        assert_eq!((deadlines.first(), deadlines.take_due(start)), (Some(at(1)), Vec::new()));
        assert_eq!(deadlines.take_due(at(2)), ["a", "b"]);
        assert!(deadlines.first().is_none() && deadlines.by_name.is_empty());
    }
}
