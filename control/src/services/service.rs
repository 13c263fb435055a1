//! The services, joined: from an address and port to back ends.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// A transport protocol that services can have.
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
    /// Returns the Internet protocol number.
    pub const fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
            Self::Sctp => 132,
        }
    }

    /// Returns the name in lower case, as packet filters have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Sctp => "sctp",
        }
    }

    /// Returns the protocol of a `protocol` field; `None` for one that services cannot have.
    pub fn of(text: &str) -> Option<Self> {
        match text {
            "TCP" => Some(Self::Tcp),
            "UDP" => Some(Self::Udp),
            "SCTP" => Some(Self::Sctp),
            _ => None,
        }
    }
}

/// Where clients send to: a cluster IP and a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Frontend {
    /// The cluster IP.
    pub address: IpAddr,
    /// The protocol.
    pub protocol: Protocol,
    /// The port, host order.
    pub port: u16,
}

impl fmt::Display for Frontend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} port {}", self.address, self.protocol.name(), self.port)
    }
}

/// Where a service may lead.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Backend {
    /// Its address: a pod's, or with a pod in the host's network the node's.
    pub address: IpAddr,
    /// Its port, host order.
    pub port: u16,
    /// The node that it runs on; `None` for one outside of the cluster.
    pub node: Option<Arc<str>>,
    /// Whether it gets new connections. One that does not may still have old ones.
    pub is_used: bool,
    /// Whether it could have new connections: it is ready, or serves while it ends.
    pub is_serving: bool,
}

/// The back ends of one address and port.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Service {
    /// Whether all connections of a client lead to the same back end (`sessionAffinity: ClientIP`).
    pub keeps_clients: bool,
    /// The back ends, sorted.
    pub backends: Vec<Backend>,
}

impl Service {
    /// Returns the part that one node serves by itself: its back ends for new connections, if it has any. Where none of its own
    /// is used, those that serve while they end count: a gateway that does not know yet that others are used instead still sends
    /// to this node.
    pub fn on_node(&self, node: &str) -> Option<Self> {
        let here = || self.backends.iter().filter(|backend| backend.node.as_deref() == Some(node));
        let is_any_used = here().any(|backend| backend.is_used);
        let counts = |backend: &&Backend| if is_any_used { backend.is_used } else { backend.is_serving };
        let backends: Vec<Backend> = here().filter(counts).cloned().collect();
        (!backends.is_empty()).then_some(Self { keeps_clients: self.keeps_clients, backends })
    }
}
