//! The plan: what turns the rows that are there into those that should be.
//!
//! Only rows with our mark are changed or removed. Upstream's rows, of exactly the kind that it makes for a remote network,
//! are adopted where one of ours should be: they get our mark. Of the rest of upstream's, those are stale, and removed,
//! that reroute or route a network which no object names, once all objects have been listed: upstream's agent, which would
//! remove them, has been replaced. What has no mark at all stays, whatever it looks like.

use std::collections::BTreeSet;

use trieste_ovsdb::value::{Datum, Row};

use crate::change::{Change, Transaction, relied_on, transactions};
use crate::chassis::Chassis;
use crate::condition::{Condition, Conditions, Effect};
use crate::constants::{OWNER, OWNER_KEY, UPSTREAM_KEY};
use crate::desired::{Desired, DesiredRow, Stage, Target};
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
    match Desired::new(wanted, rows, chassis) {
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
    const fn new(rows: &'a Rows, version: &'a str, conditions: Conditions) -> Self {
        Self { rows, version, kept: BTreeSet::new(), changes: Vec::new(), conditions }
    }

    fn run(&mut self, desired: &Desired) {
        for row in &desired.rows {
            self.want(row);
        }
        let is_built = desired.rows.iter().any(|row| row.stage == Stage::Build);
        let stale = self.rows.upstream().filter(|_| desired.is_complete);
        let unwanted: Vec<RowId> =
            self.rows.ours().chain(stale).filter(|id| !self.kept.contains(id)).collect();
        for id in unwanted {
            self.remove(id, is_built);
        }
    }

    fn finish(self) -> Plan {
        Plan { transactions: transactions(self.changes), conditions: self.conditions }
    }

    /// Makes a row, or of one that is there what it should be.
    fn want(&mut self, desired: &DesiredRow) {
        let found = self.find(desired);
        if let Some(entry) = found.other {
            let Some(effect) = effect_of(entry, desired) else {
                // Ours is there already, or is the better one to have.
                self.keep_or_insert(&found, desired);
                return self.report(desired, Effect::Contradicts);
            };
            self.report(desired, effect);
            if found.ours.is_none() {
                return;
            }
        }
        self.keep_or_insert(&found, desired);
    }

    fn keep_or_insert(&mut self, found: &Found<'_>, desired: &DesiredRow) {
        match found.ours.or(found.upstream) {
            Some((id, entry)) => self.keep(id, entry, desired),
            None => self.insert(desired),
        }
    }

    fn report(&mut self, desired: &DesiredRow, effect: Effect) {
        let (table, key) = (desired.table.name(), desired.key.clone());
        self.conditions.add(Condition::ForeignRow { table, key, effect });
    }

    fn find(&self, desired: &DesiredRow) -> Found<'a> {
        let mut found = Found::default();
        for (uuid, entry) in self.rows.with_key(desired.table, &desired.key) {
            let id = (desired.table, uuid);
            let is_part = desired.parent.as_ref().is_none_or(|parent| self.is_part(id, parent));
            // A name means one row, wherever it is.
            if !desired.table.is_named() && !is_part {
                continue;
            }
            match entry.owner {
                Owner::Us => found.ours = found.ours.or(Some((id, entry))),
                Owner::Upstream => found.upstream = found.upstream.or(Some((id, entry))),
                Owner::Other => found.other = found.other.or(Some(entry)),
            }
        }
        found
    }

    fn is_part(&self, id: RowId, parent: &Target) -> bool {
        match parent {
            Target::Existing(parent) => self.rows.is_child(id, *parent),
            Target::Named(table, name) => {
                self.rows.parents(id).any(|parent| self.is_ours_named(parent, *table, name))
            }
        }
    }

    fn is_ours_named(&self, id: RowId, table: Table, name: &str) -> bool {
        id.0 == table
            && self.rows.entry(id).is_some_and(|entry| entry.owner == Owner::Us && entry.key == name)
    }

    fn insert(&mut self, desired: &DesiredRow) {
        let mut row = desired.row.clone();
        row.insert(EXTERNAL_IDS.to_owned(), Datum::map([(OWNER_KEY, OWNER), (UPSTREAM_KEY, self.version)]));
        let (table, key, parent) = (desired.table, desired.key.clone(), desired.parent.clone());
        self.changes.push((desired.stage, Change::Insert { table, key, row, parent }));
    }

    fn keep(&mut self, id: RowId, entry: &Entry, desired: &DesiredRow) {
        self.kept.insert(id);
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
        let (from, to) = self.moves(id, desired.parent.as_ref());
        if !row.is_empty() || !marks.is_empty() || !from.is_empty() || to.is_some() {
            let before = relied_on(id.0, entry);
            self.changes.push((desired.stage, Change::Update { id, before, row, marks, from, to }));
        }
    }

    /// Returns what a row should no longer be a part of, and what it should.
    fn moves(&self, id: RowId, wanted: Option<&Target>) -> (Vec<RowId>, Option<Target>) {
        let Some(wanted) = wanted else { return (Vec::new(), None) };
        let is_wanted = |parent: &RowId| match wanted {
            Target::Existing(wanted) => wanted == parent,
            Target::Named(table, name) => self.is_ours_named(*parent, *table, name),
        };
        let from: Vec<RowId> = self.rows.parents(id).filter(|parent| !is_wanted(parent)).collect();
        let is_there = self.rows.parents(id).any(|parent| is_wanted(&parent));
        (from, (!is_there).then(|| wanted.clone()))
    }

    fn remove(&mut self, id: RowId, is_built: bool) {
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
        } else if let Some(guest) = self.guest(id) {
            let (table, key) = (guest.0.name(), self.rows.entry(guest).map(|entry| entry.key.clone()));
            let key = key.unwrap_or_default();
            self.conditions.add(Condition::ForeignRow { table, key, effect: Effect::Keeps });
        } else {
            self.changes.push((stage, Change::Delete { id, before }));
        }
    }

    /// Returns a part of a row of ours that is not ours, and would vanish with it.
    fn guest(&self, id: RowId) -> Option<RowId> {
        let is_ours = |child: &RowId| self.rows.entry(*child).is_some_and(|entry| entry.owner == Owner::Us);
        self.rows.references(id).into_iter().find(|child| !is_ours(child))
    }
}

/// Says what a row of somebody else means for one of ours; `None` if ours is to be there all the same.
fn effect_of(entry: &Entry, desired: &DesiredRow) -> Option<Effect> {
    let next_hops = |row: &Row| -> BTreeSet<String> {
        let columns = ["nexthop", "nexthops"].into_iter().filter_map(|column| row.get(column));
        columns.flat_map(|value| value.atoms().filter_map(|text| text.as_str().map(str::to_owned))).collect()
    };
    let is_same = next_hops(&entry.row) == next_hops(&desired.row)
        && ["action", "output_port"]
            .iter()
            .all(|column| entry.column(column) == column_of(&desired.row, column));
    match (desired.table, &desired.parent) {
        (Table::Policy, _) | (Table::StaticRoute, Some(Target::Named(..))) => is_same.then_some(Effect::Same),
        // Policies decide where packets go; a route of OVN-Kubernetes' router is there so that they are asked, and any does.
        (Table::StaticRoute, _) => Some(Effect::Same),
        _ => Some(Effect::Blocks),
    }
}

fn column_of(row: &Row, column: &str) -> Datum {
    row.get(column).cloned().unwrap_or_else(Datum::empty)
}
