//! A seeded stream of numbers.

use std::time::Duration;

use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore as _, SeedableRng as _};

/// The stream: the same seed, the same world.
pub(crate) struct Random(ChaCha8Rng);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(seed))
    }

    /// A number below `limit`; 0 if there is none.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0.next_u64() % limit.max(1)
    }

    /// A number from `low` up to `high`, both included.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True for this many of 1000.
    pub(crate) fn chance(&mut self, per_mille: u64) -> bool {
        self.below(1000) < per_mille
    }

    /// A span from `low` up to `high`, in milliseconds, to the microsecond.
    pub(crate) fn millis(&mut self, low: u64, high: u64) -> Duration {
        Duration::from_micros(self.between(low * 1000, high * 1000))
    }

    /// One of several.
    pub(crate) fn choose<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        let index = self.below(of.len() as u64);
        &of[usize::try_from(index).unwrap()]
    }

    /// The stream of an engine of this world.
    pub(crate) fn fork(&mut self) -> ChaCha8Rng {
        ChaCha8Rng::seed_from_u64(self.0.next_u64())
    }
}
