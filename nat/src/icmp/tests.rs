//! Errors as bytes: what is read, what is refused, and what translation changes of them.

use proptest::prelude::*;
use trieste_packet::checksum::{fill_ipv4_header, pseudo_sum};
use trieste_packet::{Layout, LayoutKind, Pool, PoolConfig};

use super::*;
use crate::rewrite::Side;

const INSIDE: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 7);
const GLOBAL: Ipv4Addr = Ipv4Addr::new(242, 0, 0, 3);
const REMOTE: Ipv4Addr = Ipv4Addr::new(242, 1, 0, 9);
const ROUTER: Ipv4Addr = Ipv4Addr::new(242, 1, 0, 1);
const SCTP: u8 = 132;

/// A packet of `protocol` with right checksums; ports stand where TCP and UDP have them, ICMP's identifier is the first.
fn packet(protocol: u8, from: (Ipv4Addr, u16), to: (Ipv4Addr, u16), options: &[u8], body: &[u8]) -> Vec<u8> {
    let header_bytes = 20 + options.len();
    let mut bytes = vec![0_u8; header_bytes];
    bytes[0] = 0x40 | u8::try_from(header_bytes / 4).unwrap();
    bytes[8] = 63;
    bytes[9] = protocol;
    bytes[12..16].copy_from_slice(&from.0.octets());
    bytes[16..20].copy_from_slice(&to.0.octets());
    bytes[20..].copy_from_slice(options);
    let mut segment = vec![0_u8; if protocol == protocol::TCP { 20 } else { 8 }];
    if protocol == protocol::ICMP {
        segment[0] = 8;
        put16(&mut segment, 4, from.1);
    } else {
        put16(&mut segment, 0, from.1);
        put16(&mut segment, 2, to.1);
    }
    if protocol == protocol::TCP {
        segment[12] = 0x50;
    }
    segment.extend_from_slice(body);
    if protocol == protocol::UDP {
        let length = u16::try_from(segment.len()).unwrap();
        put16(&mut segment, 4, length);
    }
    bytes.extend_from_slice(&segment);
    let total = u16::try_from(bytes.len()).unwrap();
    put16(&mut bytes, 2, total);
    fill_ipv4_header(&mut bytes);
    if let Some(field) = Field::of(protocol) {
        let pseudo =
            if field.covers_addresses { pseudo_sum(&bytes, protocol, segment.len()) } else { Sum::ZERO };
        let sum = pseudo.bytes(&bytes[header_bytes..]).checksum();
        put16(&mut bytes, header_bytes + field.at, sum);
    }
    bytes
}

/// An error of `from` about the quoted packet, to whoever sent that. `length` is RFC 4884's.
fn error(from: Ipv4Addr, icmp: (u8, u8), length: u8, quoted: &[u8], behind: &[u8]) -> Vec<u8> {
    let mut message = vec![icmp.0, icmp.1, 0, 0, 0, length, 0x05, 0x78];
    message.extend_from_slice(quoted);
    message.extend_from_slice(behind);
    let sum = Sum::ZERO.bytes(&message).checksum();
    put16(&mut message, 2, sum);
    let mut bytes = vec![0_u8; 20];
    bytes[0] = 0x45;
    bytes[1] = 0xc0;
    let total = u16::try_from(20 + message.len()).unwrap();
    put16(&mut bytes, 2, total);
    bytes[8] = 60;
    bytes[9] = protocol::ICMP;
    bytes[12..16].copy_from_slice(&from.octets());
    bytes[16..20].copy_from_slice(quoted.get(12..16).unwrap_or(&[1, 2, 3, 4]));
    fill_ipv4_header(&mut bytes);
    bytes.extend_from_slice(&message);
    bytes
}

fn wrapped(bytes: &[u8]) -> Packet {
    let mut pool = Pool::new(PoolConfig { slots: 1, slot_bytes: 4096 });
    Packet::new(pool.alloc_copy(bytes).unwrap())
}

fn read(bytes: &[u8]) -> Option<Quote> {
    Quote::read(&wrapped(bytes), &Inner::parse(bytes).ok()?).ok()
}

/// Reads an error, translates it, and gives its bytes.
fn translated(bytes: &[u8], rewrite: &Rewrite) -> Vec<u8> {
    let mut packet = wrapped(bytes);
    read(bytes).expect("it is an error").apply(&mut packet, rewrite);
    packet.bytes().to_vec()
}

/// What takes answers of the far end to the inside.
fn inbound() -> Rewrite {
    Rewrite::new(Side::Destination, (GLOBAL, 1025), (INSIDE, 4000))
}

