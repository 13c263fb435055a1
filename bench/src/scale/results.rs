//! What was found at each size of the set.

use std::fmt;

use serde::Serialize;
use trieste_tests::mesh::Side;

use super::figures::{Bar, Figure, Growth, Point};
use crate::usage::{Usage, cpu_step};

/// What each process may use at rest, percent of a core.
const REST: Bar = Bar::Below(2.0);
/// And of memory, MiB.
const MEMORY: Bar = Bar::AtMost(150.0);
/// How exactly times are known, in seconds: as long as a look at everything takes.
pub(super) const STEP_S: f64 = 0.04;

/// One size of the set.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Row {
    /// Members beside the two.
    pub(crate) members: u32,
    /// How many of these answer.
    pub(crate) answering: u32,
    /// Seconds from the last one's being written until all of these were connected.
    pub(crate) up_s: f64,
    /// How many are reported as connected after the rest.
    pub(crate) connected: usize,
    /// Seconds that everything rested while it was measured.
    pub(crate) rest_s: f64,
    /// Seconds that it took to write them.
    pub(crate) written_s: f64,
    /// Seconds from then until every node had all routes.
    pub(crate) last_route_s: f64,
    /// The same for one more member.
    pub(crate) one_more_s: f64,
    /// The same for one more network of it.
    pub(crate) one_changed_s: f64,
    /// At rest.
    pub(crate) rest: Used,
    /// One TCP stream before there were others, Gbit/s.
    pub(crate) alone_gbit_s: f64,
    /// The same beside them.
    pub(crate) gbit_s: f64,
    /// Seconds from the start of a gateway that was killed until a pod was answered.
    pub(crate) restart_s: f64,
    /// Seconds that it took to take them away.
    pub(crate) removing_s: f64,
    /// Seconds from then until no route of the others was left.
    pub(crate) removed_s: f64,
    /// Seconds of these that a gateway keeps what a cluster had after it has gone.
    pub(crate) departure_s: f64,
    /// Datagrams lost between the two in the minute in which the others leave, of one every 10 ms.
    pub(crate) removal_lost: u32,
    /// The longest silence between the two in it, milliseconds.
    pub(crate) removal_longest_ms: f64,
    /// Memory of the gateway before there were others, MiB.
    pub(crate) before_mib: f64,
    /// And a minute after they have left.
    pub(crate) after_mib: f64,
}

/// That of a gateway, of the route agent beside it, and of a worker's.
pub(crate) type Used = Usage<3>;

impl Used {
    /// Reads what those of a side have used so far.
    ///
    /// # Errors
    /// If one of them is gone.
    pub(crate) fn of_side(side: &Side) -> anyhow::Result<Self> {
        Self::of([side.gateway(0)?.id(), side.agent(0)?.id(), side.agent(1)?.id()])
    }

    /// Returns the gateway's memory.
    pub(crate) fn mib(&self) -> f64 {
        self.memory_mib[0]
    }

    /// Returns the figures of what was used in so many seconds at rest; `other` names those of the third process.
    pub(super) fn figures(&self, seconds: f64, other: [&'static str; 2]) -> [Figure; 6] {
        let step = cpu_step(seconds);
        let cpu = |name, percent| figure(name, percent, step, Growth::Total, REST);
        let memory = |name, mib| figure(name, mib, 0.0, Growth::Total, MEMORY);
        [
            cpu("gateway at rest, %", self.cpu[0]),
            cpu("its route agent, %", self.cpu[1]),
            cpu(other[0], self.cpu[2]),
            memory("gateway, MiB", self.memory_mib[0]),
            memory("its route agent, MiB", self.memory_mib[1]),
            memory(other[1], self.memory_mib[2]),
        ]
    }
}

impl Row {
    /// Returns all figures with what they may be, under the names that results are compared by.
    pub(crate) fn point(&self) -> Point {
        let total = |name, value, step, bar| figure(name, value, step, Growth::Total, bar);
        let per_change = |name, value, step, bar| figure(name, value, step, Growth::PerChange, bar);
        let free = |name, value, bar| figure(name, value, 0.0, Growth::Free, bar);
        let mut figures = vec![
            total("last route, s", self.last_route_s, STEP_S, Bar::Below(5.0)),
            Figure { bar: None, ..total("connected, s", self.up_s, STEP_S, Bar::Below(f64::INFINITY)) },
            per_change("one more, s", self.one_more_s, STEP_S, Bar::Below(0.3)),
            per_change("one changed, s", self.one_changed_s, STEP_S, Bar::Below(0.3)),
        ];
        figures.extend(self.rest.figures(self.rest_s, ["a worker's, %", "a worker's, MiB"]));
        figures.extend([
            total("started again, s", self.restart_s, STEP_S, Bar::Below(0.5)),
            // A gateway has no setting for this time: it waits for it once, from the last one's leaving on.
            total(
                "routes gone, less the grace, s",
                self.removed_s - self.departure_s,
                STEP_S,
                Bar::Below(5.0),
            ),
            free("lost as they leave", f64::from(self.removal_lost), Bar::AtMost(0.0)),
            free("TCP, of alone", self.gbit_s / self.alone_gbit_s, Bar::AtLeast(0.95)),
            free("memory after, of before", self.after_mib / self.before_mib, Bar::AtMost(1.3)),
        ]);
        Point { size: self.members, figures }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} members, of which {} answer ", self.members, self.answering)?;
        write!(f, "and {} are connected after the rest:", self.connected)?;
        for figure in self.point().figures {
            write!(f, " {} {:.2};", figure.name, figure.value)?;
        }
        write!(f, " silent for {:.0} ms as they leave", self.removal_longest_ms)
    }
}

/// Makes a figure with a bar.
pub(super) fn figure(name: &'static str, value: f64, resolution: f64, growth: Growth, bar: Bar) -> Figure {
    Figure { name, value, resolution, growth, bar: Some(bar) }
}
