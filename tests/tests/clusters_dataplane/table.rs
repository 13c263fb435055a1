//! What was checked, and how it went.

use std::fmt;
use std::sync::Mutex;
use std::time::Instant;

/// Rows in the order in which they were begun. A failure is noted and the next row begun: one run shows them all.
pub(crate) struct Table {
    rows: Mutex<Vec<Row>>,
}

struct Row {
    id: String,
    what: String,
    seconds: f64,
    /// What there is to remark, or what failed.
    result: Result<String, String>,
}

impl Table {
    /// An empty one.
    pub(crate) fn new() -> Self {
        Self { rows: Mutex::new(Vec::new()) }
    }

    /// Does what a row says and notes how it went.
    pub(crate) fn row(&self, id: &str, what: &str, work: impl FnOnce() -> anyhow::Result<String>) {
        let start = Instant::now();
        let result = work().map_err(|error| format!("{error:#}"));
        let row =
            Row { id: id.to_owned(), what: what.to_owned(), seconds: start.elapsed().as_secs_f64(), result };
        if row.result.is_err() {
            eprint!("{row}");
        }
        self.rows.lock().unwrap().push(row);
    }

    /// Fails if a row has.
    pub(crate) fn assert_no_failure(&self) {
        let rows = self.rows.lock().unwrap();
        let failed: Vec<_> =
            rows.iter().filter(|row| row.result.is_err()).map(|row| row.id.as_str()).collect();
        assert!(failed.is_empty(), "these failed: {}", failed.join(", "));
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.rows.lock().unwrap().iter().try_for_each(|row| row.fmt(f))
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
