//! What SAs may be made of: proposals and transforms (RFC 7296 section 3.3).

use std::fmt;

use super::WireError;
use super::bytes::{Reader, clamp8, patch_length};
use super::code::codes;
use crate::ipsec::Spi;

/// Most proposals of a payload. Ours; libreswan sends up to ten.
const MAX_PROPOSALS: usize = 64;
/// Most transforms of all proposals of a payload. Ours.
const MAX_TRANSFORMS: usize = 512;
/// The one attribute: the key length in bits, in the short form.
const KEY_LENGTH: u16 = 0x8000 | 14;
const SHORT_FORM: u16 = 0x8000;
/// "More of these follow": in the last one it is 0.
const MORE_PROPOSALS: u8 = 2;
const MORE_TRANSFORMS: u8 = 3;

codes! {
    /// What an SPI or proposal is about.
    Protocol: u8 {
        /// About no SA.
        None = 0, "none";
        /// The IKE SA.
        Ike = 1, "IKE";
        /// Authentication without encryption; not ours.
        Ah = 2, "AH";
        /// Child SAs.
        Esp = 3, "ESP";
    }
}

codes! {
    /// What a transform is for.
    TransformKind: u8 {
        /// `ENCR`.
        Encryption = 1, "encryption";
        /// `PRF`.
        Prf = 2, "PRF";
        /// `INTEG`.
        Integrity = 3, "integrity";
        /// The group of key agreement.
        Group = 4, "key agreement";
        /// Whether sequence numbers have 64 bits.
        Esn = 5, "ESN";
    }
}

/// One algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Transform {
    /// What it is for.
    pub kind: TransformKind,
    /// Its number in the registry of its kind.
    pub id: u16,
    /// The length of its key in bits, if it is given.
    pub key_bits: Option<u16>,
    /// Whether it has an attribute that is not known: then it is not acceptable (section 3.3.6).
    pub has_unknown_attribute: bool,
}

impl Transform {
    /// Without attributes.
    #[must_use]
    pub fn new(kind: TransformKind, id: u16) -> Self {
        Self { kind, id, key_bits: None, has_unknown_attribute: false }
    }

    /// With a key length.
    #[must_use]
    pub fn with_key_bits(kind: TransformKind, id: u16, key_bits: u16) -> Self {
        Self { key_bits: Some(key_bits), ..Self::new(kind, id) }
    }

    fn parse(reader: &mut Reader<'_>) -> Result<(Self, bool), WireError> {
        let (more, _reserved, length) = (reader.u8()?, reader.u8()?, reader.u16()?);
        let mut body = Reader::new(reader.body(length, 4)?, "a transform");
        let (kind, _reserved, id) = (body.u8()?, body.u8()?, body.u16()?);
        let mut transform = Self::new(TransformKind::from_code(kind), id);
        while !body.is_empty() {
            let (attribute, value) = (body.u16()?, body.u16()?);
            match attribute {
                KEY_LENGTH if transform.key_bits.is_none() => transform.key_bits = Some(value),
                _ => transform.has_unknown_attribute = true,
            }
            if attribute & SHORT_FORM == 0 {
                body.take(usize::from(value))?;
            }
        }
        Ok((transform, has_more(more, MORE_TRANSFORMS, "a transform")?))
    }

    fn emit(&self, is_last: bool, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[if is_last { 0 } else { MORE_TRANSFORMS }, 0, 0, 0, self.kind.code(), 0]);
        out.extend_from_slice(&self.id.to_be_bytes());
        if let Some(bits) = self.key_bits {
            out.extend_from_slice(&KEY_LENGTH.to_be_bytes());
            out.extend_from_slice(&bits.to_be_bytes());
        }
        patch_length(out, start, start + 2);
    }

    /// The word that strongSwan and its users have for it, without the key length.
    fn word(&self) -> Option<&'static str> {
        Some(match (self.kind, self.id) {
            (TransformKind::Encryption, 3) => "3des",
            (TransformKind::Encryption, 11) => "null",
            (TransformKind::Encryption, 12) => "aes",
            (TransformKind::Encryption, 13) => "aesctr",
            (TransformKind::Encryption, 18) => "aesgcm8-",
            (TransformKind::Encryption, 19) => "aesgcm12-",
            (TransformKind::Encryption, 28) => "chacha20poly1305",
            (TransformKind::Prf, 2) => "prfsha1",
            (TransformKind::Prf, 5) => "prfsha256",
            (TransformKind::Prf, 6) => "prfsha384",
            (TransformKind::Prf, 7) => "prfsha512",
            (TransformKind::Integrity, 0) => "nointegrity",
            (TransformKind::Integrity, 2) => "sha1",
            (TransformKind::Integrity, 12) => "sha256",
            (TransformKind::Integrity, 13) => "sha384",
            (TransformKind::Integrity, 14) => "sha512",
            (TransformKind::Group, 0) => "nogroup",
            (TransformKind::Group, 2) => "modp1024",
            (TransformKind::Group, 5) => "modp1536",
            (TransformKind::Group, 14) => "modp2048",
            (TransformKind::Group, 15) => "modp3072",
            (TransformKind::Group, 16) => "modp4096",
            (TransformKind::Group, 17) => "modp6144",
            (TransformKind::Group, 18) => "modp8192",
            (TransformKind::Group, 19) => "ecp256",
            (TransformKind::Group, 20) => "ecp384",
            (TransformKind::Group, 21) => "ecp521",
            (TransformKind::Group, 31) => "x25519",
            (TransformKind::Group, 32) => "x448",
            (TransformKind::Esn, 0) => "noesn",
            (TransformKind::Esn, 1) => "esn",
            _ => return None,
        })
    }
}

