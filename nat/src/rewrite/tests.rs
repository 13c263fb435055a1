//! The laws of rewriting: exhaustively for the sum, by property for packets and trains.

use proptest::prelude::*;
use trieste_packet::checksum::{self, Sum, finish_partial, transport_is_valid};
use trieste_packet::fragment::fragment_v4;
use trieste_packet::segment::Segmenter;
use trieste_packet::{Layout, Pool, PoolConfig};

use super::*;

const SCTP: u8 = 132;
const GRE: u8 = 47;
const PROTOCOLS: [u8; 7] = [protocol::TCP, protocol::UDP, protocol::ICMP, UDP_LITE, DCCP, SCTP, GRE];

/// RFC 1071 with a word exchanged: what a checksum becomes when everything is added up again.
fn afresh(old: u16, from: u16, to: u16) -> u32 {
    // Sums are equal modulo 65535.
    (u32::from(!old) + u32::from(!from) + u32::from(to)) % 65535
}

#[test]
fn the_example_of_rfc_1624_comes_out() {
    assert_eq!(Delta::NONE.word(0x5555, 0x3285).checksum(0xdd2f), 0x0000);
}

#[test]
fn every_checksum_moves_by_the_difference_and_back() {
    let differences = [(0, 0), (0, 1), (1, 0), (0, 0xffff), (0xffff, 0), (0x8000, 0x7fff), (0x5555, 0x3285)];
    for (from, to) in differences {
        let (there, back) = (Delta::NONE.word(from, to), Delta::NONE.word(to, from));
        for old in 0..=u16::MAX {
            let new = there.checksum(old);
            assert_eq!(u32::from(!new) % 65535, afresh(old, from, to), "{old:04x}: {from:04x} to {to:04x}");
            // Minus zero is the one value that cannot come back; no sender makes it.
            if old != u16::MAX || there == Delta::NONE {
                assert_eq!(back.checksum(new), old, "{old:04x}: {from:04x} to {to:04x}");
            } else {
                assert_eq!(back.checksum(new), 0);
            }
        }
    }
}

#[test]
fn every_difference_moves_checksums_and_back() {
    for to in 0..=u16::MAX {
        let (there, back) = (Delta::NONE.word(0x1234, to), Delta::NONE.word(to, 0x1234));
        for old in [0, 1, 0x1233, 0x1234, 0x7fff, 0x8000, 0xedca, 0xedcb, 0xedcc, 0xfffe] {
            let new = there.checksum(old);
            assert_eq!(u32::from(!new) % 65535, afresh(old, 0x1234, to));
            assert_eq!(back.checksum(new), old, "{old:04x} by {to:04x}");
        }
        assert_eq!(there.plus(back), Delta::NONE);
    }
}

#[test]
fn every_udp_checksum_comes_back_and_none_becomes_or_leaves_zero() {
    for (from, to) in [(0, 0), (1, 0), (0, 1), (0x5555, 0x3285), (0xffff, 0x0001), (0, 0xffff)] {
        let (there, back) = (Delta::NONE.word(from, to), Delta::NONE.word(to, from));
        for old in 0..=u16::MAX {
            let new = there.udp_checksum(old);
            assert_eq!(new == 0, old == 0, "{old:04x}: zero means that there is none, and nothing else does");
            assert_eq!(back.udp_checksum(new), old, "{old:04x}: {from:04x} to {to:04x}");
        }
    }
}

/// A packet of `protocol` with its checksums right, if `is_right`.
fn packet(
    protocol: u8,
    ends: (Ipv4Addr, Ipv4Addr),
    ports: (u16, u16),
    options: &[u8],
    body: &[u8],
) -> Vec<u8> {
    let header_bytes = 20 + options.len();
    let mut bytes = vec![0_u8; header_bytes];
    bytes[0] = 0x40 | u8::try_from(header_bytes / 4).unwrap();
    put16(&mut bytes, 4, 0x4711);
    bytes[8] = 63;
    bytes[9] = protocol;
    bytes[12..16].copy_from_slice(&ends.0.octets());
    bytes[16..20].copy_from_slice(&ends.1.octets());
    bytes[20..].copy_from_slice(options);
    let mut segment = vec![0_u8; if protocol == protocol::TCP { 20 } else { 8 }];
    match protocol {
        protocol::ICMP => {
            segment[0] = 8;
            put16(&mut segment, 4, ports.0);
        }
        _ => {
            put16(&mut segment, 0, ports.0);
            put16(&mut segment, 2, ports.1);
        }
    }
    if protocol == protocol::TCP {
        segment[12] = 0x50;
        segment[13] = 0x18;
    }
    segment.extend_from_slice(body);
    if protocol == protocol::UDP {
        let length = u16::try_from(segment.len()).unwrap();
        put16(&mut segment, 4, length);
    }
    bytes.extend_from_slice(&segment);
    let total = u16::try_from(bytes.len()).unwrap();
    put16(&mut bytes, 2, total);
    checksum::fill_ipv4_header(&mut bytes);
    fill_transport(&mut bytes, header_bytes);
    bytes
}

