//! PRFs, and the keys that are made with them.

use serde_json::Value;

use super::hex;
use crate::ipsec::EspSuite;
use crate::ipsec::crypto::{Group, IkeAead, IkeKeys, IkeSuite, Prf, nat_detection_hash, prf_plus};

const VECTORS: &str = include_str!("../../../../tests/vectors/ikev2/kdf.json");

#[test]
fn all_published_derivations_come_out() {
    let vectors: Vec<Value> = serde_json::from_str(VECTORS).unwrap();
    assert_eq!(vectors.len(), 13);
    for vector in &vectors {
        let text = |name: &str| vector[name].as_str().unwrap();
        let prf = match text("prf") {
            "PRF_HMAC_SHA2_256" => Prf::HmacSha256,
            "PRF_HMAC_SHA2_384" => Prf::HmacSha384,
            "PRF_HMAC_SHA2_512" => Prf::HmacSha512,
            other => panic!("no PRF of ours: {other}"),
        };
        let (key, seed, expected) = (hex(text("key")), hex(text("seed")), hex(text("out")));
        let out = match text("kdf") {
            "prf+" => prf_plus(prf, &key, &[&seed], expected.len()),
            // What the file calls the key is the shared secret, which is the data here: prf(Ni | Nr, g^ir).
            "prf (SKEYSEED)" => prf.mac(&seed, &[&key]),
            other => panic!("no function of ours: {other}"),
        };
        assert_eq!(*out, expected, "{}", text("name"));
    }
}

#[test]
fn the_extension_ends_where_its_counter_does() {
    let all = prf_plus(Prf::HmacSha256, b"key", &[b"seed"], 100_000);
    assert_eq!(all.len(), 255 * 32);
    assert_eq!(*prf_plus(Prf::HmacSha256, b"key", &[b"se", b"ed"], 33), all[..33]);
    assert!(prf_plus(Prf::HmacSha256, b"key", &[b"seed"], 0).is_empty());
}

#[test]
fn a_successors_keys_come_from_the_old_ones_with_the_old_prf() {
    let suite = |prf| IkeSuite { aead: IkeAead::Aes256Gcm16, prf, group: Group::Curve25519 };
    let nonces = (&[1; 32][..], &[2; 32][..]);
    let old = IkeKeys::derive(suite(Prf::HmacSha256), &[3; 32], nonces, (4, 5));

    let new = old.derive_successor(suite(Prf::HmacSha512), &[6; 32], nonces, (7, 8));

    let seed = Prf::HmacSha256.mac(&old.sk_d, &[&[6; 32], nonces.0, nonces.1]);
    let spis = [7u64.to_be_bytes(), 8u64.to_be_bytes()].concat();
    let material = prf_plus(Prf::HmacSha512, &seed, &[nonces.0, nonces.1, &spis], 3 * 64 + 2 * 36);
    let parts = [&new.sk_d, &new.sk_ei, &new.sk_er, &new.sk_pi, &new.sk_pr].map(|part| part.as_slice());
    assert_eq!(parts.concat(), *material);
    assert_eq!(parts.map(<[u8]>::len), [64, 36, 36, 64, 64]);
}

#[test]
fn a_key_agreement_of_its_own_changes_a_childs_keys() {
    let suite = IkeSuite { aead: IkeAead::ChaCha20Poly1305, prf: Prf::HmacSha384, group: Group::Ecp384 };
    let nonces = (&[1; 16][..], &[2; 256][..]);
    let keys = IkeKeys::derive(suite, &[3; 48], nonces, (4, 5));
    for esp in EspSuite::ALL {
        let (with, without) =
            (keys.child_keys(esp, Some(&[9; 48]), nonces), keys.child_keys(esp, None, nonces));
        assert_ne!(with, without);
        let material = prf_plus(Prf::HmacSha384, &keys.sk_d, &[&[9; 48], nonces.0, nonces.1], 80);
        let (key, salt) = material[..esp.key_bytes() + 4].split_at(esp.key_bytes());
        assert_eq!((with.initiator.key.as_slice(), with.initiator.salt.as_slice()), (key, salt));
        assert_eq!(with.responder.key[..], material[esp.key_bytes() + 4..][..esp.key_bytes()]);
    }
}

#[test]
fn secrets_are_not_shown() {
    let suite = IkeSuite { aead: IkeAead::Aes128Gcm16, prf: Prf::HmacSha256, group: Group::Ecp256 };
    let keys = IkeKeys::derive(suite, &[3; 32], (&[1; 32], &[2; 32]), (4, 5));
    assert_eq!(format!("{keys:?}"), "IkeKeys(aes128gcm16-prfsha256-ecp256, ..)");
    assert_eq!(format!("{:?}", keys.message_key(true)), "MessageKey(..)");
    let child = keys.child_keys(EspSuite::Aes128Gcm16, None, (&[1; 32], &[2; 32]));
    assert_eq!(format!("{child:?}"), "ChildKeys { initiator: EspKeys(..), responder: EspKeys(..) }");
}

#[test]
fn addresses_are_hashed_with_the_spis_and_the_port() {
    // printf '00000000000000010000000000000002c000020a1194' | xxd -r -p | sha1sum
    let hash = nat_detection_hash(1, 2, "192.0.2.10:4500".parse().unwrap());
    assert_eq!(hash.to_vec(), hex("c9b42a57cd5209406795c660ddcbe6c10e5fefcb"));
    let mapped = nat_detection_hash(1, 2, "[::ffff:192.0.2.10]:4500".parse().unwrap());
    assert_eq!(mapped, hash, "an IPv4 address that a socket shows as IPv6 is still one");
}
