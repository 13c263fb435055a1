//! The query of a capture: which packets, where on the line.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The query of a capture: which packets, where on the line.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaptureRequest {
    /// Points on the line, separated by commas; absent means all. See [`CapturePoint`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub point: Option<String>,
    /// Only packets from or to this address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<IpAddr>,
    /// Only packets from or to this TCP or UDP port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Only packets of this protocol.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proto: Option<CaptureProtocol>,
    /// Bytes kept of each packet; absent means all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snaplen: Option<u32>,
}

impl CaptureRequest {
    /// Returns the points asked for, or all of them when none is named.
    ///
    /// # Errors
    /// The first name that is no point.
    pub fn points(&self) -> Result<Vec<CapturePoint>, UnknownWord> {
        match &self.point {
            None => Ok(CapturePoint::ALL.to_vec()),
            Some(list) => list.split(',').map(|name| name.trim().parse()).collect(),
        }
    }

    /// Returns the query string, without `?`. Empty when everything is asked for.
    pub fn to_query(&self) -> String {
        let Self { point, host, port, proto, snaplen } = self;
        [
            point.as_ref().map(|v| format!("point={v}")),
            // The colons of IPv6 may stand in a query as they are (RFC 3986 section 3.4).
            host.map(|v| format!("host={v}")),
            port.map(|v| format!("port={v}")),
            proto.map(|v| format!("proto={}", v.as_str())),
            snaplen.map(|v| format!("snaplen={v}")),
        ]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join("&")
    }
}

/// A word that is none of those that are known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{word}` is none of {known}")]
pub struct UnknownWord {
    /// The word.
    pub word: String,
    /// The known ones, separated by commas.
    pub known: String,
}

/// A place on the line where packets can be seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CapturePoint {
    /// Datagrams from peers, before anything else.
    OuterRx,
    /// Packets that a cable has opened and that passed its checks.
    Opened,
    /// Packets about to be written to the TUN device.
    InnerTx,
    /// Packets read from the TUN device.
    InnerRx,
    /// Datagrams that a cable has sealed, on their way to the socket; `sealed` is read as the same point.
    #[serde(alias = "sealed")]
    OuterTx,
    /// Dropped packets, with the reason as comment.
    Drops,
}

impl CapturePoint {
    /// Every point, in the order in which a packet meets them: inbound, outbound, drops.
    pub const ALL: [Self; 6] =
        [Self::OuterRx, Self::Opened, Self::InnerTx, Self::InnerRx, Self::OuterTx, Self::Drops];

    /// Returns the name in queries, which is the interface's name in captures.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OuterRx => "outer-rx",
            Self::Opened => "opened",
            Self::InnerTx => "inner-tx",
            Self::InnerRx => "inner-rx",
            Self::OuterTx => "outer-tx",
            Self::Drops => "drops",
        }
    }
}

impl fmt::Display for CapturePoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for CapturePoint {
    type Err = UnknownWord;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "sealed" {
            return Ok(Self::OuterTx);
        }
        Self::ALL.into_iter().find(|point| point.as_str() == text).ok_or_else(|| UnknownWord {
            word: text.to_owned(),
            known: Self::ALL.map(Self::as_str).join(", "),
        })
    }
}

/// A protocol to capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CaptureProtocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// ICMP and ICMPv6.
    Icmp,
}

impl CaptureProtocol {
    /// Every protocol.
    pub const ALL: [Self; 3] = [Self::Tcp, Self::Udp, Self::Icmp];

    /// Returns the name in queries.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Icmp => "icmp",
        }
    }
}

impl FromStr for CaptureProtocol {
    type Err = UnknownWord;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|protocol| protocol.as_str() == text).ok_or_else(|| UnknownWord {
            word: text.to_owned(),
            known: Self::ALL.map(Self::as_str).join(", "),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capture_query_names_what_is_asked_for_and_nothing_else() {
        assert_eq!(CaptureRequest::default().to_query(), "");
        let request = CaptureRequest {
            point: Some("opened,drops".to_owned()),
            host: Some("fd00::1".parse().unwrap()),
            port: Some(53),
            proto: Some(CaptureProtocol::Udp),
            snaplen: Some(96),
        };
        assert_eq!(request.to_query(), "point=opened,drops&host=fd00::1&port=53&proto=udp&snaplen=96");
        assert_eq!(request.points(), Ok(vec![CapturePoint::Opened, CapturePoint::Drops]));
    }

    #[test]
    fn sealed_is_another_word_for_outer_tx() {
        assert_eq!("sealed".parse(), Ok(CapturePoint::OuterTx));
        assert_eq!(serde_json::from_str::<CapturePoint>(r#""sealed""#).unwrap(), CapturePoint::OuterTx);
    }

    #[test]
    fn an_unknown_point_is_answered_with_the_known_ones() {
        let request =
            CaptureRequest { point: Some("opened,nowhere".to_owned()), ..CaptureRequest::default() };
        let error = request.points().unwrap_err().to_string();
        assert!(error.contains("nowhere") && error.contains("outer-rx"), "{error}");
    }
}
