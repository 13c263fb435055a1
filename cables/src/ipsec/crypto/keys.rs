//! The keys of an IKE SA, and of what it makes (RFC 7296 sections 2.14 to 2.18).

use std::fmt;

use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

use super::{IkeAead, IkeSuite, MessageKey, Prf, prf_plus};
use crate::ipsec::wire::Id;
use crate::ipsec::{EspKeys, EspSuite};

/// "Key Pad for IKEv2", which is mixed with a shared secret (section 2.15).
const KEY_PAD: &[u8] = b"Key Pad for IKEv2";

/// The keys of an IKE SA. Integrity keys there are none: the AEAD needs no others.
#[derive(Clone, PartialEq, Eq)]
pub struct IkeKeys {
    /// What they are for.
    pub suite: IkeSuite,
    /// Makes the keys of child SAs and of the IKE SA's successor.
    pub sk_d: Zeroizing<Vec<u8>>,
    /// Key and salt for what the initiator sends.
    pub sk_ei: Zeroizing<Vec<u8>>,
    /// Key and salt for what the responder sends.
    pub sk_er: Zeroizing<Vec<u8>>,
    /// For the initiator's proof.
    pub sk_pi: Zeroizing<Vec<u8>>,
    /// For the responder's proof.
    pub sk_pr: Zeroizing<Vec<u8>>,
}

/// The keys of a child SA.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChildKeys {
    /// For what the initiator of the exchange sends.
    pub initiator: EspKeys,
    /// For what the responder sends.
    pub responder: EspKeys,
}

impl IkeKeys {
    /// Of a new IKE SA: `shared` is `g^ir`, then the nonces and SPIs of both sides.
    ///
    //= https://www.rfc-editor.org/rfc/rfc7296#section-2.14
    //# SKEYSEED = prf(Ni | Nr, g^ir)
    #[must_use]
    pub fn derive(suite: IkeSuite, shared: &[u8], nonces: (&[u8], &[u8]), spis: (u64, u64)) -> Self {
        let key = Zeroizing::new([nonces.0, nonces.1].concat());
        let seed = suite.prf.mac(&key, &[shared]);
        Self::expand(suite, &seed, nonces, spis)
    }

    /// Of the IKE SA that takes the place of `self`; nonces and SPIs are those of the exchange that makes it.
    ///
    //= https://www.rfc-editor.org/rfc/rfc7296#section-2.18
    //# SKEYSEED = prf(SK_d (old), g^ir (new) | Ni | Nr)
    #[must_use]
    pub fn derive_successor(
        &self,
        suite: IkeSuite,
        shared: &[u8],
        nonces: (&[u8], &[u8]),
        spis: (u64, u64),
    ) -> Self {
        //= https://www.rfc-editor.org/rfc/rfc7296#section-2.18
        //# Because the rekeying exchange belongs to the old IKE SA, it is the
        //# old IKE SA's PRF that is used.
        let seed = self.suite.prf.mac(&self.sk_d, &[shared, nonces.0, nonces.1]);
        Self::expand(suite, &seed, nonces, spis)
    }

    //= https://www.rfc-editor.org/rfc/rfc7296#section-2.14
    //# {SK_d | SK_ai | SK_ar | SK_ei | SK_er | SK_pi | SK_pr}
    //#                 = prf+ (SKEYSEED, Ni | Nr | SPIi | SPIr)
    fn expand(suite: IkeSuite, seed: &[u8], nonces: (&[u8], &[u8]), spis: (u64, u64)) -> Self {
        let prf_bytes = suite.prf.output_bytes();
        let sealing_bytes = suite.aead.key_bytes() + IkeAead::SALT_BYTES;
        let (spi_i, spi_r) = (spis.0.to_be_bytes(), spis.1.to_be_bytes());
        let seeds: [&[u8]; 4] = [nonces.0, nonces.1, &spi_i, &spi_r];
        let material = prf_plus(suite.prf, seed, &seeds, 3 * prf_bytes + 2 * sealing_bytes);
        let mut rest = material.as_slice();
        let mut cut = |bytes| take(&mut rest, bytes);
        let (sk_d, sk_ei, sk_er) = (cut(prf_bytes), cut(sealing_bytes), cut(sealing_bytes));
        Self { suite, sk_d, sk_ei, sk_er, sk_pi: cut(prf_bytes), sk_pr: cut(prf_bytes) }
    }

