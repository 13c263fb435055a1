//! What was checked, and how it went.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Rows in the order in which they were begun. A failure is noted and the next row begun: one run shows them all.
#[derive(Debug, Default)]
pub struct Table {
    rows: Mutex<Vec<Row>>,
}

#[derive(Debug)]
struct Row {
    id: String,
    what: String,
    seconds: f64,
    /// What there is to remark, or what failed.
    result: Result<String, String>,
}

impl Table {
    /// Does what a row says and notes how it went.
    pub fn row(&self, id: &str, what: &str, work: impl FnOnce() -> anyhow::Result<String>) {
        let start = Instant::now();
        let result = work().map_err(|error| format!("{error:#}"));
        let row =
            Row { id: id.to_owned(), what: what.to_owned(), seconds: start.elapsed().as_secs_f64(), result };
        if row.result.is_err() {
            eprint!("{row}");
        }
        self.lock().push(row);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Row>> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fails if a row has.
    ///
    /// # Panics
    /// Then.
    pub fn assert_no_failure(&self) {
        let rows = self.lock();
        let failed: Vec<_> =
            rows.iter().filter(|row| row.result.is_err()).map(|row| row.id.as_str()).collect();
        assert!(failed.is_empty(), "these failed: {}", failed.join(", "));
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lock().iter().try_for_each(|row| row.fmt(f))
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mark, text) = match &self.result {
            Ok(text) => ("✓", text),
            Err(text) => ("✗", text),
        };
        writeln!(f, "{mark} {:<6} {:<42} {:5.1} s  {text}", self.id, self.what, self.seconds)
    }
}
