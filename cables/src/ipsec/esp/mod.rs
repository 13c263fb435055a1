//! The fast half: ESP (RFC 4303) in tunnel mode with AES-GCM (RFC 4106) or ChaCha20-Poly1305 (RFC 7634).
//!
//! ```text
//!   | SPI 4 | sequence 4 | IV 8 | inner packet | TFC padding | 1 2 3.. | pad length | next header | ICV 16 |
//!   '------ AAD -------'        '------------------- encrypted ------------------------------------'
//!   (with ESN: SPI, upper and lower half of the sequence number: 12 bytes, of which the upper half is not sent)
//! ```
//!
//! * `key`: the AEAD, and the bytes of one message. `sa`: one direction each, with its counters and limits.
//! * `guard`: selectors, compiled. `pair`: the SAs of one child. `pairs`: all of a peer, and which one seals.
//! * `seal`, `open`: batches. `early`: what came before its keys. `cable`: orders, timers, and the two traits.

mod cable;
mod early;
mod guard;
mod key;
mod open;
mod pair;
mod pairs;
mod sa;
mod seal;

pub use cable::{EspCable, EspCableConfig};

/// Bytes in front of the inner packet: SPI, sequence number, IV.
pub const HEAD_BYTES: usize = 16;
/// Bytes of the ICV at the end.
pub const ICV_BYTES: usize = super::EspSuite::ICV_BYTES;
/// Most bytes that sealing adds, inside the UDP payload: head, up to three bytes of padding, its length, the next header
/// and the ICV.
pub const OVERHEAD_BYTES: usize = HEAD_BYTES + 3 + TRAILER_BYTES + ICV_BYTES;

/// Pad length and next header.
const TRAILER_BYTES: usize = 2;
/// What the trailer is aligned to (RFC 4303 section 2.4).
const ALIGNMENT_BYTES: usize = 4;

/// Bytes of the message that an inner packet of `inner_bytes` becomes.
#[must_use]
pub fn sealed_bytes(inner_bytes: usize) -> usize {
    HEAD_BYTES + (inner_bytes + TRAILER_BYTES).next_multiple_of(ALIGNMENT_BYTES) + ICV_BYTES
}

#[cfg(test)]
mod tests;
