//! Messages made by hand: what no lane of ours sends, and what only a peer's selectors allow.

use ring::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use trieste_packet::wire::put16;

use super::*;

/// A message of end A's first pair around `text`, which carries its own trailer.
fn message(sequence: u64, has_esn: bool, text: &[u8]) -> Vec<u8> {
    let EspKeys { key, salt } = keys(EspSuite::Aes128Gcm16, 3);
    let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &key).unwrap());
    let mut nonce = [0; 12];
    nonce[..4].copy_from_slice(&salt);
    nonce[4..].copy_from_slice(&sequence.to_be_bytes());
    let spi = Spi::new(LANE, 1).to_bytes();
    let low = &sequence.to_be_bytes()[4..];
    let authenticated =
        if has_esn { [&spi[..], &sequence.to_be_bytes()].concat() } else { [&spi[..], low].concat() };
    let mut text = text.to_vec();
    let nonce = Nonce::assume_unique_for_key(nonce);
    key.seal_in_place_append_tag(nonce, Aad::from(authenticated), &mut text).unwrap();
    [&spi[..], low, &sequence.to_be_bytes(), &text].concat()
}

/// What end B makes of it.
fn opened(b: &mut End, message: &[u8], now: Instant) -> Vec<Vec<u8>> {
    let datagram = b.datagram(message, A);
    b.open(vec![datagram], now).iter().map(|packet| packet.bytes().to_vec()).collect()
}

/// A packet with TFC padding, padding and trailer behind it.
fn padded(packet: &[u8], tfc: usize, padding: &[u8], next_header: u8) -> Vec<u8> {
    let length = u8::try_from(padding.len()).unwrap();
    [packet, &vec![0; tfc][..], padding, &[length, next_header]].concat()
}

#[test]
fn padding_of_any_length_and_traffic_flow_padding_come_off() {
    let now = start();
    let (_, mut b) = connected(&recipe(1, now), now);
    let counted: Vec<u8> = (1..=255).collect();
    let (four, six) = (udp4(&[7; 50]), udp6(&[7; 50]));
    let texts =
        [(&four, 4, 0), (&four, 4, 1), (&four, 4, 255), (&six, 41, 254), (&four, 4, 5), (&six, 41, 0)];
    for (sequence, (packet, next, pad)) in (1..).zip(texts) {
        let text = padded(packet, 37 * usize::from(sequence > 3), &counted[..pad], next);
        assert_eq!(opened(&mut b, &message(sequence, true, &text), now), std::slice::from_ref(packet));
    }
    assert_eq!(b.drops.total(), 0);
}

#[test]
fn dummy_packets_are_consumed_without_a_word() {
    let now = start();
    let (mut a, mut b) = (end(A, B, now), end(B, A, now));
    let (_, meter) = add(&mut a, &mut b, &recipe(1, now), now);
    for text in [padded(&[0; 100], 0, &[1, 2], 59), padded(&[], 0, &[1, 2], 59)] {
        let sequence = b.consumed + 1;
        assert!(opened(&mut b, &message(sequence, true, &text), now).is_empty());
    }
    assert_eq!((b.consumed, b.drops.total()), (2, 0));
    assert_eq!((meter.rx_packets.load(Ordering::Relaxed), meter.last_rx()), (0, Some(now)), "the peer lives");
}

#[test]
fn authentic_nonsense_is_dropped_and_its_number_is_used() {
    let now = start();
    let (_, mut b) = connected(&recipe(1, now), now);
    let packet = udp4(&[7; 50]);
    let mut short = packet.clone();
    short.truncate(30);
    let mut long = packet.clone();
    put16(&mut long, 2, 2000);
    let mut tiny = packet.clone();
    put16(&mut tiny, 2, 19);
    let texts = [
        padded(&packet, 0, &[1, 3], 4),
        padded(&packet, 0, &[0, 0], 4),
        [&packet[..], &[200, 4]].concat(),
        padded(&packet, 0, &[1, 2], 6),
        padded(&packet, 0, &[1, 2], 41),
        padded(&udp6(&[1]), 0, &[1], 4),
        padded(&[], 0, &[1, 2], 4),
        padded(&short, 0, &[], 4),
        padded(&long, 0, &[], 4),
        padded(&tiny, 0, &[], 4),
    ];
    for (sequence, text) in (1..).zip(&texts) {
        let message = message(sequence, true, text);
        assert!(opened(&mut b, &message, now).is_empty(), "{sequence}");
        assert_eq!((b.drops.of(DropReason::BadInner), b.drops.total()), (sequence, sequence));
    }
    let replayed = message(1, true, &padded(&packet, 0, &[], 4));
    assert!(opened(&mut b, &replayed, now).is_empty());
    assert_eq!(b.drops.of(DropReason::Replay), 1);
}

#[test]
fn every_truncation_of_a_message_is_refused() {
    let now = start();
    let (_, mut b) = connected(&recipe(1, now), now);
    let whole = message(1, true, &padded(&udp4(&[7; 50]), 0, &[], 4));
    for length in 0..whole.len() {
        assert!(opened(&mut b, &whole[..length], now).is_empty());
    }
    assert_eq!(b.drops.total(), whole.len() as u64);
    assert_eq!(opened(&mut b, &whole, now).len(), 1);
}

