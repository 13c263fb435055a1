//! What messages are protected with (RFC 5282, RFC 7634 section 3).

use std::fmt;

use ring::aead;

use crate::ipsec::wire::{Transform, TransformKind};

/// An AEAD for IKE messages, with an ICV of 16 bytes, a salt of four and an explicit IV of eight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum IkeAead {
    /// AES-128-GCM.
    Aes128Gcm16,
    /// AES-256-GCM.
    Aes256Gcm16,
    /// ChaCha20-Poly1305.
    ChaCha20Poly1305,
}

impl IkeAead {
    /// All that there are.
    pub const ALL: [Self; 3] = [Self::Aes256Gcm16, Self::Aes128Gcm16, Self::ChaCha20Poly1305];
    /// Bytes of the salt, which follows the key in `SK_e`.
    pub const SALT_BYTES: usize = 4;
    /// Bytes of the IV in every message.
    pub const IV_BYTES: usize = 8;
    /// Bytes of the integrity check value.
    pub const ICV_BYTES: usize = 16;

    /// Bytes of the cipher's key, without the salt.
    #[must_use]
    pub fn key_bytes(self) -> usize {
        match self {
            Self::Aes128Gcm16 => 16,
            Self::Aes256Gcm16 | Self::ChaCha20Poly1305 => 32,
        }
    }

    /// As it is proposed.
    #[must_use]
    pub fn transform(self) -> Transform {
        match self {
            Self::Aes128Gcm16 => Transform::with_key_bits(TransformKind::Encryption, 20, 128),
            Self::Aes256Gcm16 => Transform::with_key_bits(TransformKind::Encryption, 20, 256),
            Self::ChaCha20Poly1305 => Transform::new(TransformKind::Encryption, 28),
        }
    }

    /// The one that is proposed, if it is one of these.
    #[must_use]
    pub fn from_transform(transform: &Transform) -> Option<Self> {
        Self::ALL.into_iter().find(|aead| aead.transform() == *transform)
    }

    fn algorithm(self) -> &'static aead::Algorithm {
        match self {
            Self::Aes128Gcm16 => &aead::AES_128_GCM,
            Self::Aes256Gcm16 => &aead::AES_256_GCM,
            Self::ChaCha20Poly1305 => &aead::CHACHA20_POLY1305,
        }
    }
}

impl fmt::Display for IkeAead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.transform().fmt(f)
    }
}

/// The key of one direction of an IKE SA, ready for use.
pub struct MessageKey {
    key: aead::LessSafeKey,
    salt: [u8; IkeAead::SALT_BYTES],
}

impl MessageKey {
    /// From `SK_ei` or `SK_er`: key and salt. None if it has another length.
    #[must_use]
    pub fn new(aead: IkeAead, material: &[u8]) -> Option<Self> {
        let (key, salt) = material.split_at_checked(aead.key_bytes())?;
        let key = aead::UnboundKey::new(aead.algorithm(), key).ok()?;
        Some(Self { key: aead::LessSafeKey::new(key), salt: salt.try_into().ok()? })
    }

    fn nonce(&self, iv: [u8; IkeAead::IV_BYTES]) -> aead::Nonce {
        let mut nonce = [0; aead::NONCE_LEN];
        nonce[..IkeAead::SALT_BYTES].copy_from_slice(&self.salt);
        nonce[IkeAead::SALT_BYTES..].copy_from_slice(&iv);
        aead::Nonce::assume_unique_for_key(nonce)
    }

    /// Encrypts in place; the caller appends the ICV that is returned. None for a text of many gigabytes.
    pub(super) fn seal(
        &self,
        iv: [u8; IkeAead::IV_BYTES],
        associated: &[u8],
        text: &mut [u8],
    ) -> Option<aead::Tag> {
        self.key.seal_in_place_separate_tag(self.nonce(iv), aead::Aad::from(associated), text).ok()
    }

    /// Decrypts ciphertext and ICV in place; none if they are not authentic.
    pub(super) fn open<'a>(
        &self,
        iv: [u8; IkeAead::IV_BYTES],
        associated: &[u8],
        sealed: &'a mut [u8],
    ) -> Option<&'a mut [u8]> {
        self.key.open_in_place(self.nonce(iv), aead::Aad::from(associated), sealed).ok()
    }
}

impl fmt::Debug for MessageKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MessageKey(..)")
    }
}
