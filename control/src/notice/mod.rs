//! Notices: how a cluster's gateways tell its route agents which of them live.
//!
//! ```text
//!   route agent ──hello──▶ gateway            every few seconds; with the cookie of an earlier challenge
//!   route agent ◀─challenge── gateway         to a hello without the right cookie: nothing is sent to forged addresses
//!   route agent ◀──notice─── gateway          signed; at every change, and every second
//! ```
//!
//! A notice says how a gateway is and how it finds its siblings. An agent decides by all of them ([`View`]): a gateway
//! that another live one reports down is left out at once, and never the last one. Only keys that gateways publish in
//! their own cluster's store are believed, so that a notice needs no trust in the network between nodes.
//!
//! * [`message`] — the datagrams.
//! * `key` — signing and checking.
//! * [`View`] — what follows from notices.
//! * [`Sender`] — when a gateway speaks.
//! * [`Subscribers`] — the agents that notices are sent to.
//!
//! Everything here is a function of its input and the time: no socket, clock or randomness.

mod key;
pub mod message;
mod sender;
mod subscribers;
mod view;

use std::fmt;

use sha2::{Digest as _, Sha256};

pub use key::{PublicKey, SigningKey};
pub use message::{Notice, State};
pub use sender::{Sender, Word};
pub use subscribers::{Answer, MAX_SUBSCRIBERS, Subscribers, TOLD_FOR};
pub use view::{GatewayIdentity, Refusal, SILENCE, Standing, View};

/// Ours: the UDP port at which a gateway hears route agents and from which it sends notices.
pub const DEFAULT_PORT: u16 = 4801;

/// Which gateway: the first eight bytes of the SHA-256 of its cable's name, so that it is the same everywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GatewayKey(pub u64);

impl GatewayKey {
    /// Returns the key of the gateway whose cable has this name.
    #[must_use]
    pub fn of_cable(cable_name: &str) -> Self {
        let [a, b, c, d, e, f, g, h, ..]: [u8; 32] = Sha256::digest(cable_name.as_bytes()).into();
        Self(u64::from_be_bytes([a, b, c, d, e, f, g, h]))
    }
}

impl fmt::Display for GatewayKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

#[cfg(test)]
mod tests;
