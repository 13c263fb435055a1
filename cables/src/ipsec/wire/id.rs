//! Who somebody says they are (RFC 7296 section 3.5).

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::WireError;

const IPV4: u8 = 1;
const FQDN: u8 = 2;
const IPV6: u8 = 5;

/// The content of an IDi or IDr payload.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Id {
    /// `ID_IPV4_ADDR`.
    Ipv4(Ipv4Addr),
    /// `ID_IPV6_ADDR`.
    Ipv6(Ipv6Addr),
    /// `ID_FQDN`: printable ASCII.
    Fqdn(String),
    /// Any other.
    Other {
        /// The type.
        kind: u8,
        /// The identification data.
        data: Vec<u8>,
    },
}

impl Id {
    /// The body of the payload behind its generic header, which AUTH also covers (`RestOfIDPayload`).
    #[must_use]
    pub fn body(&self) -> Vec<u8> {
        let mut out = vec![self.kind(), 0, 0, 0];
        match self {
            Self::Ipv4(address) => out.extend_from_slice(&address.octets()),
            Self::Ipv6(address) => out.extend_from_slice(&address.octets()),
            Self::Fqdn(name) => out.extend_from_slice(name.as_bytes()),
            Self::Other { data, .. } => out.extend_from_slice(data),
        }
        out
    }

    pub(super) fn parse(body: &[u8]) -> Result<Self, WireError> {
        let (head, data) = body.split_first_chunk::<4>().ok_or(WireError::Truncated("an identity"))?;
        let wrong = |_| WireError::Length("an identity");
        Ok(match head[0] {
            IPV4 => Self::Ipv4(<[u8; 4]>::try_from(data).map_err(wrong)?.into()),
            IPV6 => Self::Ipv6(<[u8; 16]>::try_from(data).map_err(wrong)?.into()),
            FQDN if data.iter().all(u8::is_ascii_graphic) => {
                Self::Fqdn(data.iter().map(|byte| char::from(*byte)).collect())
            }
            kind => Self::Other { kind, data: data.to_vec() },
        })
    }

    fn kind(&self) -> u8 {
        match self {
            Self::Ipv4(_) => IPV4,
            Self::Ipv6(_) => IPV6,
            Self::Fqdn(_) => FQDN,
            Self::Other { kind, .. } => *kind,
        }
    }
}

impl From<IpAddr> for Id {
    fn from(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => Self::Ipv4(address),
            IpAddr::V6(address) => Self::Ipv6(address),
        }
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ipv4(address) => address.fmt(f),
            Self::Ipv6(address) => address.fmt(f),
            Self::Fqdn(name) => f.write_str(name),
            Self::Other { kind, data } => {
                write!(f, "type {kind}: ")?;
                data.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }
    }
}
