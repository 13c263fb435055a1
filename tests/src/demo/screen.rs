//! What the demo shows: one line per step, details indented below. Nothing moves unless it is a terminal.

use std::io::{IsTerminal, Write};
use std::time::Instant;

/// Columns before the time of a step.
const TITLE_COLUMNS: usize = 72;

/// The screen.
#[derive(Debug)]
pub struct Screen {
    is_terminal: bool,
    started: Instant,
}

impl Default for Screen {
    fn default() -> Self {
        Self { is_terminal: std::io::stdout().is_terminal(), started: Instant::now() }
    }
}

impl Screen {
    /// A heading with an empty line before it.
    pub fn heading(&self, text: &str) {
        let text = if self.is_terminal { format!("\n\x1b[1m{text}\x1b[0m") } else { format!("\n{text}") };
        write(&format!("{text}\n"));
    }

    /// A plain line.
    pub fn line(&self, text: &str) {
        write(&format!("  {text}\n"));
    }

    /// Lines as another program printed them.
    pub fn quote(&self, text: &str) {
        for line in text.lines() {
            write(format!("    {line}").trim_end());
            write("\n");
        }
    }

    /// Does one step: its title at once, then how it ended, how long it took, and what it found.
    ///
    /// # Errors
    /// Those of the step.
    pub fn step(
        &self,
        title: &str,
        work: impl FnOnce() -> anyhow::Result<Vec<String>>,
    ) -> anyhow::Result<()> {
        self.step_with(title, || Ok((work()?, ())))
    }

    /// The same for a step that makes something.
    ///
    /// # Errors
    /// Those of the step.
    pub fn step_with<T>(
        &self,
        title: &str,
        work: impl FnOnce() -> anyhow::Result<(Vec<String>, T)>,
    ) -> anyhow::Result<T> {
        if self.is_terminal {
            write(&format!("  … {title}"));
        }
        let start = Instant::now();
        let result = work();
        let (mark, colour) = if result.is_ok() { ("✓", 32) } else { ("✗", 31) };
        let mark = if self.is_terminal {
            format!("\r\x1b[2K  \x1b[{colour}m{mark}\x1b[0m")
        } else {
            format!("  {mark}")
        };
        write(&format!("{mark} {title:<TITLE_COLUMNS$} {:5.1} s\n", start.elapsed().as_secs_f64()));
        let (details, made) = result?;
        for detail in details {
            write(&format!("      {detail}\n"));
        }
        Ok(made)
    }

    /// Seconds since the demo began.
    pub fn elapsed_seconds(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }
}

/// Writes and flushes; a closed pipe on the other side is not the demo's failure, and must not stop it from
/// tidying up.
fn write(text: &str) {
    let mut stdout = std::io::stdout().lock();
    let _ = stdout.write_all(text.as_bytes());
    let _ = stdout.flush();
}
