//! Which outside ports are whose to give out, where several gateways translate for one cluster.
//!
//! ```text
//!   port, 16 bits   rest 7 │ slot 3 │ bucket 6
//! ```
//!
//! A bucket says whose packets they are and moves when gateways come and go. A slot belongs to one gateway, whatever
//! the gateways believe of each other: each makes new mappings only at ports of its own slots, in whatever bucket. So
//! two gateways that both take a bucket for theirs still never give one port to two inside ends. Mappings that were
//! made elsewhere are taken over at the ports that they have.

/// Number of slots: as many gateways can translate for a cluster at once.
pub const SLOTS: u8 = 8;

/// A set of slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Share(u8);

impl Share {
    /// Every slot: a gateway that is alone.
    pub const ALL: Self = Self(u8::MAX);
    /// No slot: nothing new can be mapped.
    pub const NONE: Self = Self(0);

    /// The set of a mask, the lowest bit for slot 0.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits)
    }

    /// As a mask, the lowest bit for slot 0.
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// One slot; none when there is no such slot.
    #[must_use]
    pub const fn of_slot(slot: u8) -> Self {
        if slot < SLOTS { Self(1 << slot) } else { Self::NONE }
    }

    /// Whether a port or ICMP identifier (host order) may be given out.
    #[must_use]
    pub fn has_port(self, port: u16) -> bool {
        self.0 & (1 << slot_of(port)) != 0
    }

    /// This one without the slots of another.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Both.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether both have a slot.
    #[must_use]
    pub const fn overlaps(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Number of slots.
    #[must_use]
    pub const fn count(self) -> u32 {
        self.0.count_ones()
    }

    /// The positions of a bitmap's word that belong to it: positions are ports without their bucket.
    pub(crate) const fn word(self) -> u64 {
        u64::from_le_bytes([self.0; 8])
    }

    /// The position of the set that a position stands for: the same where that is in it. `None` in an empty set.
    pub(crate) fn nearest(self, position: u64) -> Option<u64> {
        let count = u64::from(self.count());
        let slot = position % u64::from(SLOTS);
        if count == 0 || self.0 & (1 << slot) != 0 {
            return (count > 0).then_some(position);
        }
        let nth = slot % count;
        let mut left = self.0;
        for _ in 0..nth {
            left &= left - 1;
        }
        Some(position - slot + u64::from(left.trailing_zeros()))
    }
}

/// The slot that a port or ICMP identifier (host order) belongs to, below [`SLOTS`].
#[must_use]
pub fn slot_of(port: u16) -> u8 {
    (port >> 6).to_le_bytes()[0] & 7
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_port_is_in_one_slot_and_each_slot_has_as_many() {
        let mut counts = [0u32; 8];
        for port in 0..=u16::MAX {
            let owners: Vec<u8> = (0..SLOTS).filter(|&slot| Share::of_slot(slot).has_port(port)).collect();
            assert_eq!(owners, [slot_of(port)]);
            counts[usize::from(slot_of(port))] += 1;
        }
        assert_eq!(counts, [8192; 8]);
        assert_eq!(Share::of_slot(8), Share::NONE);
    }

    #[test]
    fn a_position_stands_for_one_of_the_set_in_its_group_of_eight() {
        for bits in 1..=u8::MAX {
            let share = Share::from_bits(bits);
            for position in 16..64 {
                let nearest = share.nearest(position).unwrap();
                assert_eq!(nearest / 8, position / 8);
                assert!(share.word() >> nearest & 1 == 1, "{bits:08b} {position} {nearest}");
            }
        }
        assert_eq!((Share::NONE.nearest(5), Share::ALL.nearest(5)), (None, Some(5)));
    }
}