#[test]
fn the_quoted_packet_turned_round_is_what_is_looked_up() {
    let quoted = packet(protocol::TCP, (GLOBAL, 1025), (REMOTE, 80), &[], b"GET");
    let facts = read(&error(ROUTER, (3, 1), 0, &quoted, &[])).unwrap().answer;
    assert_eq!((facts.source, facts.source_port), (REMOTE, 80));
    assert_eq!((facts.destination, facts.destination_port), (GLOBAL, 1025));
    assert_eq!((facts.protocol, facts.kind), (protocol::TCP, Kind::Tcp(0)));

    let quoted = packet(protocol::ICMP, (GLOBAL, 77), (REMOTE, 0), &[], &[]);
    let facts = read(&error(ROUTER, (11, 0), 0, &quoted, &[])).unwrap().answer;
    assert_eq!((facts.kind, facts.source_port, facts.destination_port), (Kind::Reply, 77, 77));

    let quoted = packet(SCTP, (GLOBAL, 1), (REMOTE, 2), &[], &[]);
    let facts = read(&error(ROUTER, (3, 2), 0, &quoted, &[])).unwrap().answer;
    assert_eq!((facts.kind, facts.source_port, facts.destination_port), (Kind::Other, 0, 0));
}

#[test]
fn the_quoted_packet_becomes_what_the_inside_sent() {
    for protocol in [protocol::TCP, protocol::UDP, protocol::ICMP] {
        let far = (REMOTE, if protocol == protocol::ICMP { 0 } else { 443 });
        let sent = packet(protocol, (INSIDE, 4000), far, &[], b"some data");
        let left = packet(protocol, (GLOBAL, 1025), far, &[], b"some data");
        let back = translated(&error(ROUTER, (3, 4), 0, &left, &[]), &inbound());
        assert_eq!(back, error(ROUTER, (3, 4), 0, &sent, &[]), "protocol {protocol}");
    }
}

#[test]
fn eight_bytes_of_tcp_are_enough() {
    let sent = packet(protocol::TCP, (INSIDE, 4000), (REMOTE, 443), &[], &[]);
    let left = packet(protocol::TCP, (GLOBAL, 1025), (REMOTE, 443), &[], &[]);
    let back = translated(&error(ROUTER, (11, 0), 0, &left[..28], &[]), &inbound());
    assert_eq!(back, error(ROUTER, (11, 0), 0, &sent[..28], &[]));
}

#[test]
fn an_error_from_inside_comes_from_the_global_address_whoever_sent_it() {
    let outbound = Rewrite::new(Side::Source, (INSIDE, 4000), (GLOBAL, 1025));
    let came = packet(protocol::UDP, (REMOTE, 53), (INSIDE, 4000), &[], b"answer");
    let was = packet(protocol::UDP, (REMOTE, 53), (GLOBAL, 1025), &[], b"answer");
    for sender in [INSIDE, Ipv4Addr::new(10, 1, 0, 1)] {
        let out = translated(&error(sender, (3, 3), 0, &came, &[]), &outbound);
        assert_eq!(out, error(GLOBAL, (3, 3), 0, &was, &[]), "sent by {sender}");
    }
}

#[test]
fn a_quoted_udp_packet_without_checksum_has_none_afterwards() {
    let without = |from| {
        let mut quoted = packet(protocol::UDP, from, (REMOTE, 53), &[], b"query");
        put16(&mut quoted, 26, 0);
        error(ROUTER, (3, 3), 0, &quoted, &[])
    };
    assert_eq!(translated(&without((GLOBAL, 1025)), &inbound()), without((INSIDE, 4000)));
}

#[test]
fn extensions_and_padding_are_left_alone() {
    // 28 bytes of a packet, zeros up to 128, then MPLS labels (RFC 4950).
    let extension = [0x20, 0, 0xdd, 0x09, 0, 8, 1, 1, 0x12, 0x34, 0x51, 0xff];
    let padded = |from| {
        let mut quoted = packet(protocol::UDP, from, (REMOTE, 33434), &[], &[]);
        quoted.resize(128, 0);
        quoted
    };
    let (left, sent) = (padded((GLOBAL, 1025)), padded((INSIDE, 4000)));
    // With its length, as RFC 4884 wants it, and without, as before.
    for length in [32, 0] {
        let back = translated(&error(ROUTER, (11, 0), length, &left, &extension), &inbound());
        assert_eq!(back, error(ROUTER, (11, 0), length, &sent, &extension), "length {length}");
    }
}