    /// The key for what the initiator of the IKE SA sends, or for what the responder sends.
    #[must_use]
    pub fn message_key(&self, of_initiator: bool) -> MessageKey {
        let material = if of_initiator { &self.sk_ei } else { &self.sk_er };
        MessageKey::new(self.suite.aead, material).expect("keys are cut to the suite's lengths")
    }

    /// The keys of a child SA; `shared` is the `g^ir` of its own key agreement, if it has one. The nonces are those of the
    /// exchange that makes it.
    ///
    //= https://www.rfc-editor.org/rfc/rfc7296#section-2.17
    //# KEYMAT = prf+(SK_d, Ni | Nr)
    #[must_use]
    pub fn child_keys(&self, suite: EspSuite, shared: Option<&[u8]>, nonces: (&[u8], &[u8])) -> ChildKeys {
        //= https://www.rfc-editor.org/rfc/rfc7296#section-2.17
        //# KEYMAT = prf+(SK_d, g^ir (new) | Ni | Nr )
        let seeds = [shared.unwrap_or_default(), nonces.0, nonces.1];
        let bytes = 2 * (suite.key_bytes() + EspSuite::SALT_BYTES);
        let material = prf_plus(self.suite.prf, &self.sk_d, &seeds, bytes);
        let mut rest = material.as_slice();
        //= https://www.rfc-editor.org/rfc/rfc7296#section-2.17
        //# All keys for SAs carrying data from the initiator to the responder are taken before
        //# SAs going from the responder to the initiator.
        let mut cut = || {
            let key = take(&mut rest, suite.key_bytes());
            let salt = take(&mut rest, EspSuite::SALT_BYTES);
            EspKeys { key, salt: salt.as_slice().try_into().expect("a salt is cut to its length") }
        };
        ChildKeys { initiator: cut(), responder: cut() }
    }

    /// The proof that one side knows the secret: its first message (without non-ESP marker), the other side's nonce, its
    /// identity.
    ///
    //= https://www.rfc-editor.org/rfc/rfc7296#section-2.15
    //# AUTH = prf( prf(Shared Secret, "Key Pad for IKEv2"),
    //#                  <InitiatorSignedOctets>)
    #[must_use]
    pub fn psk_auth(
        &self,
        psk: &[u8],
        of_initiator: bool,
        first_message: &[u8],
        other_nonce: &[u8],
        id: &Id,
    ) -> Vec<u8> {
        let prf = self.suite.prf;
        let identity = prf.mac(if of_initiator { &self.sk_pi } else { &self.sk_pr }, &[&id.body()]);
        let key = prf.mac(psk, &[KEY_PAD]);
        prf.mac(&key, &[first_message, other_nonce, &identity]).to_vec()
    }

    /// Whether `proof` is what [`Self::psk_auth`] makes of the other parameters. Takes the same time whatever it is.
    #[must_use]
    pub fn verify_psk(
        &self,
        proof: &[u8],
        psk: &[u8],
        of_initiator: bool,
        first_message: &[u8],
        other_nonce: &[u8],
        id: &Id,
    ) -> bool {
        let expected = self.psk_auth(psk, of_initiator, first_message, other_nonce, id);
        expected.ct_eq(proof).into()
    }

    /// The PRF, by which proofs and keys are made.
    #[must_use]
    pub fn prf(&self) -> Prf {
        self.suite.prf
    }
}

impl fmt::Debug for IkeKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IkeKeys({}, ..)", self.suite)
    }
}

/// The first bytes of `rest`, which is long enough for them: it was made to be.
fn take(rest: &mut &[u8], bytes: usize) -> Zeroizing<Vec<u8>> {
    let (taken, left) = rest.split_at_checked(bytes).unwrap_or((rest, &[]));
    *rest = left;
    Zeroizing::new(taken.to_vec())
}
