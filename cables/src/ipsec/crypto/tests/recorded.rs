//! Whole exchanges between two strongSwans, recorded with all their secrets.

#![expect(clippy::wildcard_enum_match_arm, reason = "of all payloads, one is looked for")]

use pcap_file::pcap::PcapReader;
use serde_json::Value;

use super::hex;
use crate::ipsec::EspSuite;
use crate::ipsec::crypto::{IkeAead, IkeKeys, IkeSuite, MessageKey, Prf, nat_detection_hash, protect};
use crate::ipsec::wire::{self, Exchange, Message, NotifyKind, Payload, Protocol, TransformKind};

/// A recorded exchange: what its programs logged, and its IKE messages in order.
struct Recorded {
    log: Value,
    messages: Vec<Vec<u8>>,
}

macro_rules! recorded {
    ($name:literal) => {
        Recorded::read(
            include_str!(concat!("../../../../tests/vectors/ikev2/", $name, ".json")),
            include_bytes!(concat!("../../../../tests/vectors/ikev2/", $name, ".pcap")),
        )
    };
}

#[test]
fn an_exchange_with_aes_128_and_ecp_256_is_understood() {
    recorded!("gcm128").check("aes128gcm16-prfsha256-ecp256", EspSuite::Aes128Gcm16);
}

#[test]
fn an_exchange_with_aes_256_and_curve25519_is_understood() {
    recorded!("gcm256").check("aes256gcm16-prfsha256-x25519", EspSuite::Aes256Gcm16);
}

#[test]
fn an_exchange_with_sha_384_and_ecp_384_is_understood() {
    recorded!("gcm256-384").check("aes256gcm16-prfsha384-ecp384", EspSuite::Aes256Gcm16);
}

#[test]
fn an_exchange_with_chacha20_for_packets_is_understood() {
    recorded!("chacha").check("aes256gcm16-prfsha256-x25519", EspSuite::ChaCha20Poly1305);
}

/// CBC is not ours, so that what is encrypted stays closed; the rest is read like any other.
#[test]
fn an_exchange_with_algorithms_that_are_not_ours_is_read_as_far_as_it_is_clear() {
    let recorded = recorded!("cbc");
    let request = recorded.clear(0);
    let Some(Payload::Sa(proposals)) = request.payloads.first() else { panic!("an SA comes first") };
    assert_eq!(proposals[0].to_string(), "aes256-sha256-prfsha256-modp2048");
    assert!(IkeSuite::from_proposal(&proposals[0]).is_none());
    let key = MessageKey::new(IkeAead::Aes256Gcm16, &[0; 36]);
    assert_eq!(protect::open(&recorded.messages[2], &key.unwrap()), Err(protect::OpenError::Unauthentic));
    // SKEYSEED = prf(Ni | Nr, g^ir) needs no cipher.
    let nonces = [recorded.bytes("ni"), recorded.bytes("nr")].concat();
    let secret = recorded.bytes("shared Diffie Hellman secret");
    assert_eq!(secret.len(), 256);
    let seed = Prf::HmacSha256.mac(&nonces, &[&secret]);
    assert_eq!(*seed, recorded.bytes("SKEYSEED"));
}

impl Recorded {
    fn read(log: &str, capture: &[u8]) -> Self {
        let mut reader = PcapReader::new(capture).unwrap();
        let mut messages = Vec::new();
        while let Some(packet) = reader.next_packet() {
            // Ethernet, IPv4 without options, UDP.
            let (headers, payload) = packet.as_ref().unwrap().data().split_at(14 + 20 + 8);
            match (u16::from_be_bytes([headers[34], headers[35]]), payload) {
                (500, message) | (4500, [0, 0, 0, 0, message @ ..]) => messages.push(message.to_vec()),
                _ => {}
            }
        }
        assert_eq!(messages.len(), 4);
        Self { log: serde_json::from_str(log).unwrap(), messages }
    }

    fn bytes(&self, name: &str) -> Vec<u8> {
        hex(self.log[name].as_str().unwrap())
    }

    fn spi(&self, name: &str) -> u64 {
        u64::from_be_bytes(self.bytes(name).try_into().unwrap())
    }

    /// A message that is not encrypted, which comes out as it went in.
    fn clear(&self, index: usize) -> Message {
        let message = wire::parse(&self.messages[index]).unwrap();
        assert_eq!(wire::emit(&message.header, &message.payloads), self.messages[index]);
        message
    }

    /// A message that is encrypted, which comes out as it went in when it is sealed with the same IV.
    fn opened(&self, index: usize, keys: &IkeKeys) -> Message {
        let (datagram, key) = (&self.messages[index], keys.message_key(index.is_multiple_of(2)));
        let opened = protect::open(datagram, &key).unwrap();
        let payloads = wire::parse_payloads(opened.first, &opened.body).unwrap();
        assert_eq!(wire::emit_payloads(&payloads), *opened.body);
        let envelope = wire::Envelope::parse(datagram).unwrap();
        let mut iv = u64::from_be_bytes(envelope.sealed[..8].try_into().unwrap());
        let sealed = protect::seal(&opened.header, &payloads, &key, &mut iv, None);
        assert_eq!(sealed, std::slice::from_ref(datagram));
        let wrong = keys.message_key(index % 2 == 1);
        assert_eq!(protect::open(datagram, &wrong), Err(protect::OpenError::Unauthentic));
        Message { header: opened.header, payloads }
    }

