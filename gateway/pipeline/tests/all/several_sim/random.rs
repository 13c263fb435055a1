//! Numbers that follow from a seed.

use std::time::Duration;

/// SplitMix64.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed(self.0)
    }

    /// A number below `most`.
    pub(crate) fn below(&mut self, most: usize) -> usize {
        usize::try_from(self.draw() >> 33).expect("31 bits") % most
    }

    /// A time between two numbers of milliseconds.
    pub(crate) fn ms(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(from + (self.draw() >> 33) % (to - from))
    }
}

/// A number that looks random and follows from another.
pub(crate) fn mixed(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
