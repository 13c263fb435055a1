//! Round-trip times over a window, by upstream's integer rules.

use std::time::Duration;

use crate::api::{GoDuration, LatencyRtt};

/// From the specification: when so many samples are in, the window starts anew.
const WINDOW: u32 = 1000;
/// Ours: a sample is at most about a year, so that the squares of a whole window fit.
const MAX_SAMPLE: i64 = 1 << 55;

/// Round-trip times of one peer. All numbers are whole nanoseconds; quotients are cut, as upstream cuts them.
///
/// The mean is the window's sum by its count. The deviation is kept incrementally: each sample adds the product of its
/// distances from the mean before and after it. A full window is replaced by its own last two samples, which bounds
/// what the cut digits add up to; the extremes are those of all time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Statistics {
    /// The newest sample and the one before it: all of the window that a new one needs.
    last: i64,
    previous: i64,
    min: i64,
    max: i64,
    count: u32,
    // Wide enough for any thousand samples: upstream's 64 bits overflow at round trips of some seconds.
    sum: i128,
    mean: i64,
    squares: i128,
    std_dev: i64,
}

impl Statistics {
    /// Takes a sample in.
    pub fn add(&mut self, round_trip: Duration) {
        let sample = GoDuration::from(round_trip).as_nanos().min(MAX_SAMPLE);
        if self.count == WINDOW {
            self.restart();
        }
        self.min = if self.min == 0 { sample } else { self.min.min(sample) };
        self.max = self.max.max(sample);
        self.previous = self.last;
        self.last = sample;

        let before = if self.count == 0 { sample } else { self.mean };
        self.count += 1;
        self.sum += i128::from(sample);
        self.mean = narrow(self.sum / i128::from(self.count));
        self.squares += i128::from(sample - before) * i128::from(sample - self.mean);
        self.std_dev = square_root(self.squares / i128::from(self.count));
    }

    /// Returns the statistics as they are published; all zero before the first sample.
    pub fn latency(&self) -> Latency {
        Latency {
            last: GoDuration::from_nanos(self.last),
            min: GoDuration::from_nanos(self.min),
            mean: GoDuration::from_nanos(self.mean),
            max: GoDuration::from_nanos(self.max),
            std_dev: GoDuration::from_nanos(self.std_dev),
        }
    }

    /// Returns `true` if there was a sample yet.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Restarts the window with the last two samples only.
    fn restart(&mut self) {
        self.count = 2;
        self.sum = i128::from(self.previous) + i128::from(self.last);
        self.mean = narrow(self.sum / 2);
        let square = |sample: i64| i128::from(sample - self.mean) * i128::from(sample - self.mean);
        self.squares = square(self.previous) + square(self.last);
    }
}

/// A snapshot of [`Statistics`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Latency {
    /// The newest round trip.
    pub last: GoDuration,
    /// The shortest ever.
    pub min: GoDuration,
    /// The window's mean.
    pub mean: GoDuration,
    /// The longest ever.
    pub max: GoDuration,
    /// The window's standard deviation.
    pub std_dev: GoDuration,
}

impl From<Latency> for LatencyRtt {
    fn from(latency: Latency) -> Self {
        Self::new(latency.last, latency.min, latency.mean, latency.max, latency.std_dev)
    }
}

/// Converts a mean of `i64`s, which is one.
fn narrow(mean: i128) -> i64 {
    i64::try_from(mean).unwrap_or(i64::MAX)
}

/// Computes the whole part of the root; products of distances are never negative in sum but for cut digits.
fn square_root(value: i128) -> i64 {
    narrow(value.max(0).isqrt())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn statistics(samples: &[u64]) -> Statistics {
        let mut statistics = Statistics::default();
        samples.iter().for_each(|&sample| statistics.add(Duration::from_nanos(sample)));
        statistics
    }

    fn nanos(latency: Latency) -> [i64; 5] {
        [latency.last, latency.min, latency.mean, latency.max, latency.std_dev].map(GoDuration::as_nanos)
    }

    #[test]
    fn the_reference_sample_gives_the_reference_figures() {
        let samples = [404_351, 519_406, 491_652, 500_164, 849_464, 1_618_038, 660_133, 471_652, 678_740, 1];
        // Sum 6 193 601; the deviation of the population is 393 402.3.
        let [last, min, mean, max, std_dev] = nanos(statistics(&samples).latency());
        assert_eq!([last, min, mean, max], [1, 1, 619_360, 1_618_038]);
        assert!((393_401..=393_403).contains(&std_dev), "{std_dev}");
    }

    #[test]
    fn one_sample_is_all_there_is_and_deviates_from_nothing() {
        assert_eq!(nanos(statistics(&[428_228]).latency()), [428_228, 428_228, 428_228, 428_228, 0]);
        assert_eq!(nanos(Statistics::default().latency()), [0; 5]);
    }

    #[test]
    fn a_full_window_starts_anew_from_its_last_two_and_keeps_the_extremes() {
        let mut samples = vec![1_000; 998];
        samples[0] = 7;
        samples[1] = 90_000;
        samples.extend([2_000, 4_000]);
        let mut full = statistics(&samples);
        full.add(Duration::from_nanos(6_000));

        let [last, min, mean, max, std_dev] = nanos(full.latency());
        assert_eq!([last, min, max], [6_000, 7, 90_000]);
        // 2000, 4000, 6000: the mean is theirs, and so is the deviation, 1632.99.
        assert_eq!((mean, std_dev), (4_000, 1_632));
    }

    #[test]
    fn what_is_published_is_go_text() {
        let text = LatencyRtt::from(statistics(&[1_200_000, 388_079]).latency());
        let fields = [&text.last, &text.min, &text.average, &text.max, &text.std_dev];
        assert_eq!(fields, ["388.079µs", "388.079µs", "794.039µs", "1.2ms", "405.96µs"]);
    }

    proptest! {
        /// Compares with the definition in floating point; the cut digits of 2000 integer means are the tolerance.
        #[test]
        fn mean_and_deviation_are_those_of_the_window(samples in prop::collection::vec(1u64..60_000_000_000, 1..900)) {
            let [_, min, mean, max, std_dev] = nanos(statistics(&samples).latency());
            let count = samples.len() as f64;
            let expected = samples.iter().map(|&s| s as f64).sum::<f64>() / count;
            let deviation = (samples.iter().map(|&s| (s as f64 - expected).powi(2)).sum::<f64>() / count).sqrt();
            prop_assert!((mean as f64 - expected).abs() <= 2.0);
            prop_assert!((std_dev as f64 - deviation).abs() <= 2.0 + deviation * 1e-6, "{} {}", std_dev, deviation);
            prop_assert_eq!(min as u64, *samples.iter().min().unwrap());
            prop_assert_eq!(max as u64, *samples.iter().max().unwrap());
        }

        #[test]
        fn no_round_trip_overflows(samples in prop::collection::vec(any::<u64>(), 1..2500)) {
            let [_, min, mean, max, std_dev] = nanos(statistics(&samples).latency());
            prop_assert!(min <= max && mean >= 0 && std_dev >= 0);
        }
    }
}
