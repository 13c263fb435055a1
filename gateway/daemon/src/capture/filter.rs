//! Which packets a capture wants. Asked before anything is copied.

use std::net::IpAddr;

use trieste_control::admin::{CaptureProtocol, CaptureRequest};
use trieste_packet::FlowKey;
use trieste_packet::wire::{Inner, protocol};

use super::outer::Ends;

/// Address, port and protocol, each optional; all that are given have to match.
///
/// Inside, they are those of the inner packet; for datagrams, those of the outer header, whose protocol is UDP or ESP.
/// Fragments other than the first have no ports: a filter with a port does not see them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Filter {
    host: Option<IpAddr>,
    port: Option<u16>,
    protocol: Option<CaptureProtocol>,
}

impl Filter {
    /// Returns the filter of a request.
    #[must_use]
    pub fn new(request: &CaptureRequest) -> Self {
        Self {
            host: request.host.map(|host| host.to_canonical()),
            port: request.port,
            protocol: request.proto,
        }
    }

    /// Returns `true` if an inner packet matches. Bytes that are not an IP packet match an empty filter only.
    #[must_use]
    pub fn wants_inner(&self, bytes: &[u8]) -> bool {
        *self == Self::default() || Inner::parse(bytes).is_ok_and(|inner| self.wants_flow(&inner.flow))
    }

    /// Returns `true` if a datagram between these two matches. Raw ESP has no ports and is none of the filter's protocols.
    #[must_use]
    pub fn wants_datagram(&self, ends: &Ends) -> bool {
        let Ends { source, destination, is_esp, .. } = ends;
        self.wants_addresses(source.ip(), destination.ip())
            && self.port.is_none_or(|port| !is_esp && (port == source.port() || port == destination.port()))
            && self.protocol.is_none_or(|wanted| !is_esp && wanted == CaptureProtocol::Udp)
    }

    fn wants_flow(&self, flow: &FlowKey) -> bool {
        self.wants_addresses(flow.source(), flow.destination())
            && self.port.is_none_or(|port| {
                // The key of an ICMP query carries its identifier as ports; that is not what was asked for.
                matches!(flow.protocol, protocol::TCP | protocol::UDP)
                    && (flow.source_port == port || flow.destination_port == port)
            })
            && self.protocol.is_none_or(|wanted| match wanted {
                CaptureProtocol::Tcp => flow.protocol == protocol::TCP,
                CaptureProtocol::Udp => flow.protocol == protocol::UDP,
                CaptureProtocol::Icmp => matches!(flow.protocol, protocol::ICMP | protocol::ICMPV6),
            })
    }

    fn wants_addresses(&self, source: IpAddr, destination: IpAddr) -> bool {
        self.host.is_none_or(|host| host == source || host == destination)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::PacketBuilder;

    fn filter(host: Option<&str>, port: Option<u16>, proto: Option<CaptureProtocol>) -> Filter {
        Filter { host: host.map(|host| host.parse().unwrap()), port, protocol: proto }
    }

    fn tcp() -> Vec<u8> {
        let mut bytes = Vec::new();
        PacketBuilder::ipv4([10, 1, 0, 1], [10, 2, 0, 2], 64)
            .tcp(1000, 80, 1, 1)
            .write(&mut bytes, b"x")
            .unwrap();
        bytes
    }

    #[test]
    fn every_part_that_is_given_has_to_match_at_either_end() {
        for (wanted, host, port, proto) in [
            (true, None, None, None),
            (true, Some("10.1.0.1"), Some(80), Some(CaptureProtocol::Tcp)),
            (true, Some("10.2.0.2"), Some(1000), None),
            (false, Some("10.2.0.3"), Some(1000), None),
            (false, Some("10.2.0.2"), Some(1001), None),
            (false, None, None, Some(CaptureProtocol::Udp)),
            (false, None, None, Some(CaptureProtocol::Icmp)),
        ] {
            assert_eq!(filter(host, port, proto).wants_inner(&tcp()), wanted, "{host:?} {port:?} {proto:?}");
        }
    }

    #[test]
    fn an_icmp_identifier_is_not_a_port() {
        let mut bytes = Vec::new();
        PacketBuilder::ipv6([1; 16], [2; 16], 64).icmpv6_echo_request(80, 1).write(&mut bytes, b"x").unwrap();
        assert!(filter(None, None, Some(CaptureProtocol::Icmp)).wants_inner(&bytes));
        assert!(!filter(None, Some(80), None).wants_inner(&bytes));
    }

    #[test]
    fn what_is_no_packet_is_seen_without_a_filter_only() {
        assert!(filter(None, None, None).wants_inner(&[1, 2, 3]));
        assert!(!filter(None, None, Some(CaptureProtocol::Tcp)).wants_inner(&[1, 2, 3]));
    }

    #[test]
    fn datagrams_are_filtered_by_their_outer_header() {
        let (peer, local) = ("192.0.2.9:4500".parse().unwrap(), "192.0.2.1:51820".parse().unwrap());
        let datagram = Ends { source: peer, destination: local, tos: 0, is_esp: false };
        let esp = Ends { is_esp: true, ..datagram };
        for (wanted, host, port, proto) in [
            (true, None, None, None),
            (true, Some("192.0.2.9"), Some(51820), Some(CaptureProtocol::Udp)),
            (true, Some("192.0.2.1"), Some(4500), None),
            (false, Some("10.1.0.1"), None, None),
            (false, None, Some(80), None),
            (false, None, None, Some(CaptureProtocol::Tcp)),
        ] {
            let filter = filter(host, port, proto);
            assert_eq!(filter.wants_datagram(&datagram), wanted, "{host:?} {port:?}");
            assert_eq!(filter.wants_datagram(&esp), wanted && port.is_none(), "{host:?} {port:?}");
        }
    }
}
