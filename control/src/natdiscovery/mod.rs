//! NAT discovery: which of a peer's addresses reaches it, private or public, and whether there is NAT on the way.
//!
//! ```text
//!   Endpoints ──add──▶ ┌─────────┐ ──poll_transmit──▶ requests to private and public address, answers to others
//!   datagrams ───────▶ │ Machine │ ──poll_event─────▶ Selected: cable, address, NAT or not
//!   time-outs ───────▶ └─────────┘ ──memory─────────▶ what to know at once after a restart
//! ```
//!
//! * [`message`] — the protobuf datagrams, byte for byte those of upstream Submariner.
//! * [`respond`] — the verdict on a request, and how many are answered.
//! * [`machine`] — who is asked when, and what an answer changes.
//! * [`memory`] — results that outlive the process.
//!
//! Everything here is a function of state, input and time. Sockets, clock, files and randomness are the daemon's.
//!
//! # What it is worth
//! The protocol has no authentication. A response counts only for the newest request to that address, whose number has
//! 64 unpredictable bits (another start for each peer, so that no peer learns another's), and, for the private address,
//! only from that address: a party that cannot see the requests cannot answer them. One that can, on the path between
//! two gateways, can choose among the peer's two *published* addresses and can claim or deny NAT: no other address is
//! ever selected. The cable's own keys decide who is talked to, so it can make a cable fail, as it also can by dropping
//! its packets, and can read or change nothing. Requests are answered within limits per source and in total.
//!
//! # Beyond upstream
//! The wire is upstream's. The choice differs in time, and always towards an earlier or a better choice:
//! * A result of an earlier process is used at once and checked in the background ([`How::Remembered`]).
//! * A silent peer gets a provisional address after 3 s ([`How::Provisional`]), where upstream waits for 60 s; one that
//!   has asked us gets it 1.5 s after that, for its handshake is on the way.
//! * A peer that stayed silent is asked on, once a minute, and at once when it asks us; upstream gives up for good.
//! * From the third round on, peers that do not answer share a rate of 20 rounds a second: with more than forty of them
//!   each is asked less often than every 2 s, and with more than 1,200 less often than once a minute.
//! * [`Machine::rediscover`], and another address of our own, ask anew. Until an answer comes, what was chosen stays.

mod limit;
pub mod machine;
pub mod memory;
pub mod message;
mod outcome;
mod peer;
mod remote;
mod request_rate;
pub mod respond;

pub use machine::{Machine, Selected, Transmit};
pub use memory::Memory;
pub use outcome::{Counters, Outcome};
pub use remote::{How, Local, Remote, Selection};

/// From the specification: the largest datagram that is read, in bytes.
pub const MAX_DATAGRAM: usize = 2048;

/// Ours: most remote cables. Cluster sets are far smaller; the bound is for what a broken broker may deliver.
pub const MAX_REMOTES: usize = 4096;
