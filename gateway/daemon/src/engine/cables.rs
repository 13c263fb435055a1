//! All cables: by row, where workers' reports find them without a search, by name and by lane.

use std::collections::BTreeMap;
use std::sync::Arc;

use trieste_cables::{CableKind, Site};
use trieste_control::connection_status::StatusMachine;
use trieste_packet::{CableId, LaneId};
use trieste_pipeline::LaneReport;
use trieste_pipeline::health::Watch;

use crate::tables::{Choice, Lane, Peer};

/// One cable.
pub(super) struct Cable {
    pub(super) peer: Arc<Peer>,
    pub(super) choice: Choice,
    pub(super) lane: Lane,
    /// How its path is probed, if it is.
    pub(super) watch: Option<Watch>,
    pub(super) machine: StatusMachine,
    pub(super) last: Option<LaneReport>,
    pub(super) established: Option<i64>,
    /// The last pass that wanted it.
    pub(super) pass: u64,
    /// Whether it was negotiated for networks that are not ours any more.
    pub(super) is_outdated: bool,
}

impl Cable {
    /// Sets the networks that its ends have, `near` being ours.
    pub(super) fn set_networks(&self, kind: &dyn CableKind, near: &Site) {
        let [near, far] = [self.peer.near(near), self.peer.site()];
        kind.set_networks(self.lane.lane, &near.subnets, &far.subnets);
    }
}

/// The cables and gateways that the status is about, in its order: found out once for all looks at their states.
pub(super) struct Standing {
    /// Rows of the cables that carry remote clusters' traffic.
    pub(super) connections: Vec<CableId>,
    /// Rows of the cables to the other gateways of our own cluster.
    pub(super) siblings: Vec<CableId>,
    /// Gateways whose addresses are still to be chosen.
    pub(super) pending: Arc<[Arc<Peer>]>,
}

/// All cables. The row of counters of a cable is where it is.
#[derive(Default)]
pub(super) struct Cables {
    rows: Vec<Option<Cable>>,
    /// By cable name: another object that says the same of a gateway changes nothing.
    by_name: BTreeMap<String, CableId>,
    by_lane: BTreeMap<LaneId, CableId>,
}

impl Cables {
    /// Returns how many there are.
    pub(super) fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Returns the cable of a row.
    pub(super) fn at(&self, row: CableId) -> Option<&Cable> {
        self.rows.get(usize::from(row.0))?.as_ref()
    }

    /// Returns the cable of a row, if it has this lane: reports of cables that were cut are late.
    pub(super) fn at_mut(&mut self, row: CableId, lane: LaneId) -> Option<&mut Cable> {
        self.rows.get_mut(usize::from(row.0))?.as_mut().filter(|cable| cable.lane.lane == lane)
    }

    /// Returns the row of a cable.
    pub(super) fn row(&self, name: &str) -> Option<CableId> {
        self.by_name.get(name).copied()
    }

    /// Returns a cable.
    pub(super) fn get(&self, name: &str) -> Option<&Cable> {
        self.at(self.row(name)?)
    }

    /// Returns a cable, to be changed.
    pub(super) fn get_mut(&mut self, name: &str) -> Option<&mut Cable> {
        let row = self.row(name)?;
        self.rows.get_mut(usize::from(row.0))?.as_mut()
    }

    /// Returns all cables, to be changed.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Cable> {
        self.rows.iter_mut().flatten()
    }

    /// Returns the cable that has a lane.
    #[cfg(test)]
    pub(super) fn with_lane(&self, lane: LaneId) -> Option<&Cable> {
        self.at(*self.by_lane.get(&lane)?)
    }

    /// Returns the cable that has a lane, to be changed.
    pub(super) fn with_lane_mut(&mut self, lane: LaneId) -> Option<&mut Cable> {
        let row = *self.by_lane.get(&lane)?;
        self.at_mut(row, lane)
    }

    /// Adds a cable that has a name, a row and a lane that no other one has.
    pub(super) fn insert(&mut self, cable: Cable) {
        let (name, row) = (&cable.peer.facts.cable_name, cable.lane.cable);
        self.by_name.insert(name.clone(), row);
        self.by_lane.insert(cable.lane.lane, row);
        let at = usize::from(row.0);
        if self.rows.len() <= at {
            self.rows.resize_with(at + 1, || None);
        }
        self.rows[at] = Some(cable);
    }

    /// Removes a cable. Rows at the end take no space then.
    pub(super) fn remove(&mut self, name: &str) -> Option<Cable> {
        let row = self.by_name.remove(name)?;
        let cable = self.rows.get_mut(usize::from(row.0))?.take()?;
        self.by_lane.remove(&cable.lane.lane);
        let used = self.rows.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
        self.rows.truncate(used);
        if self.rows.len() < self.rows.capacity() / 4 {
            self.rows.shrink_to_fit();
        }
        Some(cable)
    }

    /// Returns all cables, by name.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Cable> {
        self.by_name.values().filter_map(|row| self.at(*row))
    }
}
