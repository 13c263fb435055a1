use super::*;
use crate::pool::{Pool, PoolConfig};
use crate::segment::Segmenter;
use etherparse::PacketBuilder;
use proptest::prelude::*;

/// One test packet: flow, payload, and whether its checksum is spoiled.
#[derive(Debug, Clone)]
struct Spec {
    flow: u8,
    payload: Vec<u8>,
    is_udp: bool,
    is_v6: bool,
    is_spoiled: bool,
    is_pushed: bool,
}

fn write(spec: &Spec, sequence: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    let port = 1000 + u16::from(spec.flow);
    match (spec.is_v6, spec.is_udp) {
        (false, true) => PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
            .udp(port, 2)
            .write(&mut bytes, &spec.payload),
        (true, true) => {
            PacketBuilder::ipv6([1; 16], [2; 16], 64).udp(port, 2).write(&mut bytes, &spec.payload)
        }
        (false, false) => {
            let tcp = PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64).tcp(port, 2, sequence, 4).ack(9);
            if spec.is_pushed {
                tcp.psh().write(&mut bytes, &spec.payload)
            } else {
                tcp.write(&mut bytes, &spec.payload)
            }
        }
        (true, false) => {
            let tcp = PacketBuilder::ipv6([1; 16], [2; 16], 64).tcp(port, 2, sequence, 4).ack(9);
            if spec.is_pushed {
                tcp.psh().write(&mut bytes, &spec.payload)
            } else {
                tcp.write(&mut bytes, &spec.payload)
            }
        }
    }
    .unwrap();
    if spec.is_spoiled {
        *bytes.last_mut().unwrap() ^= 0x55;
    }
    bytes
}

fn opened(pool: &mut Pool, packets: &[Vec<u8>], holes: u64) -> Packet {
    let stride = packets.iter().map(Vec::len).max().unwrap() + 32;
    let mut buf = pool.alloc().unwrap();
    for packet in packets {
        let slot = buf.extend(stride);
        slot[..packet.len()].copy_from_slice(packet);
    }
    let mut packet = Packet::new(buf);
    packet.layout = Layout {
        kind: LayoutKind::Packets,
        header_bytes: 0,
        segment_bytes: u16::try_from(stride).unwrap(),
        stride_bytes: u16::try_from(stride).unwrap(),
        count: u16::try_from(packets.len()).unwrap(),
        present: ((1u64 << packets.len()) - 1) & !holes,
    };
    packet
}

fn cut(packets: Vec<Packet>) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for mut packet in packets {
        let mut segmenter = Segmenter::new(&mut packet).unwrap();
        while let Some(segment) = segmenter.next_segment() {
            all.push(segment.to_vec());
        }
    }
    all
}

fn run(packet: Packet) -> Vec<Packet> {
    let mut out = Vec::new();
    coalesce(packet, |packet| out.push(packet));
    out
}

/// Packets as the kernel would cut them: the identification counts up inside a train, so it is left out.
fn without_identification(mut packets: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    for packet in &mut packets {
        if wire::version(packet) == 4 && packet[6] & 0x40 != 0 {
            put16(packet, 4, 0);
            put16(packet, 10, 0);
        }
    }
    packets
}

fn specs() -> impl Strategy<Value = Vec<Spec>> {
    let spec = (0u8..3, 1usize..200, any::<bool>(), any::<bool>(), 0u8..10, 0u8..6, 0u8..4).prop_map(
        |(flow, len, is_udp, is_v6, spoiled, pushed, shape)| Spec {
            flow: if shape > 0 { 0 } else { flow },
            payload: vec![flow; if shape > 1 { 100 } else { len }],
            is_udp: is_udp && shape == 0,
            is_v6: is_v6 && shape == 0,
            is_spoiled: spoiled == 0,
            is_pushed: pushed == 0,
        },
    );
    proptest::collection::vec(spec, 1..40)
}

proptest! {
    #[test]
    fn cutting_what_was_coalesced_gives_the_same_packets(specs in specs(), holes: u64) {
        let mut pool = Pool::new(PoolConfig { slots: 1, ..PoolConfig::default() });
        let mut sequence = 7u32;
        let packets: Vec<_> = specs.iter().map(|spec| {
            let bytes = write(spec, sequence);
            sequence = sequence.wrapping_add(u32::try_from(spec.payload.len()).unwrap());
            bytes
        }).collect();
        let expected: Vec<_> = packets.iter().enumerate()
            .filter(|(index, _)| holes & (1 << index) == 0)
            .map(|(_, packet)| packet.clone()).collect();
        let packet = opened(&mut pool, &packets, holes);
        let out = run(packet);
        prop_assert_eq!(without_identification(cut(out)), without_identification(expected));
        prop_assert_eq!(pool.available(), 1);
    }
}

fn stream(count: usize, is_udp: bool) -> Vec<Vec<u8>> {
    let spec =
        Spec { flow: 0, payload: vec![5; 500], is_udp, is_v6: false, is_spoiled: false, is_pushed: false };
    (0..count).map(|index| write(&spec, u32::try_from(index * 500).unwrap())).collect()
}

#[test]
fn a_stream_becomes_one_train() {
    for is_udp in [false, true] {
        let mut pool = Pool::new(PoolConfig { slots: 1, ..PoolConfig::default() });
        let packet = opened(&mut pool, &stream(44, is_udp), 0);
        let out = run(packet);
        assert_eq!(out.len(), 1, "udp {is_udp}");
        assert_eq!(out[0].segments(), 44);
        assert!(matches!(out[0].checksum, Checksum::Partial { start: 20, .. }));
    }
}

#[test]
fn a_spoiled_checksum_stays_wrong_and_alone() {
    let mut pool = Pool::new(PoolConfig { slots: 1, ..PoolConfig::default() });
    let mut packets = stream(3, false);
    packets[1][100] ^= 1;
    let packet = opened(&mut pool, &packets, 0);
    let out = run(packet);
    assert_eq!(out.len(), 3);
    assert_eq!(out[1].bytes(), &packets[1][..]);
    assert_eq!(out[1].checksum, Checksum::Unchecked);
}

#[test]
fn gaps_and_pushes_end_a_train() {
    let mut pool = Pool::new(PoolConfig { slots: 1, ..PoolConfig::default() });
    let packet = opened(&mut pool, &stream(6, false), 1 << 2);
    let lengths: Vec<_> = run(packet).iter().map(Packet::segments).collect();
    assert_eq!(lengths, [2, 3]);
}
