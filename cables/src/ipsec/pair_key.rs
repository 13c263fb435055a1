//! The key by which two Trieste gateways authenticate each other in IKE_AUTH, in place of the one that the whole set has.
//!
//! Each gateway has an X25519 key of its own, whose public half its Endpoint publishes. Two of them agree on a key that
//! nobody else has, also nobody who has the set's:
//!
//! ```text
//!   HMAC-SHA256(set's PSK, label | X25519(own private, other's public) | smaller public key | greater public key)
//! ```
//!
//! It is used as a pre-shared key is (RFC 7296 section 2.15). Peers without such a key, upstream's and those of earlier
//! releases, have the set's.

use std::fmt;

use ring::hmac;
use x25519_dalek::{PublicKey, StaticSecret};
use zeroize::Zeroizing;

use crate::boundary::{CableError, Site};
use crate::keys::{self, Secret};

/// Key of `backend_config` with a gateway's public key for IPsec: base64 of 32 bytes.
pub const IPSEC_PUBLIC_KEY: &str = "trieste.ipsec-public-key";
/// What the key is for: no other use of the same agreement gives the same.
const LABEL: &[u8] = b"trieste ipsec pair key 1";

/// A pre-shared key of IKE.
pub type PairKey = Zeroizing<Vec<u8>>;

/// A gateway's own key.
#[derive(Clone)]
pub(crate) struct OwnKey {
    private: StaticSecret,
    public: PublicKey,
}

impl fmt::Debug for OwnKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OwnKey({})", self.emit())
    }
}

impl OwnKey {
    pub(crate) fn new(private: &Secret) -> Self {
        let private = StaticSecret::from(**private);
        let public = PublicKey::from(&private);
        Self { private, public }
    }

    /// Returns the public half as Endpoints carry it.
    pub(crate) fn emit(&self) -> String {
        keys::emit(self.public.as_bytes())
    }

    /// Returns the key that this gateway and `remote` share; nothing if that one publishes none.
    ///
    /// # Errors
    /// [`CableError::Malformed`] if it is no key; [`CableError::OwnKey`] if it is ours.
    pub(crate) fn agree(&self, psk: &[u8], remote: &Site) -> Result<Option<PairKey>, CableError> {
        let Some(text) = remote.backend_config.get(IPSEC_PUBLIC_KEY) else { return Ok(None) };
        let malformed = |problem| CableError::Malformed { key: IPSEC_PUBLIC_KEY, problem };
        let other = PublicKey::from(*keys::parse(text).map_err(malformed)?);
        if other == self.public {
            return Err(CableError::OwnKey);
        }
        let shared = self.private.diffie_hellman(&other);
        // RFC 7748 section 6.1: such a public key gives everybody the same.
        if !shared.was_contributory() {
            return Err(malformed("a point of small order, which no gateway makes".to_owned()));
        }
        let mut public = [self.public.as_bytes(), other.as_bytes()];
        public.sort_unstable();
        let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, psk));
        for part in [LABEL, shared.as_bytes(), public[0], public[1]] {
            context.update(part);
        }
        Ok(Some(Zeroizing::new(context.sign().as_ref().to_vec())))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn key(byte: u8) -> OwnKey {
        OwnKey::new(&Zeroizing::new([byte; 32]))
    }

    fn site(text: &str) -> Site {
        Site::from(BTreeMap::from([(IPSEC_PUBLIC_KEY.to_owned(), text.to_owned())]))
    }

    fn agree(own: &OwnKey, psk: &str, other: &OwnKey) -> PairKey {
        own.agree(psk.as_bytes(), &site(&other.emit())).unwrap().unwrap()
    }

    #[test]
    fn two_agree_on_a_key_that_neither_a_third_nor_another_set_has() {
        let (east, west, north) = (key(1), key(2), key(3));
        let shared = agree(&east, "secret", &west);
        assert_eq!(shared, agree(&west, "secret", &east));
        assert_eq!(shared.len(), 32);
        for other in
            [agree(&east, "secret", &north), agree(&north, "secret", &west), agree(&east, "other", &west)]
        {
            assert_ne!(shared, other);
        }
    }

    #[test]
    fn no_key_is_none_and_a_bad_one_is_named() {
        let own = key(1);
        assert!(own.agree(b"secret", &Site::from(BTreeMap::new())).unwrap().is_none());
        let error = |text: &str| own.agree(b"secret", &site(text)).unwrap_err();
        assert_eq!(error(&own.emit()), CableError::OwnKey);
        for (text, expected) in [("****", "not base64"), (&keys::emit(&[0; 32]), "small order")] {
            assert!(error(text).to_string().contains(expected), "{}", error(text));
        }
    }
}
