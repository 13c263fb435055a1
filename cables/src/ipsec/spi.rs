//! Numbers by which arriving ESP packets find their lane.

use std::fmt;

use trieste_packet::LaneId;

/// A Security Parameters Index (RFC 4303 section 2.1), in host order.
///
/// Those that we choose carry the lane in their upper 24 bits and the number of the child SA in the lower eight. That
/// number is never 0, so that no SPI of ours is reserved (0 to 255) and none looks like the first four bytes of another
/// cable's message on the same port: WireGuard's types 1 to 4 and VXLAN's flags are followed by three zero bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Spi(pub u32);

impl Spi {
    /// The SPI of a lane's child SA. `index` is not 0.
    #[must_use]
    pub fn new(lane: LaneId, index: u8) -> Self {
        Self(lane.0 << 8 | u32::from(index))
    }

    /// The lane in one of our SPIs.
    #[must_use]
    pub fn lane(self) -> LaneId {
        LaneId(self.0 >> 8)
    }

    /// The number of the child SA in one of our SPIs.
    #[must_use]
    pub fn index(self) -> u8 {
        self.0.to_le_bytes()[0]
    }

    /// From the first four bytes of an ESP packet, in network order.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 4]) -> Self {
        Self(u32::from_be_bytes(bytes))
    }

    /// As it is on the wire.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 4] {
        self.0.to_be_bytes()
    }
}

impl fmt::Display for Spi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:08x}", self.0)
    }
}

impl fmt::Debug for Spi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Spi(0x{:08x})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_spi_carries_its_lane() {
        let spi = Spi::new(LaneId(0x0012_3456), 7);
        assert_eq!((spi.lane(), spi.index(), spi.0), (LaneId(0x0012_3456), 7, 0x1234_5607));
        assert_eq!(Spi::from_bytes(spi.to_bytes()), spi);
    }
}
