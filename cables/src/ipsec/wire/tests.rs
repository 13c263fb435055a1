//! Literal bytes, and the law that what is emitted is parsed again.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::ipsec::{Selector, Spi};

const HEADER: Header = Header {
    spi_i: 0x0102_0304_0506_0708,
    spi_r: 0,
    exchange: Exchange::IkeSaInit,
    is_initiator: true,
    is_response: false,
    message_id: 0,
};

/// A message of these payloads, as types and bodies; the last is followed by none.
fn message(payloads: &[(u8, u8, &[u8])]) -> Vec<u8> {
    let mut chain = Vec::new();
    for (index, (_, flags, body)) in payloads.iter().enumerate() {
        let next = payloads.get(index + 1).map_or(0, |(kind, ..)| *kind);
        chain.extend_from_slice(&[next, *flags]);
        chain.extend_from_slice(&u16::try_from(body.len() + 4).unwrap().to_be_bytes());
        chain.extend_from_slice(body);
    }
    let mut out = Vec::new();
    let first = payloads.first().map_or(0, |(kind, ..)| *kind);
    HEADER.emit(PayloadKind::from_code(first), HEADER_BYTES + chain.len(), &mut out);
    [out, chain].concat()
}

fn parsed(payloads: &[(u8, u8, &[u8])]) -> Result<Vec<Payload>, WireError> {
    parse(&message(payloads)).map(|message| message.payloads)
}

#[test]
fn a_header_is_28_bytes_in_network_order() {
    let bytes = [1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0x20, 37, 0x28, 0, 0, 1, 2, 0, 0, 0, 28];
    let header = Header {
        spi_r: 9,
        exchange: Exchange::Informational,
        is_response: true,
        message_id: 0x102,
        ..HEADER
    };
    assert_eq!(emit(&header, &[]), bytes);
    assert_eq!(parse(&bytes), Ok(Message { header, payloads: Vec::new() }));
}

#[test]
fn only_the_own_version_and_the_datagrams_length_are_taken() {
    let mut bytes = emit(&HEADER, &[]);
    bytes[17] = 0x2f;
    assert!(parse(&bytes).is_ok(), "the minor version is ignored");
    bytes[17] = 0x30;
    assert_eq!(parse(&bytes), Err(WireError::Version(3)));
    assert_eq!(parse(&bytes).unwrap_err().answer(), (NotifyKind::InvalidMajorVersion, vec![2]));
    bytes[17] = 0x20;
    bytes.push(0);
    assert_eq!(parse(&bytes), Err(WireError::Length("the message")));
    assert_eq!(parse(&bytes[..27]), Err(WireError::Truncated("the header")));
}

#[test]
fn unknown_payloads_are_skipped_unless_they_are_critical() {
    let nonce = [7; 16];
    let found = parsed(&[(49, 0, b"?"), (40, 0, &nonce), (200, 0x7f, b"")]);
    assert_eq!(found, Ok(vec![Payload::Nonce(nonce.to_vec())]));
    let refused = parsed(&[(40, 0, &nonce), (49, 0x80, b"?")]).unwrap_err();
    assert_eq!(refused, WireError::UnsupportedCritical(49));
    assert_eq!(refused.answer(), (NotifyKind::UnsupportedCriticalPayload, vec![49]));
    assert_eq!(parsed(&[(40, 0x80, &nonce)]), found, "of known ones, the flag says nothing");
}

#[test]
fn chains_end_exactly_where_the_message_does() {
    let whole = message(&[(40, 0, &[7; 16])]);
    let cut = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = whole.clone();
        change(&mut bytes);
        let length = u32::try_from(bytes.len()).unwrap().to_be_bytes();
        bytes[24..28].copy_from_slice(&length);
        parse(&bytes).unwrap_err()
    };
    assert_eq!(cut(&|bytes| bytes.push(0)), WireError::Length("the message"));
    assert_eq!(cut(&|bytes| bytes.truncate(47)), WireError::Truncated("a payload"));
    assert_eq!(cut(&|bytes| bytes.truncate(30)), WireError::Truncated("a payload"));
    assert_eq!(cut(&|bytes| bytes[31] = 3), WireError::Length("a payload"));
    assert_eq!(cut(&|bytes| bytes[28] = 41), WireError::Truncated("a payload"));
}

