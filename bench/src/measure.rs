//! How a figure comes about: candidates take turns, many times, and medians are compared.
//!
//! Time is the thread's own CPU time, not the clock on the wall: a neighbour that takes the CPU away costs nothing
//! but cold caches. Candidates are interleaved in every round, so that what disturbs one disturbs all, and each
//! ratio is taken within a round before its median is.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// What one pass of a candidate took.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sample {
    /// CPU time of the part that counts.
    pub(crate) elapsed: Duration,
    /// Packets on the wire that it stands for.
    pub(crate) packets: u64,
}

impl Sample {
    /// Times `work`, which says how many packets it carried.
    pub(crate) fn of(work: impl FnOnce() -> u64) -> Self {
        let before = cpu_time();
        let packets = work();
        Self { elapsed: cpu_time().saturating_sub(before), packets }
    }
}

impl std::ops::AddAssign for Sample {
    fn add_assign(&mut self, other: Self) {
        self.elapsed += other.elapsed;
        self.packets += other.packets;
    }
}

/// Something to measure.
pub(crate) struct Candidate<'a> {
    /// What it is called.
    pub(crate) name: String,
    /// Does a bounded piece of work, of which it times what counts.
    pub(crate) pass: Box<dyn FnMut() -> Sample + 'a>,
}

impl<'a> Candidate<'a> {
    /// A candidate.
    pub(crate) fn new(name: &str, pass: impl FnMut() -> Sample + 'a) -> Self {
        Self { name: name.to_owned(), pass: Box::new(pass) }
    }
}

/// How often to measure.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Rounds {
    /// Rounds; in each one every candidate has its turn.
    #[arg(long, default_value_t = 41, value_parser = clap::value_parser!(u32).range(3..))]
    pub(crate) rounds: u32,
    /// Passes over the ring of buffers in each turn.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) passes: u32,
    /// The CPU to measure on (the last one by default).
    #[arg(long)]
    pub(crate) cpu: Option<usize>,
}

impl Rounds {
    /// Keeps this thread on one CPU; returns which.
    ///
    /// # Errors
    /// When the kernel refuses, for example because there is no such CPU.
    pub(crate) fn pin(&self) -> anyhow::Result<usize> {
        let allowed = sched_getaffinity(None)?;
        let last = (0..CpuSet::MAX_CPU).rev().find(|&cpu| allowed.is_set(cpu));
        let cpu = self.cpu.or(last).unwrap_or(0);
        let mut set = CpuSet::new();
        set.set(cpu);
        sched_setaffinity(None, &set).map_err(|error| anyhow::anyhow!("pinning to CPU {cpu}: {error}"))?;
        Ok(cpu)
    }

    /// Nanoseconds per packet of every candidate, round by round.
    pub(crate) fn interleave(&self, candidates: &mut [Candidate<'_>]) -> Vec<Vec<f64>> {
        let mut all = vec![Vec::new(); candidates.len()];
        // The first round warms caches and branch predictors; it does not count.
        for round in 0..=self.rounds as usize {
            for turn in 0..candidates.len() {
                let index = (turn + round) % candidates.len();
                let mut sum = Sample::default();
                for _ in 0..self.passes {
                    sum += (candidates[index].pass)();
                }
                if round > 0 {
                    all[index].push(sum.elapsed.as_nanos() as f64 / sum.packets.max(1) as f64);
                }
            }
        }
        all
    }
}

/// Median, least and greatest of some values.
#[derive(Debug, Clone, Copy, Default, serde::Serialize)]
pub(crate) struct Spread {
    /// The median.
    pub(crate) median: f64,
    /// The least.
    pub(crate) min: f64,
    /// The greatest.
    pub(crate) max: f64,
}

impl Spread {
    /// Of at least one value.
    pub(crate) fn of(values: &[f64]) -> Self {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (Some(&min), Some(&max)) = (sorted.first(), sorted.last()) else { return Self::default() };
        let middle = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 {
            sorted[middle]
        } else {
            f64::midpoint(sorted[middle - 1], sorted[middle])
        };
        Self { median, min, max }
    }

    /// The median of the ratios round by round: the figure that drift of the machine changes least.
    pub(crate) fn ratio(values: &[f64], base: &[f64]) -> f64 {
        let ratios: Vec<f64> = values.iter().zip(base).map(|(value, base)| value / base).collect();
        Self::of(&ratios).median
    }
}

/// By libc, so that an instrument that counts calls sees it.
fn cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle_whatever_the_order() {
        let odd = Spread::of(&[3.0, 1.0, 2.0]);
        assert_eq!((odd.median, odd.min, odd.max), (2.0, 1.0, 3.0));
        assert_eq!(Spread::of(&[4.0, 1.0]).median, 2.5);
    }

    #[test]
    fn ratios_are_taken_round_by_round() {
        assert_eq!(Spread::ratio(&[2.0, 20.0, 40.0], &[1.0, 10.0, 10.0]), 2.0);
    }
}
