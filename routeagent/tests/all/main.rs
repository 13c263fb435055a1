//! Tests of the route agent: its command line, its work in a real kernel, and faults of stores.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod cli;
mod faults;
#[path = "../../../control/tests/all/memory_store.rs"]
mod memory_store;
mod netns;
