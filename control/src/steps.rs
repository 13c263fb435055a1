//! Where long work says what it is doing: one step at a time, each with an end.
//!
//! The work knows nothing of terminals; the command `trieste` prints steps as upstream's tool does, tests record them.

use std::fmt;

/// How a remark or the end of a step is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// As it should be.
    Success,
    /// Works, but somebody should look at it.
    Warning,
    /// Does not work.
    Failure,
}

/// Takes reports of steps. A step that ended may be followed by remarks; remarks before its end belong to it too.
pub trait Steps: Send {
    /// Begins a step: its title, as in "Checking gateway connections".
    fn begin(&mut self, title: &str);

    /// Ends the step that began last; an end without a beginning is the caller's mistake and is ignored.
    fn end(&mut self, outcome: Outcome);

    /// Adds a remark to the step that began last.
    fn remark(&mut self, outcome: Outcome, text: &str);
}

/// A step's record, for tests and for machines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Its title.
    pub title: String,
    /// How it ended; `None` if it did not.
    pub outcome: Option<Outcome>,
    /// The remarks on it, in order.
    pub remarks: Vec<(Outcome, String)>,
}

/// Keeps all steps.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Record {
    /// The steps, in order.
    pub steps: Vec<Step>,
}

impl Record {
    /// Returns the worst outcome of steps and remarks; success if there are none.
    #[must_use]
    pub fn worst(&self) -> Outcome {
        let ends = self.steps.iter().filter_map(|step| step.outcome);
        let remarks = self.steps.iter().flat_map(|step| &step.remarks).map(|(outcome, _)| *outcome);
        ends.chain(remarks).max().unwrap_or(Outcome::Success)
    }
}

impl Steps for Record {
    fn begin(&mut self, title: &str) {
        self.steps.push(Step { title: title.to_owned(), outcome: None, remarks: Vec::new() });
    }

    fn end(&mut self, outcome: Outcome) {
        if let Some(step) = self.steps.last_mut() {
            step.outcome = Some(outcome);
        }
    }

    fn remark(&mut self, outcome: Outcome, text: &str) {
        if let Some(step) = self.steps.last_mut() {
            step.remarks.push((outcome, text.to_owned()));
        }
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for step in &self.steps {
            writeln!(f, "{:?} {}", step.outcome, step.title)?;
            for (outcome, text) in &step.remarks {
                writeln!(f, "  {outcome:?} {text}")?;
            }
        }
        Ok(())
    }
}
