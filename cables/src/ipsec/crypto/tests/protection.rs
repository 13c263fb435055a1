//! Sealing, opening, fragments.

use proptest::prelude::*;

use super::hex;
use crate::ipsec::crypto::protect::{self, OpenError};
use crate::ipsec::crypto::{IkeAead, MessageKey, Opened, Reassembly};
use crate::ipsec::wire::{Exchange, Header, Payload, PayloadKind, WireError, emit_payloads, parse_payloads};

const HEADER: Header = Header {
    spi_i: 0xc0c1_c2c3_c4c5_c6c7,
    spi_r: 0xd0d1_d2d3_d4d5_d6d7,
    exchange: Exchange::Informational,
    is_initiator: false,
    is_response: false,
    message_id: 9,
};

fn key(byte: u8) -> MessageKey {
    MessageKey::new(IkeAead::Aes256Gcm16, &[byte; 36]).unwrap()
}

fn long_message() -> Vec<Payload> {
    vec![Payload::Nonce(vec![5; 200]), Payload::VendorId((0..1000u16).map(|n| n.to_le_bytes()[0]).collect())]
}

#[test]
fn chacha20_poly1305_protects_as_in_rfc_7634_appendix_b() {
    let material = hex("808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9f a0a1a2a3");
    let key = MessageKey::new(IkeAead::ChaCha20Poly1305, &material).unwrap();
    let datagram = hex("c0c1c2c3c4c5c6c7 d0d1d2d3d4d5d6d7 2e202500 00000009 00000045 29000029
         1011121314151617 610394701f8d017f7c12924889 6b71bfe25236efd7cdc67066906315b2");

    let opened = protect::open(&datagram, &key).unwrap();

    assert_eq!((opened.header, opened.first), (HEADER, PayloadKind::Notify));
    assert_eq!(*opened.body, hex("0000000c 00004001 0000000a"));
    let mut iv = 0x1011_1213_1415_1617;
    let payloads = parse_payloads(opened.first, &opened.body).unwrap();
    assert_eq!(protect::seal(&HEADER, &payloads, &key, &mut iv, None), [datagram]);
    assert_eq!(iv, 0x1011_1213_1415_1618);
}

#[test]
fn every_bit_of_a_protected_message_is_authenticated() {
    let sealed = protect::seal(&HEADER, &[Payload::Nonce(vec![1; 16])], &key(1), &mut 0, None).remove(0);
    for at in 0..sealed.len() * 8 {
        let mut changed = sealed.clone();
        changed[at / 8] ^= 1 << (at % 8);
        assert!(protect::open(&changed, &key(1)).is_err(), "bit {at}");
    }
    assert_eq!(protect::open(&sealed, &key(2)), Err(OpenError::Unauthentic));
    for length in 0..sealed.len() {
        assert!(protect::open(&sealed[..length], &key(1)).is_err());
    }
}

#[test]
fn an_empty_message_is_protected_too() {
    let sealed = protect::seal(&HEADER, &[], &key(1), &mut 0, Some(1200)).remove(0);
    let opened = protect::open(&sealed, &key(1)).unwrap();
    assert_eq!((opened.first, opened.body.len(), opened.fragment), (PayloadKind::None, 0, None));
}

#[test]
fn padding_of_the_peers_is_cut_off_and_must_fit() {
    let key = key(1);
    let inner = |padding: &[u8]| [&emit_payloads(&[Payload::Nonce(vec![1; 16])]), padding].concat();
    let sealed = protect::seal_body(&HEADER, PayloadKind::Nonce, &inner(&[]), &key, &mut 0).unwrap();
    assert_eq!(*protect::open(&sealed, &key).unwrap().body, inner(&[]));
    let sealed = sealed_by_hand(&inner(&[0, 0, 0, 3]), &key);
    assert_eq!(*protect::open(&sealed, &key).unwrap().body, inner(&[]));
    let sealed = sealed_by_hand(&[7, 7, 7, 4], &key);
    assert_eq!(protect::open(&sealed, &key), Err(OpenError::Wire(WireError::Length("the padding"))));
    let sealed = sealed_by_hand(&[], &key);
    assert_eq!(protect::open(&sealed, &key), Err(OpenError::Wire(WireError::Truncated("the padding"))));
}

/// A message whose encrypted part, pad length included, is `text`.
fn sealed_by_hand(text: &[u8], key: &MessageKey) -> Vec<u8> {
    let payload_bytes = 4 + 8 + text.len() + 16;
    let mut out = Vec::new();
    HEADER.emit(PayloadKind::Encrypted, 28 + payload_bytes, &mut out);
    out.extend_from_slice(&[40, 0]);
    out.extend_from_slice(&u16::try_from(payload_bytes).unwrap().to_be_bytes());
    let mut text = text.to_vec();
    let icv = key.seal([9; 8], &out, &mut text).unwrap();
    [out.as_slice(), &[9; 8], &text, icv.as_ref()].concat()
}

#[test]
fn long_messages_are_cut_and_put_together_in_any_order() {
    let (key, mut iv) = (key(1), 100);
    let payloads = long_message();
    let datagrams = protect::seal(&HEADER, &payloads, &key, &mut iv, Some(300));
    assert_eq!((datagrams.len(), iv), (6, 106));
    assert!(datagrams.iter().all(|datagram| datagram.len() <= 300 && datagram[16] == 53));
    let opened: Vec<Opened> =
        datagrams.iter().map(|datagram| protect::open(datagram, &key).unwrap()).collect();
    assert_eq!(opened[0].first, PayloadKind::Nonce);
    assert!(opened[1..].iter().all(|piece| piece.first == PayloadKind::None));

    let mut reassembly = Reassembly::default();
    for index in [5, 3, 3, 0, 1, 5, 4] {
        assert_eq!(reassembly.add(opened[index].clone()), None);
    }
    let whole = reassembly.add(opened[2].clone()).unwrap();
    assert_eq!(parse_payloads(whole.first, &whole.body).unwrap(), payloads);
    assert_eq!(reassembly.add(opened[2].clone()), None, "and then it begins anew");
}

#[test]
fn smaller_pieces_replace_larger_ones_and_not_the_other_way_round() {
    let payloads = long_message();
    let cut = |bytes| -> Vec<Opened> {
        let sealed = protect::seal(&HEADER, &payloads, &key(1), &mut 0, Some(bytes));
        sealed.iter().map(|datagram| protect::open(datagram, &key(1)).unwrap()).collect()
    };
    let (large, small) = (cut(700), cut(300));
    let mut reassembly = Reassembly::default();
    assert_eq!(reassembly.add(large[0].clone()), None);
    for piece in &small[..5] {
        assert_eq!(reassembly.add(piece.clone()), None);
    }
    assert_eq!(reassembly.add(large[1].clone()), None, "pieces of the larger kind come too late");
    assert!(reassembly.add(small[5].clone()).is_some());
}

#[test]
fn requests_and_responses_are_put_together_apart_and_a_new_message_ends_the_old_one() {
    let cut = |header: Header| -> Vec<Opened> {
        let sealed = protect::seal(&header, &long_message(), &key(1), &mut 0, Some(1000));
        sealed.iter().map(|datagram| protect::open(datagram, &key(1)).unwrap()).collect()
    };
    let request = cut(HEADER);
    let response = cut(Header { is_response: true, ..HEADER });
    let later = cut(Header { message_id: 10, ..HEADER });
    let mut reassembly = Reassembly::default();
    assert_eq!(reassembly.add(request[0].clone()), None);
    assert_eq!(reassembly.add(response[0].clone()), None);
    assert!(reassembly.add(request[1].clone()).is_some());
    assert!(reassembly.add(response[1].clone()).is_some());
    assert_eq!(reassembly.add(request[0].clone()), None);
    assert_eq!(reassembly.add(later[0].clone()), None);
    assert_eq!(reassembly.add(request[1].clone()), None);
    assert_eq!(reassembly.add(later[1].clone()), None, "the old message's piece has begun anew");
    assert!(reassembly.add(later[0].clone()).is_some());
}

#[test]
fn too_many_pieces_and_too_many_bytes_are_refused() {
    let mut pieces = protect::seal(&HEADER, &long_message(), &key(1), &mut 0, Some(700));
    let piece = protect::open(&pieces.remove(0), &key(1)).unwrap();
    let with = |number, total, bytes: usize| Opened {
        fragment: Some(crate::ipsec::wire::Fragment { number, total }),
        body: vec![0; bytes].into(),
        ..piece.clone()
    };
    let mut reassembly = Reassembly::default();
    assert_eq!(reassembly.add(with(1, 65, 10)), None);
    assert_eq!(format!("{reassembly:?}"), format!("{:?}", Reassembly::default()), "nothing is kept of it");
    assert_eq!(reassembly.add(with(1, 2, 40_000)), None);
    assert_eq!(reassembly.add(with(2, 2, 40_000)), None);
    assert!(reassembly.add(with(2, 2, 20_000)).is_some());
}

proptest! {
    #[test]
    fn what_is_sealed_is_opened(
        body in proptest::collection::vec(any::<u8>(), 0..3000),
        aead in proptest::sample::select(IkeAead::ALL.to_vec()),
        iv in any::<u64>(),
        limit in proptest::option::of(0usize..3000),
    ) {
        let key = MessageKey::new(aead, &vec![3; aead.key_bytes() + 4]).unwrap();
        let (mut next, payloads) = (iv, [Payload::VendorId(body)]);
        let datagrams = protect::seal(&HEADER, &payloads, &key, &mut next, limit);
        prop_assert_eq!(next, iv.wrapping_add(datagrams.len() as u64));
        let mut reassembly = Reassembly::default();
        let whole = datagrams.iter().rev().find_map(|datagram| {
            reassembly.add(protect::open(datagram, &key).unwrap())
        });
        let whole = whole.unwrap();
        prop_assert_eq!(parse_payloads(whole.first, &whole.body).unwrap(), payloads);
    }
}
