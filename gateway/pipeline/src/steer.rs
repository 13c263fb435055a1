//! Which path a flow takes: weighted rendezvous over those that work ([`trieste_packet::rendezvous`]).
//!
//! ```text
//!   pinned address ─▶ its gateway's path, whatever its state
//!   else the first of these that is not empty:
//!     paths that are up ─▶ paths that drain ─▶ siblings that are up ─▶ siblings that drain
//!                                                             ─▶ paths held back ─▶ siblings held back
//!                                                             ─▶ the paths that were the last to go down
//!     (no siblings for what a sibling passed on)
//! ```
//!
//! What a sibling passed on never goes to a sibling again: it takes a path of our own or is dropped. When nothing seems to
//! work, steering stays on what worked last: probes may be wrong, and where all is lost nothing is lost by trying. What went
//! down long before is left out, or a pause of the only gateway that is left would send flows to one that is gone.

use std::time::Duration;

use trieste_packet::rendezvous::choose;
use trieste_packet::{CableId, Decision, DropReason, FlowKey, GatewayKey, PathId};

use crate::board::{Board, PathState};
use crate::tables::{Path, Tables};

/// Ours: paths that went down within this time of each other did so at once. Twice the time-out of a path on a machine that
/// is busy, and less than it takes to start a gateway that was stopped.
const AT_ONCE: Duration = Duration::from_millis(300);

/// A path that a flow may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// The path.
    pub path: PathId,
    /// Its cable, by which its state is known.
    pub cable: CableId,
    /// The gateway at its far end.
    pub key: GatewayKey,
    /// Its weight.
    pub weight: u16,
}

/// The path for a flow among those of `candidates` that are fit: a path that comes or goes moves only its own share of
/// the flows. `None` when none is.
pub fn decide(
    flow: &FlowKey,
    candidates: impl IntoIterator<Item = Candidate>,
    is_fit: impl Fn(CableId) -> bool,
) -> Option<PathId> {
    let fit = candidates.into_iter().filter(|candidate| is_fit(candidate.cable));
    let drawn = fit.map(|candidate| (candidate.key, candidate.weight, candidate.path));
    choose(flow.symmetric_hash(), drawn)
}

/// Where a packet comes from that goes to a remote cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// From inside the cluster.
    Inside,
    /// From a sibling, which has no path that works.
    Sibling,
}

/// Why a path was chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    /// The destination is its gateway's own address.
    Pinned,
    /// It is up.
    Up,
    /// Its gateway is about to stop or has just started, and all others are down or in the same state.
    Draining,
    /// It leads to a sibling: no path of our own works.
    Relay,
    /// It came back a moment ago, and nothing else works, or only what is about to end.
    Held,
    /// Nothing seems to work, and this worked until last.
    NothingUp,
}

/// A path that was chosen.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Steered<'a> {
    pub(crate) path: &'a Path,
    pub(crate) why: Why,
    /// How many it was chosen among.
    pub(crate) among: usize,
}

/// What steering looks at.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Steering<'a> {
    pub(crate) tables: &'a Tables,
    pub(crate) board: &'a Board,
}

impl<'a> Steering<'a> {
    /// The decision for a flow that may take one of `paths`.
    pub(crate) fn take(
        &self,
        flow: &FlowKey,
        paths: &[PathId],
        origin: Origin,
    ) -> Result<Decision, DropReason> {
        self.choose(flow, paths, origin).map(|steered| self.decision(steered.path))
    }

    /// What packets that take a path carry along.
    pub(crate) fn decision(&self, path: &Path) -> Decision {
        let mtu_bytes = self.board.mtu(path.cable).map_or(path.mtu_bytes, |found| found.min(path.mtu_bytes));
        Decision { mtu_bytes, ..path.decision() }
    }

    /// The path for a flow that may take one of `paths`, and why.
    pub(crate) fn choose(
        &self,
        flow: &FlowKey,
        paths: &[PathId],
        origin: Origin,
    ) -> Result<Steered<'a>, DropReason> {
        // Whoever pins another cluster's address attracts nothing.
        let pinned = self.tables.pinned(flow.destination()).filter(|path| paths.contains(path));
        if let Some(path) = pinned.and_then(|id| self.tables.path(id)) {
            return Ok(Steered { path, why: Why::Pinned, among: 1 });
        }
        let own = paths.iter().copied();
        let among_own = |why, is_fit: fn(PathState) -> bool| {
            self.among(flow, own.clone(), why, |cable| is_fit(self.board.state(cable)))
        };
        among_own(Why::Up, PathState::is_usable)
            .or_else(|| {
                let leaving = among_own(Why::Draining, |state| state == PathState::Draining)?;
                // It ends for sure, what came back only may.
                Some(among_own(Why::Held, |state| state == PathState::Held).unwrap_or(leaving))
            })
            .or_else(|| self.relay(flow, paths, origin, PathState::is_usable))
            .or_else(|| self.relay(flow, paths, origin, |state| state == PathState::Draining))
            .or_else(|| among_own(Why::Held, PathState::is_passable))
            .or_else(|| self.relay(flow, paths, origin, PathState::is_passable))
            .or_else(|| self.last_to_go_down(flow, own.clone()))
            .ok_or(match origin {
                Origin::Inside => DropReason::NoLane,
                Origin::Sibling => DropReason::NoOwnPath,
            })
    }

    /// The sibling that passes a flow on.
    fn relay(
        &self,
        flow: &FlowKey,
        paths: &[PathId],
        origin: Origin,
        is_fit: fn(PathState) -> bool,
    ) -> Option<Steered<'a>> {
        if origin == Origin::Sibling {
            return None;
        }
        // A cluster that knows one gateway of ours has a path at the one that leads.
        let leader = self.tables.leader().filter(|_| paths.is_empty());
        let siblings = self.tables.siblings().iter().map(|sibling| sibling.path);
        let siblings = siblings.filter(|path| leader.is_none_or(|leader| leader == *path));
        self.among(flow, siblings, Why::Relay, |cable| is_fit(self.board.state(cable)))
    }

    /// Where nothing works: among what worked until last.
    fn last_to_go_down(
        &self,
        flow: &FlowKey,
        paths: impl Iterator<Item = PathId> + Clone,
    ) -> Option<Steered<'a>> {
        let cables = paths.clone().filter_map(|id| self.tables.path(id)).map(|path| path.cable);
        let last = cables.filter_map(|cable| self.board.fell(cable)).max();
        self.among(flow, paths, Why::NothingUp, |cable| {
            last.is_none_or(|last| self.board.fell(cable).is_some_and(|fell| fell + AT_ONCE >= last))
        })
    }

    fn among(
        &self,
        flow: &FlowKey,
        paths: impl Iterator<Item = PathId> + Clone,
        why: Why,
        is_fit: impl Fn(CableId) -> bool,
    ) -> Option<Steered<'a>> {
        let candidates = paths.filter_map(|id| self.tables.path(id)).map(Path::candidate);
        let chosen = decide(flow, candidates.clone(), &is_fit)?;
        let among = candidates.filter(|candidate| is_fit(candidate.cable)).count();
        Some(Steered { path: self.tables.path(chosen)?, why, among })
    }
}

#[cfg(test)]
mod tests;
