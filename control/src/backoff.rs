//! How long to wait before the next try.

use std::time::Duration;

use rand_core::RngCore;

/// Doubling waits with jitter: each wait is between half of its step and all of it, so that many clusters do not come
/// back to a broker at one moment.
#[derive(Debug, Clone)]
pub struct Backoff {
    initial: Duration,
    max: Duration,
    step: Duration,
}

impl Backoff {
    /// Waits from `initial`, doubling up to `max`.
    pub fn new(initial: Duration, max: Duration) -> Self {
        Self { initial, max, step: initial }
    }

    /// Returns the next wait. `random` draws the jitter.
    pub fn next_wait(&mut self, random: &mut impl RngCore) -> Duration {
        let step = self.step.min(self.max);
        self.step = step.saturating_mul(2);
        let share = f64::from(random.next_u32()) / f64::from(u32::MAX);
        step.mul_f64(0.5 + share / 2.0)
    }

    /// Starts anew after a success.
    pub fn reset(&mut self) {
        self.step = self.initial;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_core::OsRng;

    #[test]
    fn waits_double_within_their_jitter_up_to_the_maximum_and_start_anew() {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_millis(350));
        for step in [100, 200, 350, 350] {
            let wait = backoff.next_wait(&mut OsRng).as_millis();
            assert!((step / 2..=step).contains(&wait), "{wait} ms is not within half and all of {step} ms");
        }
        backoff.reset();
        assert!(backoff.next_wait(&mut OsRng) <= Duration::from_millis(100));
    }
}
