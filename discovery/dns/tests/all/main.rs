//! The answers, from objects' changes to bytes.
#![expect(clippy::unwrap_used, reason = "helpers of tests: what cannot go on has failed")]

mod costs;
mod edns;
mod fixture;
mod lighthouse;
mod names;
mod picks;
mod property;
mod protocol;
mod survey;
