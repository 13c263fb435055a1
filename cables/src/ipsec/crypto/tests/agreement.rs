//! Key agreement.

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng as _;

use super::hex;
use crate::ipsec::crypto::{AgreementError, Group, KeyAgreement};

#[test]
fn both_sides_agree_in_every_group_and_keys_can_be_used_again() {
    let mut rng = ChaCha20Rng::seed_from_u64(1);
    for group in Group::ALL {
        let (ours, theirs) =
            (KeyAgreement::generate(group, &mut rng), KeyAgreement::generate(group, &mut rng));
        assert_eq!(ours.public().len(), group.public_bytes());
        let shared = ours.agree(theirs.public()).unwrap();
        assert_eq!(ours.agree(&[]), Err(AgreementError::Length(group)));
        let third = KeyAgreement::generate(group, &mut rng);
        assert_ne!(ours.agree(third.public()).unwrap(), shared);
        assert_eq!(ours.agree(theirs.public()).unwrap(), shared);
        assert_eq!(theirs.agree(ours.public()).unwrap(), shared);
        assert_eq!(Group::from_number(group.number()), Some(group));
    }
}

#[test]
fn the_same_seed_makes_the_same_keys() {
    for group in Group::ALL {
        let make = || KeyAgreement::generate(group, &mut ChaCha20Rng::seed_from_u64(7)).public().to_vec();
        assert_eq!(make(), make());
    }
}

#[test]
fn values_outside_of_the_group_are_refused() {
    let mut rng = ChaCha20Rng::seed_from_u64(2);
    for group in Group::ALL {
        let ours = KeyAgreement::generate(group, &mut rng);
        let bytes = group.public_bytes();
        let refused = Err(AgreementError::Value(group));
        assert_eq!(ours.agree(&vec![0; bytes]), refused, "{group}");
        if group != Group::Curve25519 {
            assert_eq!(ours.agree(&vec![0xff; bytes]), refused, "{group}");
        }
        let mut one = vec![0; bytes];
        one[if group == Group::Curve25519 { 0 } else { bytes - 1 }] = 1;
        assert_eq!(ours.agree(&one), refused, "{group}");
        assert_eq!(ours.agree(&vec![1; bytes - 1]), Err(AgreementError::Length(group)));
    }
}

#[test]
fn modp_refuses_the_prime_less_one() {
    let ours = KeyAgreement::generate(Group::Modp2048, &mut ChaCha20Rng::seed_from_u64(3));
    // The prime ends in ff..ff and begins with it; its second and later 64 bits are those of pi.
    let prime = hex(
        "FFFFFFFFFFFFFFFFC90FDAA22168C234C4C6628B80DC1CD129024E088A67CC74020BBEA63B139B22514A08798E3404DD
         EF9519B3CD3A431B302B0A6DF25F14374FE1356D6D51C245E485B576625E7EC6F44C42E9A637ED6B0BFF5CB6F406B7ED
         EE386BFB5A899FA5AE9F24117C4B1FE649286651ECE45B3DC2007CB8A163BF0598DA48361C55D39A69163FA8FD24CF5F
         83655D23DCA3AD961C62F356208552BB9ED529077096966D670C354E4ABC9804F1746C08CA18217C32905E462E36CE3B
         E39E772C180E86039B2783A2EC07A28FB5C55DF06F4C52C9DE2BCBF6955817183995497CEA956AE515D2261898FA0510
         15728E5A8AACAA68FFFFFFFFFFFFFFFF",
    );
    let less = |count: u8| {
        let mut value = prime.clone();
        *value.last_mut().unwrap() -= count;
        value
    };
    let refused = Err(AgreementError::Value(Group::Modp2048));
    assert_eq!(ours.agree(&less(0)), refused);
    assert_eq!(ours.agree(&less(1)), refused);
    assert!(ours.agree(&less(2)).is_ok());
}

