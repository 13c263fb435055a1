//! Trains: cutting one gives packets that carry its bytes, and joining packets loses none.

use trieste_packet::segment::Segmenter;
use trieste_packet::wire::Inner;
use trieste_packet::{Layout, LayoutKind, Packet, Pool, PoolConfig, coalesce};

use super::Reader;

pub(super) fn target(data: &[u8]) {
    let mut reader = Reader::new(data);
    let kind = if reader.byte() & 1 == 0 { LayoutKind::Tcp } else { LayoutKind::Udp };
    let (segment_bytes, count) = (reader.u16(), reader.u16());
    let bytes = reader.take(usize::MAX);
    let header_bytes =
        Inner::parse(bytes).map_or_else(|_| usize::from(segment_bytes % 256), |inner| inner.header_bytes());
    let Ok(header_bytes) = u16::try_from(header_bytes) else { return };
    let mut pool = Pool::new(PoolConfig { slots: 1, slot_bytes: 70_000 });
    let Some(buf) = pool.alloc_copy(bytes) else { return };
    let mut packet = Packet::new(buf);
    packet.layout = Layout::train(kind, header_bytes, segment_bytes, count);
    let longest = usize::from(header_bytes) + usize::from(segment_bytes);
    let Ok(mut segments) = Segmenter::new(&mut packet) else { return };
    let (mut cut, mut payload) = (0, 0);
    while let Some(segment) = segments.next_segment() {
        assert!(segment.len() >= usize::from(header_bytes) && segment.len() <= longest);
        cut += 1;
        payload += segment.len() - usize::from(header_bytes);
    }
    assert_eq!(cut, count, "as many segments as the layout says");
    assert!(payload <= bytes.len() - usize::from(header_bytes));
}

pub(super) fn coalesce_target(data: &[u8]) {
    let mut reader = Reader::new(data);
    let stride = 64 + usize::from(reader.byte());
    let mut slots = Vec::new();
    let mut present = 0_u64;
    while !reader.is_empty() && slots.len() < 64 {
        let is_present = reader.byte() & 3 != 0;
        present |= u64::from(is_present) << slots.len();
        let mut slot = reader.take(stride).to_vec();
        slot.resize(stride, 0);
        slots.push(slot);
    }
    let mut pool = Pool::new(PoolConfig { slots: 1, slot_bytes: 70_000 });
    let Some(buf) = pool.alloc_copy(&slots.concat()) else { return };
    let mut packet = Packet::new(buf);
    let (Ok(stride_bytes), Ok(count)) = (u16::try_from(stride), u16::try_from(slots.len())) else { return };
    packet.layout = Layout {
        kind: LayoutKind::Packets,
        header_bytes: 0,
        segment_bytes: stride_bytes,
        stride_bytes,
        count,
        present,
    };
    let before = packet.segments();
    let mut after = 0;
    coalesce::coalesce(packet, |emitted| after += emitted.segments());
    assert_eq!(after, before, "no packet is lost or doubled");
}