impl fmt::Display for Transform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.kind, self.id, self.key_bits, self.word()) {
            (TransformKind::Encryption, 20, Some(bits), _) => write!(f, "aes{bits}gcm16"),
            (_, _, Some(bits), Some(word)) => write!(f, "{word}{bits}"),
            (_, _, None, Some(word)) => f.write_str(word),
            (kind, id, ..) => write!(f, "{kind}-{id}"),
        }
    }
}

/// One way to make an SA: of each kind of transform, one is to be chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proposal {
    /// Its number: 1 for the first. A response carries that of the chosen one.
    pub number: u8,
    /// For what.
    pub protocol: Protocol,
    /// The sender's SPI, at most 255 bytes: four for ESP, eight for the renewal of an IKE SA, none for its beginning.
    pub spi: Vec<u8>,
    /// At most 255.
    pub transforms: Vec<Transform>,
}

impl Proposal {
    /// The SPI, if it is for a child SA and well-formed.
    #[must_use]
    pub fn esp_spi(&self) -> Option<Spi> {
        let spi = self.spi.as_slice().try_into().ok()?;
        (self.protocol == Protocol::Esp).then(|| Spi::from_bytes(spi))
    }

    /// The SPI, if it is for a new IKE SA in the place of another, and well-formed.
    #[must_use]
    pub fn ike_spi(&self) -> Option<u64> {
        let spi = self.spi.as_slice().try_into().ok()?;
        (self.protocol == Protocol::Ike).then(|| u64::from_be_bytes(spi))
    }

    /// The transforms of a kind, in the sender's order.
    pub fn of_kind(&self, kind: TransformKind) -> impl Iterator<Item = &Transform> {
        self.transforms.iter().filter(move |transform| transform.kind == kind)
    }

    fn parse(reader: &mut Reader<'_>) -> Result<(Self, bool), WireError> {
        let (more, _reserved, length) = (reader.u8()?, reader.u8()?, reader.u16()?);
        let mut body = Reader::new(reader.body(length, 4)?, "a proposal");
        let (number, protocol, spi_bytes, count) = (body.u8()?, body.u8()?, body.u8()?, body.u8()?);
        let spi = body.take(usize::from(spi_bytes))?.to_vec();
        let mut transforms = Vec::new();
        for index in 1..=count {
            let (transform, has_more) = Transform::parse(&mut body)?;
            if has_more != (index < count) {
                return Err(WireError::Length("a proposal"));
            }
            transforms.push(transform);
        }
        body.end()?;
        let proposal = Self { number, protocol: Protocol::from_code(protocol), spi, transforms };
        Ok((proposal, has_more(more, MORE_PROPOSALS, "a proposal")?))
    }

    fn emit(&self, is_last: bool, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[if is_last { 0 } else { MORE_PROPOSALS }, 0, 0, 0]);
        out.extend_from_slice(&[self.number, self.protocol.code()]);
        out.extend_from_slice(&[clamp8(self.spi.len()), clamp8(self.transforms.len())]);
        out.extend_from_slice(&self.spi);
        for (index, transform) in self.transforms.iter().enumerate() {
            transform.emit(index + 1 == self.transforms.len(), out);
        }
        patch_length(out, start, start + 2);
    }
}

impl fmt::Display for Proposal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, transform) in self.transforms.iter().enumerate() {
            if index > 0 {
                f.write_str("-")?;
            }
            transform.fmt(f)?;
        }
        Ok(())
    }
}

fn has_more(field: u8, more: u8, what: &'static str) -> Result<bool, WireError> {
    match field {
        0 => Ok(false),
        value if value == more => Ok(true),
        _ => Err(WireError::Length(what)),
    }
}

/// The body of an SA payload.
pub(super) fn parse(body: &[u8]) -> Result<Vec<Proposal>, WireError> {
    let mut reader = Reader::new(body, "the SA payload");
    let (mut proposals, mut transforms) = (Vec::new(), 0);
    loop {
        let (proposal, has_more) = Proposal::parse(&mut reader)?;
        transforms += proposal.transforms.len();
        proposals.push(proposal);
        if proposals.len() > MAX_PROPOSALS || transforms > MAX_TRANSFORMS {
            return Err(WireError::TooMany("proposals"));
        }
        if !has_more {
            break;
        }
    }
    reader.end()?;
    Ok(proposals)
}

pub(super) fn emit(proposals: &[Proposal], out: &mut Vec<u8>) {
    for (index, proposal) in proposals.iter().enumerate() {
        proposal.emit(index + 1 == proposals.len(), out);
    }
}
