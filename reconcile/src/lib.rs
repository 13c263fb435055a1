//! Brings the state of a host to what is wanted: what is there is observed, compared, and changed where it differs.
//!
//! ```text
//!   wanted ──┐
//!            ├─▶ diff, steps: add, change, remove ─▶ plan, ordered by its owner ─▶ pass: one change after the other
//!   there  ──┘                                                                       └─▶ made, failed, waiting
//! ```
//!
//! The laws, which [`laws::check`] tests on a model of the host:
//!
//! 1. A second pass plans nothing.
//! 2. What is not ours is in no plan.
//! 3. A change that fails ends no pass, and a pass that ends in the middle spoils nothing: the next one repairs it.
//! 4. An uninstallation, which is a pass with nothing wanted, leaves exactly what is not ours.
//!
//! Without clocks, sockets and tasks. `docs/development/reconciler.md` is a page with an example, which runs as a test.

#![forbid(unsafe_code)]

mod difference;
pub mod laws;
mod pass;
mod steps;

pub use difference::{Difference, differences, renew};
pub use pass::{Host, Pass, pass, uninstall};
pub use steps::{Step, diff, steps};

#[cfg(doctest)]
#[doc = include_str!("../../docs/development/reconciler.md")]
struct Page;

#[cfg(test)]
mod tests;
