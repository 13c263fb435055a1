//! The datagrams: protobuf (proto3), one message each, no framing. Field numbers are upstream's.
//!
//! Absent and zero are the same for numbers and texts, as in proto3; only nested messages can be missing. Unknown
//! fields are skipped, the version is written in requests and never looked at.

use std::net::{IpAddr, SocketAddr};

use prost::Message as _;

use super::MAX_DATAGRAM;

/// From the specification: what requests carry as their version. Responses carry none.
pub const VERSION: i32 = 1;

/// Why a datagram is no message.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ParseError {
    /// It is larger than a receiver reads.
    #[error("cannot read a datagram: it has {0} bytes, more than {MAX_DATAGRAM}")]
    TooLarge(usize),
    /// It is not protobuf of this schema.
    #[error("cannot read a NAT discovery message: {0}")]
    NotProtobuf(#[from] prost::DecodeError),
    /// It is neither request nor response.
    #[error("cannot read a NAT discovery message: it is neither a request nor a response")]
    Empty,
}

/// Reads a datagram.
///
/// # Errors
/// [`ParseError`].
pub fn parse(datagram: &[u8]) -> Result<Body, ParseError> {
    if datagram.len() > MAX_DATAGRAM {
        return Err(ParseError::TooLarge(datagram.len()));
    }
    Envelope::decode(datagram)?.body.ok_or(ParseError::Empty)
}

/// Writes a datagram.
#[must_use]
pub fn emit(body: Body) -> Vec<u8> {
    let version = match body {
        Body::Request(_) => VERSION,
        Body::Response(_) => 0,
    };
    Envelope { version, body: Some(body) }.encode_to_vec()
}

/// The body of every datagram.
#[derive(Clone, PartialEq, prost::Message)]
struct Envelope {
    #[prost(int32, tag = "1")]
    version: i32,
    #[prost(oneof = "Body", tags = "2, 3")]
    body: Option<Body>,
}

/// A request or a response.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Body {
    /// Are you there, and do you see me as I am?
    #[prost(message, tag = "2")]
    Request(Request),
    /// How the request looked when it came.
    #[prost(message, tag = "3")]
    Response(Response),
}

/// Asks a gateway how this datagram looked when it came.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Request {
    /// Echoed by the response.
    #[prost(uint64, tag = "1")]
    pub request_number: u64,
    /// The sender.
    #[prost(message, optional, tag = "2")]
    pub sender: Option<EndpointDetails>,
    /// The receiver.
    #[prost(message, optional, tag = "3")]
    pub receiver: Option<EndpointDetails>,
    /// Where the asker sends from, as it sees it.
    #[prost(message, optional, tag = "4")]
    pub using_src: Option<IpPortPair>,
    /// Where the asker sends to.
    #[prost(message, optional, tag = "5")]
    pub using_dst: Option<IpPortPair>,
}

/// Says how a request looked when it came.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Response {
    /// The request's.
    #[prost(uint64, tag = "1")]
    pub request_number: u64,
    /// The verdict.
    #[prost(enumeration = "ResponseType", tag = "2")]
    pub response: i32,
    /// The sender of the answer.
    #[prost(message, optional, tag = "3")]
    pub sender: Option<EndpointDetails>,
    /// The sender of the request.
    #[prost(message, optional, tag = "4")]
    pub receiver: Option<EndpointDetails>,
    /// Whether the request came from another address than its sender believed.
    #[prost(bool, tag = "5")]
    pub src_ip_nat_detected: bool,
    /// Whether it came from another port.
    #[prost(bool, tag = "6")]
    pub src_port_nat_detected: bool,
    /// Whether it was sent to another address than the receiver's own.
    #[prost(bool, tag = "7")]
    pub dst_ip_nat_detected: bool,
    /// Where the request came from.
    #[prost(message, optional, tag = "8")]
    pub received_src: Option<IpPortPair>,
}

/// An address and a port.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct IpPortPair {
    /// The address as text; may be empty.
    #[prost(string, tag = "1")]
    pub ip: String,
    /// The port; a message may carry any number.
    #[prost(int32, tag = "2")]
    pub port: i32,
}

/// The identity of a side: cluster and cable.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct EndpointDetails {
    /// The cluster's ID.
    #[prost(string, tag = "1")]
    pub cluster_id: String,
    /// The cable's name; not the Endpoint object's.
    #[prost(string, tag = "2")]
    pub endpoint_id: String,
}

/// The verdict on a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum ResponseType {
    /// Nothing on the way changed an address or a port.
    Ok = 0,
    /// Something did.
    NatDetected = 1,
    /// The receiver's cluster is not the one that was asked for.
    UnknownDstCluster = 2,
    /// The receiver's cable is not the one that was asked for.
    UnknownDstEndpoint = 3,
    /// The request lacks something.
    Malformed = 4,
}

impl From<SocketAddr> for IpPortPair {
    fn from(address: SocketAddr) -> Self {
        Self { ip: address.ip().to_canonical().to_string(), port: address.port().into() }
    }
}

impl IpPortPair {
    /// Returns `true` if the address is this one, however it is written.
    #[must_use]
    pub fn has_ip(&self, address: IpAddr) -> bool {
        self.ip.parse::<IpAddr>().is_ok_and(|own| own.to_canonical() == address.to_canonical())
    }
}

impl EndpointDetails {
    /// Returns `true` if it is this cluster and cable.
    #[must_use]
    pub fn is(&self, cluster_id: &str, cable_name: &str) -> bool {
        self.cluster_id == cluster_id && self.endpoint_id == cable_name
    }
}
