//! Fuzz targets: functions from arbitrary bytes to nothing, which panic when a law is broken.
//!
//! They run three ways: over the files of `tests/fuzz/corpus/` and over seeded mutations of them in the ordinary
//! tests (`tests/lab/fuzz_corpus.rs`), and under libFuzzer with coverage (`tests/fuzz/`, not part of the workspace).
//! A crash that a fuzzer finds becomes a file of the corpus.

mod dns;
mod esp;
mod exports;
mod ike_message;
mod inner;
mod line;
mod nat;
mod natdiscovery;
mod notice;
mod objects;
mod ovsdb;
mod responder;
mod trains;
mod vxlan;
mod wireguard;

use trieste_simulator::Random;

/// A target's name, also its folder in the corpus, and the target.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: &[Target] = &[
    ("inner", inner::target),
    ("trains", trains::target),
    ("coalesce", trains::coalesce_target),
    ("wireguard", wireguard::target),
    ("esp", esp::target),
    ("vxlan", vxlan::target),
    ("line", line::target),
    ("pair", line::pair_target),
    ("ike_message", ike_message::target),
    ("ike_stranger", responder::stranger_target),
    ("ike_peer", responder::peer_target),
    ("nat", nat::target),
    ("objects", objects::target),
    ("natdiscovery", natdiscovery::target),
    ("notice", notice::target),
    ("dns", dns::target),
    ("exports", exports::target),
    ("ovsdb", ovsdb::target),
];

/// Takes bytes off the front, zeros once they are used up: a target's way to read its parameters.
#[derive(Debug)]
struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.bytes.split_first() else { return 0 };
        self.bytes = rest;
        *first
    }

    fn u16(&mut self) -> u16 {
        u16::from_be_bytes([self.byte(), self.byte()])
    }

    /// Up to `count` bytes.
    fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.bytes.split_at(count.min(self.bytes.len()));
        self.bytes = rest;
        taken
    }

    fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

/// A repeatable stream of mutations: what the ordinary tests use in a fuzzer's place.
#[derive(Debug)]
pub struct Mutator(Random);

impl Mutator {
    /// Starts a stream; the same seed gives the same stream.
    pub fn new(seed: u64) -> Self {
        Self(Random::new(seed))
    }

    /// Returns a number below `limit`; 0 if there is none.
    pub fn below(&mut self, limit: usize) -> usize {
        self.0.below(limit)
    }

    /// Changes an input as fuzzers do: bits, bytes of interest, cuts, repetitions, pieces of another input.
    pub fn mutate(&mut self, input: &[u8], other: &[u8]) -> Vec<u8> {
        let mut bytes = input.to_vec();
        for _ in 0..=self.below(4) {
            let at = self.below(bytes.len());
            match self.below(7) {
                0 if !bytes.is_empty() => bytes[at] ^= 1 << self.below(8),
                1 if !bytes.is_empty() => bytes[at] = [0, 1, 0x7f, 0x80, 0xff, 4, 6, 0x45][self.below(8)],
                2 => bytes.truncate(at),
                3 => bytes.insert(at, self.below(256).to_le_bytes()[0]),
                4 => bytes.extend_from_within(at..),
                5 => {
                    let from = self.below(other.len());
                    bytes.extend_from_slice(&other[from..]);
                }
                _ => bytes.extend((0..self.below(64)).map(|n| n.to_le_bytes()[0])),
            }
            bytes.truncate(1 << 16);
        }
        bytes
    }
}
