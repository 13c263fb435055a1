//! The cryptography of IKEv2: key agreement, keys, authentication, and the protection of messages.
//!
//! What it is not: a state machine. Everything is a function of its parameters; randomness comes in as a generator, so
//! that a simulation can repeat itself. AEAD, HMAC and SHA-1 are ring's; key agreement is RustCrypto's and dalek's, because
//! ring's keys can be neither seeded nor used twice.
//!
//! ```text
//!   KeyAgreement::agree ─▶ g^ir ─▶ IkeKeys::derive ─┬─▶ MessageKey ─▶ protect::seal, protect::open ─▶ Reassembly
//!                                                   ├─▶ IkeKeys::psk_auth
//!                                                   └─▶ IkeKeys::child_keys ─▶ EspKeys
//! ```
//!
//! Secrets are wiped when they are dropped, and no `Debug` shows one. ring's own key objects, and what the libraries
//! leave on the stack, are beyond that.

mod aead;
mod group;
mod keys;
mod modp;
mod nat;
mod prf;
pub mod protect;
mod reassembly;
mod suite;

pub use aead::{IkeAead, MessageKey};
pub use group::{AgreementError, Group, KeyAgreement};
pub use keys::{ChildKeys, IkeKeys};
pub use nat::nat_detection_hash;
pub use prf::{Prf, prf_plus};
pub use protect::{OpenError, Opened};
pub use reassembly::{Reassembly, Whole};
pub use suite::{EspOffer, IkeSuite};

#[cfg(test)]
mod tests;
