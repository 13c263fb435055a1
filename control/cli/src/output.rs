//! Standard output, whose reader may go away, and remarks beside it.

use std::io::{self, IsTerminal, Write};
use std::sync::{Arc, Mutex, PoisonError};

use clap::ValueEnum;
use serde::Serialize;

/// How an answer is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// For people
    #[default]
    Table,
    /// For programs
    Json,
    /// For programs and people
    Yaml,
}

/// Where answers go. Clones write to the same place.
#[derive(Clone)]
pub(super) struct Output {
    to: Arc<Mutex<dyn Write + Send>>,
    is_terminal: bool,
}

impl Output {
    /// Standard output.
    pub(super) fn stdout() -> Self {
        let stdout = io::stdout();
        // A dumb terminal neither moves its cursor nor knows colours.
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        Self { is_terminal: stdout.is_terminal() && !is_dumb, to: Arc::new(Mutex::new(stdout)) }
    }

    /// Any writer, as if it were a file or, if `is_terminal`, a terminal.
    #[cfg(test)]
    pub(super) fn new(to: Arc<Mutex<dyn Write + Send>>, is_terminal: bool) -> Self {
        Self { to, is_terminal }
    }

    /// Whether lines can be replaced, and may have colours.
    pub(super) const fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// Writes an answer, or a part of one, at once.
    pub(super) fn write(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        let mut to = self.to.lock().unwrap_or_else(PoisonError::into_inner);
        to.write_all(bytes)?;
        Ok(to.flush()?)
    }

    /// Writes a value in a format for programs.
    pub(super) fn write_value(&mut self, value: &impl Serialize, format: Format) -> anyhow::Result<()> {
        // By way of JSON, so that both formats have the same fields in the same order.
        let value = serde_json::to_value(value)?;
        let mut text = match format {
            Format::Yaml => serde_saphyr::to_string(&value)?,
            Format::Json | Format::Table => serde_json::to_string_pretty(&value)?,
        };
        if !text.ends_with('\n') {
            text.push('\n');
        }
        self.write(text.as_bytes())
    }
}

/// Says something beside the answer. Nobody there to listen is no failure.
pub(super) fn remark(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Whether the reader of our answer has gone, as `head` does.
pub(super) fn is_reader_gone(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}

/// Text from elsewhere, safe for a terminal: control characters could move its cursor or worse.
pub(super) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// As [`printable`], but of several lines.
pub(super) fn printable_lines(text: &str) -> String {
    text.split('\n').map(printable).collect::<Vec<_>>().join("\n")
}
