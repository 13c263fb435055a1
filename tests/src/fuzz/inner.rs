//! Inner packets: whatever a pod or a peer sends is parsed or refused; what is parsed stays inside its bytes, and
//! what is made of it (errors, fragments) is a packet again.

use std::net::IpAddr;

use trieste_packet::wire::{Inner, Transport, tcp};
use trieste_packet::{Pool, PoolConfig, checksum, fragment, icmp};

const MTU_BYTES: u16 = 1280;

pub(super) fn target(data: &[u8]) {
    let Ok(inner) = Inner::parse(data) else { return };
    let total = usize::from(inner.total_bytes);
    assert!(total <= data.len(), "a packet is not longer than its bytes");
    assert!(usize::from(inner.transport_offset) <= total && inner.header_bytes() <= total);
    assert_eq!(inner.flow.reversed().reversed(), inner.flow);
    assert_eq!(inner.flow.reversed().symmetric_hash(), inner.flow.symmetric_hash());
    let packet = &data[..total];
    if matches!(inner.transport, Transport::Tcp { .. } | Transport::Udp | Transport::Icmp) {
        let _ = checksum::transport_is_valid(packet, usize::from(inner.transport_offset));
    }
    let mut pool = Pool::new(PoolConfig { slots: 64, slot_bytes: 70_000 });
    answer(packet, &inner, &mut pool);
    cut(packet, &inner, &mut pool);
    if matches!(inner.transport, Transport::Tcp { .. }) {
        clamp(packet, &inner);
    }
}

fn answer(packet: &[u8], inner: &Inner, pool: &mut Pool) {
    if !icmp::may_answer(packet, inner) {
        return;
    }
    let from: IpAddr = if inner.flow.is_ipv4() { [10, 0, 0, 1].into() } else { [0xfd; 16].into() };
    let mut out = pool.alloc().expect("the pool is fresh");
    if icmp::too_big(packet, inner, from, MTU_BYTES, &mut out) {
        let error = Inner::parse(out.bytes()).expect("an error made here is a packet");
        assert_eq!(error.flow.destination(), inner.flow.source());
        assert!(!icmp::may_answer(out.bytes(), &error), "no error answers an error");
        assert!(out.len() <= usize::from(MTU_BYTES));
    }
}

fn cut(packet: &[u8], inner: &Inner, pool: &mut Pool) {
    let mut carried = 0;
    let result = fragment::fragment_v4(packet, MTU_BYTES, pool, |piece| {
        let parsed = Inner::parse(piece.bytes()).expect("a fragment made here is a packet");
        assert!(piece.len() <= usize::from(MTU_BYTES));
        assert_eq!(parsed.flow.destination(), inner.flow.destination());
        carried += piece.len() - usize::from(piece.bytes()[0] & 15) * 4;
    });
    if result.is_ok() {
        assert_eq!(
            carried,
            packet.len() - usize::from(packet[0] & 15) * 4,
            "fragments carry every byte once"
        );
    }
}

fn clamp(packet: &[u8], inner: &Inner) {
    let mut segment = packet[usize::from(inner.transport_offset)..].to_vec();
    let length = segment.len();
    tcp::clamp_mss(&mut segment, 1200, true);
    assert_eq!(segment.len(), length);
    assert!(!tcp::clamp_mss(&mut segment, 1200, true), "clamped once, nothing is left to clamp");
}
