//! The names of objects that have changed, for followers that have read the directory before.

use std::collections::VecDeque;

/// Ours: most changes that are kept. A follower that is further behind compares everything.
const MAX_CHANGES: usize = 4096;

/// The latest changes, oldest first, numbered from 0 for the first that there ever was.
#[derive(Debug, Default)]
pub(super) struct Changes {
    names: VecDeque<String>,
    /// The number of the oldest that is kept.
    first: u64,
}

impl Changes {
    /// Adds a change of an object.
    pub(super) fn add(&mut self, name: &str) {
        if self.names.len() == MAX_CHANGES {
            self.names.pop_front();
            self.first += 1;
        }
        self.names.push_back(name.to_owned());
    }

    /// Returns the number of the next change.
    pub(super) fn next(&self) -> u64 {
        self.first + self.names.len() as u64
    }

    /// Returns the names of the objects that have changed since `next` was the number of the next change, each perhaps several
    /// times; `None` if some of these changes are not kept any more.
    pub(super) fn since(&self, next: u64) -> Option<impl Iterator<Item = &str>> {
        let skipped = usize::try_from(next.checked_sub(self.first)?).ok()?;
        Some(self.names.iter().skip(skipped).map(String::as_str))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_numbered_and_only_the_latest_are_kept() {
        let mut changes = Changes::default();
        assert_eq!(changes.next(), 0);
        changes.add("a");
        let next = changes.next();
        changes.add("b");
        changes.add("a");
        assert_eq!(changes.since(next).unwrap().collect::<Vec<_>>(), ["b", "a"]);
        assert_eq!(changes.since(changes.next()).unwrap().count(), 0);
        for _ in 0..MAX_CHANGES {
            changes.add("c");
        }
        assert!(changes.since(next).is_none(), "b is not kept");
        assert_eq!(changes.since(next + 2).unwrap().count(), MAX_CHANGES);
        assert_eq!(changes.names.len(), MAX_CHANGES);
    }
}
