//! The plan: what turns the rows that are there into those that should be.
//!
//! Only rows with our mark are changed or removed. Upstream's rows, of exactly the kind that it makes for a remote network,
//! are adopted where one of ours should be: they get our mark. Of the rest of upstream's, those are stale, and removed,
//! that reroute or route a network which no object names, once all objects have been listed: upstream's agent, which would
//! remove them, has been replaced. What has no mark at all stays, whatever it looks like, but for gateway chassis of a port
//! of ours, which say where the port lives and are a property of it.

use std::collections::{BTreeMap, BTreeSet};

use trieste_ovsdb::value::{Datum, Row};

use crate::change::{Change, Transaction, relied_on, transactions};
use crate::chassis::Chassis;
use crate::condition::{Condition, Conditions, Effect};
use crate::constants::{OWNER, OWNER_KEY, UPSTREAM_KEY};
use crate::desired::{Desired, DesiredRow, Stage, Target, desired};
use crate::rows::{Entry, Owner, RowId, Rows};
use crate::table::{EXTERNAL_IDS, Table};
use crate::wanted::Wanted;

/// What is to be done, in this order, and what is not as it should be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// The transactions; none if nothing differs.
    pub transactions: Vec<Transaction>,
    /// The conditions of what is wanted, and of the rows.
    pub conditions: Conditions,
}

/// Plans what gives a zone's database the rows that are wanted.
///
/// Costs the number of remote networks and of our rows, times the logarithm of all rows.
#[must_use]
pub fn plan(wanted: &Wanted, rows: &Rows, chassis: &Chassis) -> Plan {
    let mut conditions = wanted.conditions().clone();
    match desired(wanted, rows, chassis) {
        Ok(mut desired) => {
            conditions.extend(std::mem::take(&mut desired.conditions));
            let mut planner = Planner::new(rows, &wanted.version, conditions);
            planner.run(&desired);
            planner.finish()
        }
        Err(condition) => {
            conditions.add(condition);
            Plan { transactions: Vec::new(), conditions }
        }
    }
}

/// Plans what removes every row with our mark, adopted ones included, and nothing else.
#[must_use]
pub fn uninstall(rows: &Rows) -> Plan {
    let mut planner = Planner::new(rows, "", Conditions::default());
    planner.run(&Desired::default());
    planner.finish()
}

struct Planner<'a> {
    rows: &'a Rows,
    version: &'a str,
    /// Rows that are there and should be.
    kept: BTreeSet<RowId>,
    /// Those of them that others are a part of, by name.
    parents: BTreeMap<Table, BTreeMap<String, RowId>>,
    changes: Vec<(Stage, Change)>,
    conditions: Conditions,
}

