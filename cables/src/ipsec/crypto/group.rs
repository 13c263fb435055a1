//! Key agreement (RFC 7296 section 2.12, RFC 5903, RFC 8031).

use std::fmt;

use p256::elliptic_curve::point::AffineCoordinates as _;
use p256::elliptic_curve::sec1::ToEncodedPoint as _;
use rand_core::CryptoRngCore;
use x25519_dalek::StaticSecret;
use zeroize::Zeroizing;

use super::modp;
use crate::ipsec::wire::{Transform, TransformKind};

/// A group in which keys are agreed upon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Group {
    /// 2048-bit MODP (RFC 3526).
    Modp2048,
    /// The 256-bit random ECP group, P-256 (RFC 5903).
    Ecp256,
    /// The 384-bit random ECP group, P-384 (RFC 5903).
    Ecp384,
    /// Curve25519 (RFC 8031).
    Curve25519,
}

impl Group {
    /// All that there are.
    pub const ALL: [Self; 4] = [Self::Curve25519, Self::Ecp256, Self::Ecp384, Self::Modp2048];

    /// Its number in the registry.
    #[must_use]
    pub fn number(self) -> u16 {
        match self {
            Self::Modp2048 => 14,
            Self::Ecp256 => 19,
            Self::Ecp384 => 20,
            Self::Curve25519 => 31,
        }
    }

    /// The group of that number, if it is one of these.
    #[must_use]
    pub fn from_number(number: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|group| group.number() == number)
    }

    /// As it is proposed.
    #[must_use]
    pub fn transform(self) -> Transform {
        Transform::new(TransformKind::Group, self.number())
    }

    /// The one that is proposed, if it is one of these.
    #[must_use]
    pub fn from_transform(transform: &Transform) -> Option<Self> {
        Self::ALL.into_iter().find(|group| group.transform() == *transform)
    }

    /// Bytes of a public value.
    #[must_use]
    pub fn public_bytes(self) -> usize {
        match self {
            Self::Modp2048 => modp::VALUE_BYTES,
            Self::Ecp256 => 64,
            Self::Ecp384 => 96,
            Self::Curve25519 => 32,
        }
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.transform().fmt(f)
    }
}

/// Why a peer's public value is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AgreementError {
    /// It is not as long as values of the group are.
    #[error("the peer's public value for {0} has a wrong length")]
    Length(Group),
    /// It is not in the group, or in a part of it that is too small: the shared secret would not be secret.
    #[error("the peer's public value is not one of {0}")]
    Value(Group),
}

/// A private key. Agreeing does not use it up: one spoofed answer must not end an exchange.
pub struct KeyAgreement {
    private: Private,
    public: Vec<u8>,
}

enum Private {
    Modp2048(modp::Exponent),
    Ecp256(Zeroizing<p256::NonZeroScalar>),
    Ecp384(Zeroizing<p384::NonZeroScalar>),
    Curve25519(StaticSecret),
}

impl KeyAgreement {
    /// A fresh key.
    #[must_use]
    pub fn generate(group: Group, mut rng: &mut dyn CryptoRngCore) -> Self {
        Self::new(match group {
            Group::Modp2048 => Private::Modp2048(modp::Exponent::generate(rng)),
            Group::Ecp256 => Private::Ecp256(Zeroizing::new(p256::NonZeroScalar::random(&mut rng))),
            Group::Ecp384 => Private::Ecp384(Zeroizing::new(p384::NonZeroScalar::random(&mut rng))),
            Group::Curve25519 => Private::Curve25519(StaticSecret::random_from_rng(rng)),
        })
    }

    /// A key of a published vector.
    #[cfg(test)]
    pub(super) fn from_private(group: Group, bytes: &[u8]) -> Option<Self> {
        Some(Self::new(match group {
            Group::Modp2048 => Private::Modp2048(modp::Exponent::from_bytes(bytes.try_into().ok()?)),
            Group::Ecp256 => Private::Ecp256(Zeroizing::new(p256::NonZeroScalar::try_from(bytes).ok()?)),
            Group::Ecp384 => Private::Ecp384(Zeroizing::new(p384::NonZeroScalar::try_from(bytes).ok()?)),
            Group::Curve25519 => Private::Curve25519(<[u8; 32]>::try_from(bytes).ok()?.into()),
        }))
    }

    fn new(private: Private) -> Self {
        let public = match &private {
            Private::Modp2048(exponent) => exponent.public(),
            Private::Ecp256(scalar) => {
                coordinates(p256::PublicKey::from_secret_scalar(scalar).to_encoded_point(false).as_bytes())
            }
            Private::Ecp384(scalar) => {
                coordinates(p384::PublicKey::from_secret_scalar(scalar).to_encoded_point(false).as_bytes())
            }
            Private::Curve25519(secret) => x25519_dalek::PublicKey::from(secret).to_bytes().to_vec(),
        };
        Self { private, public }
    }

    /// The group.
    #[must_use]
    pub fn group(&self) -> Group {
        match &self.private {
            Private::Modp2048(_) => Group::Modp2048,
            Private::Ecp256(_) => Group::Ecp256,
            Private::Ecp384(_) => Group::Ecp384,
            Private::Curve25519(_) => Group::Curve25519,
        }
    }

    /// The public value, as a KE payload carries it.
    #[must_use]
    pub fn public(&self) -> &[u8] {
        &self.public
    }

    /// The shared secret, `g^ir`.
    ///
    //= https://www.rfc-editor.org/rfc/rfc5903#section-7
    //# The Diffie-Hellman shared secret value consists of the x value of the
    //# Diffie-Hellman common value.
    ///
    /// # Errors
    /// [`AgreementError`] when the peer's public value is not one of the group.
    pub fn agree(&self, peer: &[u8]) -> Result<Zeroizing<Vec<u8>>, AgreementError> {
        let group = self.group();
        if peer.len() != group.public_bytes() {
            return Err(AgreementError::Length(group));
        }
        let shared = match &self.private {
            Private::Modp2048(exponent) => peer.try_into().ok().and_then(|peer| exponent.agree(peer)),
            Private::Ecp256(scalar) => p256::PublicKey::from_sec1_bytes(&sec1(peer)).ok().map(|peer| {
                let point = (peer.to_projective() * ***scalar).to_affine();
                Zeroizing::new(point.x().to_vec())
            }),
            Private::Ecp384(scalar) => p384::PublicKey::from_sec1_bytes(&sec1(peer)).ok().map(|peer| {
                let point = (peer.to_projective() * ***scalar).to_affine();
                Zeroizing::new(point.x().to_vec())
            }),
            // Points of small order make it all zero (RFC 7748 section 6.1).
            Private::Curve25519(secret) => <[u8; 32]>::try_from(peer).ok().and_then(|peer| {
                let shared = secret.diffie_hellman(&peer.into());
                shared.was_contributory().then(|| Zeroizing::new(shared.as_bytes().to_vec()))
            }),
        };
        shared.ok_or(AgreementError::Value(group))
    }
}

impl fmt::Debug for KeyAgreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyAgreement({}, ..)", self.group())
    }
}

/// KE payloads carry x and y (RFC 5903 section 7); SEC 1 puts a byte in front of them, 4 for "uncompressed".
fn coordinates(point: &[u8]) -> Vec<u8> {
    point.get(1..).unwrap_or_default().to_vec()
}

fn sec1(coordinates: &[u8]) -> Vec<u8> {
    [&[4], coordinates].concat()
}
