//! IKE messages from strangers, and from peers that hold the keys and send what they like: parsed or refused, and what is
//! parsed says the same when it is emitted and parsed again.

use trieste_cables::ipsec::crypto::protect::{open, seal, seal_body};
use trieste_cables::ipsec::crypto::{IkeAead, MessageKey, Reassembly};
use trieste_cables::ipsec::wire::{
    Envelope, Exchange, HEADER_BYTES, Header, Payload, PayloadKind, emit, emit_payloads, parse,
    parse_payloads,
};

/// Where a message says how long it is.
const LENGTH_AT: usize = 24;
const HEADER: Header = Header {
    spi_i: 1,
    spi_r: 2,
    exchange: Exchange::Informational,
    is_initiator: true,
    is_response: false,
    message_id: 3,
};

pub(super) fn target(data: &[u8]) {
    datagram(data);
    datagram(&with_right_length(data));
    if let Some((first, chain)) = data.split_first() {
        inside(PayloadKind::from_code(*first), chain);
    }
}

/// As it comes in, without keys.
fn datagram(data: &[u8]) {
    if let Ok(message) = parse(data) {
        let payloads = known(message.payloads);
        let again = parse(&emit(&message.header, &payloads)).expect("what is emitted can be parsed");
        assert_eq!((again.header, &again.payloads), (message.header, &payloads));
    }
    if let Ok(envelope) = Envelope::parse(data) {
        assert_eq!(envelope.associated.len() + envelope.sealed.len(), data.len());
    }
    assert!(open(data, &key()).is_err(), "nobody has this key");
}

/// As a peer seals it.
fn inside(first: PayloadKind, chain: &[u8]) {
    let key = key();
    if let Some(sealed) = seal_body(&HEADER, first, chain, &key, &mut 7) {
        let opened = open(&sealed, &key).expect("it was sealed with this key");
        assert_eq!((opened.header, opened.first, opened.body.as_slice()), (HEADER, first, chain));
    }
    let Ok(payloads) = parse_payloads(first, chain) else { return };
    let payloads = known(payloads);
    let kind = payloads.first().map_or(PayloadKind::None, Payload::kind);
    assert_eq!(parse_payloads(kind, &emit_payloads(&payloads)).as_ref(), Ok(&payloads));
    let mut reassembly = Reassembly::default();
    let datagrams = seal(&HEADER, &payloads, &key, &mut 7, Some(1200));
    let mut found = None;
    for datagram in datagrams.iter().rev() {
        assert!(found.is_none(), "not before the last piece");
        found = reassembly.add(open(datagram, &key).expect("it was sealed with this key"));
    }
    if datagrams.len() <= 50 {
        let whole = found.expect("all pieces are there");
        assert_eq!(parse_payloads(whole.first, &whole.body), Ok(payloads));
    }
}

/// What is not understood is not emitted either: transforms lose the note that they had more attributes.
fn known(mut payloads: Vec<Payload>) -> Vec<Payload> {
    for payload in &mut payloads {
        if let Payload::Sa(proposals) = payload {
            let transforms = proposals.iter_mut().flat_map(|proposal| &mut proposal.transforms);
            transforms.for_each(|transform| transform.has_unknown_attribute = false);
        }
    }
    payloads
}

/// Most changes to a message make its length wrong, and then nothing of it is looked at.
fn with_right_length(data: &[u8]) -> Vec<u8> {
    let mut bytes = data.to_vec();
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes();
    if let Some(field) = bytes.get_mut(LENGTH_AT..HEADER_BYTES) {
        field.copy_from_slice(&length);
    }
    bytes
}

fn key() -> MessageKey {
    MessageKey::new(IkeAead::ChaCha20Poly1305, &[0x5a; 36]).expect("36 bytes")
}
