//! A packet by its parts: built from scratch before and after, so that translation is judged by every byte.

use std::net::Ipv4Addr;

use trieste_packet::Checksum;
use trieste_packet::checksum::{finish_partial, pseudo_sum, update16};
use trieste_packet::wire::{be16, put16};

use super::model::Ends;
use crate::fuzz::Reader;
use crate::translator::packets::{
    ACK, End, FIN, ICMP, PSH, RST, SYN, TCP, UDP, UNKNOWN, ip, query, tcp, udp,
};

/// What packets are built with.
pub(super) const IDENTIFICATION: u16 = 0x2af3;

const FLAGS: [u8; 8] = [SYN, SYN | ACK, ACK, ACK | PSH, FIN | ACK, RST, RST | ACK, 0];

/// What a packet is made of.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spec {
    pub(super) protocol: u8,
    pub(super) flags: u8,
    pub(super) icmp_type: u8,
    pub(super) from: End,
    pub(super) to: End,
    pub(super) body: usize,
    /// By how much its transport checksum is wrong.
    off: u16,
    /// UDP without a checksum.
    has_none: bool,
    /// The checksum is left for a device to finish.
    pub(super) is_partial: bool,
}

impl Spec {
    pub(super) fn read(reader: &mut Reader<'_>) -> Self {
        let protocol = [TCP, UDP, UDP, ICMP, TCP, UNKNOWN][usize::from(reader.byte()) % 6];
        Self::of(protocol, reader)
    }

    pub(super) fn of(protocol: u8, reader: &mut Reader<'_>) -> Self {
        let (flags, checksum, body) = (reader.byte(), reader.byte(), reader.byte());
        let nobody = (Ipv4Addr::UNSPECIFIED, 0);
        let has_ports = matches!(protocol, TCP | UDP);
        Self {
            protocol,
            flags: FLAGS[usize::from(flags) % FLAGS.len()],
            icmp_type: [8, 0, 13, 14][usize::from(flags) % 4],
            from: nobody,
            to: nobody,
            body: usize::from(body),
            off: if checksum & 7 == 1 { u16::from(checksum) << 3 } else { 0 },
            has_none: checksum & 7 == 2,
            is_partial: checksum & 7 == 3 && has_ports,
        }
    }

    pub(super) fn is_query(&self) -> bool {
        self.protocol == ICMP
    }

    /// Makes the ports what the protocol has: an ICMP identifier belongs to the near end, other protocols have none.
    pub(super) fn settle_ports(&mut self) {
        self.is_partial &= matches!(self.protocol, TCP | UDP);
        if self.protocol == ICMP {
            let id = self.from.1.max(self.to.1);
            (self.from.1, self.to.1) = (id, id);
        } else if !matches!(self.protocol, TCP | UDP) {
            (self.from.1, self.to.1) = (0, 0);
        }
    }

    pub(super) fn asks(&self) -> bool {
        self.protocol == ICMP && matches!(self.icmp_type, 8 | 13)
    }

    /// Whether it may be the first packet of a session.
    pub(super) fn may_begin(&self) -> bool {
        match self.protocol {
            TCP => self.flags & RST == 0,
            ICMP => self.asks(),
            _ => true,
        }
    }

    pub(super) fn is_syn(&self) -> bool {
        self.protocol == TCP && self.flags & (SYN | ACK | RST) == SYN
    }

    /// Whether it surely makes a session live longer, whatever has been before.
    pub(super) fn surely_refreshes(&self, is_outbound: bool) -> bool {
        self.protocol != TCP || (is_outbound && self.flags & (SYN | FIN | RST) == 0)
    }

    /// Its bytes, and what is known of its checksum.
    pub(super) fn bytes(&self) -> (Vec<u8>, Checksum) {
        let mut bytes = self.whole_bytes();
        if !self.is_partial {
            return (bytes, Checksum::Unchecked);
        }
        let field = self.checksum_at().expect("TCP or UDP");
        let sum = pseudo_sum(&bytes, self.protocol, bytes.len() - 20).folded();
        put16(&mut bytes, field, sum);
        (bytes, Checksum::Partial { start: 20, field: u16::try_from(field).expect("a small offset") })
    }

    /// The same with its checksum complete (if it has one), as wrong as it should be.
    pub(super) fn whole_bytes(&self) -> Vec<u8> {
        let body = vec![0xa5; self.body];
        let mut bytes = match self.protocol {
            TCP => tcp(self.from, self.to, self.flags, (7, 9), &body),
            UDP => udp(self.from, self.to, &body),
            ICMP => {
                let mut bytes = query(self.icmp_type, self.from.0, self.to.0, self.from.1);
                if self.body > 12 {
                    bytes = grown(&bytes, self.body);
                }
                bytes
            }
            protocol => ip(protocol, self.from.0, self.to.0, &body),
        };
        if let Some(at) = self.checksum_at() {
            let sum =
                if self.is_partial { be16(&bytes, at) } else { update16(be16(&bytes, at), 0, self.off) };
            put16(&mut bytes, at, if self.protocol == UDP && sum == 0 { u16::MAX } else { sum });
            if self.protocol == UDP && self.has_none {
                put16(&mut bytes, at, 0);
            }
        }
        bytes
    }

    fn checksum_at(&self) -> Option<usize> {
        match self.protocol {
            TCP => Some(36),
            UDP => Some(26),
            ICMP => Some(22),
            _ => None,
        }
    }

    /// Asserts that `out` is this packet with other ends, in every byte.
    pub(super) fn assert_translated(&self, out: &[u8], ends: Ends) {
        let mut expected = Self { from: ends.from, to: ends.to, ..*self }.whole_bytes();
        let mut out = out.to_vec();
        if let Some(at) = self.checksum_at() {
            if self.is_partial {
                assert!(finish_partial(&mut out, 20, at));
            }
            // Minus zero is zero, but for UDP, where neither is the other.
            for bytes in [&mut out, &mut expected] {
                if self.protocol != UDP && be16(bytes, at) == u16::MAX {
                    put16(bytes, at, 0);
                }
            }
        }
        assert_eq!(out, expected, "translated to {ends:?}");
    }
}

/// An ICMP query with more data, its checksum right again.
fn grown(bytes: &[u8], body: usize) -> Vec<u8> {
    let mut message = bytes[20..28].to_vec();
    message.resize(8 + body, 0x5a);
    put16(&mut message, 2, 0);
    let sum = trieste_packet::checksum::Sum::ZERO.bytes(&message).checksum();
    put16(&mut message, 2, sum);
    let address = |at: usize| Ipv4Addr::new(bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]);
    ip(ICMP, address(12), address(16), &message)
}
