//! Weighted rendezvous hashing: which of several gateways a flow takes, so that one that comes or goes moves only its
//! own share of the flows.
//!
//! Every gateway draws a number for a flow, a hash of the flow and of its [`GatewayKey`]; the best draw wins. With
//! `u` the draw as a number between 0 and 1, gateway *i* of weight *w* costs
//!
//! ```text
//!   cost(flow, i) = -log2(u(flow, i)) / w(i)         the lowest cost wins
//! ```
//!
//! `-log2(u)` is exponentially distributed, and of exponentials with the rates *w* the first is *i* with probability
//! `w(i) / Σw`: shares are as the weights, whatever other gateways there are. Integers only: the logarithm has 32
//! fractional bits, read from a table of 256 steps with a straight line between them (off by less than 3e-6), and costs
//! are compared by multiplying crosswise. So everybody who knows the same gateways decides alike.

use std::cmp::Ordering;

use crate::split_mix::mix;

/// Names a gateway for rendezvous, at every gateway alike: a hash of its cable's name, never a position in a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct GatewayKey(pub u64);

impl GatewayKey {
    /// The key of the gateway whose Endpoint has this `cable_name`. Gateways of different versions must agree on it.
    #[must_use]
    pub fn of(cable_name: &str) -> Self {
        // FNV-1a, and a finaliser, because names differ in their last bytes.
        let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        Self(mix(cable_name.bytes().fold(0xcbf2_9ce4_8422_2325, step)))
    }
}

/// The weight of a gateway that says nothing of it.
pub const DEFAULT_WEIGHT: u16 = 100;
/// The largest weight.
pub const MAX_WEIGHT: u16 = 1000;

/// The candidate that a flow with this hash takes; `None` without candidates. Each candidate is its key, its weight
/// (0 counts as 1) and what it stands for. Their order does not matter.
pub fn choose<T>(hash: u64, candidates: impl IntoIterator<Item = (GatewayKey, u16, T)>) -> Option<T> {
    let draw = |(key, weight, value)| (Draw::new(hash, key, weight), value);
    let best = candidates.into_iter().map(draw).min_by(|a, b| a.0.compare(&b.0));
    best.map(|(_, value)| value)
}

/// What a gateway drew for a flow.
struct Draw {
    /// `-log2(u)`, 32 fractional bits; at most 64.
    exponential: u64,
    weight: u64,
    key: GatewayKey,
}

impl Draw {
    fn new(hash: u64, key: GatewayKey, weight: u16) -> Self {
        let drawn = mix(hash ^ key.0);
        Self { exponential: (64 << FRACTION_BITS) - log2(drawn | 1), weight: u64::from(weight.max(1)), key }
    }

    /// The lower cost first. Below 2^38 times 2^16, products do not overflow.
    fn compare(&self, other: &Self) -> Ordering {
        let [ours, theirs] = [self.exponential * other.weight, other.exponential * self.weight];
        ours.cmp(&theirs).then(self.key.cmp(&other.key))
    }
}

const FRACTION_BITS: u32 = 32;
const STEP_BITS: u32 = 8;
const STEPS: usize = 1 << STEP_BITS;

/// `log2(1 + i / 256)`, 32 fractional bits.
const LOG2: [u64; STEPS + 1] = {
    let mut table = [0; STEPS + 1];
    let mut index = 0;
    while index < STEPS {
        table[index] = fraction_of_log2((1 << 63) + ((index as u64) << (63 - STEP_BITS)));
        index += 1;
    }
    table[STEPS] = 1 << FRACTION_BITS;
    table
};

/// `log2` of a number from 1 up to 2, given with 63 fractional bits: squaring doubles the logarithm, and whether the
/// square is 2 or more is its next bit.
const fn fraction_of_log2(number: u64) -> u64 {
    let mut number = number as u128;
    let mut result = 0;
    let mut bit = 0;
    while bit < FRACTION_BITS {
        number = (number * number) >> 63;
        let is_two_or_more = number >> 64;
        result = (result << 1) | (is_two_or_more as u64);
        number >>= is_two_or_more;
        bit += 1;
    }
    result
}

/// `log2` of a number that is not 0, 32 fractional bits.
fn log2(number: u64) -> u64 {
    let whole = 63 - number.leading_zeros();
    // Without its leading one the number is the fraction, from the top down: 8 bits of step, 32 within it.
    let fraction = (number << number.leading_zeros()) << 1;
    let step = usize::try_from(fraction >> (64 - STEP_BITS)).expect("it has 8 bits");
    let within = (fraction << STEP_BITS) >> 32;
    let (low, high) = (LOG2[step], LOG2[step + 1]);
    (u64::from(whole) << FRACTION_BITS) + low + (((high - low) * within) >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_logarithm_is_right_to_three_in_a_million() {
        for number in [1u64, 2, 3, 5, 255, 256, 1000, 1 << 40, u64::MAX / 3, u64::MAX - 1, u64::MAX] {
            #[expect(clippy::cast_precision_loss, reason = "compared with a tolerance")]
            let (ours, right) = (log2(number) as f64 / 2f64.powi(32), (number as f64).log2());
            assert!((ours - right).abs() < 3e-6, "{number}: {ours} is not {right}");
            assert!(log2(number) < 64 << 32);
        }
    }

    #[test]
    fn keys_are_stable_and_differ() {
        assert_eq!(GatewayKey::of("submariner-cable-b-192-0-2-2"), GatewayKey(0x0679_cf83_3c0e_47ef));
        let keys: std::collections::BTreeSet<_> =
            (0..10_000).map(|host| GatewayKey::of(&format!("submariner-cable-b-{host}"))).collect();
        assert_eq!(keys.len(), 10_000);
    }

    #[test]
    fn nobody_is_chosen_among_nobody_and_the_order_does_not_matter() {
        assert_eq!(choose(7, std::iter::empty::<(GatewayKey, u16, ())>()), None);
        let candidates = [(GatewayKey(1), 100, 'a'), (GatewayKey(2), 50, 'b'), (GatewayKey(3), 0, 'c')];
        for hash in 0..1000 {
            assert_eq!(choose(hash, candidates), choose(hash, candidates.into_iter().rev()));
        }
    }
}
