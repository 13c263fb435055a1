//! Upstream's tables: every column as wide as its widest cell, up to a limit, and three blanks.

use super::output::printable;

/// A column.
#[derive(Debug, Clone, Copy)]
pub(super) struct Column {
    /// The heading.
    pub(super) heading: &'static str,
    /// The longest cell that makes the column wider, in bytes; 0 for no limit.
    pub(super) max: usize,
}

/// A column without limit.
pub(super) const fn column(heading: &'static str) -> Column {
    Column { heading, max: 0 }
}

/// A column whose cells are cut.
pub(super) const fn limited(heading: &'static str, max: usize) -> Column {
    Column { heading, max }
}

/// The table as text; nothing at all without rows.
///
/// A column's width counts bytes, padding and cutting count characters, as Go's `len` and `%-*.*s` do: a `µ` widens
/// its column by one.
pub(super) fn render(columns: &[Column], rows: &[Vec<String>]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let rows: Vec<Vec<String>> =
        rows.iter().map(|row| row.iter().map(|cell| printable(cell)).collect()).collect();
    let widths: Vec<usize> =
        columns.iter().enumerate().map(|(at, column)| width(*column, at, &rows)).collect();
    let mut text = line(columns.iter().map(|column| column.heading), &widths);
    for row in &rows {
        text += &line(row.iter().map(String::as_str), &widths);
    }
    text
}

fn width(column: Column, at: usize, rows: &[Vec<String>]) -> usize {
    let limit = if column.max == 0 { usize::MAX } else { column.max };
    let cells = rows.iter().map(|row| row[at].len().min(limit));
    cells.chain([column.heading.len()]).max().unwrap_or_default()
}

fn line<'a>(cells: impl Iterator<Item = &'a str>, widths: &[usize]) -> String {
    let mut text: String = cells
        .zip(widths)
        .map(|(cell, width)| format!("{cell:<padded$.width$}", padded = width + 3))
        .collect();
    text.push('\n');
    text
}

/// `yes` or `no`.
pub(super) fn yes_no(value: bool) -> String {
    if value { "yes" } else { "no" }.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(cells: &[&str]) -> Vec<String> {
        cells.iter().map(|cell| (*cell).to_owned()).collect()
    }

    #[test]
    fn without_rows_nothing_is_printed() {
        assert_eq!(render(&[column("A")], &[]), "");
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_and_three_blanks() {
        let text = render(&[column("A"), column("LONG")], &[row(&["1234", "x"]), row(&["1", "y"])]);
        assert_eq!(text, "A      LONG   \n1234   x      \n1      y      \n");
    }

    #[test]
    fn a_limit_cuts_cells_but_not_the_heading() {
        let text = render(&[limited("HEADING", 3), limited("H", 3)], &[row(&["12345678", "12345678"])]);
        assert_eq!(text, "HEADING   H     \n1234567   123   \n");
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        let text = render(&[column("A")], &[row(&["\u{1b}[2Jx"])]);
        assert!(!text.contains('\u{1b}'), "{text:?}");
    }
}
