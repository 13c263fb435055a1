//! What a device can do, and what it cannot and why.

use std::fmt;

/// A set of things that the kernel can do in our place.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Offloads(u16);

impl Offloads {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// TUN: unfinished transport checksums are taken and given.
    pub const CHECKSUM: Self = Self(1);
    /// TUN: TCP trains over IPv4.
    pub const TSO4: Self = Self(1 << 1);
    /// TUN: TCP trains over IPv6.
    pub const TSO6: Self = Self(1 << 2);
    /// TUN: UDP trains over IPv4. The kernel switches both families together.
    pub const USO4: Self = Self(1 << 3);
    /// TUN: UDP trains over IPv6.
    pub const USO6: Self = Self(1 << 4);
    /// UDP socket: trains of datagrams are sent whole (`UDP_SEGMENT`).
    pub const UDP_GSO: Self = Self(1 << 5);
    /// UDP socket: datagrams of a peer are received as trains (`UDP_GRO`).
    pub const UDP_GRO: Self = Self(1 << 6);
    /// Raw sockets: ESP is sent and received over IPv4 without UDP.
    pub const RAW_ESP4: Self = Self(1 << 7);
    /// Raw sockets: ESP is sent and received over IPv6 without UDP.
    pub const RAW_ESP6: Self = Self(1 << 8);
    /// All that a TUN device knows.
    pub const TUN: Self = Self(0b1_1111);
    /// All that a UDP socket knows.
    pub const UDP: Self = Self(0b110_0000);

    const NAMES: [(Self, &'static str); 9] = [
        (Self::CHECKSUM, "checksum"),
        (Self::TSO4, "tso4"),
        (Self::TSO6, "tso6"),
        (Self::USO4, "uso4"),
        (Self::USO6, "uso6"),
        (Self::UDP_GSO, "udp-gso"),
        (Self::UDP_GRO, "udp-gro"),
        (Self::RAW_ESP4, "raw-esp4"),
        (Self::RAW_ESP6, "raw-esp6"),
    ];

    /// Whether all of `other` is in here.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both sets together.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// This set without what is in `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// What is in both.
    #[must_use]
    pub const fn common(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Whether nothing is in here.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The names of what is in here.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES.into_iter().filter(move |&(one, _)| self.contains(one)).map(|(_, name)| name)
    }
}

impl fmt::Debug for Offloads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}

/// What a device can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// Largest single packet that `send` takes, in bytes: the MTU for TUN, the largest payload for UDP.
    pub mtu_bytes: usize,
    /// Free bytes that `send` wants in front of a packet; 0 where it takes its own header from elsewhere.
    pub headroom: usize,
    /// What the kernel does in our place.
    pub offloads: Offloads,
    /// Most segments of a train that leaves in one system call. Longer trains are taken too, and cut.
    pub max_segments: u16,
    /// Most bytes of such a train.
    pub max_train_bytes: usize,
}

/// Something that was wanted and is not there. Everything works without it, slower.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fallback {
    /// What is missing: a name of [`Offloads`], or another short name in kebab case.
    pub feature: &'static str,
    /// Why, for people.
    pub reason: String,
}

impl Fallback {
    pub(crate) fn new(feature: &'static str, reason: impl Into<String>) -> Self {
        Self { feature, reason: reason.into() }
    }

    /// One entry for everything in `missing`.
    pub(crate) fn each(missing: Offloads, reason: &str) -> impl Iterator<Item = Self> {
        missing.names().map(move |feature| Self::new(feature, reason))
    }
}

impl fmt::Display for Fallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no {}: {}", self.feature, self.reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_joined_and_taken_apart() {
        let tso = Offloads::TSO4.with(Offloads::TSO6);
        assert!(Offloads::TUN.contains(tso));
        assert!(!Offloads::UDP.contains(tso));
        assert_eq!(tso.without(Offloads::TSO6), Offloads::TSO4);
        assert_eq!(tso.common(Offloads::UDP), Offloads::NONE);
        assert_eq!(tso.names().collect::<Vec<_>>(), ["tso4", "tso6"]);
        assert_eq!(Offloads::TUN.with(Offloads::UDP).names().count(), 7);
    }
}
