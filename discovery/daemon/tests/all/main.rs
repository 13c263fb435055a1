//! The DNS server's halves: objects of a directory become answers, and sockets give them.
#![expect(clippy::unwrap_used, reason = "helpers of tests: what cannot go on has failed")]

mod fixture;
mod follow;
mod sockets;
