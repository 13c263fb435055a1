//! The programs: agents on directories; and the DNS server's halves, objects that become answers and sockets that give them.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "helpers of tests: what cannot go on has failed")]

mod agent;
#[expect(dead_code, reason = "the agent's own tests use all of it")]
#[path = "../../../agent/tests/all/api_store.rs"]
mod api_store;
mod ask;
mod certificate;
mod fixture;
mod follow;
#[expect(dead_code, reason = "the agent's own tests use all of it")]
#[path = "../../../agent/tests/all/lab.rs"]
mod lab;
#[expect(dead_code, reason = "tests of stores use all of it")]
#[path = "../../../../control/tests/all/memory_store.rs"]
mod memory_store;
mod scenarios;
mod sockets;
