//! VXLAN (RFC 7348): packets in Ethernet frames in UDP, with nothing secret and nothing proven. Whoever can send with a
//! peer's address is that peer.
//!
//! ```text
//!   datagram ─▶ VxlanGate: whose address is this? ─┬─ nobody's: dropped
//!                                                  ├─ ARP ──▶ VxlanCable::handle_datagram ─▶ answer, Station learns
//!                                                  └─ data ─▶ VxlanOpener: for our station? ─▶ packets
//!   packets ─▶ Sealing: head of the peer's station in front, trains cut ─▶ datagrams to that peer alone
//! ```
//!
//! Upstream's device sends every frame to all its peers; here each goes to the one that it is for. What comes for other
//! stations is dropped and counted.
//!
//! Frames leave from the port of the cables: the sockets that receive there also send, so the source port is no hash of
//! the inner flow (RFC 7348 section 5 recommends one). Peers take any.

mod cable;
mod gate;
mod kind;
mod known;
mod open;
mod seal;
mod station;

pub use kind::{NAME, VxlanKind};
