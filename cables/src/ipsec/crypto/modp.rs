//! Key agreement modulo a prime: the 2048-bit MODP group (RFC 3526 section 3), which libreswan 4 offers first.
//!
//! Exponentiation is crypto-bigint's: Montgomery form, fixed windows, tables read in constant time.

use std::sync::LazyLock;

use crypto_bigint::modular::runtime_mod::{DynResidue, DynResidueParams};
use crypto_bigint::{ArrayEncoding as _, Encoding as _, U384, U2048};
use rand_core::CryptoRngCore;
use subtle::{ConstantTimeLess as _, CtOption};
use zeroize::Zeroizing;

/// Bytes of a public value and of the shared secret.
pub(super) const VALUE_BYTES: usize = 256;

/// The prime.
const PRIME: U2048 = U2048::from_be_hex(concat!(
    "FFFFFFFFFFFFFFFFC90FDAA22168C234C4C6628B80DC1CD129024E088A67CC74",
    "020BBEA63B139B22514A08798E3404DDEF9519B3CD3A431B302B0A6DF25F1437",
    "4FE1356D6D51C245E485B576625E7EC6F44C42E9A637ED6B0BFF5CB6F406B7ED",
    "EE386BFB5A899FA5AE9F24117C4B1FE649286651ECE45B3DC2007CB8A163BF05",
    "98DA48361C55D39A69163FA8FD24CF5F83655D23DCA3AD961C62F356208552BB",
    "9ED529077096966D670C354E4ABC9804F1746C08CA18217C32905E462E36CE3B",
    "E39E772C180E86039B2783A2EC07A28FB5C55DF06F4C52C9DE2BCBF695581718",
    "3995497CEA956AE515D2261898FA051015728E5A8AACAA68FFFFFFFFFFFFFFFF",
));

static PARAMETERS: LazyLock<DynResidueParams<{ U2048::LIMBS }>> =
    LazyLock::new(|| DynResidueParams::new(&PRIME));

/// The private exponent. RFC 3526 section 8 asks for 220 to 320 bits in this group.
pub(super) struct Exponent(Zeroizing<U384>);

impl Exponent {
    pub(super) fn generate(rng: &mut dyn CryptoRngCore) -> Self {
        let mut bytes = Zeroizing::new([0; 48]);
        rng.fill_bytes(bytes.as_mut());
        Self(Zeroizing::new(U384::from_be_bytes(*bytes)))
    }

    #[cfg(test)]
    pub(super) fn from_bytes(bytes: [u8; 48]) -> Self {
        Self(Zeroizing::new(U384::from_be_bytes(bytes)))
    }

    /// 2 to the power of it.
    pub(super) fn public(&self) -> Vec<u8> {
        self.power(&U2048::from_u8(2)).to_vec()
    }

    /// The peer's public value to the power of it, with leading zeros.
    ///
    /// None unless `1 < peer < p - 1` (RFC 6989 section 2.1): the powers of the others are known to everybody.
    pub(super) fn agree(&self, peer: [u8; VALUE_BYTES]) -> Option<Zeroizing<Vec<u8>>> {
        let peer = U2048::from_be_bytes(peer);
        let limit = PRIME.wrapping_sub(&U2048::ONE);
        let is_good = U2048::ONE.ct_lt(&peer) & peer.ct_lt(&limit);
        let peer = Option::from(CtOption::new(peer, is_good))?;
        Some(self.power(&peer))
    }

    fn power(&self, base: &U2048) -> Zeroizing<Vec<u8>> {
        let power = Zeroizing::new(DynResidue::new(base, *PARAMETERS).pow(&*self.0).retrieve());
        Zeroizing::new(power.to_be_byte_array().to_vec())
    }
}
