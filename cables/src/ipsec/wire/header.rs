//! The header of every message (RFC 7296 section 3.1).

use super::bytes::Reader;
use super::code::codes;
use super::{PayloadKind, WireError};

/// Bytes of the header.
pub const HEADER_BYTES: usize = 28;
/// The version of IKE.
pub(super) const MAJOR_VERSION: u8 = 2;

const FLAG_INITIATOR: u8 = 0x08;
const FLAG_RESPONSE: u8 = 0x20;

codes! {
    /// What a request and its response are about.
    Exchange: u8 {
        /// The first: algorithms, key agreement.
        IkeSaInit = 34, "IKE_SA_INIT";
        /// The second: who we are, and the first child SA.
        IkeAuth = 35, "IKE_AUTH";
        /// A new child SA, or new keys.
        CreateChildSa = 36, "CREATE_CHILD_SA";
        /// Deletions, errors, signs of life.
        Informational = 37, "INFORMATIONAL";
    }
}

/// The header of a message, but for its length and the type of the first payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The SPI that the initiator of the IKE SA chose; never 0.
    pub spi_i: u64,
    /// The responder's; 0 in the first request.
    pub spi_r: u64,
    /// What it is about.
    pub exchange: Exchange,
    /// Whether the sender initiated the IKE SA (or the last rekeying of it).
    pub is_initiator: bool,
    /// Whether it answers the request of the same message ID.
    pub is_response: bool,
    /// Counts requests of each side from 0.
    pub message_id: u32,
}

impl Header {
    /// Reads the header of a whole datagram (without non-ESP marker): itself, the first payload's type, the payloads.
    ///
    /// # Errors
    /// [`WireError`] when it is short, of another version, or its length is not the datagram's.
    pub fn parse(datagram: &[u8]) -> Result<(Self, PayloadKind, &[u8]), WireError> {
        let mut reader = Reader::new(datagram, "the header");
        let (spi_i, spi_r) = (reader.u64()?, reader.u64()?);
        let (next, version, exchange, flags) = (reader.u8()?, reader.u8()?, reader.u8()?, reader.u8()?);
        let (message_id, length) = (reader.u32()?, reader.u32()?);
        //= https://www.rfc-editor.org/rfc/rfc7296#section-2.5
        //# If an endpoint receives a
        //# message with a higher major version number, it MUST drop the message
        if version >> 4 != MAJOR_VERSION {
            return Err(WireError::Version(version >> 4));
        }
        if usize::try_from(length) != Ok(datagram.len()) {
            return Err(WireError::Length("the message"));
        }
        let header = Self {
            spi_i,
            spi_r,
            exchange: Exchange::from_code(exchange),
            is_initiator: flags & FLAG_INITIATOR != 0,
            is_response: flags & FLAG_RESPONSE != 0,
            message_id,
        };
        Ok((header, PayloadKind::from_code(next), reader.rest()))
    }

    /// Appends the header of a message that begins with a payload of type `next` and is `length` bytes long.
    pub(in super::super) fn emit(&self, next: PayloadKind, length: usize, out: &mut Vec<u8>) {
        let flags = if self.is_initiator { FLAG_INITIATOR } else { 0 }
            | if self.is_response { FLAG_RESPONSE } else { 0 };
        out.extend_from_slice(&self.spi_i.to_be_bytes());
        out.extend_from_slice(&self.spi_r.to_be_bytes());
        out.extend_from_slice(&[next.code(), MAJOR_VERSION << 4, self.exchange.code(), flags]);
        out.extend_from_slice(&self.message_id.to_be_bytes());
        out.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
    }
}