#[test]
fn the_unsent_half_of_the_number_is_inferred_over_the_wrap() {
    let now = start();
    let (_, mut b) = connected(&recipe(1, now), now);
    let text = padded(&udp4(&[7; 50]), 0, &[], 4);
    let wrap = 1u64 << 32;
    for sequence in
        [1, 1 << 31, wrap - 5, wrap + 3, wrap - 1, wrap, wrap - 8000, 2 * wrap - 9000, 2 * wrap + 1]
    {
        assert_eq!(opened(&mut b, &message(sequence, true, &text), now).len(), 1, "{sequence}");
    }
    assert!(opened(&mut b, &message(wrap - 8000, true, &text), now).is_empty());
    assert_eq!(b.drops.total(), 1);
}

#[test]
fn without_extended_numbers_the_authenticated_head_is_eight_bytes() {
    let now = start();
    let (_, mut b) = connected(&Recipe { has_esn: false, ..recipe(1, now) }, now);
    let text = padded(&udp4(&[7; 50]), 0, &[], 4);
    assert!(opened(&mut b, &message(1, true, &text), now).is_empty());
    assert_eq!(opened(&mut b, &message(1, false, &text), now).len(), 1);
    assert!(opened(&mut b, &message(0, false, &text), now).is_empty());
    assert_eq!((b.drops.of(DropReason::BadTag), b.drops.of(DropReason::Replay)), (1, 1));
}

#[test]
fn selectors_for_ports_are_obeyed_both_ways() {
    let now = start();
    let narrow = |child: &mut ChildSa, is_a: bool| {
        let Selectors { local, remote } = &mut child.selectors;
        let (theirs, ours) = if is_a { (remote, local) } else { (local, remote) };
        // UDP from anywhere to port 2, ICMP echo requests, and GRE whole.
        let udp = Selector { protocol: 17, first_port: 2, last_port: 2, ..theirs[0] };
        let icmp = Selector { protocol: 1, first_port: 0x0800, last_port: 0x0800, ..theirs[0] };
        let gre = Selector { protocol: 47, ..theirs[0] };
        *theirs = vec![udp, icmp, gre];
        *ours = vec![ours[0]];
    };
    let (mut left, mut right) = recipe(1, now).children(now);
    narrow(&mut left, true);
    let (mut a, mut b) = (end(A, B, now), end(B, A, now));
    let (wide, _) = recipe(2, now).children(now);
    narrow(&mut right, false);
    a.order(LaneOrder::Add(Box::new(left)), now);
    b.order(LaneOrder::Add(Box::new(right)), now);
    let mut other_port = udp4(&[1; 20]);
    put16(&mut other_port, 22, 3);
    let mut later_fragment = udp4(&[1; 20]);
    put16(&mut later_fragment, 6, 4);
    let mut gre = udp4(&[1; 20]);
    gre[9] = 47;
    let mut gre_fragment = gre.clone();
    put16(&mut gre_fragment, 6, 4);
    let icmp = |kind: u8| {
        let mut packet = udp4(&[1; 20]);
        (packet[9], packet[20], packet[21]) = (1, kind, 0);
        packet
    };
    let cases = [
        (udp4(&[1; 20]), true),
        (other_port, false),
        (later_fragment, false),
        (gre, true),
        (gre_fragment, true),
        (icmp(8), true),
        (icmp(0), false),
    ];
    for (bytes, is_meant) in &cases {
        let packet = a.packet(bytes);
        assert_eq!(a.seal(vec![packet], now).len(), usize::from(*is_meant), "{bytes:?}");
    }
    // End A without the narrow pair sends all of it with keys that end B has under its narrow one.
    let mut forged = wide;
    forged.inbound = Spi::new(LANE, 1);
    (forged.inbound_keys, forged.outbound_keys) =
        (keys(EspSuite::Aes128Gcm16, 2), keys(EspSuite::Aes128Gcm16, 3));
    forged.outbound = Spi::new(LANE, 1);
    let mut a = end(A, B, now);
    a.order(LaneOrder::Add(Box::new(forged)), now);
    for (bytes, is_meant) in &cases {
        let packet = a.packet(bytes);
        let sealed = a.seal(vec![packet], now);
        let received = b.receive(&sealed, A);
        assert_eq!(b.open(received, now).len(), usize::from(*is_meant), "{bytes:?}");
    }
    assert_eq!((b.drops.of(DropReason::SelectorMismatch), b.drops.total()), (3, 3));
}

#[test]
fn numbers_end_without_extended_ones_before_they_come_again() {
    let now = start();
    let limits = no_limits(now);
    let key = key::EspKey::new(EspSuite::Aes128Gcm16, &keys(EspSuite::Aes128Gcm16, 1)).unwrap();
    let mut sa = sa::OutboundSa::starting_behind(key, Spi(0x100), limits, u64::from(u32::MAX) - 2);
    let packet = udp4(&[1; 30]);
    let mut sequences = Vec::new();
    let mut message = vec![0; sealed_bytes(packet.len())];
    for _ in 0..5 {
        message[HEAD_BYTES..HEAD_BYTES + packet.len()].copy_from_slice(&packet);
        if sa.seal(&mut message, packet.len()) {
            sequences.push(u32::from_be_bytes(message[4..8].try_into().unwrap()));
        }
    }
    assert_eq!(sequences, [u32::MAX - 1, u32::MAX]);
    assert!(sa.is_used_up() && sa.has_worn());
}
