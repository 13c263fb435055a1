//! The first of very many. Pure.

use std::fmt;

/// Ours: so many of anything are named.
pub(super) const MANY: usize = 10;
/// The first of many, and how many there are.
#[derive(Debug, Default)]
pub(super) struct Few {
    first: Vec<String>,
    count: usize,
}

impl Few {
    /// Adds one.
    pub(super) fn push(&mut self, text: impl FnOnce() -> String) {
        self.count += 1;
        if self.first.len() < MANY {
            self.first.push(text());
        }
    }

    /// Returns how many there are.
    pub(super) const fn count(&self) -> usize {
        self.count
    }
}

impl<T: ToString> FromIterator<T> for Few {
    fn from_iter<I: IntoIterator<Item = T>>(all: I) -> Self {
        let mut few = Self::default();
        all.into_iter().for_each(|one| few.push(|| one.to_string()));
        few
    }
}

impl fmt::Display for Few {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.first.join(", "))?;
        match self.count - self.first.len() {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}