/// The rows that stand where one should be.
#[derive(Default)]
struct Found<'a> {
    ours: Option<(RowId, &'a Entry)>,
    upstream: Option<(RowId, &'a Entry)>,
    other: Option<&'a Entry>,
}

impl<'a> Planner<'a> {
    fn new(rows: &'a Rows, version: &'a str, conditions: Conditions) -> Self {
        let (kept, parents) = (BTreeSet::new(), BTreeMap::new());
        Self { rows, version, kept, parents, changes: Vec::new(), conditions }
    }

    fn run(&mut self, desired: &Desired) {
        for row in &desired.rows {
            self.want(row);
        }
        let is_built = desired.rows.iter().any(|row| row.stage == Stage::Build);
        let stale = self.rows.upstream().filter(|_| desired.is_complete);
        let unwanted: BTreeSet<RowId> =
            self.rows.ours().chain(stale).filter(|id| !self.kept.contains(id)).collect();
        for id in &unwanted {
            self.remove(*id, is_built, &unwanted);
        }
    }

    fn finish(self) -> Plan {
        Plan { transactions: transactions(self.changes), conditions: self.conditions }
    }

    /// Makes a row, or of one that is there what it should be.
    fn want(&mut self, desired: &DesiredRow) {
        let parent = desired.parent.map(|parent| self.resolve(parent));
        let found = self.find(desired, parent);
        let effect = found.other.map(|entry| effect_of(entry, desired));
        if let Some(effect) = effect {
            self.report(desired, effect);
        }
        match found.ours.or(found.upstream) {
            Some((id, entry)) => self.keep(id, entry, desired, parent),
            None if matches!(effect, Some(Effect::Same | Effect::Blocks)) => {}
            None => self.insert(desired, parent),
        }
    }

    /// Returns the row of ours that a name means, unless it has yet to be made.
    fn resolve(&self, parent: Target) -> Target {
        let Target::Named(table, name) = parent else { return parent };
        let row = self.parents.get(&table).and_then(|names| names.get(name));
        row.map_or(parent, |id| Target::Existing(*id))
    }

    fn report(&mut self, desired: &DesiredRow, effect: Effect) {
        let (table, key) = (desired.table.name(), desired.key.clone());
        self.conditions.add(Condition::ForeignRow { table, key, effect });
    }

    fn find(&self, desired: &DesiredRow, parent: Option<Target>) -> Found<'a> {
        let mut found = Found::default();
        for (uuid, entry) in self.rows.with_key(desired.table, &desired.key) {
            let id = (desired.table, uuid);
            // A name means one row, wherever it is.
            if !desired.table.is_named() && !self.is_part(id, parent) {
                continue;
            }
            match self.rows.owner(id) {
                Owner::Us => found.ours = found.ours.or(Some((id, entry))),
                Owner::Upstream => found.upstream = found.upstream.or(Some((id, entry))),
                Owner::Other => found.other = found.other.or(Some(entry)),
            }
        }
        found
    }

    /// Returns `true` if a row is a part of `parent`. Nothing is, of what has yet to be made.
    fn is_part(&self, id: RowId, parent: Option<Target>) -> bool {
        matches!(parent, Some(Target::Existing(parent)) if self.rows.is_child(id, parent))
    }

    fn insert(&mut self, desired: &DesiredRow, parent: Option<Target>) {
        let mut row = desired.row.clone();
        row.insert(EXTERNAL_IDS.to_owned(), Datum::map([(OWNER_KEY, OWNER), (UPSTREAM_KEY, self.version)]));
        let (table, key) = (desired.table, desired.key.clone());
        self.changes.push((desired.stage, Change::Insert { table, key, row, parent }));
    }

    fn keep(&mut self, id: RowId, entry: &Entry, desired: &DesiredRow, parent: Option<Target>) {
        self.kept.insert(id);
        if !desired.table.references().is_empty() {
            self.parents.entry(desired.table).or_default().insert(desired.key.clone(), id);
        }
        let differs = |(column, value): &(&String, &Datum)| entry.column(column) != **value;
        let row: Row = desired
            .row
            .iter()
            .filter(differs)
            .map(|(column, value)| (column.clone(), value.clone()))
            .collect();
        let marked = entry.column(EXTERNAL_IDS);
        let marks = [(OWNER_KEY, OWNER), (UPSTREAM_KEY, self.version)];
        let missing = marks.into_iter().filter(|(key, _)| marked.value_of(key).is_none());
        let marks: Vec<_> = missing.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        let (from, to) = self.moves(id, parent);
        if !row.is_empty() || !marks.is_empty() || !from.is_empty() || to.is_some() {
            let before = relied_on(id.0, entry);
            self.changes.push((desired.stage, Change::Update { id, before, row, marks, from, to }));
        }
    }

    /// Returns what a row should no longer be a part of, and what it should.
    fn moves(&self, id: RowId, wanted: Option<Target>) -> (Vec<RowId>, Option<Target>) {
        let Some(wanted) = wanted else { return (Vec::new(), None) };
        let from = self.rows.parents(id).filter(|parent| wanted != Target::Existing(*parent)).collect();
        (from, (!self.is_part(id, Some(wanted))).then_some(wanted))
    }

    fn remove(&mut self, id: RowId, is_built: bool, unwanted: &BTreeSet<RowId>) {
        let Some(entry) = self.rows.entry(id) else { return };
        let stage = match id.0 {
            Table::Policy if entry.column("action").as_str() == Some("drop") => Stage::Open,
            Table::StaticRoute | Table::Policy => Stage::Remove,
            Table::LogicalRouter
            | Table::LogicalSwitch
            | Table::LogicalRouterPort
            | Table::LogicalSwitchPort
            | Table::GatewayChassis
                if is_built =>
            {
                Stage::Build
            }
            Table::LogicalRouter
            | Table::LogicalSwitch
            | Table::LogicalRouterPort
            | Table::LogicalSwitchPort
            | Table::GatewayChassis => Stage::Dismantle,
        };
        let before = relied_on(id.0, entry);
        if id.0.parent().is_some() {
            let from: Vec<RowId> = self.rows.parents(id).collect();
            // What nothing refers to is about to vanish by itself.
            if !from.is_empty() {
                self.changes.push((stage, Change::Detach { id, before, from }));
            }
        } else if let Some(guest) = self.guest(id, unwanted) {
            let (table, key) = (guest.0.name(), self.rows.entry(guest).map(|entry| entry.key.clone()));
            let key = key.unwrap_or_default();
            self.conditions.add(Condition::ForeignRow { table, key, effect: Effect::Keeps });
        } else {
            self.changes.push((stage, Change::Delete { id, before }));
        }
    }

    /// Returns a part of a row of ours that is not ours, stays, and would vanish with it.
    fn guest(&self, id: RowId, unwanted: &BTreeSet<RowId>) -> Option<RowId> {
        let stays = |part: &RowId| self.rows.owner(*part) != Owner::Us && !unwanted.contains(part);
        self.rows.references(id).into_iter().find(stays)
    }
}

/// Returns what a row of somebody else means for one of ours.
fn effect_of(entry: &Entry, desired: &DesiredRow) -> Effect {
    let next_hops = |row: &Row| -> BTreeSet<String> {
        let columns = ["nexthop", "nexthops"].into_iter().filter_map(|column| row.get(column));
        columns.flat_map(|value| value.atoms().filter_map(|text| text.as_str().map(str::to_owned))).collect()
    };
    let is_same = next_hops(&entry.row) == next_hops(&desired.row)
        && ["action", "output_port"]
            .iter()
            .all(|column| entry.column(column) == column_of(&desired.row, column));
    match (desired.table, &desired.parent) {
        // Policies decide where packets go; a route of OVN-Kubernetes' router is there so that they are asked, and any does.
        (Table::StaticRoute, Some(Target::Existing(_))) => Effect::Same,
        (Table::StaticRoute | Table::Policy, _) if is_same => Effect::Same,
        (Table::StaticRoute | Table::Policy, _) => Effect::Contradicts,
        _ => Effect::Blocks,
    }
}

fn column_of(row: &Row, column: &str) -> Datum {
    row.get(column).cloned().unwrap_or_else(Datum::empty)
}