/// Computed with Python: `pow(2, x, p)`, with p as RFC 3526 section 3 prints it; x is the SHA-384 hash of
/// "trieste modp initiator", and of "trieste modp responder".
#[test]
fn modp_2048_agrees_with_an_independent_computation() {
    agrees(
        Group::Modp2048,
        [
            "3462b292aea95a6609088a9115d69258784e9d180f59a9cb25fa4a3fe05b90b201913e6a6c863c91984f5f6075a689fe",
            "d50aa027e24d20f23a9c90eab9fcd2d4e240c44fa8c62cd36935c233b2876097442820b59e1e7976792242be103dd1fc",
        ],
        [
            "b5706f49ab74283a7c7374f234c9169e56a2ef36d6ef59ddf2d066e551c2f30e806da8cd4efec8a3042ef330ad48af9f
             88d1d9906ef54065d2389d54c848eb9b39690229b250dd173188ebb4542f0b1ce4e2174062c172edc1246911c788c03f
             470ec0c0cd1ddc751e5614889e8236941de7d92f368e618012e75d7e4f335dcf46bc18ee2e12ca27ed6cf86ab2acce68
             1dcb0236c4d29c85127fe7a4ca46c350c113bc258c19bac2c07a633c61ea67f3befcf960a8098aed77df6b31812e92a7
             f7df5e21c3dad0836c6aaf61fa56f0e9c5092d7d7f427ed13dab6ec4b213669da8fd3ad920008253476328b4ece3458e
             49266aa903500c0e6c48dde9a5f4c5d7",
            "23d26c6650640a01d0a2120ff0fbd791a7eb52de311163237f96ee4c28d9d7aaef069e38f064e5693c835ce1aea38aa1
             03b483b860435439aca00fbcfa1a03d3d63e87f1b1a6d37c517786bdd54e204c3ea261be05ee1df8d23d55bae0417199
             ecdf343e9881efdec80c868f36f3c28de120740c1450b3208988c98ac6de0242b7460791424e7b4e69c56efab5d59136
             abf05d8d5e6954adc6623014f89d0f6d7f66ce1b2fb8fcec4794104aa4fb4a6ae9fce64222dbbe609e637ff3addfca0a
             4a482355f36d8683642db78bdd0861284164c6672490212787e2a40e8c78ee869822fd8ad85eb48e8c5da752549e3705
             75be8aa89a22324bd84aa85c56c2f927",
        ],
        "7dae8d2cd6a2430b1ba6071b38812c4cc481af74a74607d7729c15b785236445d7a3fbe9167d25225622112550c87cd5
         739811100ac99842b59ec7059b19cde2d48cde83b4707989b688149bdd777ab815ae7e484a9f6a8da30de5ed5fcfc894
         f9c01003fb3f01e66d855c0057c51a42d848d1b671544457f01de0911074ebbdb55dd5c0f990c136436a8f27263c0bad
         f03e9033b29d768b5e4bb8b306125fa6a453c0e167607090f31dd7a5661d9ee4bc92d6f6eca7709f76b3b66758ecc0d5
         a2b77f4d46912981227aca24c5a75fbe11a92f393551875504d740e24ece8e1cd9529c635986db0ffb9eaf6519b4647d
         9822e06b5dd0a28e539695f2d077de0c",
    );
}

/// Likewise, with the hash of "trieste modp 436" on one side: the secret begins with a zero byte, which must stay.
#[test]
fn modp_secrets_keep_their_leading_zeros() {
    let ours = KeyAgreement::from_private(Group::Modp2048, &hex("3462b292aea95a6609088a9115d69258784e9d180f59a9cb25fa4a3fe05b90b201913e6a6c863c91984f5f6075a689fe")).unwrap();
    let theirs = KeyAgreement::from_private(Group::Modp2048, &hex("c4124655d7946cf2803efbcdaf280baf7520a4efcf625d432dc5d35970eeae97106b7169584f8a6f243ff776a4d8798c")).unwrap();
    let shared = ours.agree(theirs.public()).unwrap();
    assert_eq!((shared.len(), shared[0]), (256, 0));
    assert_eq!(shared[..8], hex("00c49faf37776910"));
}