#[test]
fn what_lies_behind_the_quoted_packet_is_no_checksum_of_it() {
    let tail = [0xee_u8; 60];
    // Eight bytes of TCP fill the 128 that RFC 4884 asks for; where the checksum would be, extensions begin.
    let short = |from| {
        let mut quoted = packet(protocol::TCP, from, (REMOTE, 80), &[1; 40], &[7; 200]);
        quoted.truncate(68);
        quoted.resize(128, 0);
        quoted
    };
    let left = short((GLOBAL, 1025));
    let back = translated(&error(ROUTER, (11, 0), 32, &left, &tail), &inbound());
    assert_eq!(back[20 + 8 + 128..], tail);
    // A packet of 128 bytes in front of extensions has its checksum inside; the extensions stay.
    let long = |from| packet(protocol::TCP, from, (REMOTE, 80), &[1; 40], &[7; 48]);
    let back = translated(&error(ROUTER, (11, 0), 32, &long((GLOBAL, 1025)), &tail), &inbound());
    assert_eq!(back, error(ROUTER, (11, 0), 32, &long((INSIDE, 4000)), &tail));
}

#[test]
fn what_is_no_error_about_a_packet_of_a_session_is_refused() {
    let good = packet(protocol::UDP, (GLOBAL, 1025), (REMOTE, 53), &[], b"query");
    let changed = |at: usize, value: u8| {
        let mut quoted = good.clone();
        quoted[at] = value;
        fill_ipv4_header(&mut quoted);
        error(ROUTER, (3, 3), 0, &quoted, &[])
    };
    let mut wrong_sum = error(ROUTER, (3, 3), 0, &good, &[]);
    wrong_sum[22] ^= 1;
    let mut wrong_quoted_sum = good.clone();
    wrong_quoted_sum[10] ^= 1;
    let mut elsewhere = error(ROUTER, (3, 3), 0, &good, &[]);
    elsewhere[19] ^= 1;
    fill_ipv4_header(&mut elsewhere);
    let mut in_pieces = error(ROUTER, (3, 3), 0, &good, &[]);
    in_pieces[6] |= 0x20;
    fill_ipv4_header(&mut in_pieces);
    let about_an_error =
        error(REMOTE, (3, 3), 0, &packet(protocol::UDP, (GLOBAL, 1), (REMOTE, 2), &[], &[]), &[]);
    let cases = [
        ("a redirect", error(ROUTER, (5, 1), 0, &good, &[])),
        ("a source quench", error(ROUTER, (4, 0), 0, &good, &[])),
        ("a router advertisement", error(ROUTER, (9, 0), 0, &good, &[])),
        ("an unknown type", error(ROUTER, (200, 0), 0, &good, &[])),
        ("a wrong checksum", wrong_sum),
        ("a wrong checksum of the quoted header", error(ROUTER, (3, 3), 0, &wrong_quoted_sum, &[])),
        ("an error to somebody else", elsewhere),
        ("an error in fragments", in_pieces),
        ("a quoted later fragment", changed(7, 3)),
        ("a quoted IPv6 packet", changed(0, 0x65)),
        ("a quoted header that is too short", changed(0, 0x44)),
        ("a quoted header longer than the quote", error(ROUTER, (3, 3), 0, &good[..27], &[])),
        ("a quoted length below the header's", changed(3, 19)),
        ("nothing quoted", error(ROUTER, (3, 3), 0, &[], &[])),
        ("an error about an error", error(ROUTER, (3, 3), 0, &about_an_error, &[])),
    ];
    for (name, bytes) in cases {
        let inner = Inner::parse(&bytes).unwrap_or_else(|error| panic!("{name}: {error:?}"));
        assert_eq!(Quote::read(&wrapped(&bytes), &inner), Err(DropReason::NatUntranslatable), "{name}");
    }
    assert!(read(&error(ROUTER, (3, 3), 0, &good, &[])).is_some());
}

#[test]
fn trains_and_unfinished_checksums_are_no_errors() {
    let bytes = error(ROUTER, (3, 3), 0, &packet(protocol::UDP, (GLOBAL, 1), (REMOTE, 2), &[], &[]), &[]);
    let inner = Inner::parse(&bytes).unwrap();
    let mut packet = wrapped(&bytes);
    packet.checksum = Checksum::Partial { start: 20, field: 22 };
    assert!(Quote::read(&packet, &inner).is_err());
    let mut packet = wrapped(&bytes);
    packet.layout = Layout::train(LayoutKind::Udp, 28, 8, 4);
    assert!(Quote::read(&packet, &inner).is_err());
}

#[test]
fn queries_are_no_errors_and_everything_else_of_icmp_is_looked_at() {
    for icmp_type in 0..=255_u8 {
        let bytes = error(ROUTER, (icmp_type, 0), 0, &[0; 20], &[]);
        let inner = Inner::parse(&bytes).unwrap();
        assert_eq!(
            Quote::is_error(&bytes, &inner),
            !matches!(icmp_type, 0 | 8 | 13 | 14),
            "type {icmp_type}"
        );
        // Each message is either a packet of its own or an error, never both and never neither.
        assert_eq!(Facts::of(&bytes, &inner).is_none(), Quote::is_error(&bytes, &inner));
    }
}