/// Computes the transport checksum of a whole packet.
fn fill_transport(bytes: &mut [u8], start: usize) {
    let Some(field) = Field::of(bytes[9]) else { return };
    put16(bytes, start + field.at, 0);
    let sum = transport_sum(bytes, start).checksum();
    let is_udp = bytes[9] == protocol::UDP;
    put16(bytes, start + field.at, if is_udp && sum == 0 { u16::MAX } else { sum });
}

fn transport_sum(bytes: &[u8], start: usize) -> Sum {
    let covers = Field::of(bytes[9]).is_some_and(|field| field.covers_addresses);
    let pseudo = if covers { checksum::pseudo_sum(bytes, bytes[9], bytes.len() - start) } else { Sum::ZERO };
    pseudo.bytes(&bytes[start..])
}

/// By how much the sums of header and transport are off, as residues: right ones are 0.
fn errors(bytes: &[u8]) -> (u16, u16) {
    let inner = Inner::parse(bytes).unwrap();
    let start = usize::from(inner.transport_offset);
    let residue = |sum: Sum| sum.folded() % 65535;
    let header = residue(Sum::ZERO.bytes(&bytes[..start]));
    let is_udp_without = bytes[9] == protocol::UDP && be16(bytes, start + 6) == 0;
    let has_none = Field::of(bytes[9]).is_none() || is_udp_without;
    (header, if has_none { 0 } else { residue(transport_sum(bytes, start)) })
}

fn apply(rewrite: &Rewrite, bytes: &mut [u8]) {
    let inner = Inner::parse(bytes).unwrap();
    rewrite.apply_to(bytes, &inner, Checksum::Unchecked).unwrap();
}

/// The rewrite of one end of a packet.
fn compile(bytes: &[u8], side: Side, to: (Ipv4Addr, u16)) -> Rewrite {
    let inner = Inner::parse(bytes).unwrap();
    let at = side.address_at();
    let address = Ipv4Addr::new(bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]);
    let has_ports = side.port_at(bytes[9]).is_some();
    let port = match side {
        Side::Source => inner.flow.source_port,
        Side::Destination => inner.flow.destination_port,
    };
    if has_ports {
        Rewrite::new(side, (address, port), to)
    } else {
        Rewrite::new(side, (address, 0), (to.0, 0))
    }
}

fn any_side() -> impl Strategy<Value = Side> {
    prop_oneof![Just(Side::Source), Just(Side::Destination)]
}

fn any_address() -> impl Strategy<Value = Ipv4Addr> {
    any::<u32>().prop_map(Ipv4Addr::from)
}

prop_compose! {
    fn any_packet()(
        protocol in prop::sample::select(PROTOCOLS.to_vec()),
        ends in (any_address(), any_address()),
        ports: (u16, u16),
        words in 0_usize..=10,
        body in prop::collection::vec(any::<u8>(), 0..200),
    ) -> Vec<u8> {
        packet(protocol, ends, ports, &vec![1; words * 4], &body)
    }
}

