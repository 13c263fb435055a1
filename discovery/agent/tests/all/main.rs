//! Tests of the agent of service discovery: objects of one cluster and of several, on stores in memory and in a time of their own.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod api_store;
mod clocks;
mod clusterset;
mod cost;
mod differences;
mod export;
mod faults;
mod globalnet;
mod golden;
mod hostile;
mod lab;
mod lag;
#[path = "../../../../control/tests/all/memory_store.rs"]
mod memory_store;
mod merged;
mod migration;
mod missing_namespaces;
mod names;
mod networks;
mod preferences;
mod set;
mod simulation;
mod transitions;
