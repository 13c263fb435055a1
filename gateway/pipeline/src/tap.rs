//! Points where a capture can look into the line. Without one, a tap costs one branch per batch.

use std::time::Instant;

use trieste_packet::{Outer, Packet};

/// A place in the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Point {
    /// Datagrams as they came from the wire.
    OuterRx,
    /// Packets as they were opened, before any check.
    Opened,
    /// Packets on their way to the TUN device.
    InnerTx,
    /// Packets as they came from the TUN device.
    InnerRx,
    /// Datagrams on their way to the wire.
    OuterTx,
    /// Packets that are dropped, with the reason.
    Drop,
}

impl Point {
    /// All points, in the order of an inbound and then an outbound packet.
    pub const ALL: [Self; 6] =
        [Self::OuterRx, Self::Opened, Self::InnerTx, Self::InnerRx, Self::OuterTx, Self::Drop];

    /// Its name, on the command line and as a capture's interface.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OuterRx => "outer-rx",
            Self::Opened => "opened",
            Self::InnerTx => "inner-tx",
            Self::InnerRx => "inner-rx",
            Self::OuterTx => "outer-tx",
            Self::Drop => "drop",
        }
    }
}

/// Somebody who looks.
pub trait Tap: Send {
    /// Sees a packet or train. `outer` is the outer header of datagrams.
    fn see(&mut self, point: Point, packet: &Packet, outer: Option<&Outer>, now: Instant);
}
