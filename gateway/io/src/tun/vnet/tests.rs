use super::*;
use etherparse::PacketBuilder;
use proptest::prelude::*;
use trieste_packet::segment::Segmenter;
use trieste_packet::{Packet, Pool, PoolConfig};

fn tcp(payload: usize, is_v6: bool) -> Vec<u8> {
    let mut bytes = Vec::new();
    let payload = vec![3; payload];
    if is_v6 {
        PacketBuilder::ipv6([1; 16], [2; 16], 64).tcp(1, 2, 3, 4).write(&mut bytes, &payload).unwrap();
    } else {
        PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
            .tcp(1, 2, 3, 4)
            .write(&mut bytes, &payload)
            .unwrap();
    }
    bytes
}

fn udp(payload: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
        .udp(1, 2)
        .write(&mut bytes, &vec![3; payload])
        .unwrap();
    bytes
}

fn gso(gso_type: u8, gso_bytes: u16, start: u16, offset: u16) -> Header {
    // The header length is a lie throughout: nothing may depend on it.
    Header {
        flags: NEEDS_CHECKSUM,
        gso_type,
        header_bytes: 60_000,
        gso_bytes,
        checksum_start: start,
        checksum_offset: offset,
    }
}

#[test]
fn plain_packets_stay_what_they_are() {
    let plain = Header::default();
    assert_eq!(plain.translate(&udp(5)), Ok((Layout::SINGLE, Checksum::Unchecked)));
    let valid = Header { flags: DATA_VALID, ..plain };
    assert_eq!(valid.translate(&udp(5)), Ok((Layout::SINGLE, Checksum::Verified)));
    // What the packet is, is for the pipeline to say.
    assert_eq!(plain.translate(&[]), Ok((Layout::SINGLE, Checksum::Unchecked)));
}

#[test]
fn unfinished_checksums_are_located() {
    let header =
        Header { flags: NEEDS_CHECKSUM, checksum_start: 20, checksum_offset: 6, ..Header::default() };
    let expected = Checksum::Partial { start: 20, field: 26 };
    assert_eq!(header.translate(&udp(5)), Ok((Layout::SINGLE, expected)));
    for (start, offset) in [(20, 12), (33, 0), (60_000, 60_000), (u16::MAX, u16::MAX)] {
        let header = Header { checksum_start: start, checksum_offset: offset, ..header };
        assert_eq!(header.translate(&udp(5)), Err(DropReason::MalformedHeader), "{start} {offset}");
    }
}

#[test]
fn trains_are_measured_by_their_own_headers() {
    let (layout, checksum) = gso(GSO_TCP_V4, 1000, 20, 16).translate(&tcp(2500, false)).unwrap();
    assert_eq!(layout, Layout::train(LayoutKind::Tcp, 40, 1000, 3));
    assert_eq!(checksum, Checksum::Partial { start: 20, field: 36 });
    let (layout, _) = gso(GSO_TCP_V6 | GSO_ECN, 1000, 40, 16).translate(&tcp(2000, true)).unwrap();
    assert_eq!(layout, Layout::train(LayoutKind::Tcp, 60, 1000, 2));
    let (layout, _) = gso(GSO_UDP, 700, 20, 6).translate(&udp(701)).unwrap();
    assert_eq!(layout, Layout::train(LayoutKind::Udp, 28, 700, 2));
    let (layout, _) = gso(GSO_UDP, 700, 20, 6).translate(&udp(700)).unwrap();
    assert_eq!(layout, Layout::SINGLE);
}

#[test]
fn headers_that_contradict_the_packet_are_refused() {
    let mut fragment = tcp(2500, false);
    fragment[6] = 0x20;
    let mut longer = tcp(2500, false);
    longer.push(0);
    let cases = [
        ("version", gso(GSO_TCP_V6, 1000, 20, 16), tcp(2500, false)),
        ("protocol", gso(GSO_TCP_V4, 1000, 20, 16), udp(2500)),
        ("no segment size", gso(GSO_TCP_V4, 0, 20, 16), tcp(2500, false)),
        ("UFO", gso(3, 1000, 20, 6), udp(2500)),
        ("unknown type", gso(99, 1000, 20, 6), udp(2500)),
        ("checksum elsewhere", gso(GSO_TCP_V4, 1000, 24, 16), tcp(2500, false)),
        ("checksum of the other protocol", gso(GSO_TCP_V4, 1000, 20, 6), tcp(2500, false)),
        ("fragment", gso(GSO_TCP_V4, 1000, 20, 16), fragment),
        ("longer than it says", gso(GSO_TCP_V4, 1000, 20, 16), longer),
        ("cut off", gso(GSO_TCP_V4, 1000, 20, 16), tcp(2500, false)[..39].to_vec()),
        ("nothing", gso(GSO_TCP_V4, 1000, 0, 0), Vec::new()),
    ];
    for (name, header, bytes) in cases {
        assert!(header.translate(&bytes).is_err(), "{name}");
    }
}

