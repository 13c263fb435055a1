//! Steps of long work, printed as upstream's tool does.
//!
//! ```text
//!   to a file or a pipe               on a terminal
//!   " • Checking DaemonSet  ..."      " ⠋ Checking DaemonSet", a line that turns and is replaced
//!   " ⚠ Checking DaemonSet"           " ⚠ Checking DaemonSet", the sign in colour
//!   " ⚠ One pod is not ready"         " ⚠ One pod is not ready"
//! ```
//!
//! What is said about a step while it runs is printed below its last line, and the worst of it decides the step's sign.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use trieste_control::steps::{Outcome, Steps};

use super::output::{Output, is_reader_gone, printable, printable_lines};

/// Ours: how often the spinner turns.
const TURN: Duration = Duration::from_millis(100);
/// The spinner's pictures.
const FRAMES: [char; 10] = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];
/// Back to the line's start, and everything right of it removed.
const CLEAR: &str = "\r\x1b[K";

/// Prints steps, and what belongs between them.
pub(super) struct Printer {
    output: Output,
    has_colours: bool,
    step: Option<Running>,
    worst: Outcome,
    /// The first error of writing. The work goes on: a reader that goes away must not leave it half done.
    error: Option<anyhow::Error>,
}

/// The step that runs.
struct Running {
    title: String,
    remarks: Vec<(Outcome, String)>,
    spinner: Option<Spinner>,
}

impl Printer {
    /// Prints to an output.
    pub(super) fn new(output: &Output) -> Self {
        let has_colours = output.is_terminal() && std::env::var_os("NO_COLOR").is_none();
        Self { output: output.clone(), has_colours, step: None, worst: Outcome::Success, error: None }
    }

    /// Announces the cluster that the following steps are about.
    pub(super) fn heading(&mut self, cluster: &str) {
        self.text(&format!("Cluster \"{}\"\n", printable(cluster)));
    }

    /// Prints text as it is, after the end of a step that still runs.
    pub(super) fn text(&mut self, text: &str) {
        self.end_running(Outcome::Success);
        self.write(text);
    }

    /// The worst end or remark so far.
    pub(super) const fn worst(&self) -> Outcome {
        self.worst
    }

    /// Ends a step that still runs; tells whether all could be written. A reader that has gone away is no failure.
    ///
    /// # Errors
    /// The first error of writing.
    pub(super) fn finish(mut self) -> anyhow::Result<()> {
        self.end_running(Outcome::Success);
        match self.error.take() {
            Some(error) if !is_reader_gone(&error) => Err(error.context("cannot write to standard output")),
            Some(_) | None => Ok(()),
        }
    }

    fn end_running(&mut self, outcome: Outcome) {
        let Some(Running { title, remarks, spinner }) = self.step.take() else { return };
        if let Some(spinner) = spinner {
            spinner.stop();
            self.write(CLEAR);
        }
        let outcome = remarks.iter().map(|(outcome, _)| *outcome).fold(outcome, Ord::max);
        self.line(outcome, &title);
        for (outcome, text) in remarks {
            self.line(outcome, &text);
        }
    }

    fn line(&mut self, outcome: Outcome, text: &str) {
        self.worst = self.worst.max(outcome);
        let (sign, colour) = match outcome {
            Outcome::Success => ('✓', 32),
            Outcome::Warning => ('⚠', 33),
            Outcome::Failure => ('✗', 31),
        };
        let text = printable_lines(text);
        if self.has_colours {
            self.write(&format!(" \x1b[{colour}m{sign}\x1b[0m {text}\n"));
        } else {
            self.write(&format!(" {sign} {text}\n"));
        }
    }

    fn write(&mut self, text: &str) {
        if self.error.is_none() {
            self.error = self.output.write(text.as_bytes()).err();
        }
    }
}

impl Steps for Printer {
    fn begin(&mut self, title: &str) {
        self.end_running(Outcome::Success);
        let spinner = self.output.is_terminal().then(|| Spinner::start(self.output.clone(), title));
        if spinner.is_none() {
            self.write(&format!(" • {}  ...\n", printable_lines(title)));
        }
        self.step = Some(Running { title: title.to_owned(), remarks: Vec::new(), spinner });
    }