prop_compose! {
    fn any_error()(
        protocol in prop::sample::select(vec![protocol::TCP, protocol::UDP, protocol::ICMP, SCTP, 136]),
        from in (any::<u32>().prop_map(Ipv4Addr::from), any::<u16>()),
        to in (any::<u32>().prop_map(Ipv4Addr::from), any::<u16>()),
        sender in any::<u32>().prop_map(Ipv4Addr::from),
        icmp in (prop::sample::select(vec![3_u8, 11, 12]), any::<u8>()),
        words in 0_usize..=10,
        body in prop::collection::vec(any::<u8>(), 0..100),
        kept in 0_usize..200,
        spoil: Option<(usize, u8)>,
        extension in prop::collection::vec(any::<u8>(), 0..20),
    ) -> Vec<u8> {
        let mut quoted = packet(protocol, from, to, &vec![1; words * 4], &body);
        let start = 20 + words * 4;
        // The transport's bytes are anything; nobody checks them.
        if let Some((at, value)) = spoil {
            let at = start + 8 + at % (quoted.len() - start);
            if let Some(byte) = quoted.get_mut(at) {
                *byte ^= value;
            }
        }
        quoted.truncate((start + 8 + kept).min(quoted.len()));
        if !extension.is_empty() {
            quoted.resize(quoted.len().max(128).next_multiple_of(4), 0);
        }
        let length = if extension.is_empty() { 0 } else { u8::try_from(quoted.len() / 4).unwrap() };
        error(sender, icmp, length, &quoted, &extension)
    }
}

proptest! {
    #[test]
    fn an_error_stays_right_and_comes_back_bit_for_bit(
        before in any_error(),
        is_inbound: bool,
        address in any::<u32>().prop_map(Ipv4Addr::from),
        port: u16,
    ) {
        let quote = read(&before).unwrap();
        let facts = quote.answer;
        // Whoever answers is the sender: such errors come back; of others the sender is hidden, which is meant.
        let mut before = before;
        before[12..16].copy_from_slice(&facts.source.octets());
        fill_ipv4_header(&mut before);
        let (side, old) = if is_inbound {
            (Side::Destination, (facts.destination, facts.destination_port))
        } else {
            (Side::Source, (facts.source, facts.source_port))
        };
        let port = if facts.has_ports() { port } else { old.1 };
        let rewrite = Rewrite::new(side, old, (address, port));
        let after = translated(&before, &rewrite);
        prop_assert_eq!((after.len(), &after[20..22]), (before.len(), &before[20..22]));
        prop_assert_eq!(Sum::ZERO.bytes(&after[..20]).folded(), u16::MAX);
        // Reading checks the message's and the quoted header's checksums.
        let answer = read(&after).expect("an error still").answer;
        let (new, other) = if is_inbound {
            ((answer.destination, answer.destination_port), answer.source == facts.source)
        } else {
            ((answer.source, answer.source_port), answer.destination == facts.destination)
        };
        prop_assert_eq!((new, other), ((address, port), true));
        prop_assert_eq!(translated(&after, &rewrite.inverse()), before);
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..120), fixes in 0_u8..4) {
        let mut bytes = bytes;
        if bytes.len() >= 28 {
            bytes[0] = 0x45;
            let total = u16::try_from(bytes.len()).unwrap();
            put16(&mut bytes, 2, total);
            put16(&mut bytes, 6, 0);
            bytes[9] = protocol::ICMP;
            bytes[20] = 3;
            if fixes > 0 && bytes.len() >= 48 {
                bytes[28] = 0x45 | (bytes[28] & 2);
                bytes.copy_within(40..44, 16);
                let end = (28 + usize::from(bytes[28] & 15) * 4).min(bytes.len());
                put16(&mut bytes, 38, 0);
                let sum = Sum::ZERO.bytes(&bytes[28..end]).checksum();
                put16(&mut bytes, 38, sum);
            }
            put16(&mut bytes, 22, 0);
            let sum = Sum::ZERO.bytes(&bytes[20..]).checksum();
            put16(&mut bytes, 22, sum);
        }
        if let Some(quote) = read(&bytes) {
            let rewrite = Rewrite::new(Side::Source, (quote.answer.source, quote.answer.source_port), (GLOBAL, 9));
            prop_assert_eq!(translated(&bytes, &rewrite).len(), bytes.len());
        }
    }
}
