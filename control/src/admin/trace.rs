//! The way of a packet, with reasons: the query and the answer of `trieste trace`.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A packet to be followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceRequest {
    /// Its source address, as it is when it reaches this gateway.
    pub from: IpAddr,
    /// Its destination address, as it is when it reaches this gateway.
    pub to: IpAddr,
    /// Its protocol.
    #[serde(default)]
    pub proto: TraceProtocol,
    /// Its source port, or the identifier of an ICMP query.
    #[serde(default)]
    pub sport: u16,
    /// Its destination port.
    #[serde(default)]
    pub dport: u16,
    /// Which way it goes.
    #[serde(default)]
    pub direction: TraceDirection,
}

impl TraceRequest {
    /// Returns the query string, without `?`.
    #[must_use]
    pub fn to_query(&self) -> String {
        let Self { from, to, proto, sport, dport, direction } = self;
        format!("from={from}&to={to}&proto={proto}&sport={sport}&dport={dport}&direction={direction}")
    }
}

/// A packet's protocol.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TraceProtocol {
    /// TCP: a segment that begins a connection, or one of a connection that is known.
    #[default]
    Tcp,
    /// UDP.
    Udp,
    /// An ICMP echo request going out, an echo reply coming in.
    Icmp,
    /// SCTP.
    Sctp,
    /// Any other, by its number.
    Other(u8),
}

impl TraceProtocol {
    /// Returns the protocol number in the IP header, ICMPv6's where `is_ipv6`.
    #[must_use]
    pub const fn number(self, is_ipv6: bool) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
            Self::Icmp => {
                if is_ipv6 {
                    58
                } else {
                    1
                }
            }
            Self::Sctp => 132,
            Self::Other(number) => number,
        }
    }
}

impl fmt::Display for TraceProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp => f.pad("tcp"),
            Self::Udp => f.pad("udp"),
            Self::Icmp => f.pad("icmp"),
            Self::Sctp => f.pad("sctp"),
            Self::Other(number) => f.pad(&number.to_string()),
        }
    }
}

impl FromStr for TraceProtocol {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text {
            "tcp" | "6" => Self::Tcp,
            "udp" | "17" => Self::Udp,
            "icmp" | "1" | "58" => Self::Icmp,
            "sctp" | "132" => Self::Sctp,
            _ => Self::Other(text.parse().map_err(|_| {
                format!("`{text}` is none of tcp, udp, icmp, sctp, and no protocol's number from 0 to 255")
            })?),
        })
    }
}

/// Which way a packet goes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TraceDirection {
    /// From this cluster.
    #[default]
    Outbound,
    /// To this cluster.
    Inbound,
}

impl fmt::Display for TraceDirection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Outbound => "outbound",
            Self::Inbound => "inbound",
        })
    }
}

impl FromStr for TraceDirection {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "outbound" => Ok(Self::Outbound),
            "inbound" => Ok(Self::Inbound),
            _ => Err(format!("`{text}` is neither outbound nor inbound")),
        }
    }
}

/// The way of a packet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TraceAnswer {
    /// The packet, as it was asked for.
    pub request: TraceRequest,
    /// The worker whose state decided.
    pub worker: u32,
    /// Whether a session or a remembered flow decided; if not, it is what would happen to the first packet of a flow.
    pub is_live: bool,
    /// Stage by stage, in the order in which the packet meets them.
    pub steps: Vec<TraceStep>,
    /// The packet as it leaves this gateway, before it is sealed or after it was opened; absent when it is dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<TracePacket>,
    /// Why it is dropped, as in the metrics; absent when it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped: Option<String>,
}

/// The decision of one stage.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceStep {
    /// The stage: `classify`, `nat`, `steer`, …
    pub stage: String,
    /// Its decision.
    pub decision: String,
    /// Why; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
}

/// Addresses and ports of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TracePacket {
    /// Its source address.
    pub from: IpAddr,
    /// Its destination address.
    pub to: IpAddr,
    /// Its source port, or the identifier of an ICMP query.
    pub sport: u16,
    /// Its destination port.
    pub dport: u16,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_as_they_are_written() {
        for word in ["tcp", "udp", "icmp", "sctp", "47"] {
            assert_eq!(word.parse::<TraceProtocol>().unwrap().to_string(), word);
        }
        assert_eq!("58".parse::<TraceProtocol>().unwrap().number(true), 58);
        assert_eq!(TraceProtocol::Icmp.number(false), 1);
        assert!("tpc".parse::<TraceProtocol>().unwrap_err().contains("tcp, udp"));
        assert!("256".parse::<TraceProtocol>().is_err());
        for direction in [TraceDirection::Outbound, TraceDirection::Inbound] {
            assert_eq!(direction.to_string().parse(), Ok(direction));
        }
        assert!("up".parse::<TraceDirection>().is_err());
    }

    #[test]
    fn a_query_names_everything() {
        let request = TraceRequest {
            from: "10.1.0.5".parse().unwrap(),
            to: "242.1.0.1".parse().unwrap(),
            proto: TraceProtocol::Udp,
            sport: 4711,
            dport: 53,
            direction: TraceDirection::Outbound,
        };
        assert_eq!(
            request.to_query(),
            "from=10.1.0.5&to=242.1.0.1&proto=udp&sport=4711&dport=53&direction=outbound"
        );
    }
}