    fn end(&mut self, outcome: Outcome) {
        self.end_running(outcome);
    }

    fn remark(&mut self, outcome: Outcome, text: &str) {
        match &mut self.step {
            Some(step) => step.remarks.push((outcome, text.to_owned())),
            None => self.line(outcome, text),
        }
    }
}

impl Drop for Printer {
    /// A step that ends with an error on its way out has failed; its line must not stay half drawn.
    fn drop(&mut self) {
        self.end_running(Outcome::Failure);
    }
}

/// A line that turns until it is stopped.
struct Spinner {
    stop: Sender<()>,
    thread: JoinHandle<()>,
}

impl Spinner {
    fn start(mut output: Output, title: &str) -> Self {
        let (stop, stopped) = mpsc::channel();
        // A title longer than one line could not be replaced.
        let title = printable(title.lines().next().unwrap_or_default());
        let turn = move || {
            for frame in FRAMES.iter().cycle() {
                let _ = output.write(format!("{CLEAR} {frame} {title} ").as_bytes());
                if stopped.recv_timeout(TURN) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
            }
        };
        Self { stop, thread: thread::spawn(turn) }
    }

    fn stop(self) {
        drop(self.stop);
        // It ends at once, and has nothing to tell.
        let _ = self.thread.join();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    /// What is printed by some work.
    fn printed(is_terminal: bool, work: impl FnOnce(&mut Printer)) -> (String, Outcome) {
        let buffer = Arc::new(Mutex::new(Vec::new()));
        let writer: Arc<Mutex<dyn Write + Send>> = buffer.clone();
        let mut printer = Printer::new(&Output::new(writer, is_terminal));
        printer.has_colours = is_terminal;
        work(&mut printer);
        let worst = printer.worst();
        printer.finish().unwrap();
        let text = String::from_utf8(buffer.lock().unwrap().clone()).unwrap();
        (text, worst)
    }

    #[test]
    fn steps_are_printed_in_upstreams_form() {
        let (text, worst) = printed(false, |printer| {
            printer.heading("cluster-b");
            printer.begin("Detecting broker(s)");
            printer.end(Outcome::Success);
            printer.remark(Outcome::Success, "No brokers found");
            printer.text("\n");
            printer.begin("Checking gateway connections");
            printer.remark(Outcome::Warning, "One\nof two");
            printer.end(Outcome::Success);
        });
        let expected = "Cluster \"cluster-b\"\n • Detecting broker(s)  ...\n ✓ Detecting broker(s)\n ✓ No brokers found\n\n \
                        • Checking gateway connections  ...\n ⚠ Checking gateway connections\n ⚠ One\nof two\n";
        assert_eq!(text, expected);
        assert_eq!(worst, Outcome::Warning);
    }

    #[test]
    fn a_step_that_begins_ends_the_one_before() {
        let (text, _) = printed(false, |printer| {
            printer.begin("One");
            printer.begin("Two");
            printer.text("table\n");
        });
        assert_eq!(text, " • One  ...\n ✓ One\n • Two  ...\n ✓ Two\ntable\n");
    }

    #[test]
    fn on_a_terminal_the_line_of_a_running_step_is_replaced() {
        let (text, worst) = printed(true, |printer| {
            printer.begin("Probing");
            printer.remark(Outcome::Failure, "no answer");
            printer.end(Outcome::Success);
        });
        assert!(text.starts_with("\r\x1b[K ⠋ Probing "), "{text:?}");
        assert!(
            text.ends_with("\r\x1b[K \x1b[31m✗\x1b[0m Probing\n \x1b[31m✗\x1b[0m no answer\n"),
            "{text:?}"
        );
        assert_eq!(worst, Outcome::Failure);
    }

    #[test]
    fn text_from_elsewhere_does_not_move_the_cursor() {
        let (text, _) = printed(false, |printer| printer.remark(Outcome::Success, "a\x1b[2Jb\nc"));
        assert_eq!(text, " ✓ a\u{fffd}[2Jb\nc\n");
    }
}
