//! The subscribers of notices: the route agents whose last hello is recent. Pure.
//!
//! There is no list of nodes to send to: it would take rights that a gateway has not, does not exist with every store,
//! and would name nodes where nobody listens. A route agent says hello at every gateway; a cookie shows that it is where
//! its datagrams say, so that nobody can have notices sent to others.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use super::message::{COOKIE_LEN, Cookie, Datagram, parse};

/// Ours: how long after its last hello an agent gets notices.
pub const TOLD_FOR: Duration = Duration::from_secs(20);
/// Ours: most agents; Kubernetes supports 5,000 nodes.
pub const MAX_SUBSCRIBERS: usize = 5_000;
/// Ours: most agents behind one address: one, the one before it, and what a pod of that node may try.
const MAX_PER_ADDRESS: usize = 4;

/// The reaction to a datagram.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Nothing: it is no hello, or there is no more room.
    Nothing,
    /// Send this challenge back.
    Challenge(Cookie),
    /// It is somebody new: send the newest notice at once.
    Welcome,
    /// It is known, and stays so.
    Renewed,
}

/// The agents that notices are sent to.
pub struct Subscribers {
    secret: Zeroizing<[u8; 32]>,
    agents: BTreeMap<SocketAddr, Instant>,
}

impl std::fmt::Debug for Subscribers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Subscribers").field("agents", &self.agents).finish_non_exhaustive()
    }
}

impl Subscribers {
    /// Tells nobody yet. The secret has to be random; cookies are made with it.
    #[must_use]
    pub fn new(secret: Zeroizing<[u8; 32]>) -> Self {
        Self { secret, agents: BTreeMap::new() }
    }

    /// Takes in a datagram.
    pub fn take(&mut self, datagram: &[u8], from: SocketAddr, now: Instant) -> Answer {
        let Some(Datagram::Hello(cookie)) = parse(datagram) else { return Answer::Nothing };
        let expected = self.cookie(from);
        if cookie != Some(expected) {
            return Answer::Challenge(expected);
        }
        if let Some(until) = self.agents.get_mut(&from) {
            *until = now + TOLD_FOR;
            return Answer::Renewed;
        }
        self.expire(now);
        let of_address = SocketAddr::new(from.ip(), 0)..=SocketAddr::new(from.ip(), u16::MAX);
        if self.agents.len() >= MAX_SUBSCRIBERS || self.agents.range(of_address).count() >= MAX_PER_ADDRESS {
            return Answer::Nothing;
        }
        self.agents.insert(from, now + TOLD_FOR);
        Answer::Welcome
    }

    /// Forgets who has said nothing for long.
    pub fn expire(&mut self, now: Instant) {
        self.agents.retain(|_, until| now < *until);
    }

    /// Returns the agents that notices are sent to.
    pub fn iter(&self) -> impl Iterator<Item = SocketAddr> {
        self.agents.keys().copied()
    }

    /// Returns the number of subscribers.
    #[must_use]
    pub fn len(&self) -> usize {
        self.agents.len()
    }

    /// Returns `true` if there is no subscriber.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.agents.is_empty()
    }

    /// Computes a keyed hash of the address; the secret comes first and last, so that nothing can be appended.
    fn cookie(&self, from: SocketAddr) -> Cookie {
        let mut hash = Sha256::new();
        hash.update(&self.secret[..]);
        hash.update(from.to_string());
        hash.update(&self.secret[..]);
        let digest: [u8; 32] = hash.finalize().into();
        let mut cookie = Cookie::default();
        cookie.copy_from_slice(&digest[..COOKIE_LEN]);
        // Zero stands for "none".
        cookie[0] |= 1;
        cookie
    }
}