#[test]
fn numbers_are_bounded() {
    let many: Vec<(u8, u8, &[u8])> = vec![(43, 0, b""); 65];
    assert_eq!(parsed(&many[..64]).map(|found| found.len()), Ok(64));
    assert_eq!(parsed(&many), Err(WireError::TooMany("payloads")));
    let proposal = Proposal { number: 1, protocol: Protocol::Ike, spi: Vec::new(), transforms: Vec::new() };
    let sa = |count| emit(&HEADER, &[Payload::Sa(vec![proposal.clone(); count])]);
    assert!(parse(&sa(64)).is_ok());
    assert_eq!(parse(&sa(65)), Err(WireError::TooMany("proposals")));
    let transforms = vec![Transform::new(TransformKind::Prf, 5); 200];
    let sa = vec![Proposal { transforms, ..proposal }; 3];
    assert_eq!(parse(&emit(&HEADER, &[Payload::Sa(sa)])), Err(WireError::TooMany("proposals")));
}

#[test]
fn nonces_have_16_to_256_bytes() {
    for (bytes, is_good) in [(15, false), (16, true), (256, true), (257, false)] {
        assert_eq!(parsed(&[(40, 0, &vec![1; bytes])]).is_ok(), is_good, "{bytes}");
    }
}

#[test]
fn unknown_attributes_spoil_their_transform_and_nothing_else() {
    #[rustfmt::skip]
    let body = [
        0, 0, 0, 44, 1, 1, 0, 3,
        3, 0, 0, 12, 1, 0, 0, 20, 0x80, 14, 1, 0, // key length 256
        3, 0, 0, 16, 1, 0, 0, 20, 0x80, 14, 0, 128, 0x80, 99, 0, 1, // and something
        0, 0, 0, 8, 2, 0, 0, 5,
    ];
    let found = parsed(&[(33, 0, &body)]).unwrap();
    let Payload::Sa(proposals) = &found[0] else { panic!("an SA") };
    let [good, spoilt, prf] = proposals[0].transforms[..] else { panic!("three transforms") };
    assert_eq!(good, Transform::with_key_bits(TransformKind::Encryption, 20, 256));
    assert!(spoilt.has_unknown_attribute && !prf.has_unknown_attribute);
    assert_eq!(spoilt.key_bits, Some(128));
}

#[test]
fn long_attributes_are_stepped_over() {
    #[rustfmt::skip]
    let mut body = [
        0, 0, 0, 24, 1, 3, 4, 1, 9, 9, 9, 9,
        0, 0, 0, 12 + 3, 1, 0, 0, 28, 0, 77, 0, 3, 1, 2, 3,
    ];
    body[3] = 27;
    let found = parsed(&[(33, 0, &body)]).unwrap();
    let Payload::Sa(proposals) = &found[0] else { panic!("an SA") };
    assert!(proposals[0].transforms[0].has_unknown_attribute);
    assert_eq!(proposals[0].esp_spi(), Some(Spi(0x0909_0909)));
    body[23] = 4;
    assert_eq!(parsed(&[(33, 0, &body)]), Err(WireError::Truncated("a transform")));
}

#[test]
fn selectors_that_say_nothing_to_us_are_left_out() {
    #[rustfmt::skip]
    let body = [
        4, 0, 0, 0,
        9, 6, 0, 12, 1, 2, 3, 4, 5, 6, 7, 8, // a type of Fibre Channel
        7, 0, 0, 16, 0, 0, 255, 255, 10, 1, 0, 0, 10, 1, 255, 255,
        7, 1, 0, 16, 255, 255, 0, 0, 10, 1, 0, 0, 10, 1, 255, 255, // "opaque" ports
        7, 0, 0, 16, 0, 0, 255, 255, 10, 2, 0, 0, 10, 1, 255, 255, // an empty range
    ];
    let expected = Selector::subnet("10.1.0.0/16".parse().unwrap());
    assert_eq!(parsed(&[(44, 0, &body)]), Ok(vec![Payload::TsI(vec![expected])]));
    let mut wrong = body;
    wrong[19] = 15;
    assert!(parsed(&[(44, 0, &wrong)]).is_err());
    wrong = body;
    wrong[0] = 3;
    assert_eq!(parsed(&[(44, 0, &wrong)]), Err(WireError::Length("a traffic selector payload")));
}

