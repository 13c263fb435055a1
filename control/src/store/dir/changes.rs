//! The names of objects that have changed, for followers that have read the directory before.

use std::mem;

/// Ours: most changes of a chunk; as many are kept at least. A follower that is further behind compares everything.
const CHUNK: usize = 2048;

/// The latest changes, oldest first, numbered from 0 for the first that there ever was: a chunk that is full, and one that is
/// being filled. Each keeps its names in one piece, since thousands of small ones would lie between what comes and goes, and
/// keep the kernel from getting back the memory around them.
#[derive(Debug, Default)]
pub(super) struct Changes {
    full: Chunk,
    newest: Chunk,
}

#[derive(Debug, Default)]
struct Chunk {
    /// The number of the first one.
    first: u64,
    names: String,
    /// Where each name ends.
    ends: Vec<usize>,
}

impl Changes {
    /// Adds a change of an object.
    pub(super) fn add(&mut self, name: &str) {
        if self.newest.ends.len() == CHUNK {
            let next = Chunk { first: self.next(), ..Chunk::default() };
            self.full = mem::replace(&mut self.newest, next);
        }
        self.newest.names.push_str(name);
        self.newest.ends.push(self.newest.names.len());
    }

    /// Returns the number of the next change.
    pub(super) fn next(&self) -> u64 {
        self.newest.first + self.newest.ends.len() as u64
    }

    /// Returns the names of the objects that have changed since `next` was the number of the next change, each perhaps several
    /// times; `None` if some of these changes are not kept any more.
    pub(super) fn since(&self, next: u64) -> Option<impl Iterator<Item = &str>> {
        let skipped = usize::try_from(next.checked_sub(self.full.first)?).ok()?;
        let in_full = skipped.min(self.full.ends.len());
        Some(self.full.names(in_full).chain(self.newest.names(skipped - in_full)))
    }
}

impl Chunk {
    /// Returns the names but for so many of the first ones.
    fn names(&self, skipped: usize) -> impl Iterator<Item = &str> {
        (skipped..self.ends.len()).map(|at| {
            let start = at.checked_sub(1).map_or(0, |before| self.ends[before]);
            &self.names[start..self.ends[at]]
        })
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
        for _ in 3..CHUNK {
            changes.add("c");
        }
        changes.add("");
        assert_eq!(changes.since(next).unwrap().count(), CHUNK, "one chunk is full");
        assert_eq!(changes.since(next).unwrap().last(), Some(""));
        for _ in 0..CHUNK {
            changes.add("d");
        }
        assert!(changes.since(next).is_none(), "b is not kept");
        let kept = changes.next() - CHUNK as u64;
        assert_eq!(changes.since(kept).unwrap().collect::<Vec<_>>(), ["d"; CHUNK]);
        let all = 2 * CHUNK as u64 + 1;
        assert_eq!(changes.next(), all);
    }
}
