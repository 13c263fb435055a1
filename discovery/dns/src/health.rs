//! Which clusters can be reached, from what the gateways say of their paths: at once out, back with hysteresis.
//!
//! A machine without clock: [`Health::handle_paths`] and [`Health::handle_removed`] at every change, [`Health::handle_timeout`]
//! when [`Health::poll_timeout`] says so, and after each of them [`Health::poll_event`] until there is none.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use crate::cluster::ClusterState;
use crate::label::Label;
use crate::writer::MAX_CLUSTERS;

/// How long a cluster stays out of the answers after an outage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HealthConfig {
    /// After a single outage.
    pub hold: Duration,
    /// At most, after outages in a row: each doubles it.
    pub hold_most: Duration,
    /// How long a cluster has to be up for outages not to be in a row any more.
    pub calm: Duration,
}

impl Default for HealthConfig {
    fn default() -> Self {
        Self {
            hold: Duration::from_secs(2),
            hold_most: Duration::from_secs(60),
            calm: Duration::from_secs(120),
        }
    }
}

/// The machine.
#[derive(Debug)]
pub struct Health {
    config: HealthConfig,
    clusters: BTreeMap<Label, Tracked>,
    events: VecDeque<(Label, Option<ClusterState>)>,
}

/// A cluster that the gateways have a record of.
#[derive(Debug)]
struct Tracked {
    phase: Phase,
    hold: Duration,
    /// Smoothed as TCP does it (RFC 6298): an eighth of each new one.
    rtt: Option<Duration>,
    /// What was emitted last.
    emitted: Option<ClusterState>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// It has not been up yet: no outage, and so nothing to wait for afterwards.
    New,
    Up {
        since: Instant,
    },
    Down,
    /// Its paths are up again, but it is not answered yet.
    Held {
        until: Instant,
    },
}

impl Health {
    /// Creates a machine that knows of no cluster.
    pub fn new(config: HealthConfig) -> Self {
        Self { config, clusters: BTreeMap::new(), events: VecDeque::new() }
    }

    /// Handles what the gateways say of a cluster: whether one of their paths to it is up, and its round-trip time.
    pub fn handle_paths(&mut self, cluster: &Label, is_up: bool, rtt: Option<Duration>, now: Instant) {
        let hold = self.config.hold;
        if !self.clusters.contains_key(cluster) {
            if self.clusters.len() >= MAX_CLUSTERS {
                return;
            }
            let phase = if is_up { Phase::Up { since: now } } else { Phase::New };
            let tracked = Tracked { phase, hold, rtt: None, emitted: None };
            self.clusters.insert(cluster.clone(), tracked);
        }
        let Some(tracked) = self.clusters.get_mut(cluster) else { return };
        tracked.phase = match (tracked.phase, is_up) {
            (Phase::New, true) => Phase::Up { since: now },
            (Phase::New, false) => Phase::New,
            (Phase::Up { since }, true) => Phase::Up { since },
            (Phase::Up { since }, false) => {
                let is_calm = now.saturating_duration_since(since) >= self.config.calm;
                tracked.hold = if is_calm { hold } else { tracked.hold };
                Phase::Down
            }
            (Phase::Down, true) => Phase::Held { until: now + tracked.hold },
            (Phase::Held { until }, true) => Phase::Held { until },
            (Phase::Held { .. } | Phase::Down, false) => Phase::Down,
        };
        tracked.rtt = smoothed(tracked.rtt, rtt);
        self.release(cluster, now);
        self.emit(cluster);
    }

    /// Handles that the gateways have no record of a cluster any more.
    pub fn handle_removed(&mut self, cluster: &Label) {
        if self.clusters.remove(cluster).is_some() {
            self.events.push_back((cluster.clone(), None));
        }
    }

    /// Handles that time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        let is_due = |tracked: &Tracked| matches!(tracked.phase, Phase::Held { until } if until <= now);
        let due = self.clusters.iter().filter(|(_, tracked)| is_due(tracked)).map(|(id, _)| id.clone());
        for cluster in due.collect::<Vec<Label>>() {
            self.release(&cluster, now);
            self.emit(&cluster);
        }
    }

    /// Returns when [`Health::handle_timeout`] wants to be called.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let until = |tracked: &Tracked| match tracked.phase {
            Phase::Held { until } => Some(until),
            Phase::New | Phase::Up { .. } | Phase::Down => None,
        };
        self.clusters.values().filter_map(until).min()
    }

    /// Returns the next cluster whose state has changed, for [`Change::Cluster`](crate::Change::Cluster).
    pub fn poll_event(&mut self) -> Option<(Label, Option<ClusterState>)> {
        self.events.pop_front()
    }

    /// Lets a cluster back in if its time has come.
    fn release(&mut self, cluster: &Label, now: Instant) {
        let Some(tracked) = self.clusters.get_mut(cluster) else { return };
        if matches!(tracked.phase, Phase::Held { until } if until <= now) {
            tracked.phase = Phase::Up { since: now };
            tracked.hold = (tracked.hold * 2).min(self.config.hold_most);
        }
    }

    /// Emits a cluster's state if it differs from what was emitted last.
    fn emit(&mut self, cluster: &Label) {
        let Some(tracked) = self.clusters.get_mut(cluster) else { return };
        let is_up = matches!(tracked.phase, Phase::Up { .. });
        let emitted = tracked.emitted.and_then(|state| state.rtt);
        let rtt = if is_other_distance(emitted, tracked.rtt) { tracked.rtt } else { emitted };
        let state = Some(ClusterState { is_up, rtt });
        if state != tracked.emitted {
            tracked.emitted = state;
            self.events.push_back((cluster.clone(), state));
        }
    }
}

fn smoothed(old: Option<Duration>, new: Option<Duration>) -> Option<Duration> {
    match (old, new) {
        (Some(old), Some(new)) => Some((old * 7 + new) / 8),
        (old, new) => new.or(old),
    }
}

/// Returns whether two times differ enough for the order of clusters to change: by a tenth and by half a millisecond, so
/// that two clusters at the same distance do not change places at every measurement.
fn is_other_distance(old: Option<Duration>, new: Option<Duration>) -> bool {
    match (old, new) {
        (Some(old), Some(new)) => old.abs_diff(new) > (old / 10).max(Duration::from_micros(500)),
        (old, new) => old.is_some() != new.is_some(),
    }
}

#[cfg(test)]
mod tests;
