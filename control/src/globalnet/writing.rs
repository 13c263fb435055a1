//! The result of one unit of a plan.

use jiff::Timestamp;

use super::state::Problem;
use crate::api::{ApiError, Object};
use crate::runner::Write;

/// Where a unit of a plan puts what it comes to.
#[derive(Debug)]
pub(super) struct Writing {
    pub(super) now: Timestamp,
    write: Option<Write>,
    problems: Vec<Problem>,
}

impl Writing {
    /// Returns one with nothing in it.
    pub(super) const fn new(now: Timestamp) -> Self {
        Self { now, write: None, problems: Vec::new() }
    }

    /// Returns one with problems alone.
    pub(super) const fn of_problems(problems: Vec<Problem>) -> Self {
        Self { now: Timestamp::UNIX_EPOCH, write: None, problems }
    }

    /// Puts in what to write; a unit has one write.
    pub(super) fn push(&mut self, write: Write) {
        self.write = Some(write);
    }

    pub(super) fn extend(&mut self, write: Option<Write>) {
        if write.is_some() {
            self.write = write;
        }
    }

    pub(super) fn problem(&mut self, problem: Problem) {
        self.problems.push(problem);
    }

    /// Reports an object that has not the shape of its kind; it is left alone.
    pub(super) fn check(&mut self, object: &Object, outcome: Result<(), ApiError>) {
        if let Err(error) = outcome {
            let subject = object.key().to_string();
            self.problem(Problem { name: "ObjectInvalid", subject, message: error.to_string() });
        }
    }

    /// Returns what was put in.
    pub(super) fn into_parts(self) -> (Option<Write>, Vec<Problem>) {
        (self.write, self.problems)
    }
}
