//! A child SA as the slow half knows it.

use std::sync::Arc;
use std::time::Instant;

use crate::ipsec::crypto::{EspOffer, KeyAgreement};
use crate::ipsec::{ChildMeter, EspKeys, Selectors, Spi};

/// What becomes of a child SA.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChildState {
    /// In use.
    Installed,
    /// The peer has put another in its place, and is going to delete it.
    Replaced,
    /// We are going to delete it, or have asked for it.
    Doomed,
}

/// A pair of ESP SAs.
#[derive(Debug)]
pub(super) struct Child {
    pub(super) inbound: Spi,
    pub(super) outbound: Spi,
    pub(super) offer: EspOffer,
    pub(super) selectors: Selectors,
    /// Which child SAs of the plan it serves, by number.
    pub(super) serves: Vec<usize>,
    /// The version of the plan that it was made for, or that another in its place was last asked for.
    pub(super) version: u32,
    pub(super) inbound_keys: EspKeys,
    pub(super) outbound_keys: EspKeys,
    pub(super) meter: Arc<ChildMeter>,
    pub(super) state: ChildState,
    /// Whether the exchange that made it was ours.
    pub(super) is_ours: bool,
    /// The lower of the two nonces that made it.
    pub(super) lowest: Vec<u8>,
    pub(super) rekey_at: Instant,
    pub(super) hard_at: Instant,
    /// When it is to be sealed with although the peer has not shown that it has it.
    pub(super) seal_at: Option<Instant>,
    /// Why it could not be renewed.
    pub(super) error: Option<String>,
}

/// What is to become a child SA, when the peer agrees.
#[derive(Debug)]
pub(super) struct ChildOffer {
    /// Ours.
    pub(super) spi: Spi,
    pub(super) nonce: Vec<u8>,
    pub(super) agreement: Option<KeyAgreement>,
    pub(super) selectors: Selectors,
    /// Which child SA of the plan it is for.
    pub(super) wanted: usize,
    /// The version of the plan.
    pub(super) version: u32,
    /// Which one it renews.
    pub(super) old: Option<Spi>,
    /// How many groups were tried.
    pub(super) tries: u8,
    /// The child SA that the peer has put in the place of `old` meanwhile.
    pub(super) rival: Option<OtherChild>,
}

/// A child SA of the peer's in the place of one that we are renewing ourselves.
#[derive(Debug)]
pub(super) struct OtherChild {
    pub(super) spi: Spi,
    /// The lower of the two nonces that made it, by which both ends find out which of the two stays.
    pub(super) lowest: Vec<u8>,
}

/// The lower of two nonces (RFC 7296 section 2.8.1: compared octet by octet; a shorter one that is the beginning of a
/// longer one is lower).
pub(super) fn lower(a: &[u8], b: &[u8]) -> Vec<u8> {
    a.min(b).to_vec()
}
