//! What IKEv2 messages are made of (RFC 7296 section 3, RFC 7383 section 2.5): bytes to types and back.
//!
//! What it is not: the meaning of messages (that is the engine's), and their protection (`crypto::protect`, which hands
//! the opened bytes to [`parse_payloads`]).
//!
//! Parsing is strict about lengths and bounded in numbers, and lenient where the RFC says so: unknown payloads are
//! skipped unless they are critical, unknown traffic selectors are skipped, and a transform with an unknown attribute is
//! kept but never acceptable.
//!
//! ```text
//!   message = header ─ payload ─ payload ─ …      in clear (IKE_SA_INIT)        parse, emit
//!   message = header ─ SK { payload ─ … }         protected                      Envelope::parse, then crypto::protect
//!   message = header ─ SKF n/m { piece }          protected piece                the same, then Reassembly
//! ```

mod bytes;
mod code;
mod envelope;
mod error;
mod greeting;
mod header;
mod id;
mod message;
mod notify;
mod payload;
mod proposal;
mod traffic;

pub use envelope::{Envelope, Fragment};
pub use error::WireError;
pub use greeting::Greeting;
pub use header::{Exchange, HEADER_BYTES, Header};
pub use id::Id;
pub use message::{Message, emit, emit_payloads, parse, parse_payloads};
pub use notify::{Delete, Notify, NotifyKind};
pub use payload::{Auth, AuthMethod, KeyExchange, Other, Payload, PayloadKind};
pub use proposal::{Proposal, Protocol, Transform, TransformKind};
pub use traffic::MAX_SELECTORS;

#[cfg(test)]
mod tests;
