//! Tables for people, JSON for programs.

use std::io::Write as _;

use serde::Serialize;

/// A table with a header; numbers stand to the right.
#[derive(Debug, Default)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns.
    pub(crate) fn new(columns: &[&str]) -> Self {
        Self { rows: vec![columns.iter().map(|&column| column.to_owned()).collect()] }
    }

    /// Appends a row.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// The table as lines of text.
    pub(crate) fn text(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            self.rows
                .iter()
                .filter_map(|row| row.get(column))
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                let padding = " ".repeat(width - cell.chars().count());
                let is_number = column > 0 && self.is_number(column);
                line += &if is_number { format!("{padding}{cell}  ") } else { format!("{cell}{padding}  ") };
            }
            text += line.trim_end();
            text.push('\n');
        }
        text
    }

    fn is_number(&self, column: usize) -> bool {
        self.rows.iter().skip(1).filter_map(|row| row.get(column)).all(|cell| {
            cell.chars().next().is_none_or(|first| first.is_ascii_digit() || "-+.".contains(first))
        })
    }
}

/// Writes text to standard output; a reader that has gone away is no error.
///
/// # Errors
/// When it cannot be written for another reason.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// Writes a value as JSON to standard output.
///
/// # Errors
/// When it cannot be written.
pub(crate) fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    print(&format!("{}\n", serde_json::to_string_pretty(value)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stand_left_and_numbers_right() {
        let mut table = Table::new(&["name", "ns", "how"]);
        table.row(vec!["a".into(), "7.5".into(), "x".into()]);
        table.row(vec!["long name".into(), "1024".into(), "yy".into()]);
        assert_eq!(table.text(), "name         ns  how\na           7.5  x\nlong name  1024  yy\n");
    }
}
