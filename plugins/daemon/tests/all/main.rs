//! The program itself, with a store in a directory.

#![expect(clippy::unwrap_used, reason = "helpers of tests: what cannot go on has failed")]

mod calico;
mod ovn;