proptest! {
    #[test]
    fn what_was_right_is_right_and_nothing_but_one_end_and_the_sums_changes(
        before in any_packet(),
        side in any_side(),
        to in (any_address(), any::<u16>()),
    ) {
        let rewrite = compile(&before, side, to);
        let mut after = before.clone();
        apply(&rewrite, &mut after);
        prop_assert_eq!(errors(&after), (0, 0));
        let start = usize::from(after[0] & 15) * 4;
        let (there, kept) = (Inner::parse(&after).unwrap(), Inner::parse(&before).unwrap());
        let (end, other) = match side {
            Side::Source => ((there.flow.source(), there.flow.source_port), (there.flow.destination(), kept.flow.destination())),
            Side::Destination => ((there.flow.destination(), there.flow.destination_port), (there.flow.source(), kept.flow.source())),
        };
        prop_assert_eq!(end.0, std::net::IpAddr::V4(to.0));
        prop_assert_eq!(other.0, other.1);
        let mut touched = vec![10, 11];
        touched.extend(side.address_at()..side.address_at() + 4);
        if let Some(at) = side.port_at(before[9]) {
            prop_assert_eq!(end.1, to.1);
            touched.extend([start + at, start + at + 1]);
        }
        if let Some(field) = Field::of(before[9]) {
            touched.extend([start + field.at, start + field.at + 1]);
        }
        for at in (0..before.len()).filter(|at| !touched.contains(at)) {
            prop_assert_eq!(before[at], after[at], "byte {}", at);
        }
    }

    #[test]
    fn what_was_wrong_is_wrong_by_as_much(
        before in any_packet(),
        side in any_side(),
        to in (any_address(), any::<u16>()),
        spoil: (u16, u16),
    ) {
        let mut before = before;
        let start = usize::from(before[0] & 15) * 4;
        put16(&mut before, 10, spoil.0);
        if let Some(field) = Field::of(before[9]) {
            put16(&mut before, start + field.at, spoil.1);
        }
        let mut after = before.clone();
        apply(&compile(&before, side, to), &mut after);
        prop_assert_eq!(errors(&after), errors(&before));
        let is_valid = |bytes: &[u8]| Field::of(bytes[9]).is_none() || transport_is_valid(bytes, start);
        if matches!(before[9], protocol::TCP | protocol::UDP | protocol::ICMP) {
            prop_assert_eq!(is_valid(&after), is_valid(&before));
        }
    }

    #[test]
    fn a_translation_and_its_inverse_are_the_identity_bit_for_bit(
        before in any_packet(),
        side in any_side(),
        to in (any_address(), any::<u16>()),
        spoil in prop::option::of((0..u16::MAX, 0..u16::MAX)),
    ) {
        let mut before = before;
        let start = usize::from(before[0] & 15) * 4;
        if let (Some(spoil), Some(field)) = (spoil, Field::of(before[9])) {
            put16(&mut before, 10, spoil.0);
            put16(&mut before, start + field.at, spoil.1);
        }
        let rewrite = compile(&before, side, to);
        let mut after = before.clone();
        apply(&rewrite, &mut after);
        apply(&rewrite.inverse(), &mut after);
        prop_assert_eq!(after, before);
    }

    /// out2in of an answer after in2out of a question: the far end echoes, and the inside gets its own ends back.
    #[test]
    fn the_mirror_of_the_inverse_takes_answers_back(
        before in any_packet(),
        to in (any_address(), any::<u16>()),
    ) {
        let rewrite = compile(&before, Side::Source, to);
        let mut there = before.clone();
        apply(&rewrite, &mut there);
        let mut answer = turned(&there);
        apply(&rewrite.inverse().mirrored(), &mut answer);
        prop_assert_eq!(answer, turned(&before));
    }

    #[test]
    fn a_train_is_translated_as_its_packets_would_be(
        is_tcp: bool,
        side in any_side(),
        to in (any_address(), any::<u16>()),
        body in prop::collection::vec(any::<u8>(), 101..900),
        segment_bytes in 40_u16..100,
    ) {
        let proto = if is_tcp { protocol::TCP } else { protocol::UDP };
        let ends = (Ipv4Addr::new(10, 0, 0, 5), Ipv4Addr::new(242, 1, 0, 7));
        let mut bytes = packet(proto, ends, (4000, 80), &[], &body);
        let field = Field::of(proto).unwrap().at + 20;
        let pseudo = checksum::pseudo_sum(&bytes, proto, bytes.len() - 20).folded();
        put16(&mut bytes, field, pseudo);
        let (kind, header_bytes) = if is_tcp { (LayoutKind::Tcp, 40) } else { (LayoutKind::Udp, 28) };
        let count = u16::try_from(body.len()).unwrap().div_ceil(segment_bytes);
        let mut pool = Pool::new(PoolConfig { slots: 2, slot_bytes: 2048 });
        let mut train = || {
            let mut train = Packet::new(pool.alloc_copy(&bytes).unwrap());
            train.layout = Layout::train(kind, header_bytes, segment_bytes, count);
            train.checksum = Checksum::Partial { start: 20, field: u16::try_from(field).unwrap() };
            train
        };
        let rewrite = compile(&bytes, side, to);
        let (mut whole, mut apart) = (train(), train());
        let inner = Inner::parse(whole.bytes()).unwrap();
        rewrite.apply(&mut whole, &inner).unwrap();
        let pseudo = checksum::pseudo_sum(whole.bytes(), proto, whole.bytes().len() - 20).folded();
        prop_assert_eq!(be16(whole.bytes(), field) % 65535, pseudo % 65535, "still the pseudo-header's sum");

        let mut expected = Vec::new();
        let mut segments = Segmenter::new(&mut apart).unwrap();
        while let Some(segment) = segments.next_segment() {
            let mut segment = segment.to_vec();
            apply(&rewrite, &mut segment);
            prop_assert_eq!(errors(&segment), (0, 0));
            expected.push(segment);
        }
        let mut segments = Segmenter::new(&mut whole).unwrap();
        for expected in expected {
            let segment = segments.next_segment().unwrap();
            prop_assert_eq!(segment, &expected[..]);
        }
    }

    #[test]
    fn a_checksum_may_be_finished_before_or_after(
        is_tcp: bool,
        side in any_side(),
        to in (any_address(), any::<u16>()),
        body in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let proto = if is_tcp { protocol::TCP } else { protocol::UDP };
        let ends = (Ipv4Addr::new(10, 0, 0, 5), Ipv4Addr::new(242, 1, 0, 7));
        let mut partial = packet(proto, ends, (4000, 80), &[1; 8], &body);
        let field = Field::of(proto).unwrap().at + 28;
        let pseudo = checksum::pseudo_sum(&partial, proto, partial.len() - 28).folded();
        put16(&mut partial, field, pseudo);
        let rewrite = compile(&partial, side, to);
        let mut finished = partial.clone();
        prop_assert!(finish_partial(&mut finished, 28, field));
        apply(&rewrite, &mut finished);
        let inner = Inner::parse(&partial).unwrap();
        let state = Checksum::Partial { start: 28, field: u16::try_from(field).unwrap() };
        rewrite.apply_to(&mut partial, &inner, state).unwrap();
        prop_assert!(finish_partial(&mut partial, 28, field));
        prop_assert_eq!(partial, finished);
    }

    /// The first fragment carries ports and checksum, the others neither; together they are the packet, translated.
    #[test]
    fn fragments_are_translated_as_their_packet_would_be(
        proto in prop::sample::select(PROTOCOLS.to_vec()),
        side in any_side(),
        to in (any_address(), any::<u16>()),
        body in prop::collection::vec(any::<u8>(), 100..1500),
    ) {
        let ends = (Ipv4Addr::new(10, 0, 0, 5), Ipv4Addr::new(242, 1, 0, 7));
        let whole = packet(proto, ends, (4000, 80), &[], &body);
        let rewrite = compile(&whole, side, to);
        let cut = |whole: &[u8]| {
            let mut pool = Pool::new(PoolConfig { slots: 64, slot_bytes: 512 });
            let mut pieces = Vec::new();
            fragment_v4(whole, 100, &mut pool, |buf| pieces.push(buf.bytes().to_vec())).unwrap();
            pieces
        };
        let mut pieces = cut(&whole);
        pieces.iter_mut().for_each(|piece| apply(&rewrite, piece));
        let mut translated = whole;
        apply(&rewrite, &mut translated);
        prop_assert_eq!(pieces, cut(&translated));
    }

    #[test]
    fn no_bytes_make_it_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..80),
        side in any_side(),
        partial in prop::option::of((any::<u16>(), any::<u16>())),
    ) {
        let Ok(inner) = Inner::parse(&bytes) else { return Ok(()) };
        let checksum = partial.map_or(Checksum::Unchecked, |(start, field)| Checksum::Partial { start, field });
        let rewrite = Rewrite::new(side, (Ipv4Addr::LOCALHOST, 1), (Ipv4Addr::BROADCAST, 2));
        let mut after = bytes.clone();
        if rewrite.apply_to(&mut after, &inner, checksum).is_err() {
            prop_assert_eq!(after, bytes, "what is refused is left alone");
        }
    }
}