#[test]
fn deletions_name_as_many_spis_as_they_say() {
    let good = [3, 4, 0, 2, 0, 0, 1, 1, 0, 0, 1, 2];
    let expected = Payload::Delete(Delete::esp(vec![Spi(0x101), Spi(0x102)]));
    assert_eq!(parsed(&[(42, 0, &good)]), Ok(vec![expected]));
    assert_eq!(parsed(&[(42, 0, &[1, 0, 0, 0])]), Ok(vec![Payload::Delete(Delete::ike())]));
    for wrong in [&[3, 4, 0, 1, 0, 0, 1, 1, 9][..], &[3, 4, 0, 2, 0, 0, 1, 1], &[3, 8, 0, 0], &[1, 4, 0, 0]] {
        assert_eq!(parsed(&[(42, 0, wrong)]), Err(WireError::Length("a delete")), "{wrong:?}");
    }
}

#[test]
fn encrypted_payloads_are_for_the_envelope_alone() {
    let sealed = message(&[(40, 0, &[7; 16]), (46, 0, &[1, 2, 3])]);
    assert_eq!(parse(&sealed), Err(WireError::Protection));
    let envelope = Envelope::parse(&sealed).unwrap();
    assert_eq!((envelope.sealed, envelope.fragment), (&[1, 2, 3][..], None));
    assert_eq!([envelope.associated, envelope.sealed].concat(), sealed);
    let clear = message(&[(40, 0, &[7; 16])]);
    assert_eq!(Envelope::parse(&clear), Err(WireError::Protection));
    let critical = message(&[(49, 0x80, b""), (46, 0, &[1])]);
    assert_eq!(Envelope::parse(&critical), Err(WireError::UnsupportedCritical(49)));
    let behind = message(&[(46, 0, &[1]), (40, 0, &[7; 16])]);
    assert_eq!(Envelope::parse(&behind), Err(WireError::Length("the message")), "it is the last");
}

#[test]
fn fragments_count_from_one_to_their_total() {
    let piece = |number: u8, total: u8| message(&[(53, 0, &[0, number, 0, total, 1, 2])]);
    let good = piece(2, 3);
    let envelope = Envelope::parse(&good).unwrap();
    assert_eq!(envelope.fragment, Some(Fragment { number: 2, total: 3 }));
    assert_eq!((envelope.associated.len(), envelope.sealed), (36, &[1, 2][..]));
    for (number, total) in [(0, 3), (4, 3), (0, 0)] {
        assert!(Envelope::parse(&piece(number, total)).is_err());
    }
}

#[test]
fn names_are_those_of_the_registries_and_of_other_programs() {
    assert_eq!(NotifyKind::NoProposalChosen.to_string(), "NO_PROPOSAL_CHOSEN");
    assert_eq!(NotifyKind::Other(41000).to_string(), "41000");
    assert!(NotifyKind::TsUnacceptable.is_error() && !NotifyKind::Cookie.is_error());
    assert_eq!(Exchange::CreateChildSa.to_string(), "CREATE_CHILD_SA");
    let transforms = vec![
        Transform::with_key_bits(TransformKind::Encryption, 20, 256),
        Transform::with_key_bits(TransformKind::Encryption, 12, 128),
        Transform::new(TransformKind::Encryption, 28),
        Transform::new(TransformKind::Prf, 7),
        Transform::new(TransformKind::Integrity, 12),
        Transform::new(TransformKind::Group, 19),
        Transform::new(TransformKind::Group, 1000),
        Transform::new(TransformKind::Esn, 0),
    ];
    let proposal = Proposal { number: 1, protocol: Protocol::Esp, spi: Vec::new(), transforms };
    assert_eq!(
        proposal.to_string(),
        "aes256gcm16-aes128-chacha20poly1305-prfsha512-sha256-ecp256-key agreement-1000-noesn"
    );
    assert_eq!(Id::Fqdn("10.0.0.1-0-1".into()).to_string(), "10.0.0.1-0-1");
    assert_eq!(Id::Other { kind: 11, data: vec![1, 0xab] }.to_string(), "type 11: 01ab");
}

#[test]
fn names_that_are_not_printable_stay_bytes() {
    let id = Id::parse(b"\x02\0\0\0a\nb").unwrap();
    assert_eq!(id, Id::Other { kind: 2, data: b"a\nb".to_vec() });
    assert_eq!(id.body(), b"\x02\0\0\0a\nb");
    assert_eq!(Id::parse(&[1, 0, 0, 0, 10, 0, 0]), Err(WireError::Length("an identity")));
}

fn bytes(limit: usize) -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..limit)
}

fn transform() -> impl Strategy<Value = Transform> {
    (0u8..8, any::<u16>(), any::<Option<u16>>()).prop_map(|(kind, id, key_bits)| Transform {
        kind: TransformKind::from_code(kind),
        id,
        key_bits,
        has_unknown_attribute: false,
    })
}

