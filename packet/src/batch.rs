//! Packets handled together.

use std::cell::Cell;

use crate::packet::Packet;

/// Most packets (or trains) in a batch that comes from a device.
pub const MAX_BATCH: usize = 64;

/// The unit that every stage works on: packets in the order they came, up to a limit. Its memory is allocated
/// once.
#[derive(Debug)]
pub struct Batch {
    packets: Vec<Packet>,
    limit: usize,
}

impl Default for Batch {
    fn default() -> Self {
        Self::new()
    }
}

impl Batch {
    /// An empty batch of up to [`MAX_BATCH`] packets.
    #[must_use]
    pub fn new() -> Self {
        Self::with_limit(MAX_BATCH)
    }

    /// An empty batch of up to `limit` packets.
    #[must_use]
    pub fn with_limit(limit: usize) -> Self {
        Self { packets: Vec::with_capacity(limit), limit }
    }

    /// How many more packets fit.
    #[must_use]
    pub fn room(&self) -> usize {
        self.limit.saturating_sub(self.packets.len())
    }

    /// Number of packets (a train counts once).
    #[must_use]
    pub fn len(&self) -> usize {
        self.packets.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Whether no more fit.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.packets.len() >= self.limit
    }

    /// Appends a packet.
    ///
    /// # Errors
    /// Hands the packet back when the batch is full.
    #[expect(
        clippy::result_large_err,
        reason = "a full batch hands the packet back; boxing it would allocate per packet"
    )]
    pub fn push(&mut self, packet: Packet) -> Result<(), Packet> {
        if self.is_full() {
            return Err(packet);
        }
        self.packets.push(packet);
        Ok(())
    }

    /// Appends a packet whatever the limit: for a stage that turns packets into more of them, by a number that it
    /// bounds itself.
    pub fn append(&mut self, packet: Packet) {
        self.packets.push(packet);
    }

    /// The packets.
    #[must_use]
    pub fn as_slice(&self) -> &[Packet] {
        &self.packets
    }

    /// The packets, writable.
    pub fn as_mut_slice(&mut self) -> &mut [Packet] {
        &mut self.packets
    }

    /// Keeps the packets that `check` accepts, in order, and hands the others to `lose` with the reason.
    pub fn retain_or<E>(
        &mut self,
        mut check: impl FnMut(&mut Packet) -> Result<(), E>,
        mut lose: impl FnMut(Packet, E),
    ) {
        let reason = Cell::new(None);
        let lost = self.packets.extract_if(.., |packet| match check(packet) {
            Ok(()) => false,
            Err(error) => {
                reason.set(Some(error));
                true
            }
        });
        for packet in lost {
            if let Some(error) = reason.take() {
                lose(packet, error);
            }
        }
    }

    /// Takes all packets out, in order; the batch keeps its memory.
    pub fn drain(&mut self) -> std::vec::Drain<'_, Packet> {
        self.packets.drain(..)
    }

    /// Moves all packets to the end of `others`, in order and in one go.
    pub fn move_to(&mut self, others: &mut Vec<Packet>) {
        others.append(&mut self.packets);
    }

    /// Takes the first `count` packets out, in order.
    ///
    /// # Panics
    /// When there are fewer.
    pub fn drain_front(&mut self, count: usize) -> std::vec::Drain<'_, Packet> {
        self.packets.drain(..count)
    }

    /// Number of packets on the wire, trains counted by their segments.
    #[must_use]
    pub fn segments(&self) -> u64 {
        self.packets.iter().map(Packet::segments).sum()
    }
}
