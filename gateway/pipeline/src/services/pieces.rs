//! Later fragments of a packet follow the first: they alone do not say which port they are for.
//!
//! Fragments of a packet come by one lane in the order they were sent, so none waits here; one whose first was not seen
//! goes to the kernel. The memory is a fixed number of places, and a newer packet takes an older one's.

use std::hash::BuildHasher as _;
use std::net::IpAddr;

use trieste_packet::KeyedState;

use super::target::PieceKey;

/// Packets in fragments that are remembered. Ours: as many as can be under way in a millisecond at 10 Gbit/s.
const PLACES: usize = 512;

/// A packet, and the node that its first fragment went to; `None` for the kernel.
type First = (PieceKey, Option<IpAddr>);

/// What is known of packets in fragments.
#[derive(Debug)]
pub(super) struct Pieces {
    hash: KeyedState,
    places: Box<[Option<First>]>,
}

impl Pieces {
    /// Remembers nothing.
    pub(super) fn new(seed: u64) -> Self {
        Self { hash: KeyedState::new(seed), places: vec![None; PLACES].into_boxed_slice() }
    }

    /// Notes where the first fragment went: to a node, or to the kernel.
    pub(super) fn settle(&mut self, key: PieceKey, node: Option<IpAddr>) {
        let place = self.place(&key);
        self.places[place] = Some((key, node));
    }

    /// Where the first fragment went.
    pub(super) fn follow(&self, key: &PieceKey) -> Option<IpAddr> {
        let (known, node) = self.places[self.place(key)].as_ref()?;
        node.filter(|_| known == key)
    }

    fn place(&self, key: &PieceKey) -> usize {
        usize::try_from(self.hash.hash_one(key) % (PLACES as u64)).unwrap_or(0)
    }
}
