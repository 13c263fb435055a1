//! What was found at each number of services.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::scale::{Bar, Figure, Growth, Point};
use crate::usage::{Usage, cpu_step};

/// How exactly times are known, in seconds.
pub(super) const STEP_S: f64 = 0.02;
/// What both programs may have in memory for one service, MiB.
pub(super) const MEMORY: f64 = 40.0;
/// How long a change may take until it is answered, in seconds.
const CONVERGED: Bar = Bar::Below(1.0);
pub(super) const EXPORTED: Bar = Bar::Below(0.5);
pub(super) const READY: Bar = Bar::Below(0.1);
pub(super) const MANY: Bar = Bar::Below(5.0);

/// That of agent and DNS server.
pub(super) type Used = Usage<2>;

/// One number of services.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Row {
    pub(super) services: u32,
    pub(super) clusters: u32,
    pub(super) endpoints: u32,
    /// Seconds that it took to write them.
    pub(super) written_s: f64,
    /// Seconds from the start of both programs until all were answered.
    pub(super) all_s: f64,
    /// Seconds from the start of a DNS server until all were answered, when their copies were there.
    pub(super) again_s: f64,
    /// Seconds of rest.
    pub(super) rest_s: f64,
    pub(super) rest: Used,
    /// One more export of another cluster.
    pub(super) one_more: Change,
    /// One endpoint of another cluster.
    pub(super) changed: Change,
    /// One more export of the own cluster.
    pub(super) own: Change,
    /// One endpoint of the own cluster.
    pub(super) ready: Change,
    /// Seconds until a hundred exports of other clusters were answered, with the time for writing them and without.
    pub(super) many_s: [f64; 2],
    /// Seconds until a hundred own ones were on the broker.
    pub(super) many_own_s: f64,
    /// Seconds until nothing was left of anything, after all was removed.
    pub(super) removed_s: f64,
    /// What is used then.
    pub(super) after: Used,
}

/// A change that is made several times: medians.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Change {
    /// Seconds until the broker had it, if it is of the own cluster.
    published_s: f64,
    /// Seconds until it was answered.
    answered_s: f64,
    /// Writes to the own API server for each.
    own_writes: f64,
    /// And to the broker.
    broker_writes: f64,
}

impl Change {
    pub(super) fn of(times: &[[Duration; 2]], [own_writes, broker_writes]: [f64; 2]) -> Self {
        let median = |which: usize| {
            let mut seconds: Vec<f64> = times.iter().map(|times| times[which].as_secs_f64()).collect();
            seconds.sort_by(f64::total_cmp);
            seconds.get(seconds.len() / 2).copied().unwrap_or(f64::NAN)
        };
        Self { published_s: median(0), answered_s: median(1), own_writes, broker_writes }
    }
}

impl Row {
    /// Returns all figures with what they may be, under the names that results are compared by.
    pub(super) fn point(&self) -> Point {
        let time = |name, value, growth, bar| Figure { name, value, resolution: STEP_S, growth, bar };
        let change = |name, value, bar| time(name, value, Growth::PerChange, Some(bar));
        let total = |name, value| time(name, value, Growth::Total, None);
        let writes =
            |name, value| Figure { name, value, resolution: 0.5, growth: Growth::PerChange, bar: None };
        let step = cpu_step(self.rest_s);
        let used =
            |name, value, resolution, bar| Figure { name, value, resolution, growth: Growth::Total, bar };
        let [agent, dns] = self.rest.memory_mib;
        let is_one = (self.services <= 1).then_some(Bar::Below(MEMORY));
        let to_others = self.own.published_s + self.one_more.answered_s;
        let ready_to_others = self.ready.published_s + self.changed.answered_s;
        let figures = vec![
            total("all answered after a start, s", self.all_s),
            total("after a start of the DNS server, s", self.again_s),
            change("one more of another cluster, s", self.one_more.answered_s, EXPORTED),
            change("own export on the broker, s", self.own.published_s, EXPORTED),
            change("both: export to another's answer, s", to_others, EXPORTED),
            change("another's endpoint to the answer, s", self.changed.answered_s, CONVERGED),
            change("own readiness to the own answer, s", self.ready.answered_s, READY),
            change("own readiness on the broker, s", self.ready.published_s, READY),
            change("both: readiness to another's answer, s", ready_to_others, READY),
            change("a hundred of others, s", self.many_s[0], MANY),
            change("the same after they are written, s", self.many_s[1], MANY),
            change("a hundred own, s", self.many_own_s, MANY),
            writes("own writes, one more of another", self.one_more.own_writes),
            writes("own writes, another's endpoint", self.changed.own_writes),
            writes("own writes, own export", self.own.own_writes),
            writes("broker writes, own export", self.own.broker_writes),
            writes("own writes, own readiness", self.ready.own_writes),
            writes("broker writes, own readiness", self.ready.broker_writes),
            used("agent at rest, %", self.rest.cpu[0], step, Some(Bar::Below(2.0))),
            used("DNS server at rest, %", self.rest.cpu[1], step, Some(Bar::Below(2.0))),
            used("agent, MiB", agent, 0.0, None),
            used("DNS server, MiB", dns, 0.0, None),
            used("both, MiB", agent + dns, 0.0, is_one),
            total("all removed, s", self.removed_s),
            used("both afterwards, MiB", self.after.memory_mib.iter().sum(), 0.0, None),
        ];
        Point { size: self.services, figures }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { services, clusters, endpoints, written_s, .. } = self;
        write!(
            f,
            "{services} services of {clusters} clusters with {endpoints} endpoints, written in {written_s:.1} s:"
        )?;
        self.point().figures.iter().try_for_each(|figure| write!(f, " {} {:.3};", figure.name, figure.value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_the_median_of_each_time() {
        let times = [3, 1, 2].map(|seconds| [seconds, 10 * seconds].map(Duration::from_secs));
        let change = Change::of(&times, [1.0, 2.0]);
        assert_eq!((change.published_s, change.answered_s), (2.0, 20.0));
    }
}
