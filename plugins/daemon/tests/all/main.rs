//! The program itself with a store in a directory, and the rows of OVN that it writes.

#![expect(clippy::unwrap_used, reason = "helpers of tests: what cannot go on has failed")]

mod calico;
mod faults;
#[path = "../../../../control/tests/all/memory_store.rs"]
mod memory_store;
mod metrics;
mod rows;
mod shared_database;
mod spiderpool;
mod without_database;
mod worker;
