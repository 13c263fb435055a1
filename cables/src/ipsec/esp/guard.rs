//! Selectors, compiled: whether a packet is meant for an SA, in either direction (RFC 4301 sections 4.4.1 and 5.2).
//! Packets come in flows: whoever asks remembers the ends of the one that passed last.

use std::net::IpAddr;

use trieste_packet::wire::{self, Inner, Transport, protocol};

use crate::ipsec::{Selector, Selectors};

/// Which end of a packet lies on our side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    /// The source: what we seal.
    Outbound,
    /// The destination: what we open.
    Inbound,
}

/// Source and destination of a packet, comparable at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ends {
    is_v4: bool,
    source: u128,
    destination: u128,
}

impl Ends {
    /// Reads them from the start of an IP packet (or train) whose header may not have been looked at. `None` when it is
    /// neither IPv4 nor IPv6, or too short.
    #[inline]
    pub(super) fn read(packet: &[u8]) -> Option<Self> {
        match wire::version(packet) {
            4 => {
                let [source, destination] = chunks::<4>(packet.get(12..20)?)?;
                Some(Self {
                    is_v4: true,
                    source: u32::from_be_bytes(source).into(),
                    destination: u32::from_be_bytes(destination).into(),
                })
            }
            6 => {
                let [source, destination] = chunks::<16>(packet.get(8..40)?)?;
                Some(Self {
                    is_v4: false,
                    source: u128::from_be_bytes(source),
                    destination: u128::from_be_bytes(destination),
                })
            }
            _ => None,
        }
    }
}

#[inline]
fn chunks<const BYTES: usize>(addresses: &[u8]) -> Option<[[u8; BYTES]; 2]> {
    let (source, destination) = addresses.split_first_chunk::<BYTES>()?;
    Some([*source, destination.try_into().ok()?])
}

/// A selector whose addresses are numbers.
#[derive(Debug, Clone, Copy)]
struct Range {
    is_v4: bool,
    first: u128,
    last: u128,
    protocol: u8,
    first_port: u16,
    last_port: u16,
}

impl Range {
    fn new(selector: &Selector) -> Self {
        let (is_v4, first, last) = match (selector.first, selector.last) {
            (IpAddr::V4(first), IpAddr::V4(last)) => (true, u32::from(first).into(), u32::from(last).into()),
            (IpAddr::V6(first), IpAddr::V6(last)) => (false, first.into(), last.into()),
            // A range from one family to the other is none.
            _ => (true, 1, 0),
        };
        let Selector { protocol, first_port, last_port, .. } = *selector;
        Self { is_v4, first, last, protocol, first_port, last_port }
    }

    #[inline]
    fn contains(&self, is_v4: bool, address: u128) -> bool {
        self.is_v4 == is_v4 && self.first <= address && address <= self.last
    }

    fn is_for_all_ports(&self) -> bool {
        self.first_port == 0 && self.last_port == u16::MAX
    }

    fn takes(&self, protocol: u8, port: Option<u16>) -> bool {
        (self.protocol == 0 || self.protocol == protocol)
            && (self.is_for_all_ports()
                || port.is_some_and(|port| self.first_port <= port && port <= self.last_port))
    }
}

/// The selectors of a child SA.
#[derive(Debug)]
pub(super) struct Guard {
    local: Vec<Range>,
    remote: Vec<Range>,
    /// Whether protocols and ports have to be looked at.
    is_narrow: bool,
}

impl Guard {
    pub(super) fn new(selectors: &Selectors) -> Self {
        let compile = |side: &[Selector]| side.iter().map(Range::new).collect::<Vec<_>>();
        let (local, remote) = (compile(&selectors.local), compile(&selectors.remote));
        let is_narrow =
            local.iter().chain(&remote).any(|range| range.protocol != 0 || !range.is_for_all_ports());
        Self { local, remote, is_narrow }
    }

    /// Whether more than the ends decides.
    #[inline]
    pub(super) fn is_narrow(&self) -> bool {
        self.is_narrow
    }

    /// Whether the packet, whose ends have been read, is meant. Trains are told by their common header.
    pub(super) fn admits(&self, direction: Direction, ends: &Ends, packet: &[u8]) -> bool {
        let (ours, theirs) = match direction {
            Direction::Outbound => (ends.source, ends.destination),
            Direction::Inbound => (ends.destination, ends.source),
        };
        if !self.is_narrow {
            let is_in =
                |side: &[Range], address| side.iter().any(|range| range.contains(ends.is_v4, address));
            return is_in(&self.local, ours) && is_in(&self.remote, theirs);
        }
        let Some(ports) = Ports::read(packet) else { return false };
        let (our_port, their_port) = match direction {
            Direction::Outbound => (ports.source, ports.destination),
            Direction::Inbound => (ports.destination, ports.source),
        };
        let is_in = |side: &[Range], address, port| {
            side.iter().any(|range| range.contains(ends.is_v4, address) && range.takes(ports.protocol, port))
        };
        is_in(&self.local, ours, our_port) && is_in(&self.remote, theirs, their_port)
    }
}

/// Protocol and ports as selectors mean them. Later fragments and protocols without ports have none, which only a
/// selector for all ports takes (RFC 4301 section 7).
struct Ports {
    protocol: u8,
    source: Option<u16>,
    destination: Option<u16>,
}

impl Ports {
    fn read(packet: &[u8]) -> Option<Self> {
        let inner = Inner::parse(packet).ok()?;
        let protocol = inner.flow.protocol;
        let none = Self { protocol, source: None, destination: None };
        if inner.transport == (Transport::Fragment { first: false }) {
            return Some(none);
        }
        let ports = match protocol {
            protocol::TCP | protocol::UDP => {
                (Some(inner.flow.source_port), Some(inner.flow.destination_port))
            }
            // Type and code take the place of a port, on both sides (RFC 4301 section 4.4.1.1).
            protocol::ICMP | protocol::ICMPV6 => {
                let at = usize::from(inner.transport_offset);
                let code = packet.get(at..at + 2).map(|bytes| wire::be16(bytes, 0));
                (code, code)
            }
            _ => (None, None),
        };
        Some(Self { source: ports.0, destination: ports.1, ..none })
    }
}
