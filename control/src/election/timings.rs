//! How long leadership lasts, and what makes sense together.

use std::time::Duration;

/// Lease duration, renew deadline and retry period that make sense together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timings {
    lease_duration: Duration,
    renew_deadline: Duration,
    retry_period: Duration,
}

/// Times that make no sense together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TimingsError {
    /// The Lease says its duration in whole seconds.
    #[error(
        "the lease duration is {0:?}; it must be whole seconds, at least one, at most {MAX_LEASE_SECONDS}"
    )]
    Lease(Duration),
    /// A leader must have given up before others may take over.
    #[error(
        "the renew deadline of {renew:?} is not shorter than the lease duration of {lease:?}: a leader would still \
         act when another may take over; shorten the deadline or lengthen the lease"
    )]
    Renew {
        /// The deadline.
        renew: Duration,
        /// The lease duration.
        lease: Duration,
    },
    /// A leader must have the time to try more than once.
    #[error(
        "the retry period of {retry:?} with its jitter (times 1.2) is not shorter than the renew deadline of \
         {renew:?}: one failed request would cost the leadership; shorten the period or lengthen the deadline"
    )]
    Retry {
        /// The period.
        retry: Duration,
        /// The deadline.
        renew: Duration,
    },
    /// Requests without a pause.
    #[error("the retry period is zero; it must be longer")]
    NoRetry,
}

/// Ours: a day. Longer is a slip of the pen, and would be a day without a gateway.
const MAX_LEASE_SECONDS: u64 = 86_400;

/// client-go's factor: a candidate's waits are up to this many retry periods longer than one.
const JITTER_FACTOR: f64 = 1.2;

impl Timings {
    /// Creates the timings of these durations.
    ///
    /// # Errors
    /// [`TimingsError`] where client-go refuses as well: unless lease duration > renew deadline > 1.2 × retry period >
    /// 0; and where the Lease could not say the duration.
    pub fn new(lease: Duration, renew: Duration, retry: Duration) -> Result<Self, TimingsError> {
        if lease.subsec_nanos() != 0 || !(1..=MAX_LEASE_SECONDS).contains(&lease.as_secs()) {
            return Err(TimingsError::Lease(lease));
        }
        if renew >= lease {
            return Err(TimingsError::Renew { renew, lease });
        }
        if retry.is_zero() {
            return Err(TimingsError::NoRetry);
        }
        if retry.mul_f64(JITTER_FACTOR) >= renew {
            return Err(TimingsError::Retry { retry, renew });
        }
        Ok(Self { lease_duration: lease, renew_deadline: renew, retry_period: retry })
    }

    /// Returns upstream's timings for Globalnet: 20, 15 and 2 seconds.
    pub const fn globalnet() -> Self {
        Self {
            lease_duration: Duration::from_secs(20),
            renew_deadline: Duration::from_secs(15),
            retry_period: Duration::from_secs(2),
        }
    }

    /// Returns for how long others see no renewal before they take over.
    pub const fn lease_duration(&self) -> Duration {
        self.lease_duration
    }

    /// Returns for how long a leader tries to renew before it gives up.
    pub const fn renew_deadline(&self) -> Duration {
        self.renew_deadline
    }

    /// Returns how often a leader renews, and a candidate tries at least.
    pub const fn retry_period(&self) -> Duration {
        self.retry_period
    }

    /// Returns how long to wait for an answer before the request counts as failed. Ours: answers that take half a renew
    /// deadline do not cost the leadership, and one that never comes leaves time for another request.
    pub fn request_timeout(&self) -> Duration {
        self.renew_deadline.mul_f64(0.6)
    }

    /// Returns the lease duration in whole seconds, as the Lease has it.
    pub(super) fn lease_seconds(&self) -> i32 {
        i32::try_from(self.lease_duration.as_secs()).unwrap_or(i32::MAX)
    }

    /// Returns how long before others may take over a leader stops believing, however late its renewals' answers come.
    pub(super) fn margin(&self) -> Duration {
        self.retry_period.min(self.lease_duration.saturating_sub(self.renew_deadline))
    }
}

impl Default for Timings {
    /// Returns upstream's timings: 15, 10 and 2 seconds.
    fn default() -> Self {
        Self {
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }
}

/// A candidate's waits: between one retry period and 2.2, as client-go's. A deterministic function of the seed.
#[derive(Debug, Clone)]
pub(super) struct Jitter(u64);

impl Jitter {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn wait(&mut self, period: Duration) -> Duration {
        // SplitMix64: enough to keep candidates apart, and nothing else depends on it.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let drawn = u32::try_from((mixed ^ (mixed >> 31)) >> 32).unwrap_or(u32::MAX);
        period.mul_f64(1.0 + JITTER_FACTOR * f64::from(drawn) / f64::from(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn nonsense_is_refused_in_words_that_name_both_times() {
        for (lease, renew, retry, word) in [
            (secs(0), secs(10), secs(2), "whole seconds"),
            (Duration::from_millis(1500), secs(1), secs(2), "whole seconds"),
            (secs(1 << 40), secs(10), secs(2), "whole seconds"),
            (
                secs(10),
                secs(10),
                secs(2),
                "renew deadline of 10s is not shorter than the lease duration of 10s",
            ),
            (secs(15), secs(10), secs(9), "retry period of 9s"),
            (secs(15), secs(10), secs(0), "zero"),
        ] {
            let error = Timings::new(lease, renew, retry).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
        assert_eq!(Timings::new(secs(15), secs(10), secs(2)), Ok(Timings::default()));
    }

    #[test]
    fn waits_are_between_one_and_two_point_two_periods_and_follow_the_seed() {
        let draw = |seed| {
            let mut jitter = Jitter::new(seed);
            (0..100).map(|_| jitter.wait(secs(2))).collect::<Vec<_>>()
        };
        assert!(draw(1).iter().all(|wait| (secs(2)..=Duration::from_millis(4400)).contains(wait)));
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }
}
