//! What translation has to know of a packet.

use std::net::{IpAddr, Ipv4Addr};

use trieste_packet::wire::tcp::{ACK, RST, SYN};
use trieste_packet::wire::{Inner, Transport, protocol};

/// ICMP types that are queries with an identifier (RFC 792).
const ICMP_ECHO_REPLY: u8 = 0;
const ICMP_ECHO: u8 = 8;
const ICMP_TIMESTAMP: u8 = 13;
const ICMP_TIMESTAMP_REPLY: u8 = 14;

/// What is behind a packet's IP header, as far as translation goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// TCP, with its flags byte.
    Tcp(u8),
    /// UDP.
    Udp,
    /// An ICMP query that asks; its identifier stands in both ports.
    Request,
    /// An ICMP query that answers; its identifier stands in both ports.
    Reply,
    /// SCTP and every protocol that is not looked into: by addresses only, both ports are 0.
    Other,
}

impl Kind {
    /// The kind of an ICMP message by its type; `None` for what is no query.
    pub(crate) const fn of_icmp(icmp_type: u8) -> Option<Self> {
        match icmp_type {
            ICMP_ECHO | ICMP_TIMESTAMP => Some(Self::Request),
            ICMP_ECHO_REPLY | ICMP_TIMESTAMP_REPLY => Some(Self::Reply),
            _ => None,
        }
    }
}

/// Addresses, ports and kind of a packet, in its own direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// Source address.
    pub source: Ipv4Addr,
    /// Destination address.
    pub destination: Ipv4Addr,
    /// Source port or ICMP identifier, host order.
    pub source_port: u16,
    /// Destination port or ICMP identifier, host order.
    pub destination_port: u16,
    /// Internet protocol number.
    pub protocol: u8,
    /// What is behind the IP header.
    pub kind: Kind,
}

impl Facts {
    /// The facts of a packet whose headers have been checked. `None` for what has none of its own: IPv6, later
    /// fragments, ICMP errors and other ICMP messages that are no query.
    ///
    /// A first fragment has its ports; of its TCP flags nothing is known but what its header says.
    #[must_use]
    pub fn of(packet: &[u8], inner: &Inner) -> Option<Self> {
        let (IpAddr::V4(source), IpAddr::V4(destination)) = (inner.flow.source(), inner.flow.destination())
        else {
            return None;
        };
        if inner.transport == (Transport::Fragment { first: false }) {
            return None;
        }
        let transport = packet.get(usize::from(inner.transport_offset)..).unwrap_or_default();
        let kind = match inner.flow.protocol {
            protocol::TCP => Kind::Tcp(*transport.get(13)?),
            protocol::UDP => Kind::Udp,
            protocol::ICMP => Kind::of_icmp(*transport.first()?)?,
            _ => Kind::Other,
        };
        let (source_port, destination_port) = match kind {
            Kind::Other => (0, 0),
            Kind::Tcp(_) | Kind::Udp | Kind::Request | Kind::Reply => {
                (inner.flow.source_port, inner.flow.destination_port)
            }
        };
        Some(Self { source, destination, source_port, destination_port, protocol: inner.flow.protocol, kind })
    }

    /// The same flow seen from the other end. A question becomes an answer; TCP's flags stay as they are.
    #[must_use]
    pub fn reversed(&self) -> Self {
        let kind = match self.kind {
            Kind::Request => Kind::Reply,
            Kind::Reply => Kind::Request,
            Kind::Tcp(_) | Kind::Udp | Kind::Other => self.kind,
        };
        Self {
            source: self.destination,
            destination: self.source,
            source_port: self.destination_port,
            destination_port: self.source_port,
            protocol: self.protocol,
            kind,
        }
    }

    /// TCP's flags, 0 for other protocols.
    pub(crate) fn flags(&self) -> u8 {
        match self.kind {
            Kind::Tcp(flags) => flags,
            Kind::Udp | Kind::Request | Kind::Reply | Kind::Other => 0,
        }
    }

    /// Whether the packet can be the first of something: no answer, no end.
    pub(crate) fn may_begin(&self) -> bool {
        self.kind != Kind::Reply && self.flags() & RST == 0
    }

    /// Whether it is the first packet of a TCP connection.
    pub(crate) fn is_syn(&self) -> bool {
        self.flags() & (SYN | ACK | RST) == SYN
    }

    /// Whether ports (or an identifier) can be translated.
    pub(crate) fn has_ports(&self) -> bool {
        self.kind != Kind::Other
    }

    /// The far end's port as sessions know it: an ICMP identifier belongs to the near end alone.
    pub(crate) fn remote_port(&self, port: u16) -> u16 {
        match self.kind {
            Kind::Tcp(_) | Kind::Udp => port,
            Kind::Request | Kind::Reply | Kind::Other => 0,
        }
    }
}
