//! A seeded stream of numbers.

use std::time::Duration;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{CryptoRngCore, RngCore as _, SeedableRng as _};

/// A stream of numbers that follows from a seed (ChaCha8).
#[derive(Debug, Clone)]
pub struct Random(ChaCha8Rng);

impl Random {
    /// Starts a stream.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(seed))
    }

    /// Returns the next number.
    pub fn draw(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Returns a number below `limit`; 0 if there is none.
    pub fn below<N: TryFrom<u64> + TryInto<u64>>(&mut self, limit: N) -> N {
        narrow(self.draw() % widen(limit).max(1))
    }

    /// Returns a number from `low` up to `high`, both included.
    pub fn between<N: TryFrom<u64> + TryInto<u64>>(&mut self, low: N, high: N) -> N {
        let (low, high) = (widen(low), widen(high));
        narrow(low + self.draw() % (high - low + 1))
    }

    /// Returns `true` for this many of 1000.
    pub fn chance(&mut self, per_mille: u64) -> bool {
        self.draw() % 1000 < per_mille
    }

    /// Returns `true` for this many of 100.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.chance(10 * percent)
    }

    /// Returns a time from `low` up to `high` milliseconds, to the microsecond.
    pub fn millis(&mut self, low: u64, high: u64) -> Duration {
        Duration::from_micros(self.between(low * 1000, high * 1000))
    }

    /// Returns a time up to `limit`, to the microsecond.
    pub fn up_to(&mut self, limit: Duration) -> Duration {
        Duration::from_micros(
            self.between(0, u64::try_from(limit.as_micros()).expect("a simulation is short")),
        )
    }

    /// Returns one of several.
    ///
    /// # Panics
    /// If there is none.
    pub fn choose<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }

    /// Starts a stream of its own for a part of the world that draws by itself.
    pub fn stream(&mut self) -> impl CryptoRngCore + Send + use<> {
        ChaCha8Rng::seed_from_u64(self.draw())
    }
}

fn widen<N: TryInto<u64>>(number: N) -> u64 {
    number.try_into().ok().expect("limits are not negative")
}

fn narrow<N: TryFrom<u64>>(number: u64) -> N {
    N::try_from(number).ok().expect("it is below a number of this type")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_follows_from_its_seed_on_every_platform() {
        let mut random = Random::new(17);
        assert_eq!([random.draw(), random.draw()], [13_000_367_650_386_178_473, 11_973_026_043_633_582_193]);
        assert_ne!(Random::new(17).draw(), Random::new(18).draw());
    }

    #[test]
    fn numbers_are_within_their_limits_and_reach_them() {
        let mut random = Random::new(1);
        let drawn: Vec<u8> = (0..200).map(|_| random.between(3, 7)).collect();
        assert_eq!((drawn.iter().min(), drawn.iter().max()), (Some(&3), Some(&7)));
        assert!((0..200).all(|_| random.below(3_usize) < 3));
        assert_eq!(random.below(0), 0);
        assert!((0..200).all(|_| random.millis(1, 2) <= Duration::from_millis(2)));
        assert!(random.percent(100) && !random.percent(0));
    }
}
