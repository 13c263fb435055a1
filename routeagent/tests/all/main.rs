//! Tests of the route agent: its command line, and its work in a real kernel.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod cli;
mod netns;
