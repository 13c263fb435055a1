//! The WireGuard cable, over boringtun.
//!
//! boringtun's `Tunn` does the Noise handshake, keeps the session keys and seals and opens; it is both halves of
//! the cable in one object, owned by one worker. This module is its boundary. What lives on this side:
//!
//! * packets that wait for keys ([`crate::Held`]): `Tunn` would queue up to 256 and lose the rest unseen,
//! * roaming: the peer's address follows its authenticated messages,
//! * the gate: cookies and limits for handshakes, shared by all workers ([`gate`]),
//! * padding of single packets to 16 bytes, and the message counter limits, which `Tunn` lacks.
//!
//! Known limits of boringtun 0.7, lived with here and listed in `docs/compliance.md`: a replay window of 1024
//! messages, two mutexes per opened message, its own clock and randomness, a copy where sealing could be in
//! place, segments in the middle of a train unpadded. An own transport half would take its place behind the same
//! traits.

mod cable;
pub mod gate;
mod kind;
pub mod message;

pub use kind::{PERSISTENT_KEEPALIVE_SECONDS, WireguardKind};
