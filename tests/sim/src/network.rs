//! What the underlay does to datagrams.

use std::time::Duration;

use crate::random::Random;

/// The properties of the underlay, the same in both directions.
#[derive(Debug, Clone, Copy)]
pub struct Network {
    /// Shortest way.
    pub delay: Duration,
    /// What is added at most, at random; datagrams overtake one another by it.
    pub jitter: Duration,
    /// Datagrams of 1000 that are lost.
    pub loss_per_mille: u64,
    /// Datagrams of 1000 that arrive twice.
    pub duplicate_per_mille: u64,
    /// How late the second one may be.
    pub duplicate_delay: Duration,
}

impl Network {
    /// 5 ms, in order, nothing lost.
    pub const GOOD: Self = Self {
        delay: Duration::from_millis(5),
        jitter: Duration::ZERO,
        loss_per_mille: 0,
        duplicate_per_mille: 0,
        duplicate_delay: Duration::ZERO,
    };

    /// 20 ms and up to 30 more, a tenth lost, a twentieth doubled.
    pub const BAD: Self = Self {
        delay: Duration::from_millis(20),
        jitter: Duration::from_millis(30),
        loss_per_mille: 100,
        duplicate_per_mille: 50,
        duplicate_delay: Duration::from_millis(200),
    };

    /// When copies of a datagram arrive, counted from now: none, one or two.
    pub(crate) fn arrivals(&self, random: &mut Random) -> Vec<Duration> {
        let mut arrivals = Vec::new();
        if !random.chance(self.loss_per_mille) {
            arrivals.push(self.delay + up_to(self.jitter, random));
            if random.chance(self.duplicate_per_mille) {
                arrivals.push(self.delay + up_to(self.duplicate_delay, random));
            }
        }
        arrivals
    }
}

fn up_to(limit: Duration, random: &mut Random) -> Duration {
    Duration::from_micros(random.below(u64::try_from(limit.as_micros()).unwrap_or(u64::MAX) + 1))
}