/// The same packet with its ends exchanged: sums do not change.
fn turned(bytes: &[u8]) -> Vec<u8> {
    let mut turned = bytes.to_vec();
    turned[12..16].copy_from_slice(&bytes[16..20]);
    turned[16..20].copy_from_slice(&bytes[12..16]);
    let start = usize::from(bytes[0] & 15) * 4;
    if matches!(bytes[9], protocol::TCP | protocol::UDP) {
        turned[start..start + 2].copy_from_slice(&bytes[start + 2..start + 4]);
        turned[start + 2..start + 4].copy_from_slice(&bytes[start..start + 2]);
    }
    turned
}

#[test]
fn a_udp_packet_without_checksum_has_none_afterwards() {
    let ends = (Ipv4Addr::new(10, 0, 0, 5), Ipv4Addr::new(242, 1, 0, 7));
    let mut bytes = packet(protocol::UDP, ends, (4000, 53), &[], b"query");
    put16(&mut bytes, 26, 0);
    apply(&compile(&bytes, Side::Source, (Ipv4Addr::new(242, 0, 0, 1), 1025)), &mut bytes);
    assert_eq!((be16(&bytes, 20), be16(&bytes, 26)), (1025, 0));
    assert_eq!(errors(&bytes), (0, 0));
}

#[test]
fn a_translation_that_keeps_the_port_writes_none() {
    // One to one, for all ports: compiled without looking at any.
    let rewrite =
        Rewrite::new(Side::Source, (Ipv4Addr::new(10, 0, 0, 5), 0), (Ipv4Addr::new(242, 0, 0, 1), 0));
    for proto in PROTOCOLS {
        let ends = (Ipv4Addr::new(10, 0, 0, 5), Ipv4Addr::new(242, 1, 0, 7));
        let mut bytes = packet(proto, ends, (4000, 80), &[], b"data");
        apply(&rewrite, &mut bytes);
        let ports = Inner::parse(&bytes).unwrap().flow;
        let expected = if proto == protocol::ICMP { (4000, 4000) } else { (4000, 80) };
        if rewrite.side.port_at(proto).is_some() {
            assert_eq!((ports.source_port, ports.destination_port), expected, "protocol {proto}");
        }
        assert_eq!(errors(&bytes), (0, 0), "protocol {proto}");
    }
}

