//! The results of a plan's parts. Each part decides about small units, and again when something has changed that a unit
//! depends on.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use jiff::Timestamp;

use super::state::Problem;
use super::writing::Writing;
use crate::api::{Kind, ObjectKey};
use crate::runner::Write;

/// A namespace and a name in it.
pub(super) type Name = (String, String);

/// The part of an exported service that has a global address of its own. In the order in which they are preferred.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Target {
    /// The service as a whole.
    Service,
    /// One pod of a headless service, by its name.
    Pod(String),
    /// One address of a headless service without selector.
    Address(Ipv4Addr),
}

/// When an object's turn to be given addresses is: who has waited longest is served first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Turn {
    pub(super) created: Timestamp,
    pub(super) rank: u8,
    pub(super) key: ObjectKey,
}

/// Something that is decided by itself. The first ones are written first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Unit {
    /// The networks of this cluster.
    OwnCluster,
    /// The networks of other clusters.
    OtherClusters,
    /// The status of an object that has addresses, or the annotation of this gateway.
    Addresses(Turn),
    /// Whether there is the ClusterGlobalEgressIP.
    ClusterEgress,
    /// The request of an exported service, or of a part of it.
    Export(Name, Target),
    /// Whether there is a GlobalIngressIP of this name, and its metadata.
    Ingress(Name),
    /// Whether there is an internal Service of this name.
    Internal(Name),
    /// Whether there is a copy of Endpoints of this name.
    Copy(Name),
    /// The addresses by which packets of an object's sources leave.
    Rule(ObjectKey),
}

impl Unit {
    /// Returns `true` if it is about which services are exported.
    const fn is_of_exports(&self) -> bool {
        matches!(self, Self::Export(..) | Self::Ingress(_))
    }
}

/// One write and any problems of each unit.
#[derive(Debug, Default)]
pub(super) struct Outputs {
    writes: BTreeMap<Unit, Write>,
    /// Writes that were not handed out yet.
    fresh: BTreeSet<Unit>,
    problems: BTreeMap<Unit, Vec<Problem>>,
    has_other_problems: bool,
}

impl Outputs {
    /// Takes what a unit has come to, instead of what it came to before.
    pub(super) fn set(&mut self, unit: Unit, writing: Writing) {
        let (write, problems) = writing.into_parts();
        if self.problems.get(&unit).map_or(&[][..], Vec::as_slice) != problems {
            self.has_other_problems = true;
            if problems.is_empty() {
                self.problems.remove(&unit);
            } else {
                self.problems.insert(unit.clone(), problems);
            }
        }
        if self.writes.get(&unit) == write.as_ref() {
            return;
        }
        match write {
            Some(write) => {
                self.fresh.insert(unit.clone());
                self.writes.insert(unit, write);
            }
            None => {
                self.fresh.remove(&unit);
                self.writes.remove(&unit);
            }
        }
    }

    /// Drops what a unit came to, which there is no longer.
    pub(super) fn remove(&mut self, unit: &Unit) {
        self.writes.remove(unit);
        self.fresh.remove(unit);
        self.has_other_problems |= self.problems.remove(unit).is_some();
    }

    /// Returns whether problems have changed since this was called last.
    pub(super) fn take_has_other_problems(&mut self) -> bool {
        std::mem::take(&mut self.has_other_problems)
    }

    /// Returns all problems, each once. Exports' are left out while these are not known.
    pub(super) fn problems(&self, are_exports_known: bool) -> Vec<Problem> {
        let units = self.problems.iter().filter(|(unit, _)| are_exports_known || !unit.is_of_exports());
        let mut problems: Vec<Problem> = units.flat_map(|(_, problems)| problems).cloned().collect();
        problems.sort();
        problems.dedup();
        problems
    }

    /// Returns `true` if there is something to write.
    pub(super) fn has_writes(&self, are_exports_known: bool) -> bool {
        are_exports_known && !self.writes.is_empty() || self.writes.keys().any(|unit| !unit.is_of_exports())
    }

    /// Returns at most so many writes that were not returned yet, or all others too if these are fewer; and whether more
    /// of the former are left. One write per object.
    pub(super) fn take_writes(&mut self, most: usize, are_exports_known: bool) -> (Vec<Write>, bool) {
        let is_due = |unit: &Unit| (are_exports_known || !unit.is_of_exports()) && self.is_first(unit);
        let mut fresh = self.fresh.iter().filter(|unit| is_due(unit));
        let units: Vec<Unit> = fresh.by_ref().take(most).cloned().collect();
        if fresh.next().is_some() {
            let writes = units.iter().filter_map(|unit| self.writes.get(unit)).cloned().collect();
            units.iter().for_each(|unit| {
                self.fresh.remove(unit);
            });
            return (writes, true);
        }
        let all = self.writes.iter().filter(|(unit, _)| is_due(unit));
        let writes = all.map(|(_, write)| write.clone()).collect();
        units.iter().for_each(|unit| {
            self.fresh.remove(unit);
        });
        (writes, false)
    }

    /// Returns `true` if a unit's write is the first of its object. An object that two units write is written by the first;
    /// the other comes to it in the next plan. A deletion goes before everything. Only GlobalIngressIPs have two units: one for the status, one for the rest.
    fn is_first(&self, unit: &Unit) -> bool {
        let deletes = |unit: &Unit| matches!(self.writes.get(unit), Some(Write::Delete(_)));
        match unit {
            Unit::Addresses(turn) if turn.key.kind == Kind::GlobalIngressIp => {
                let name = (turn.key.namespace.clone(), turn.key.name.clone());
                !deletes(&Unit::Ingress(name))
            }
            Unit::Ingress((namespace, name)) if !deletes(unit) => {
                let Some(Write::Update(object)) = self.writes.get(unit) else { return true };
                let key = ObjectKey::new(Kind::GlobalIngressIp, namespace.as_str(), name.as_str());
                Turn::of(object, key).is_none_or(|turn| !self.writes.contains_key(&Unit::Addresses(turn)))
            }
            Unit::OwnCluster
            | Unit::OtherClusters
            | Unit::Addresses(_)
            | Unit::ClusterEgress
            | Unit::Export(..)
            | Unit::Ingress(_)
            | Unit::Internal(_)
            | Unit::Copy(_)
            | Unit::Rule(_) => true,
        }
    }
}
