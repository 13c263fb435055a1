//! The payloads of a message (RFC 7296 section 3.2 and following).

use super::bytes::Reader;
use super::code::codes;
use super::{Delete, Id, Notify, Proposal, WireError, proposal, traffic};
use crate::ipsec::Selector;

codes! {
    /// Types of payloads.
    PayloadKind: u8 {
        /// The chain ends.
        None = 0, "none";
        /// Security association.
        Sa = 33, "SA";
        /// Key exchange.
        Ke = 34, "KE";
        /// Identity of the initiator.
        IdI = 35, "IDi";
        /// Identity of the responder.
        IdR = 36, "IDr";
        /// Certificate.
        Cert = 37, "CERT";
        /// Certificate request.
        CertReq = 38, "CERTREQ";
        /// Authentication.
        Auth = 39, "AUTH";
        /// Nonce.
        Nonce = 40, "Nonce";
        /// Notify.
        Notify = 41, "N";
        /// Delete.
        Delete = 42, "D";
        /// Vendor ID.
        VendorId = 43, "V";
        /// Traffic selectors of the initiator.
        TsI = 44, "TSi";
        /// Traffic selectors of the responder.
        TsR = 45, "TSr";
        /// Encrypted and authenticated: the last, with all others inside.
        Encrypted = 46, "SK";
        /// Configuration.
        Configuration = 47, "CP";
        /// Extensible authentication.
        Eap = 48, "EAP";
        /// A piece of an encrypted payload (RFC 7383).
        EncryptedFragment = 53, "SKF";
    }
}

codes! {
    /// How a peer proves who it is.
    AuthMethod: u8 {
        /// By a secret that both know.
        SharedKey = 2, "PSK";
    }
}

/// A key exchange payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyExchange {
    /// The number of the group; a group that is not known is carried too.
    pub group: u16,
    /// The public value.
    pub data: Vec<u8>,
}

/// An authentication payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Auth {
    /// How.
    pub method: AuthMethod,
    /// The proof.
    pub data: Vec<u8>,
}

/// A payload that is known but not read here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Other {
    /// Its type.
    pub kind: PayloadKind,
    /// Its critical flag.
    pub is_critical: bool,
    /// Its body.
    pub data: Vec<u8>,
}

/// A payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Payload {
    /// What an SA may be made of, or what was chosen; at least one proposal.
    Sa(Vec<Proposal>),
    /// A public value.
    Ke(KeyExchange),
    /// Who the initiator is.
    IdI(Id),
    /// Who the responder is.
    IdR(Id),
    /// The proof of it.
    Auth(Auth),
    /// 16 to 256 random bytes.
    Nonce(Vec<u8>),
    /// An error or state.
    Notify(Notify),
    /// SAs that are removed.
    Delete(Delete),
    /// Whose program it is.
    VendorId(Vec<u8>),
    /// Whom the child SA is for, on the side of the exchange's initiator. Unknown kinds are left out.
    TsI(Vec<Selector>),
    /// The same of the other side.
    TsR(Vec<Selector>),
    /// Certificates, configuration, EAP.
    Other(Other),
}

/// Bytes that a nonce may have (RFC 7296 section 3.9).
const NONCE_BYTES: std::ops::RangeInclusive<usize> = 16..=256;

impl Payload {
    /// A notify about no SA in particular.
    #[must_use]
    pub fn notify(kind: super::NotifyKind, data: Vec<u8>) -> Self {
        Self::Notify(Notify::new(kind, data))
    }

    /// Its type.
    #[must_use]
    pub fn kind(&self) -> PayloadKind {
        match self {
            Self::Sa(_) => PayloadKind::Sa,
            Self::Ke(_) => PayloadKind::Ke,
            Self::IdI(_) => PayloadKind::IdI,
            Self::IdR(_) => PayloadKind::IdR,
            Self::Auth(_) => PayloadKind::Auth,
            Self::Nonce(_) => PayloadKind::Nonce,
            Self::Notify(_) => PayloadKind::Notify,
            Self::Delete(_) => PayloadKind::Delete,
            Self::VendorId(_) => PayloadKind::VendorId,
            Self::TsI(_) => PayloadKind::TsI,
            Self::TsR(_) => PayloadKind::TsR,
            Self::Other(other) => other.kind,
        }
    }

