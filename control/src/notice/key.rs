//! Ed25519 keys of notices.

use std::fmt;

use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use zeroize::Zeroizing;

use crate::api::NoticeKey;

/// Bytes of a signature.
pub(super) const SIGNATURE_LEN: usize = 64;
/// Signed before the message, so that what is signed here means nothing anywhere else.
const CONTEXT: &[u8] = b"trieste notice 1\0";

/// Whom a notice comes from: what `trieste.notice-key` of a gateway's Endpoint says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PublicKey(pub NoticeKey);

impl PublicKey {
    /// Says whether a signature is this key's of a message.
    pub(super) fn has_signed(&self, message: &[u8], signature: &[u8]) -> bool {
        let signed = [CONTEXT, message].concat();
        UnparsedPublicKey::new(&ED25519, &self.0).verify(&signed, signature).is_ok()
    }
}

/// The key that a gateway signs its notices with.
pub struct SigningKey {
    pair: Ed25519KeyPair,
    public: PublicKey,
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey").field("public", &self.public).finish_non_exhaustive()
    }
}

impl SigningKey {
    /// Makes the key pair of a seed, which has to be random and secret.
    ///
    /// # Panics
    ///
    /// Never: every seed has a key pair.
    #[must_use]
    pub fn from_seed(seed: &Zeroizing<[u8; 32]>) -> Self {
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed[..]).expect("the seed has the right length");
        let bytes = pair.public_key().as_ref().try_into().expect("Ed25519's public keys have 32 bytes");
        Self { pair, public: PublicKey(bytes) }
    }

    /// Returns the key that others check signatures with.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        self.public
    }

    /// Signs a message.
    pub(super) fn sign(&self, message: &[u8]) -> [u8; SIGNATURE_LEN] {
        let signature = self.pair.sign(&[CONTEXT, message].concat());
        signature.as_ref().try_into().expect("Ed25519's signatures have 64 bytes")
    }
}
