//! What ESP packets are protected with.

use std::fmt;

/// An AEAD for ESP, with an ICV of 16 bytes and an explicit IV of 8.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EspSuite {
    /// AES-128-GCM (RFC 4106).
    Aes128Gcm16,
    /// AES-256-GCM (RFC 4106).
    Aes256Gcm16,
    /// ChaCha20-Poly1305 (RFC 7634).
    ChaCha20Poly1305,
}

impl EspSuite {
    /// Bytes of salt behind the key in the keying material (RFC 4106 section 8.1, RFC 7634 section 2).
    pub const SALT_BYTES: usize = 4;
    /// Bytes of the explicit IV in every packet.
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

    /// The name that people and configuration use, which is strongSwan's.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Aes128Gcm16 => "aes128gcm16",
            Self::Aes256Gcm16 => "aes256gcm16",
            Self::ChaCha20Poly1305 => "chacha20poly1305",
        }
    }
}

impl fmt::Display for EspSuite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