fn proposal() -> impl Strategy<Value = Proposal> {
    (any::<u8>(), 0u8..6, bytes(16), vec(transform(), 0..8)).prop_map(
        |(number, protocol, spi, transforms)| Proposal {
            number,
            protocol: Protocol::from_code(protocol),
            spi,
            transforms,
        },
    )
}

fn selector() -> impl Strategy<Value = Selector> {
    let v4 = (any::<u32>(), any::<u32>()).prop_map(|(a, b)| {
        let address = |bits| IpAddr::V4(Ipv4Addr::from_bits(bits));
        (address(a.min(b)), address(a.max(b)))
    });
    let v6 = (any::<u128>(), any::<u128>()).prop_map(|(a, b)| {
        let address = |bits| IpAddr::V6(Ipv6Addr::from_bits(bits));
        (address(a.min(b)), address(a.max(b)))
    });
    (prop_oneof![v4, v6], any::<(u8, u16, u16)>()).prop_map(|((first, last), (protocol, a, b))| Selector {
        first,
        last,
        protocol,
        first_port: a.min(b),
        last_port: a.max(b),
    })
}

fn id() -> impl Strategy<Value = Id> {
    prop_oneof![
        any::<IpAddr>().prop_map(Id::from),
        "[!-~]{0,40}".prop_map(Id::Fqdn),
        (6u8.., bytes(40)).prop_map(|(kind, data)| Id::Other { kind, data }),
    ]
}

fn payload() -> impl Strategy<Value = Payload> {
    prop_oneof![
        vec(proposal(), 1..5).prop_map(Payload::Sa),
        (any::<u16>(), bytes(300)).prop_map(|(group, data)| Payload::Ke(KeyExchange { group, data })),
        id().prop_map(Payload::IdI),
        id().prop_map(Payload::IdR),
        (any::<u8>(), bytes(80)).prop_map(|(method, data)| {
            Payload::Auth(Auth { method: AuthMethod::from_code(method), data })
        }),
        vec(any::<u8>(), 16..=256).prop_map(Payload::Nonce),
        (any::<u8>(), bytes(20), any::<u16>(), bytes(80)).prop_map(|(protocol, spi, kind, data)| {
            let (protocol, kind) = (Protocol::from_code(protocol), NotifyKind::from_code(kind));
            Payload::Notify(Notify { protocol, spi, kind, data })
        }),
        vec(any::<u32>(), 0..9)
            .prop_map(|spis| { Payload::Delete(Delete::esp(spis.into_iter().map(Spi).collect())) }),
        Just(Payload::Delete(Delete::ike())),
        bytes(80).prop_map(Payload::VendorId),
        vec(selector(), 0..9).prop_map(Payload::TsI),
        vec(selector(), 0..9).prop_map(Payload::TsR),
        (prop_oneof![Just(37), Just(38), Just(47), Just(48)], any::<bool>(), bytes(80)).prop_map(
            |(kind, is_critical, data)| {
                Payload::Other(Other { kind: PayloadKind::from_code(kind), is_critical, data })
            }
        ),
    ]
}

proptest! {
    #[test]
    fn what_is_emitted_is_parsed_again(
        (spi_i, spi_r, exchange, message_id) in any::<(u64, u64, u8, u32)>(),
        (is_initiator, is_response) in any::<(bool, bool)>(),
        payloads in vec(payload(), 0..12),
    ) {
        let exchange = Exchange::from_code(exchange);
        let header = Header { spi_i, spi_r, exchange, is_initiator, is_response, message_id };
        let message = Message { header, payloads };
        let datagram = emit(&message.header, &message.payloads);
        prop_assert_eq!(parse(&datagram), Ok(message));
    }

    #[test]
    fn bytes_that_are_cut_or_changed_are_parsed_or_refused(
        payloads in vec(payload(), 0..6),
        changes in vec((any::<usize>(), any::<u8>()), 0..6),
        cut in any::<proptest::sample::Index>(),
    ) {
        let mut datagram = emit(&HEADER, &payloads);
        for (at, byte) in changes {
            let at = at % datagram.len();
            datagram[at] = byte;
        }
        let _ = (parse(&datagram), Envelope::parse(&datagram));
        let cut = cut.index(datagram.len());
        prop_assert!(parse(&datagram[..cut]).is_err());
    }
}
