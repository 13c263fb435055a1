//! The keyed hash of everything that packets choose.
//!
//! Two folded multiplications, all four of whose other sides are secret. Not foldhash, whose multiplier is public when it is
//! seeded: chains flooded for one seed stayed full for its neighbours.

use crate::owner::sip;

/// The secret sides of the multiplications: a keyed hash for what packets choose, here and in flow caches.
#[derive(Debug, Clone, Copy)]
pub struct HashKey([u64; 4]);

impl HashKey {
    /// The key that a secret seed stands for.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let part = |number| sip::hash_seven(seed, !seed, [b'k', b'e', b'y', number, 0, 0, 0]);
        // The last multiplier is odd, so that it loses nothing.
        Self([part(0), part(1), part(2), part(3) | 1])
    }

    /// The hash of two words.
    #[must_use]
    pub fn hash(&self, a: u64, b: u64) -> u64 {
        let [a_key, b_key, between, last] = self.0;
        fold(fold(a ^ a_key, b ^ b_key) ^ between, last)
    }
}

/// Multiplies to 128 bits and adds both halves without carry.
pub(crate) fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    #[expect(clippy::cast_possible_truncation, reason = "both halves are taken, one by one")]
    let folded = (product as u64) ^ ((product >> 64) as u64);
    folded
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The longest chain of these words in an index with as many heads as there are words.
    fn longest_chain(words: &[(u64, u64)], seed: u64) -> usize {
        let key = HashKey::new(seed);
        let mut chains = vec![0; words.len().next_power_of_two()];
        for &(a, b) in words {
            let chain = usize::try_from(key.hash(a, b)).unwrap() % chains.len();
            chains[chain] += 1;
        }
        chains.into_iter().max().unwrap()
    }

    #[test]
    fn who_floods_one_chain_without_the_seed_floods_none() {
        let known = HashKey::new(1);
        // Words as sessions have them, all of them in one chain of 1024 for who knows the seed.
        let words = (0..).map(|remote: u64| (0xf201_0001_1388_0006, remote << 16 | 80));
        let flood: Vec<_> =
            words.filter(|&(a, b)| known.hash(a, b).is_multiple_of(1024)).take(1024).collect();
        assert_eq!(longest_chain(&flood, 1), 1024);
        for seed in (2..200).chain((0..63).map(|bit| 1 ^ (2 << bit))) {
            let longest = longest_chain(&flood, seed);
            assert!(longest <= 12, "{longest} under seed {seed}");
        }
    }

    #[test]
    fn regular_words_spread_as_random_ones() {
        for step in [1, 16, 1 << 16, 1 << 32, 1 << 54] {
            let words: Vec<_> = (0..1024_u64).map(|number| (7, number.wrapping_mul(step))).collect();
            for seed in 0..32 {
                assert!(longest_chain(&words, seed) <= 12, "step {step}, seed {seed}");
                let turned: Vec<_> = words.iter().map(|&(a, b)| (b, a)).collect();
                assert!(longest_chain(&turned, seed) <= 12, "step {step}, seed {seed}");
            }
        }
    }
}
