//! Placeholder
use trieste_control::steps::Outcome;

/// One thing that a check says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// How it is meant.
    pub outcome: Outcome,
    /// What was found.
    pub text: String,
    /// What to do; empty if nothing.
    pub next: String,
}
