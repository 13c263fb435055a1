//! What an ICMP error made here quotes: the packet as its source sent it.

use std::net::{IpAddr, Ipv4Addr};

use trieste_nat::{Rewrite, Side};
use trieste_packet::Packet;
use trieste_packet::wire::{Inner, Transport, be16, be32, protocol};

/// Undoes the translation of a packet that is not sent after all. `inner` says what it was inside.
pub(crate) fn restore(packet: &mut Packet, inner: &Inner) {
    let IpAddr::V4(inside) = inner.flow.source() else { return };
    let bytes = packet.bytes();
    let global = Ipv4Addr::from(be32(bytes, 12));
    if global == inside {
        return;
    }
    let transport = usize::from(inner.transport_offset);
    let at = match inner.flow.protocol {
        protocol::TCP | protocol::UDP => transport,
        protocol::ICMP => transport + 4,
        _ => return undo(packet, inner, (global, 0), (inside, 0)),
    };
    if inner.transport == (Transport::Fragment { first: false }) {
        return undo(packet, inner, (global, 0), (inside, 0));
    }
    undo(packet, inner, (global, be16(bytes, at)), (inside, inner.flow.source_port));
}

fn undo(packet: &mut Packet, inner: &Inner, from: (Ipv4Addr, u16), to: (Ipv4Addr, u16)) {
    // What was translated can be translated back; where not, the error quotes what was to be sent.
    let _ = Rewrite::new(Side::Source, from, to).apply(packet, inner);
}
