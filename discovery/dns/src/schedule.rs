//! Smooth weighted round robin (nginx's algorithm) as a sequence that threads share.

/// Longest sequence; larger weights are scaled down to it.
const MAX_TURNS: u64 = 4_096;

/// One period of the smooth weighted round robin over some weights: which of them has each turn.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Schedule {
    /// What the sequence was made for.
    key: u64,
    turns: Box<[u16]>,
}

impl Schedule {
    /// Computes a period. The weights are those of at most 65,536 candidates, none of them 0.
    pub(crate) fn new(key: u64, weights: &[u32]) -> Self {
        let divisor = weights.iter().copied().fold(0, gcd).max(1);
        let total: u64 = weights.iter().map(|weight| u64::from(weight / divisor)).sum();
        let scaled = |weight: u32| {
            let weight = u64::from(weight / divisor);
            // Each candidate keeps one turn, however small its weight is.
            let weight = if total > MAX_TURNS { (weight * MAX_TURNS / total).max(1) } else { weight };
            i64::try_from(weight).unwrap_or(1)
        };
        let weights: Vec<i64> = weights.iter().map(|weight| scaled(*weight)).collect();
        let total: i64 = weights.iter().sum();
        let mut current = vec![0_i64; weights.len()];
        let turns = (0..total).map(|_| {
            let mut best = 0;
            for (index, weight) in weights.iter().enumerate() {
                current[index] += weight;
                if current[index] > current[best] {
                    best = index;
                }
            }
            current[best] -= total;
            u16::try_from(best).unwrap_or(0)
        });
        Self { key, turns: turns.collect() }
    }

    /// Returns what it was made for.
    pub(crate) fn key(&self) -> u64 {
        self.key
    }

    /// Returns who has a turn: an index of the weights.
    pub(crate) fn at(&self, turn: u64) -> usize {
        let period = u64::try_from(self.turns.len()).unwrap_or(1).max(1);
        let index = usize::try_from(turn % period).unwrap_or(0);
        self.turns.get(index).copied().map_or(0, usize::from)
    }
}

/// Computes the greatest common divisor.
fn gcd(a: u32, b: u32) -> u32 {
    let (mut a, mut b) = (a, b);
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turns(weights: &[u32]) -> Vec<u16> {
        Schedule::new(0, weights).turns.to_vec()
    }

    #[test]
    fn weights_of_5_1_1_are_spread_as_upstream_does() {
        assert_eq!(turns(&[5, 1, 1]), [0, 0, 1, 0, 2, 0, 0]);
        assert_eq!(turns(&[10, 2, 2]), [0, 0, 1, 0, 2, 0, 0], "the same ratios");
        assert_eq!(turns(&[1, 1, 1]), [0, 1, 2]);
        assert_eq!(turns(&[]), Vec::<u16>::new());
        assert_eq!(Schedule::new(0, &[5, 1, 1]).at(7 + 2), 1);
    }

    #[test]
    fn huge_weights_make_a_bounded_sequence_that_leaves_nobody_out() {
        let turns = turns(&[u32::MAX, 1, u32::MAX / 2]);
        assert!(turns.len() <= 4_098, "{}", turns.len());
        assert_eq!(turns.iter().filter(|turn| **turn == 1).count(), 1);
        let first = turns.iter().filter(|turn| **turn == 0).count();
        let third = turns.iter().filter(|turn| **turn == 2).count();
        assert!(first.abs_diff(2 * third) < 4, "{first} {third}");
    }
}
