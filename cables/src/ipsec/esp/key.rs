//! One AEAD key, and one message: head, AAD, nonce, trailer.

use ring::aead::{AES_128_GCM, AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};

use super::{ALIGNMENT_BYTES, HEAD_BYTES, ICV_BYTES, TRAILER_BYTES};
use crate::ipsec::{EspKeys, EspSuite};

/// Next header of an inner IPv4 packet.
pub(super) const NEXT_IPV4: u8 = 4;
/// Next header of an inner IPv6 packet.
pub(super) const NEXT_IPV6: u8 = 41;
/// Next header of a dummy packet (RFC 4303 section 2.6).
pub(super) const NEXT_NONE: u8 = 59;

/// The key of one direction. ring keeps it expanded and has no way to wipe it; what it was made from is wiped.
pub(super) struct EspKey {
    aead: LessSafeKey,
    salt: [u8; EspSuite::SALT_BYTES],
}

/// What a message is numbered with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Number {
    /// As it is on the wire.
    pub(super) spi: [u8; 4],
    /// All 64 bits, of which the lower half is sent.
    pub(super) sequence: u64,
    /// Whether the upper half is authenticated.
    pub(super) has_esn: bool,
}

/// Additional authenticated data: 8 bytes, with ESN 12.
struct Authenticated {
    bytes: [u8; 12],
    len: usize,
}

impl AsRef<[u8]> for Authenticated {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&self.bytes)
    }
}

impl Number {
    /// RFC 4106 section 5, RFC 7634 section 2.1.
    #[inline]
    fn authenticated(&self) -> Aad<Authenticated> {
        let mut bytes = [0; 12];
        bytes[..4].copy_from_slice(&self.spi);
        let len = if self.has_esn {
            bytes[4..].copy_from_slice(&self.sequence.to_be_bytes());
            12
        } else {
            bytes[4..8].copy_from_slice(&self.low());
            8
        };
        Aad::from(Authenticated { bytes, len })
    }

    /// The half that is sent.
    #[inline]
    fn low(&self) -> [u8; 4] {
        let [_, _, _, _, low @ ..] = self.sequence.to_be_bytes();
        low
    }
}

impl EspKey {
    /// `None` when the key's length is not the suite's.
    pub(super) fn new(suite: EspSuite, keys: &EspKeys) -> Option<Self> {
        let algorithm = match suite {
            EspSuite::Aes128Gcm16 => &AES_128_GCM,
            EspSuite::Aes256Gcm16 => &AES_256_GCM,
            EspSuite::ChaCha20Poly1305 => &CHACHA20_POLY1305,
        };
        let aead = LessSafeKey::new(UnboundKey::new(algorithm, &keys.key).ok()?);
        Some(Self { aead, salt: keys.salt })
    }

    #[inline]
    fn nonce(&self, iv: [u8; EspSuite::IV_BYTES]) -> Nonce {
        let mut nonce = [0; 12];
        nonce[..4].copy_from_slice(&self.salt);
        nonce[4..].copy_from_slice(&iv);
        Nonce::assume_unique_for_key(nonce)
    }

    /// Makes a message around the inner packet that stands behind the first [`HEAD_BYTES`] of `message` and has
    /// `inner_bytes`; `message` is as long as [`super::sealed_bytes`] says. An `iv` must never come twice. `false` when
    /// the lengths do not fit.
    #[inline]
    pub(super) fn seal(
        &self,
        number: &Number,
        iv: u64,
        next_header: u8,
        message: &mut [u8],
        inner_bytes: usize,
    ) -> bool {
        let iv = iv.to_be_bytes();
        let Some((head, body)) = message.split_first_chunk_mut::<HEAD_BYTES>() else { return false };
        let Some((text, icv)) = body.split_last_chunk_mut::<ICV_BYTES>() else { return false };
        head[..4].copy_from_slice(&number.spi);
        head[4..8].copy_from_slice(&number.low());
        head[8..].copy_from_slice(&iv);
        let Some(trailer) = text.get_mut(inner_bytes..) else { return false };
        if !write_trailer(trailer, next_header) {
            return false;
        }
        match self.aead.seal_in_place_separate_tag(self.nonce(iv), number.authenticated(), text) {
            Ok(tag) => {
                icv.copy_from_slice(tag.as_ref());
                true
            }
            Err(_) => false,
        }
    }

    /// Verifies and decrypts a message in place: what follows the first [`HEAD_BYTES`], without the ICV, is what was
    /// encrypted. `None` when it does not verify; its bytes are of no use then.
    #[inline]
    pub(super) fn open<'a>(&self, number: &Number, message: &'a mut [u8]) -> Option<&'a mut [u8]> {
        let (head, body) = message.split_first_chunk_mut::<HEAD_BYTES>()?;
        let (_, iv) = head.split_last_chunk::<{ EspSuite::IV_BYTES }>()?;
        self.aead.open_in_place(self.nonce(*iv), number.authenticated(), body).ok()
    }
}

/// Padding, its length, next header. `trailer` has the right length for the packet in front of it.
#[inline]
fn write_trailer(trailer: &mut [u8], next_header: u8) -> bool {
    //= https://www.rfc-editor.org/rfc/rfc4303#section-2.4
    //# The Padding bytes are initialized with a series of (unsigned, 1-byte) integer values.
    match trailer {
        [length, next] => (*length, *next) = (0, next_header),
        [a, length, next] => (*a, *length, *next) = (1, 1, next_header),
        [a, b, length, next] => (*a, *b, *length, *next) = (1, 2, 2, next_header),
        [a, b, c, length, next] => (*a, *b, *c, *length, *next) = (1, 2, 3, 3, next_header),
        _ => return false,
    }
    true
}

/// What is left of an opened message without its trailer, and the next header. `None` when the padding is not 1, 2, 3...
#[inline]
pub(super) fn strip_trailer(text: &[u8]) -> Option<(&[u8], u8)> {
    let (rest, &[pad, next]) = text.split_last_chunk::<TRAILER_BYTES>()?;
    let (inner, padding) = rest.split_at_checked(rest.len().checked_sub(usize::from(pad))?)?;
    //= https://www.rfc-editor.org/rfc/rfc4303#section-2.4
    //# When this padding scheme is employed, the receiver SHOULD inspect the Padding field.
    let is_counted = padding.iter().zip(1..=u8::MAX).all(|(byte, number)| *byte == number);
    is_counted.then_some((inner, next))
}

const _: () = assert!(ALIGNMENT_BYTES == 4, "write_trailer knows all lengths of padding to four bytes");
