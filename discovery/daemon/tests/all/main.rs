//! The programs: agents on directories; and the DNS server's halves, objects that become answers and sockets that give them.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "helpers of tests: what cannot go on has failed")]

mod agent;
mod ask;
mod fixture;
mod follow;
mod sockets;
