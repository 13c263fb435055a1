//! What was found between two clusters.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::row::{EXPORTED, MANY, MEMORY, READY, STEP_S, Used};
use crate::scale::{Bar, Figure, Growth, Point};
use crate::usage::cpu_step;

/// Times of one change, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Times {
    median_s: f64,
    longest_s: f64,
}

impl Times {
    pub(super) fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        let seconds = |time: Option<&Duration>| time.map_or(f64::NAN, Duration::as_secs_f64);
        Self { median_s: seconds(times.get(times.len() / 2)), longest_s: seconds(times.last()) }
    }
}

/// All of it.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Row {
    /// From an export to an answer of the other cluster, and from its end to none.
    pub(super) exported: Times,
    pub(super) withdrawn: Times,
    /// From the readiness of a back end to the answer, and from its end to none.
    pub(super) ready: Times,
    pub(super) not_ready: Times,
    /// Seconds until a hundred exports were answered, with the time for writing them and without.
    pub(super) many_s: [f64; 2],
    /// Seconds until an export was answered that was made while the broker was cut off, from when it was reached again.
    pub(super) back_s: f64,
    /// Of the importing cluster, with one service.
    pub(super) memory: Used,
}

impl Row {
    /// Returns all figures with what they may be.
    pub(super) fn point(&self) -> Point {
        let figure = |name, value, bar| Figure { name, value, resolution: STEP_S, growth: Growth::Free, bar };
        let [agent, dns] = self.memory.memory_mib;
        let rest = |name, value| {
            let bar = Some(Bar::Below(2.0));
            Figure { name, value, resolution: cpu_step(1.0), growth: Growth::Free, bar }
        };
        let figures = vec![
            figure("export to the other's answer, s", self.exported.median_s, Some(EXPORTED)),
            figure("the longest, s", self.exported.longest_s, None),
            figure("unexport to no answer, s", self.withdrawn.median_s, None),
            figure("the longest of these, s", self.withdrawn.longest_s, None),
            figure("readiness to the other's answer, s", self.ready.median_s, Some(READY)),
            figure("its longest, s", self.ready.longest_s, None),
            figure("not ready to no answer, s", self.not_ready.median_s, Some(READY)),
            figure("its own longest, s", self.not_ready.longest_s, None),
            figure("a hundred exports at once, s", self.many_s[0], Some(MANY)),
            figure("the same after they are written, s", self.many_s[1], Some(MANY)),
            figure("after the broker was cut off, s", self.back_s, None),
            rest("agent at rest, %", self.memory.cpu[0]),
            rest("DNS server at rest, %", self.memory.cpu[1]),
            figure("agent, MiB", agent, None),
            figure("DNS server, MiB", dns, None),
            figure("both with one service, MiB", agent + dns, Some(Bar::Below(MEMORY))),
        ];
        Point { size: 1, figures }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a pair:")?;
        self.point().figures.iter().try_for_each(|figure| write!(f, " {} {:.3};", figure.name, figure.value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_the_median_and_the_longest() {
        let times = Times::of([3, 1, 2].map(Duration::from_secs).to_vec());
        assert_eq!(times, Times { median_s: 2.0, longest_s: 3.0 });
    }
}