#[test]
fn ecp_256_agrees_with_rfc_5903_section_8_1() {
    agrees(
        Group::Ecp256,
        [
            "C88F01F510D9AC3F70A292DAA2316DE544E9AAB8AFE84049C62A9C57862D1433",
            "C6EF9C5D78AE012A011164ACB397CE2088685D8F06BF9BE0B283AB46476BEE53",
        ],
        [
            "DAD0B65394221CF9B051E1FECA5787D098DFE637FC90B9EF945D0C3772581180
             5271A0461CDB8252D61F1C456FA3E59AB1F45B33ACCF5F58389E0577B8990BB3",
            "D12DFB5289C8D4F81208B70270398C342296970A0BCCB74C736FC7554494BF63
             56FBF3CA366CC23E8157854C13C58D6AAC23F046ADA30F8353E74F33039872AB",
        ],
        "D6840F6B42F6EDAFD13116E0E12565202FEF8E9ECE7DCE03812464D04B9442DE",
    );
}

#[test]
fn ecp_384_agrees_with_rfc_5903_section_8_2() {
    agrees(
        Group::Ecp384,
        [
            "099F3C7034D4A2C699884D73A375A67F7624EF7C6B3C0F160647B67414DCE655E35B538041E649EE3FAEF896783AB194",
            "41CB0779B4BDB85D47846725FBEC3C9430FAB46CC8DC5060855CC9BDA0AA2942E0308312916B8ED2960E4BD55A7448FC",
        ],
        [
            "667842D7D180AC2CDE6F74F37551F55755C7645C20EF73E31634FE72B4C55EE6DE3AC808ACB4BDB4C88732AEE95F41AA
             9482ED1FC0EEB9CAFC4984625CCFC23F65032149E0E144ADA024181535A0F38EEB9FCFF3C2C947DAE69B4C634573A81C",
            "E558DBEF53EECDE3D3FCCFC1AEA08A89A987475D12FD950D83CFA41732BC509D0D1AC43A0336DEF96FDA41D0774A3571
             DCFBEC7AACF3196472169E838430367F66EEBE3C6E70C416DD5F0C68759DD1FFF83FA40142209DFF5EAAD96DB9E6386C",
        ],
        "11187331C279962D93D604243FD592CB9D0A926F422E47187521287E7156C5C4D603135569B9E9D09CF5D4A270F59746",
    );
}

#[test]
fn curve25519_agrees_with_rfc_7748_section_6_1() {
    agrees(
        Group::Curve25519,
        [
            "77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a",
            "5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb",
        ],
        [
            "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a",
            "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f",
        ],
        "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742",
    );
}

#[test]
fn curve25519_agrees_with_rfc_8031_appendix_a() {
    agrees(
        Group::Curve25519,
        [
            "751fb4308655b476b6789b7325f9ea8cddd16a58533ff6d9e60009464a5f9d94",
            "0a54645253290d60ddadd0e030bacd9e5501efdc220755a1e978f1b839a05688",
        ],
        [
            "48d5ddd4061257ba166fa3f9bbdb74f1a4e81c089384fa77f790709f0dfbc766",
            "0be7c1f5aad87d7e448662673298a443478b859745179eaf564c79c0ef6eee25",
        ],
        "c74950607a12327f3204d94b6825bfb068b7f8319a9e3708ed3d43ce8130c950",
    );
}

/// Checks both private keys, their public values, and the secret from both sides.
fn agrees(group: Group, private: [&str; 2], public: [&str; 2], shared: &str) {
    let keys = private.map(|private| KeyAgreement::from_private(group, &hex(private)).unwrap());
    for (key, public) in keys.iter().zip(public) {
        assert_eq!(key.public(), hex(public));
    }
    assert_eq!(keys[0].agree(keys[1].public()).unwrap().as_slice(), hex(shared));
    assert_eq!(keys[1].agree(keys[0].public()).unwrap().as_slice(), hex(shared));
}
