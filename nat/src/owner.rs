//! Who owns what is translated: a function of the inside end outbound, of the port inbound, and both agree.
//!
//! The ports of a global address are cut into 64 buckets by their low six bits. A flow's bucket is a keyed hash of
//! its inside end, and its outside port is taken from that very bucket. So whoever sees an answer knows its bucket
//! from the port, without state.

use std::net::Ipv4Addr;

use trieste_packet::siphash;

/// Number of buckets.
pub const BUCKETS: usize = 64;

/// One of the 64 parts of everything that is translated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Bucket(u8);

impl Bucket {
    /// The bucket that a port or ICMP identifier (host order) belongs to.
    #[must_use]
    pub fn of_port(port: u16) -> Self {
        Self(port.to_le_bytes()[0] & 63)
    }

    /// All of them, in order.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..64).map(Self)
    }

    /// Its number, below [`BUCKETS`].
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }

    /// Its bit in a set of buckets.
    #[must_use]
    pub fn bit(self) -> u64 {
        1 << self.0
    }

    pub(crate) fn number(self) -> u64 {
        self.0.into()
    }
}

/// The key of the hashes that every gateway of a cluster has to compute alike. Secret: who knows it can choose flows
/// that fall into one bucket.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct OwnerKey(pub [u8; 16]);

impl std::fmt::Debug for OwnerKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OwnerKey(..)")
    }
}

impl OwnerKey {
    /// The bucket of an inside end. What has no ports is one bucket per protocol, since an answer could not tell.
    #[must_use]
    pub fn bucket(&self, protocol: u8, inside: Option<(Ipv4Addr, u16)>) -> Bucket {
        Bucket(self.inside_hash(protocol, inside).to_le_bytes()[0] & 63)
    }

    /// Where in its bucket the search for an inside end's port begins: from bits that the bucket is not chosen by.
    pub(crate) fn start(&self, protocol: u8, inside: (Ipv4Addr, u16)) -> u64 {
        self.inside_hash(protocol, Some(inside)) >> 8
    }

    fn inside_hash(&self, protocol: u8, inside: Option<(Ipv4Addr, u16)>) -> u64 {
        let (address, port) = inside.unwrap_or((Ipv4Addr::UNSPECIFIED, 0));
        let [a, b, c, d] = address.octets();
        let [high, low] = port.to_be_bytes();
        self.hash([protocol, a, b, c, d, high, low])
    }

    /// A hash of an inside address, for the choice of its global address.
    pub(crate) fn address_hash(&self, inside: Ipv4Addr) -> u64 {
        let [a, b, c, d] = inside.octets();
        // No protocol is 255 (reserved), so this never is the hash of a flow.
        self.hash([255, a, b, c, d, 0, 0])
    }

    /// SipHash-2-4 of seven bytes: every gateway computes the same.
    fn hash(&self, message: [u8; 7]) -> u64 {
        let (low, high) = self.0.split_at(8);
        let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight of sixteen bytes"));
        siphash::of_seven(word(low), word(high), message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_spread_over_all_buckets() {
        let key = OwnerKey([7; 16]);
        let mut counts = [0u32; BUCKETS];
        for port in 0..u16::MAX {
            counts[key.bucket(6, Some((Ipv4Addr::new(10, 0, 0, 1), port))).index()] += 1;
        }
        assert!(counts.iter().all(|count| (900..1150).contains(count)), "{counts:?}");
    }

    #[test]
    fn the_key_is_not_printed() {
        assert_eq!(format!("{:?}", OwnerKey([7; 16])), "OwnerKey(..)");
    }
}
