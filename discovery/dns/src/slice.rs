//! What one EndpointSlice says of a service in one cluster.

use std::net::IpAddr;

use crate::label::Label;

/// Most endpoints of a slice that count; Kubernetes allows no more.
pub const MAX_ENDPOINTS: usize = 1_000;
/// Most ports of a slice, or of an import, that count; Kubernetes allows no more in a slice.
pub const MAX_PORTS: usize = 100;

/// A transport protocol of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

impl Protocol {
    /// Parses a label of a name, in lower case and without an underscore.
    pub(crate) fn from_label(label: &[u8]) -> Option<Self> {
        match label {
            b"tcp" => Some(Self::Tcp),
            b"udp" => Some(Self::Udp),
            b"sctp" => Some(Self::Sctp),
            _ => None,
        }
    }
}

/// A port of a service.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Port {
    /// Its name; a service with a single port may leave it without.
    pub name: Option<Label>,
    /// Its protocol.
    pub protocol: Protocol,
    /// Its number.
    pub number: u16,
}

/// A pod, or what else serves; the virtual IP of a service with one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
    /// Its host name, of a headless service.
    pub host: Option<Label>,
    /// Whether it serves.
    pub is_ready: bool,
}

/// An EndpointSlice.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Slice {
    /// Its endpoints; those beyond [`MAX_ENDPOINTS`] do not count.
    pub endpoints: Vec<Endpoint>,
    /// Its ports; those beyond [`MAX_PORTS`] do not count.
    pub ports: Vec<Port>,
    /// Whether addresses count that are not ready.
    pub publishes_not_ready: bool,
}
