//! IKE SAs of which nothing but an IKE_SA_INIT is known yet. Anybody can make us keep one, so they are small and few.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::time::Instant;

use ring::digest;
use trieste_packet::Outer;

use super::EngineConfig;
use super::natdetection::Nat;
use crate::ipsec::crypto::{IkeKeys, IkeSuite, KeyAgreement, Reassembly};
use crate::shares::network;

/// An answered IKE_SA_INIT.
pub(super) struct HalfOpen {
    pub(super) spi: u64,
    pub(super) peer_spi: u64,
    pub(super) from: Outer,
    /// The request and our answer, as they were on the wire: IKE_AUTH vouches for them.
    pub(super) request: Vec<u8>,
    pub(super) response: Vec<u8>,
    pub(super) suite: IkeSuite,
    pub(super) agreement: KeyAgreement,
    pub(super) peer_public: Vec<u8>,
    /// Nonces of the initiator and of us.
    pub(super) nonces: (Vec<u8>, Vec<u8>),
    pub(super) nat: Nat,
    pub(super) has_fragments: bool,
    pub(super) is_kin: bool,
    pub(super) made: Instant,
    /// Computed when there is an IKE_AUTH to open: an IKE_SA_INIT alone is not worth half of the work.
    pub(super) keys: Option<IkeKeys>,
    pub(super) reassembly: Reassembly,
    /// The answer to an IKE_AUTH that was refused.
    pub(super) answered: Vec<Vec<u8>>,
}

/// The initiator's SPI and a hash of the request: what the same request has in common with itself.
type Fingerprint = (u64, [u8; 32]);

/// All of them.
#[derive(Default)]
pub(super) struct HalfOpenTable {
    by_spi: BTreeMap<u64, HalfOpen>,
    by_request: BTreeMap<Fingerprint, u64>,
    by_source: BTreeMap<IpAddr, usize>,
    /// Oldest first; those that are gone are skipped.
    ages: VecDeque<(Instant, u64)>,
}

impl HalfOpenTable {
    pub(super) fn len(&self) -> usize {
        self.by_spi.len()
    }

    pub(super) fn get(&self, spi: u64) -> Option<&HalfOpen> {
        self.by_spi.get(&spi)
    }

    /// Lists their SPIs in order, and whose they are.
    pub(super) fn sources(&self) -> impl Iterator<Item = (u64, IpAddr)> {
        self.by_spi.iter().map(|(spi, half)| (*spi, network(half.from.peer.ip())))
    }

    /// The one that this very request made.
    //= https://www.rfc-editor.org/rfc/rfc7296#section-2.1
    //# a responder MUST remember each response until it receives a
    //# request whose sequence number is larger than or equal to the sequence
    //# number in the response plus its window size
    pub(super) fn of_request(&self, peer_spi: u64, request: &[u8]) -> Option<&HalfOpen> {
        self.get(*self.by_request.get(&fingerprint(peer_spi, request))?)
    }

    /// Whether there is room for one more of this source.
    pub(super) fn has_room(&self, source: IpAddr, config: &EngineConfig) -> bool {
        let (all, each) = config.half_open;
        self.len() < all && self.by_source.get(&network(source)).is_none_or(|count| *count < each)
    }

    pub(super) fn insert(&mut self, half: HalfOpen) {
        self.by_request.insert(fingerprint(half.peer_spi, &half.request), half.spi);
        *self.by_source.entry(network(half.from.peer.ip())).or_insert(0) += 1;
        self.ages.push_back((half.made, half.spi));
        self.by_spi.insert(half.spi, half);
    }

    pub(super) fn remove(&mut self, spi: u64) -> Option<HalfOpen> {
        let half = self.by_spi.remove(&spi)?;
        self.by_request.remove(&fingerprint(half.peer_spi, &half.request));
        let source = network(half.from.peer.ip());
        if let Some(count) = self.by_source.get_mut(&source) {
            *count -= 1;
            if *count == 0 {
                self.by_source.remove(&source);
            }
        }
        Some(half)
    }

    /// Puts one back that was taken out to be worked on.
    pub(super) fn put_back(&mut self, half: HalfOpen) {
        self.by_request.insert(fingerprint(half.peer_spi, &half.request), half.spi);
        *self.by_source.entry(network(half.from.peer.ip())).or_insert(0) += 1;
        self.by_spi.insert(half.spi, half);
    }

    /// Removes the oldest; says whether there was one.
    pub(super) fn evict(&mut self) -> bool {
        while let Some((_, spi)) = self.ages.pop_front() {
            if self.remove(spi).is_some() {
                return true;
            }
        }
        false
    }

    /// Removes those that have been there for too long.
    pub(super) fn expire(&mut self, config: &EngineConfig, now: Instant) {
        while let Some((made, spi)) = self.ages.front().copied() {
            if self.by_spi.contains_key(&spi) && now < made + config.half_open_time {
                break;
            }
            self.ages.pop_front();
            self.remove(spi);
        }
    }
}

fn fingerprint(peer_spi: u64, request: &[u8]) -> Fingerprint {
    let hash = digest::digest(&digest::SHA256, request);
    (peer_spi, hash.as_ref().try_into().expect("SHA-256 has 32 bytes"))
}
