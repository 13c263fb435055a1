//! Pseudo-random functions and their extension (RFC 7296 section 2.13, RFC 4868 section 2.1.2).

use std::fmt;

use ring::hmac;
use zeroize::Zeroizing;

use crate::ipsec::wire::{Transform, TransformKind};

/// A pseudo-random function: HMAC with a hash of the SHA-2 family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Prf {
    /// `PRF_HMAC_SHA2_256`.
    HmacSha256,
    /// `PRF_HMAC_SHA2_384`.
    HmacSha384,
    /// `PRF_HMAC_SHA2_512`.
    HmacSha512,
}

impl Prf {
    /// All that there are.
    pub const ALL: [Self; 3] = [Self::HmacSha256, Self::HmacSha384, Self::HmacSha512];

    /// Bytes of its output, which is also the length of the keys that are made for it.
    #[must_use]
    pub fn output_bytes(self) -> usize {
        match self {
            Self::HmacSha256 => 32,
            Self::HmacSha384 => 48,
            Self::HmacSha512 => 64,
        }
    }

    /// As it is proposed.
    #[must_use]
    pub fn transform(self) -> Transform {
        let id = match self {
            Self::HmacSha256 => 5,
            Self::HmacSha384 => 6,
            Self::HmacSha512 => 7,
        };
        Transform::new(TransformKind::Prf, id)
    }

    /// The one that is proposed, if it is one of these.
    #[must_use]
    pub fn from_transform(transform: &Transform) -> Option<Self> {
        Self::ALL.into_iter().find(|prf| prf.transform() == *transform)
    }

    /// `prf(key, data)`, with data in pieces.
    #[must_use]
    pub fn mac(self, key: &[u8], data: &[&[u8]]) -> Zeroizing<Vec<u8>> {
        let tag = self.tag(&hmac::Key::new(self.algorithm(), key), data);
        Zeroizing::new(tag.as_ref().to_vec())
    }

    fn tag(self, key: &hmac::Key, data: &[&[u8]]) -> hmac::Tag {
        let mut context = hmac::Context::with_key(key);
        data.iter().for_each(|piece| context.update(piece));
        context.sign()
    }

    fn algorithm(self) -> hmac::Algorithm {
        match self {
            Self::HmacSha256 => hmac::HMAC_SHA256,
            Self::HmacSha384 => hmac::HMAC_SHA384,
            Self::HmacSha512 => hmac::HMAC_SHA512,
        }
    }
}

impl fmt::Display for Prf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.transform().fmt(f)
    }
}

/// `prf+(key, seed)`, the first `bytes` of it: at most 255 outputs, which is what its counter allows; no keys of ours need
/// a tenth of that.
#[must_use]
pub fn prf_plus(prf: Prf, key: &[u8], seed: &[&[u8]], bytes: usize) -> Zeroizing<Vec<u8>> {
    let key = hmac::Key::new(prf.algorithm(), key);
    let mut out = Zeroizing::new(Vec::with_capacity(bytes + prf.output_bytes()));
    let mut previous: Option<hmac::Tag> = None;
    for counter in 1..=u8::MAX {
        if out.len() >= bytes {
            break;
        }
        let mut context = hmac::Context::with_key(&key);
        previous.iter().for_each(|tag| context.update(tag.as_ref()));
        seed.iter().for_each(|piece| context.update(piece));
        context.update(&[counter]);
        let tag = context.sign();
        out.extend_from_slice(tag.as_ref());
        previous = Some(tag);
    }
    out.truncate(bytes);
    out
}
