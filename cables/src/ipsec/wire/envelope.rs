//! Protected messages as they are before they are opened (RFC 7296 section 3.14, RFC 7383 section 2.5).

use super::bytes::Reader;
use super::message::Chain;
use super::{Header, PayloadKind, WireError};

/// Which piece of a message a fragment is. `1 <= number <= total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fragment {
    /// Counted from 1.
    pub number: u16,
    /// How many there are.
    pub total: u16,
}

/// A message whose last payload is SK or SKF.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Envelope<'a> {
    /// The header of the message.
    pub header: Header,
    /// The type of the first payload inside. Of fragments only the first says it; others say [`PayloadKind::None`].
    pub first: PayloadKind,
    /// Which piece it is, in an SKF payload.
    pub fragment: Option<Fragment>,
    /// What is authenticated but not encrypted: everything in front of the IV.
    pub associated: &'a [u8],
    /// IV, ciphertext and ICV.
    pub sealed: &'a [u8],
}

impl<'a> Envelope<'a> {
    /// Reads a whole datagram (without non-ESP marker). Payloads in front of the encrypted one are skipped: nothing that
    /// is not encrypted is acted on once there are keys.
    ///
    /// # Errors
    /// [`WireError`] when it is malformed, holds an unknown critical payload in clear, or holds no encrypted payload.
    pub fn parse(datagram: &'a [u8]) -> Result<Self, WireError> {
        let (header, first, body) = Header::parse(datagram)?;
        let mut found = None;
        for item in Chain::new(first, body) {
            let item = item?;
            if let (PayloadKind::Other(kind), true) = (item.kind, item.is_critical) {
                return Err(WireError::UnsupportedCritical(kind));
            }
            if matches!(item.kind, PayloadKind::Encrypted | PayloadKind::EncryptedFragment) {
                found = Some(item);
            }
        }
        let item = found.ok_or(WireError::Protection)?;
        let mut reader = Reader::new(item.body, "the encrypted payload");
        let is_fragment = item.kind == PayloadKind::EncryptedFragment;
        let fragment = if is_fragment { Some(Fragment::parse(&mut reader)?) } else { None };
        let sealed = reader.rest();
        // The encrypted payload is the last, so what is in front of `sealed` is all the rest.
        let (associated, _) = datagram
            .split_at_checked(datagram.len() - sealed.len())
            .ok_or(WireError::Length("the encrypted payload"))?;
        Ok(Self { header, first: item.next, fragment, associated, sealed })
    }
}

impl Fragment {
    fn parse(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        let (number, total) = (reader.u16()?, reader.u16()?);
        if number == 0 || number > total {
            return Err(WireError::Length("a fragment's number"));
        }
        Ok(Self { number, total })
    }
}
