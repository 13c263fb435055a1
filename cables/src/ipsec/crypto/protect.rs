//! Sealing messages and opening them (RFC 7296 section 3.14, RFC 5282 sections 3 to 5, RFC 7383 section 2.5).
//!
//! ```text
//!   header │ generic header (SK) │ IV 8 │ payloads, pad length │ ICV 16
//!   header │ generic header (SKF) │ number, total │ IV 8 │ piece, pad length │ ICV 16
//!   └────────── authenticated ───────────────────┘       └──── encrypted ───┘
//! ```

use zeroize::Zeroizing;

use super::{IkeAead, MessageKey};
use crate::ipsec::wire::{
    Envelope, Fragment, HEADER_BYTES, Header, Payload, PayloadKind, WireError, emit_payloads,
};

/// Bytes of a payload's generic header.
const GENERIC_BYTES: usize = 4;
/// Bytes of a fragment's number and total.
const FRAGMENT_BYTES: usize = 4;
/// Bytes of the length of the padding, of which there is none: AEADs need none.
const PAD_LENGTH_BYTES: usize = 1;
/// Least bytes of a piece, however small messages are to be: fragments stay few.
const LEAST_PIECE_BYTES: usize = 64;

/// Why a protected message cannot be opened. Whatever it is, its sender is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// It is malformed on the outside.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// Its integrity check failed: forged, damaged, or sealed with another key.
    #[error("the message is not authentic")]
    Unauthentic,
}

/// A message that was opened: all of it, or a piece.
#[derive(Clone, PartialEq, Eq)]
pub struct Opened {
    /// Its header.
    pub header: Header,
    /// The type of the first payload.
    pub first: PayloadKind,
    /// Which piece it is, if it is one: then it goes to a [`super::Reassembly`].
    pub fragment: Option<Fragment>,
    /// The payloads, for [`crate::ipsec::wire::parse_payloads`], or a piece of them.
    pub body: Zeroizing<Vec<u8>>,
}

impl std::fmt::Debug for Opened {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Opened({:?}, {} bytes)", self.header, self.body.len())
    }
}

/// Seals a message (without non-ESP marker), in one datagram or, if it would be longer than `fragment_bytes`, in several.
/// `iv` is that of the key: it is counted up, once for each datagram, and must never be set back.
#[must_use]
pub fn seal(
    header: &Header,
    payloads: &[Payload],
    key: &MessageKey,
    iv: &mut u64,
    fragment_bytes: Option<usize>,
) -> Vec<Vec<u8>> {
    let body = Zeroizing::new(emit_payloads(payloads));
    let first = payloads.first().map_or(PayloadKind::None, Payload::kind);
    let whole_bytes = overhead(false) + body.len();
    let Some(limit) = fragment_bytes.filter(|limit| whole_bytes > *limit) else {
        return seal_body(header, first, &body, key, iv).into_iter().collect();
    };
    let piece_bytes = limit.saturating_sub(overhead(true)).max(LEAST_PIECE_BYTES);
    let pieces = body.chunks(piece_bytes);
    let total = u16::try_from(pieces.len()).unwrap_or(u16::MAX);
    let numbered = (1..=total).zip(pieces);
    // The first fragment alone says of what type the first payload is (RFC 7383 section 2.5).
    numbered
        .filter_map(|(number, piece)| {
            let first = if number == 1 { first } else { PayloadKind::None };
            datagram(header, first, Some(Fragment { number, total }), piece, key, iv)
        })
        .collect()
}

/// Seals payloads that are bytes already, in one datagram. None if they are longer than a payload can be.
#[must_use]
pub fn seal_body(
    header: &Header,
    first: PayloadKind,
    body: &[u8],
    key: &MessageKey,
    iv: &mut u64,
) -> Option<Vec<u8>> {
    datagram(header, first, None, body, key, iv)
}

/// Opens a datagram (without non-ESP marker) with the key of the direction it came from.
///
/// # Errors
/// [`OpenError`] when it is malformed or not authentic.
pub fn open(datagram: &[u8], key: &MessageKey) -> Result<Opened, OpenError> {
    let envelope = Envelope::parse(datagram)?;
    let (iv, sealed) = envelope.sealed.split_first_chunk().ok_or(WireError::Truncated("the IV"))?;
    let mut body = Zeroizing::new(sealed.to_vec());
    let text_bytes = key.open(*iv, envelope.associated, &mut body).ok_or(OpenError::Unauthentic)?.len();
    body.truncate(text_bytes);
    //= https://www.rfc-editor.org/rfc/rfc7296#section-3.14
    //# the recipient MUST accept any length that results in proper alignment
    let padding = body.pop().ok_or(WireError::Truncated("the padding"))?;
    let kept = body.len().checked_sub(usize::from(padding)).ok_or(WireError::Length("the padding"))?;
    body.truncate(kept);
    Ok(Opened { header: envelope.header, first: envelope.first, fragment: envelope.fragment, body })
}

/// Bytes of a datagram beside the payloads in it.
fn overhead(is_fragment: bool) -> usize {
    let sealing = IkeAead::IV_BYTES + PAD_LENGTH_BYTES + IkeAead::ICV_BYTES;
    HEADER_BYTES + GENERIC_BYTES + if is_fragment { FRAGMENT_BYTES } else { 0 } + sealing
}

fn datagram(
    header: &Header,
    first: PayloadKind,
    fragment: Option<Fragment>,
    body: &[u8],
    key: &MessageKey,
    iv: &mut u64,
) -> Option<Vec<u8>> {
    let bytes = overhead(fragment.is_some()) + body.len();
    let payload_bytes = u16::try_from(bytes - HEADER_BYTES).ok()?;
    let kind = if fragment.is_some() { PayloadKind::EncryptedFragment } else { PayloadKind::Encrypted };
    let mut out = Vec::with_capacity(bytes);
    header.emit(kind, bytes, &mut out);
    out.extend_from_slice(&[first.code(), 0]);
    out.extend_from_slice(&payload_bytes.to_be_bytes());
    if let Some(Fragment { number, total }) = fragment {
        out.extend_from_slice(&number.to_be_bytes());
        out.extend_from_slice(&total.to_be_bytes());
    }
    let this_iv = iv.to_be_bytes();
    // 2^64 messages would take longer than the SA may live.
    *iv = iv.wrapping_add(1);
    let associated_bytes = out.len();
    out.extend_from_slice(&this_iv);
    out.extend_from_slice(body);
    out.push(0);
    let (associated, rest) = out.split_at_mut(associated_bytes);
    let text = rest.get_mut(IkeAead::IV_BYTES..)?;
    let icv = key.seal(this_iv, associated, text)?;
    out.extend_from_slice(icv.as_ref());
    Some(out)
}