#[test]
fn what_was_received_can_be_sent_again() {
    for (header, bytes) in [
        (gso(GSO_TCP_V4, 1000, 20, 16), tcp(2500, false)),
        (gso(GSO_TCP_V6, 1000, 40, 16), tcp(2500, true)),
        (gso(GSO_UDP, 700, 20, 6), udp(1500)),
    ] {
        let (layout, checksum) = header.translate(&bytes).unwrap();
        let expected = Header { header_bytes: layout.header_bytes, ..header };
        assert_eq!(Header::of_train(layout, checksum, &bytes), expected);
        assert_eq!(Header::parse(expected.emit()), expected);
    }
}

#[test]
fn the_congestion_flag_marks_the_train() {
    let mut bytes = tcp(2500, false);
    bytes[33] |= tcp::CWR;
    let (layout, checksum) = gso(GSO_TCP_V4, 1000, 20, 16).translate(&bytes).unwrap();
    assert_eq!(Header::of_train(layout, checksum, &bytes).gso_type, GSO_TCP_V4 | GSO_ECN);
}

#[test]
fn a_finished_train_is_made_ready_for_the_device() {
    let is_udp_of = [(tcp(2500, false), false), (tcp(2500, true), false), (udp(2500), true)];
    for (whole, is_udp) in is_udp_of {
        let kind = if is_udp { LayoutKind::Udp } else { LayoutKind::Tcp };
        let header_bytes = u16::try_from(whole.len() - 2500).unwrap();
        let layout = Layout::train(kind, header_bytes, 1000, 3);
        // The common header as that of the first segment alone: wrong length, finished checksums.
        let mut bytes = whole.clone();
        let at = if version(&whole) == 6 { 4 } else { 2 };
        put16(&mut bytes, at, 77);
        let checksum = prepare_train(&mut bytes, layout, whole.len()).unwrap();
        let Checksum::Partial { start, field } = checksum else { panic!("{checksum:?}") };
        assert!(checksum::finish_partial(&mut bytes, start.into(), field.into()));
        assert_eq!(bytes, whole);
    }
}

#[test]
fn trains_with_impossible_headers_are_not_made_ready() {
    for (header_bytes, total) in [(0, 100), (19, 100), (39, 100), (40, 70_000), (3000, 100), (40, 10)] {
        let layout = Layout::train(LayoutKind::Tcp, header_bytes, 10, 3);
        assert_eq!(prepare_train(&mut tcp(100, false), layout, total), None, "{header_bytes} {total}");
        assert_eq!(prepare_train(&mut tcp(100, true), layout, total), None, "{header_bytes} {total}");
    }
}

proptest! {
    #[test]
    fn no_header_makes_translation_panic_or_lie(
        header: [u8; HEADER_BYTES], small_type in 0u8..6, is_v6: bool, is_udp: bool,
        payload in 0usize..3000, flips in proptest::collection::vec((0usize..80, any::<u8>()), 0..4),
    ) {
        let mut bytes = if is_udp { udp(payload) } else { tcp(payload, is_v6) };
        for (at, value) in flips {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
        }
        let mut header = Header::parse(header);
        header.gso_type = small_type;
        if let Ok((layout, checksum)) = header.translate(&bytes) {
            if let Checksum::Partial { start, field } = checksum {
                prop_assert!(start <= field && usize::from(field) + 2 <= bytes.len());
            }
            if layout.is_train() {
                let mut pool = Pool::new(PoolConfig { slots: 1, slot_bytes: 8192 });
                let mut packet = Packet::new(pool.alloc_copy(&bytes).unwrap());
                packet.layout = layout;
                let (start, end) = packet.segment_range(usize::from(layout.count) - 1);
                prop_assert!(start < end && end == bytes.len());
                let mut cut = 0;
                let mut segmenter = Segmenter::new(&mut packet).unwrap();
                while segmenter.next_segment().is_some() {
                    cut += 1;
                }
                prop_assert_eq!(cut, layout.count);
            }
        }
    }
}
