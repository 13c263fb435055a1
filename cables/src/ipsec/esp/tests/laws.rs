//! Laws that hold for all packets.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

const SUITES: [EspSuite; 3] = [EspSuite::Aes128Gcm16, EspSuite::Aes256Gcm16, EspSuite::ChaCha20Poly1305];

/// An IP packet of `bytes` bytes, at least as long as its header.
fn packet_of(bytes: usize, is_v6: bool, fill: u8) -> Vec<u8> {
    let mut packet = vec![fill; bytes.max(if is_v6 { 40 } else { 20 })];
    let length = packet.len();
    if is_v6 {
        packet[..8].copy_from_slice(&[0x60, 0, 0, 0, 0, 0, 59, 64]);
        trieste_packet::wire::put16(&mut packet, 4, u16::try_from(length - 40).unwrap());
        packet[8..40].copy_from_slice(&udp6(&[])[8..40]);
    } else {
        packet[..20].copy_from_slice(&udp4(&[])[..20]);
        packet[9] = 253;
        trieste_packet::wire::put16(&mut packet, 2, u16::try_from(length).unwrap());
        trieste_packet::checksum::fill_ipv4_header(&mut packet);
    }
    packet
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_was_sealed_opens_to_what_it_was(
        lengths in prop::collection::vec((20usize..9000, any::<bool>(), any::<u8>(), 1usize..4), 1..12),
        suite in prop::sample::select(&SUITES[..]),
        has_esn: bool,
        is_split: bool,
    ) {
        let now = start();
        let (mut a, mut b) = connected(&Recipe { suite, has_esn, ..recipe(1, now) }, now);
        let bytes: Vec<Vec<u8>> = lengths
            .iter()
            .flat_map(|&(bytes, is_v6, fill, times)| std::iter::repeat_n(packet_of(bytes, is_v6, fill), times))
            .collect();
        let packets = bytes.iter().map(|bytes| a.packet(bytes)).collect();
        let sealed = a.seal(packets, now);
        let ivs: BTreeSet<Vec<u8>> = datagrams(&sealed).iter().map(|datagram| datagram[8..16].to_vec()).collect();
        prop_assert_eq!(ivs.len(), bytes.len(), "no IV comes twice");
        for datagram in datagrams(&sealed) {
            prop_assert_eq!(datagram.len() % 4, 0);
        }
        let received = if is_split { b.receive_singly(&sealed, A) } else { b.receive(&sealed, A) };
        prop_assert!(inner_packets(b.open(received, now)) == bytes);
        prop_assert_eq!((a.drops.total(), b.drops.total()), (0, 0));
    }

    #[test]
    fn every_packet_is_accounted_for(
        steps in prop::collection::vec((0u8..10, any::<u16>(), any::<u8>()), 1..60),
    ) {
        let now = start();
        let limits = Limits { hard_packets: 40, ..no_limits(now) };
        let (mut a, mut b) = (end(A, B, now), end(B, A, now));
        let mut on_the_wire: Vec<Vec<u8>> = Vec::new();
        let (mut sealed, mut offered, mut delivered, mut arrived) = (0u64, 0u64, 0u64, 0u64);
        let mut seen = BTreeSet::new();
        let mut index = 0u8;
        for (what, number, fill) in steps {
            match what {
                0 => {
                    index = index.wrapping_add(1).max(1);
                    let activation = if fill % 3 == 0 { Outbound::AfterInbound } else { Outbound::Now };
                    add(&mut a, &mut b, &Recipe { limits, activation, has_esn: fill % 2 == 0, ..recipe(index, now) }, now);
                }
                1 => a.order(LaneOrder::Retire(Spi::new(LANE, fill % 8)), now),
                2 => b.order(LaneOrder::Remove(Spi::new(LANE, fill % 8)), now),
                3 => a.order(LaneOrder::Seal(Spi::new(LANE, fill % 8)), now),
                4..=6 => {
                    let packets: Vec<Packet> = (0..=number % 20)
                        .map(|step| a.packet(&packet_of(usize::from(number % 1500 + step % 3), fill % 5 == 0, fill)))
                        .collect();
                    offered += packets.len() as u64;
                    let out = datagrams(&a.seal(packets, now));
                    sealed += out.len() as u64;
                    for datagram in &out {
                        prop_assert!(seen.insert((datagram[..4].to_vec(), datagram[8..16].to_vec())), "an IV came twice");
                    }
                    on_the_wire.extend(out);
                }
                _ => {
                    let at = usize::from(number) % (on_the_wire.len() + 1);
                    let mut taken: Vec<Vec<u8>> = on_the_wire.drain(at..).collect();
                    if let Some(first) = taken.first_mut().filter(|_| fill % 4 == 0) {
                        let at = usize::from(number) % first.len();
                        first[at] ^= fill | 1;
                    }
                    let received: Vec<Packet> = taken.iter().map(|datagram| b.datagram(datagram, A)).collect();
                    arrived += received.len() as u64;
                    delivered += b.open(received, now).iter().map(Packet::segments).sum::<u64>();
                }
            }
            prop_assert_eq!(offered, sealed + a.cable.stats(now).held + a.drops.total());
            prop_assert_eq!(arrived, delivered + b.consumed + b.drops.total());
        }
        prop_assert_eq!(a.pool.available(), a.pool.capacity());
        prop_assert_eq!(b.pool.available(), b.pool.capacity());
    }
}