    /// Reads the body of a payload; none if it is to be skipped.
    ///
    //= https://www.rfc-editor.org/rfc/rfc7296#section-2.5
    //# If the critical flag is not set and
    //# the payload type is unsupported, that payload MUST be ignored.
    pub(super) fn parse(
        kind: PayloadKind,
        is_critical: bool,
        body: &[u8],
    ) -> Result<Option<Self>, WireError> {
        Ok(Some(match kind {
            PayloadKind::Sa => Self::Sa(proposal::parse(body)?),
            PayloadKind::Ke => {
                let mut reader = Reader::new(body, "a key exchange");
                let (group, _reserved) = (reader.u16()?, reader.u16()?);
                Self::Ke(KeyExchange { group, data: reader.rest().to_vec() })
            }
            PayloadKind::IdI => Self::IdI(Id::parse(body)?),
            PayloadKind::IdR => Self::IdR(Id::parse(body)?),
            PayloadKind::Auth => {
                let mut reader = Reader::new(body, "the authentication payload");
                let [method, _, _, _] = reader.array()?;
                Self::Auth(Auth { method: AuthMethod::from_code(method), data: reader.rest().to_vec() })
            }
            PayloadKind::Nonce if NONCE_BYTES.contains(&body.len()) => Self::Nonce(body.to_vec()),
            PayloadKind::Nonce => return Err(WireError::Length("a nonce")),
            PayloadKind::Notify => Self::Notify(Notify::parse(body)?),
            PayloadKind::Delete => Self::Delete(Delete::parse(body)?),
            PayloadKind::VendorId => Self::VendorId(body.to_vec()),
            PayloadKind::TsI => Self::TsI(traffic::parse(body)?),
            PayloadKind::TsR => Self::TsR(traffic::parse(body)?),
            PayloadKind::Cert | PayloadKind::CertReq | PayloadKind::Configuration | PayloadKind::Eap => {
                Self::Other(Other { kind, is_critical, data: body.to_vec() })
            }
            PayloadKind::Encrypted | PayloadKind::EncryptedFragment => return Err(WireError::Protection),
            PayloadKind::None | PayloadKind::Other(_) if is_critical => {
                return Err(WireError::UnsupportedCritical(kind.code()));
            }
            PayloadKind::None | PayloadKind::Other(_) => return Ok(None),
        }))
    }

    /// Appends the body.
    pub(super) fn emit(&self, out: &mut Vec<u8>) {
        match self {
            Self::Sa(proposals) => proposal::emit(proposals, out),
            Self::Ke(exchange) => {
                out.extend_from_slice(&exchange.group.to_be_bytes());
                out.extend_from_slice(&[0, 0]);
                out.extend_from_slice(&exchange.data);
            }
            Self::IdI(id) | Self::IdR(id) => out.extend_from_slice(&id.body()),
            Self::Auth(auth) => {
                out.extend_from_slice(&[auth.method.code(), 0, 0, 0]);
                out.extend_from_slice(&auth.data);
            }
            Self::Nonce(data) | Self::VendorId(data) => out.extend_from_slice(data),
            Self::Notify(notify) => notify.emit(out),
            Self::Delete(delete) => delete.emit(out),
            Self::TsI(selectors) | Self::TsR(selectors) => traffic::emit(selectors, out),
            Self::Other(other) => out.extend_from_slice(&other.data),
        }
    }

    pub(super) fn is_critical(&self) -> bool {
        matches!(self, Self::Other(Other { is_critical: true, .. }))
    }
}