#[test]
fn a_checksum_to_be_finished_elsewhere_is_refused_and_nothing_changes() {
    let ends = (Ipv4Addr::new(10, 0, 0, 5), Ipv4Addr::new(242, 1, 0, 7));
    let rewrite = |bytes: &[u8]| compile(bytes, Side::Source, (Ipv4Addr::new(242, 0, 0, 1), 9));
    let cases = [
        ("over the source address", protocol::TCP, 20, 12),
        ("from another place", protocol::TCP, 8, 36),
        ("over the ports", protocol::UDP, 20, 20),
        ("of a protocol without one", SCTP, 20, 28),
        ("of ICMP, which no device finishes", protocol::ICMP, 20, 22),
    ];
    for (name, proto, start, field) in cases {
        let before = packet(proto, ends, (4000, 80), &[], b"some data");
        let mut after = before.clone();
        let inner = Inner::parse(&after).unwrap();
        let result = rewrite(&before).apply_to(&mut after, &inner, Checksum::Partial { start, field });
        assert_eq!((result, after), (Err(DropReason::MalformedHeader), before), "{name}");
    }
}

#[test]
fn rows_of_packets_are_refused() {
    let ends = (Ipv4Addr::new(10, 0, 0, 5), Ipv4Addr::new(242, 1, 0, 7));
    let bytes = packet(protocol::UDP, ends, (1, 2), &[], b"x");
    let mut pool = Pool::new(PoolConfig { slots: 1, slot_bytes: 512 });
    let mut row = Packet::new(pool.alloc_copy(&bytes).unwrap());
    row.layout = Layout { kind: LayoutKind::Packets, ..Layout::datagrams(64, 1) };
    let inner = Inner::parse(&bytes).unwrap();
    let result = compile(&bytes, Side::Source, (Ipv4Addr::LOCALHOST, 1)).apply(&mut row, &inner);
    assert_eq!((result, row.bytes()), (Err(DropReason::MalformedHeader), &bytes[..]));
}
