//! The keyed hash of everything that packets choose: flows, fragments, ports.
//!
//! Folded multiplications, both of whose sides have something secret in them. Not foldhash, whose first multiplier is public
//! when it is seeded: a word that makes its other side zero erases all that was hashed before, for every seed, and
//! chains flooded for one seed stay full for its neighbours.

use std::hash::{BuildHasher, Hasher};

use crate::siphash;

/// The secret of a hash.
#[derive(Clone, Copy)]
pub struct HashKey([u64; 4]);

/// Nobody who reads a log is to know it.
impl std::fmt::Debug for HashKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HashKey(..)")
    }
}

impl HashKey {
    /// Derives the key from a secret seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let part = |number| siphash::of_seven(seed, !seed, [b'k', b'e', b'y', number, 0, 0, 0]);
        // The last multiplier is odd, so that it loses nothing.
        Self([part(0), part(1), part(2), part(3) | 1])
    }

    /// Hashes two words.
    #[must_use]
    pub fn hash(&self, a: u64, b: u64) -> u64 {
        self.finish(self.absorb(0, a, b))
    }

    /// Takes two words more into what was hashed so far.
    fn absorb(&self, so_far: u64, a: u64, b: u64) -> u64 {
        let [a_key, b_key, ..] = self.0;
        // What is so far is turned, so that a word which makes one side zero does not erase it: it is in the other, too.
        fold(a ^ a_key ^ so_far, b ^ b_key ^ so_far.rotate_left(32))
    }

    fn finish(&self, so_far: u64) -> u64 {
        let [.., between, last] = self.0;
        fold(so_far ^ between, last)
    }
}

/// Builds hashers of a [`HashKey`], for maps whose keys come from packets.
#[derive(Debug, Clone)]
pub struct KeyedState(HashKey);

impl KeyedState {
    /// Derives the key from a secret seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(HashKey::new(seed))
    }
}

impl BuildHasher for KeyedState {
    type Hasher = KeyedHasher;

    fn build_hasher(&self) -> KeyedHasher {
        KeyedHasher { key: self.0, so_far: 0 }
    }
}

/// Hashes a value word by word. Keys of a map are all of one length, so that lengths need no place in it.
#[derive(Debug, Clone)]
pub struct KeyedHasher {
    key: HashKey,
    so_far: u64,
}

impl Hasher for KeyedHasher {
    fn finish(&self) -> u64 {
        self.key.finish(self.so_far)
    }

    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(16) {
            let mut block = [0; 16];
            block[..part.len()].copy_from_slice(part);
            self.write_u128(u128::from_le_bytes(block));
        }
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(word.into());
    }

    fn write_u64(&mut self, word: u64) {
        self.so_far = self.key.absorb(self.so_far, word, 0);
    }

    fn write_u128(&mut self, words: u128) {
        #[expect(clippy::cast_possible_truncation, reason = "both halves are taken, one by one")]
        let (low, high) = (words as u64, (words >> 64) as u64);
        self.so_far = self.key.absorb(self.so_far, low, high);
    }
}

/// Multiplies to 128 bits and adds both halves without carry (the step that wyhash is built on).
#[must_use]
pub fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    #[expect(clippy::cast_possible_truncation, reason = "both halves are taken, one by one")]
    let folded = (product as u64) ^ ((product >> 64) as u64);
    folded
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv6Addr};

    use super::*;
    use crate::FlowKey;

    /// The longest chain of these hashes in an index with as many heads as there are hashes.
    fn longest_chain(hashes: impl ExactSizeIterator<Item = u64>) -> usize {
        let mut chains = vec![0; hashes.len().next_power_of_two()];
        for hash in hashes {
            let chain = usize::try_from(hash).unwrap() % chains.len();
            chains[chain] += 1;
        }
        chains.into_iter().max().unwrap()
    }

    fn longest_chain_of_words(words: &[(u64, u64)], seed: u64) -> usize {
        let key = HashKey::new(seed);
        longest_chain(words.iter().map(|&(a, b)| key.hash(a, b)))
    }

    #[test]
    fn who_floods_one_chain_without_the_seed_floods_none() {
        let known = HashKey::new(1);
        // Words as sessions have them, all of them in one chain of 1024 for who knows the seed.
        let words = (0..).map(|remote: u64| (0xf201_0001_1388_0006, remote << 16 | 80));
        let flood: Vec<_> =
            words.filter(|&(a, b)| known.hash(a, b).is_multiple_of(1024)).take(1024).collect();
        assert_eq!(longest_chain_of_words(&flood, 1), 1024);
        for seed in (2..200).chain((0..63).map(|bit| 1 ^ (2 << bit))) {
            let longest = longest_chain_of_words(&flood, seed);
            assert!(longest <= 12, "{longest} under seed {seed}");
        }
    }

    #[test]
    fn regular_words_spread_as_random_ones() {
        for step in [1, 16, 1 << 16, 1 << 32, 1 << 54] {
            let words: Vec<_> = (0..1024_u64).map(|number| (7, number.wrapping_mul(step))).collect();
            for seed in 0..32 {
                assert!(longest_chain_of_words(&words, seed) <= 12, "step {step}, seed {seed}");
                let turned: Vec<_> = words.iter().map(|&(a, b)| (b, a)).collect();
                assert!(longest_chain_of_words(&turned, seed) <= 12, "step {step}, seed {seed}");
            }
        }
    }

    /// The interface identifier that is foldhash's public multiplier (0.2), in both orders of its bytes: as an address's
    /// last half it erased the rest of the key for every seed.
    #[test]
    fn no_address_erases_the_rest_of_a_flow_for_every_seed() {
        let erasing: u64 = 0xdd50_7cc9_b729_acc0;
        for interface in [erasing, erasing.swap_bytes(), 0, u64::MAX] {
            let peer = Ipv6Addr::from(
                u128::from_be_bytes(*b"\xfd\0\0\x02\0\0\0\0\0\0\0\0\0\0\0\0") | u128::from(interface),
            );
            let flow = |number: u16| {
                let pod = Ipv6Addr::from(0xfd00_0001_u128 << 96 | u128::from(number));
                let ends: [(IpAddr, IpAddr); 2] = [(pod.into(), peer.into()), (peer.into(), pod.into())];
                ends.map(|(from, to)| FlowKey::new(from, to, 17, 4000, 53))
            };
            for seed in 0..64 {
                let state = KeyedState::new(seed);
                for side in 0..2 {
                    let hashes: Vec<u64> =
                        (0..1024).map(|number| state.hash_one(flow(number)[side])).collect();
                    let longest = longest_chain(hashes.iter().copied());
                    assert!(longest <= 12, "{longest} flows with {peer} in one chain, seed {seed}");
                    // What hashbrown compares first.
                    let longest = longest_chain(hashes.iter().map(|hash| hash >> 54));
                    assert!(longest <= 12, "{longest} flows with {peer} of one tag, seed {seed}");
                }
            }
        }
    }

    #[test]
    fn bytes_and_words_in_another_order_have_another_hash() {
        let state = KeyedState::new(7);
        let hash = |words: [u64; 3]| state.hash_one(words);
        assert_eq!(hash([1, 2, 3]), hash([1, 2, 3]));
        assert_ne!(hash([1, 2, 3]), hash([3, 2, 1]));
        assert_ne!(hash([1, 2, 3]), hash([2, 1, 3]));
        assert_ne!(state.hash_one([1_u8, 2]), state.hash_one([2_u8, 1]));
        assert_eq!(format!("{:?}", KeyedState::new(7)), "KeyedState(HashKey(..))");
    }
}