    fn check(&self, suite: &str, esp: EspSuite) {
        let (request, response) = (self.clear(0), self.clear(1));
        let keys = self.derive(&request, &response);
        assert_eq!(keys.suite.to_string(), suite);
        let (auth_request, auth_response) = (self.opened(2, &keys), self.opened(3, &keys));
        assert_eq!(auth_request.header.exchange, Exchange::IkeAuth);
        self.check_proof(&keys, &auth_request, true);
        self.check_proof(&keys, &auth_response, false);
        self.check_child(&keys, &auth_request, &auth_response, esp);
    }

    fn derive(&self, request: &Message, response: &Message) -> IkeKeys {
        let Some(Payload::Sa(chosen)) = response.payloads.first() else { panic!("an SA comes first") };
        let suite = IkeSuite::from_proposal(&chosen[0]).unwrap();
        assert_eq!(suite.proposal(1, None), chosen[0]);
        let nonces = [nonce(request), nonce(response)];
        assert_eq!(nonces, [self.bytes("ni"), self.bytes("nr")]);
        let spis = (response.header.spi_i, response.header.spi_r);
        assert_eq!(spis, (self.spi("spi_i"), self.spi("spi_r")));
        let secret = self.bytes("shared Diffie Hellman secret");
        let seed = suite.prf.mac(&nonces.concat(), &[&secret]);
        assert_eq!(*seed, self.bytes("SKEYSEED"));
        let keys = IkeKeys::derive(suite, &secret, (&nonces[0], &nonces[1]), spis);
        let found = [&keys.sk_d, &keys.sk_ei, &keys.sk_er, &keys.sk_pi, &keys.sk_pr];
        for (key, name) in found.into_iter().zip(["Sk_d", "Sk_ei", "Sk_er", "Sk_pi", "Sk_pr"]) {
            assert_eq!(**key, self.bytes(&format!("{name} secret")), "{name}");
        }
        keys
    }

    fn check_proof(&self, keys: &IkeKeys, message: &Message, of_initiator: bool) {
        let psk = self.log["psk"].as_str().unwrap().as_bytes();
        let (first, nonce, name) =
            if of_initiator { (0, "nr", "auth_initiator") } else { (1, "ni", "auth_responder") };
        let id = find(message, |payload| match (payload, of_initiator) {
            (Payload::IdI(id), true) | (Payload::IdR(id), false) => Some(id.clone()),
            _ => None,
        });
        let auth = find(
            message,
            |payload| {
                if let Payload::Auth(auth) = payload { Some(auth.clone()) } else { None }
            },
        );
        let (first, nonce, id) = (&self.messages[first], self.bytes(nonce), &id);
        let proof = &auth.data;
        assert_eq!(*proof, self.bytes(name));
        assert!(keys.verify_psk(proof, psk, of_initiator, first, &nonce, id));
        assert!(!keys.verify_psk(proof, b"another secret", of_initiator, first, &nonce, id));
        assert!(!keys.verify_psk(proof, psk, !of_initiator, first, &nonce, id));
        assert!(!keys.verify_psk(&proof[1..], psk, of_initiator, first, &nonce, id));
    }

    fn check_child(&self, keys: &IkeKeys, request: &Message, response: &Message, esp: EspSuite) {
        let spis = [request, response].map(|message| {
            let proposal = find(message, |payload| {
                if let Payload::Sa(proposals) = payload { Some(proposals[0].clone()) } else { None }
            });
            assert_eq!(proposal.protocol, Protocol::Esp);
            let encryption = proposal.of_kind(TransformKind::Encryption).next().unwrap();
            assert_eq!(EspSuite::from_transform(encryption), Some(esp));
            proposal.esp_spi().unwrap().to_bytes().to_vec()
        });
        assert_eq!(spis, [self.bytes("spi_in"), self.bytes("spi_out")]);
        let child = keys.child_keys(esp, None, (&self.bytes("ni"), &self.bytes("nr")));
        for (keys, name) in [(&child.initiator, "initiator"), (&child.responder, "responder")] {
            let expected = self.bytes(&format!("encryption {name} key"));
            assert_eq!([keys.key.as_slice(), &keys.salt].concat(), expected, "{name}");
        }
    }
}

#[test]
fn recorded_nat_detection_is_reproduced() {
    let recorded = recorded!("gcm256");
    let response = recorded.clear(1);
    let (spi_i, spi_r) = (response.header.spi_i, response.header.spi_r);
    let hash = |kind| {
        find(&response, |payload| match payload {
            Payload::Notify(notify) if notify.kind == kind => Some(notify.data.clone()),
            _ => None,
        })
    };
    let expected = nat_detection_hash(spi_i, spi_r, "192.168.77.1:500".parse().unwrap());
    assert_eq!(hash(NotifyKind::NatDetectionDestinationIp), expected);
    // The other one is of an address that is not the sender's: both were made to encapsulate.
    let of_sender = nat_detection_hash(spi_i, spi_r, "192.168.77.2:500".parse().unwrap());
    assert_ne!(hash(NotifyKind::NatDetectionSourceIp), of_sender);
}

fn nonce(message: &Message) -> Vec<u8> {
    find(message, |payload| if let Payload::Nonce(nonce) = payload { Some(nonce.clone()) } else { None })
}

fn find<T>(message: &Message, pick: impl Fn(&Payload) -> Option<T>) -> T {
    message.payloads.iter().find_map(pick).unwrap()
}
