//! What an SA is made of, to and from proposals (RFC 7296 section 3.3).

use std::fmt;

use super::{Group, IkeAead, Prf};
use crate::ipsec::wire::{Proposal, Protocol, Transform, TransformKind};
use crate::ipsec::{EspSuite, Spi};

/// What an IKE SA uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IkeSuite {
    /// Protects messages.
    pub aead: IkeAead,
    /// Makes keys and proofs.
    pub prf: Prf,
    /// Agrees on the first key.
    pub group: Group,
}

impl IkeSuite {
    /// The suite of a proposal that was chosen: of each kind, exactly one transform, all of them ours.
    #[must_use]
    pub fn from_proposal(proposal: &Proposal) -> Option<Self> {
        if proposal.protocol != Protocol::Ike || !has_no_integrity(proposal) {
            return None;
        }
        let suite = Self {
            aead: IkeAead::from_transform(only(proposal, TransformKind::Encryption)?)?,
            prf: Prf::from_transform(only(proposal, TransformKind::Prf)?)?,
            group: Group::from_transform(only(proposal, TransformKind::Group)?)?,
        };
        has_only(
            proposal,
            &[TransformKind::Encryption, TransformKind::Prf, TransformKind::Group, TransformKind::Integrity],
        )
        .then_some(suite)
    }

    /// The proposal of this suite alone; `spi` when it is to take the place of another IKE SA.
    #[must_use]
    pub fn proposal(&self, number: u8, spi: Option<u64>) -> Proposal {
        Proposal {
            number,
            protocol: Protocol::Ike,
            spi: spi.map_or_else(Vec::new, |spi| spi.to_be_bytes().to_vec()),
            transforms: vec![self.aead.transform(), self.prf.transform(), self.group.transform()],
        }
    }
}

impl fmt::Display for IkeSuite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{}", self.aead, self.prf, self.group)
    }
}

impl EspSuite {
    /// All that there are.
    pub const ALL: [Self; 3] = [Self::Aes128Gcm16, Self::Aes256Gcm16, Self::ChaCha20Poly1305];

    /// As it is proposed.
    #[must_use]
    pub fn transform(self) -> Transform {
        match self {
            Self::Aes128Gcm16 => IkeAead::Aes128Gcm16.transform(),
            Self::Aes256Gcm16 => IkeAead::Aes256Gcm16.transform(),
            Self::ChaCha20Poly1305 => IkeAead::ChaCha20Poly1305.transform(),
        }
    }

    /// The one that is proposed, if it is one of these.
    #[must_use]
    pub fn from_transform(transform: &Transform) -> Option<Self> {
        Self::ALL.into_iter().find(|suite| suite.transform() == *transform)
    }
}

/// What a child SA uses, as far as it is negotiated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EspOffer {
    /// Protects packets.
    pub suite: EspSuite,
    /// Whether sequence numbers have 64 bits. None: nothing is said about it, which means that they have 32.
    pub esn: Option<bool>,
    /// The group of a key agreement of its own, if it has one.
    pub group: Option<Group>,
}

impl EspOffer {
    /// The number of the ESN transform: with and without.
    #[must_use]
    pub fn esn_transform(has_esn: bool) -> Transform {
        Transform::new(TransformKind::Esn, u16::from(has_esn))
    }

    /// What a proposal says that was chosen: at most one transform of each kind, all of them ours.
    #[must_use]
    pub fn from_proposal(proposal: &Proposal) -> Option<Self> {
        if proposal.protocol != Protocol::Esp || !has_no_integrity(proposal) {
            return None;
        }
        let esn = match optional(proposal, TransformKind::Esn)? {
            None => None,
            Some(transform) => {
                Some([false, true].into_iter().find(|esn| Self::esn_transform(*esn) == *transform)?)
            }
        };
        let group = match optional(proposal, TransformKind::Group)? {
            Some(transform) if transform.id != 0 => Some(Group::from_transform(transform)?),
            _ => None,
        };
        let suite = EspSuite::from_transform(only(proposal, TransformKind::Encryption)?)?;
        has_only(
            proposal,
            &[TransformKind::Encryption, TransformKind::Integrity, TransformKind::Group, TransformKind::Esn],
        )
        .then_some(Self { suite, esn, group })
    }

    /// The proposal of this alone.
    #[must_use]
    pub fn proposal(&self, number: u8, spi: Spi) -> Proposal {
        let mut transforms = vec![self.suite.transform()];
        transforms.extend(self.group.map(Group::transform));
        transforms.extend(self.esn.map(Self::esn_transform));
        Proposal { number, protocol: Protocol::Esp, spi: spi.to_bytes().to_vec(), transforms }
    }
}

/// The one transform of a kind, if there is exactly one.
fn only(proposal: &Proposal, kind: TransformKind) -> Option<&Transform> {
    optional(proposal, kind)?
}

/// The one transform of a kind, if there is one; none if there are several.
#[expect(clippy::option_option, reason = "none, one and too many are three things")]
fn optional(proposal: &Proposal, kind: TransformKind) -> Option<Option<&Transform>> {
    let mut found = proposal.of_kind(kind);
    let first = found.next();
    found.next().is_none().then_some(first)
}

/// Whether integrity is left to the AEAD: no transform for it, or `NONE` (RFC 7296 section 3.3).
fn has_no_integrity(proposal: &Proposal) -> bool {
    proposal.of_kind(TransformKind::Integrity).all(|transform| transform.id == 0)
}

fn has_only(proposal: &Proposal, kinds: &[TransformKind]) -> bool {
    proposal.transforms.iter().all(|transform| kinds.contains(&transform.kind))
}
