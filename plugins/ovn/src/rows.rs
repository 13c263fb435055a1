//! The rows of a northbound database, indexed: kept up to date with a replica, a change at a time.

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;
use trieste_ovsdb::replica::Difference;
use trieste_ovsdb::uuid::Uuid;
use trieste_ovsdb::value::{Datum, Row};

use crate::constants::{
    DROP_BELOW, OWNER, OWNER_KEY, PROPOSAL_PRIORITY, REROUTE_PRIORITY_V4, REROUTE_PRIORITY_V6,
    SUBMARINER_ROUTER, SWITCH_PORTS, UPSTREAM_KEY,
};
use crate::family;
use crate::table::{BALANCERS, EXTERNAL_IDS, Table};

/// Whose a row is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    /// Ours, by its mark.
    Us,
    /// Upstream's, by its mark; and of exactly the kind that upstream makes for a remote network.
    Upstream,
    /// Somebody else's: never touched.
    Other,
}

/// A row with what it is known by.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) row: Row,
    pub(crate) key: String,
    pub(crate) owner: Owner,
}

impl Entry {
    /// Returns the value of a column; what was not monitored is empty.
    pub(crate) fn column(&self, column: &str) -> Datum {
        self.row.get(column).cloned().unwrap_or_else(Datum::empty)
    }

    /// Returns `true` if a plan may regard such a row. Of routers and switches of others (`is_same`: no other than before) it
    /// regards only that they are there; of switch ports and policies of others, only those in our way.
    fn matters(&self, table: Table, is_same: bool) -> bool {
        if self.owner != Owner::Other {
            return true;
        }
        match table {
            Table::LogicalRouter | Table::LogicalSwitch => !is_same,
            Table::LogicalSwitchPort => SWITCH_PORTS.contains(&self.key.as_str()),
            Table::Policy => {
                self.column("priority").as_integer().is_some_and(|priority| PRIORITIES.contains(&priority))
            }
            Table::LogicalRouterPort | Table::GatewayChassis | Table::StaticRoute => true,
        }
    }
}

/// The priorities of our policies.
const PRIORITIES: [i64; 6] = [
    REROUTE_PRIORITY_V4,
    REROUTE_PRIORITY_V4 - DROP_BELOW,
    REROUTE_PRIORITY_V6,
    REROUTE_PRIORITY_V6 - DROP_BELOW,
    PROPOSAL_PRIORITY,
    PROPOSAL_PRIORITY - DROP_BELOW,
];

/// A row of which only the UUID is given.
pub(crate) type RowId = (Table, Uuid);

/// The rows of the tables of [`Table`], indexed.
///
/// [`Rows::set`] costs the logarithm of the number of rows; for a router, and for other rows that refer to rows, it costs
/// the number of references.
#[derive(Debug, Clone, Default)]
pub struct Rows {
    tables: BTreeMap<Table, BTreeMap<Uuid, Entry>>,
    by_key: BTreeMap<Table, BTreeMap<String, BTreeSet<Uuid>>>,
    parents: BTreeMap<RowId, BTreeSet<RowId>>,
    ours: BTreeSet<RowId>,
    upstream: BTreeSet<RowId>,
}

impl Rows {
    /// Returns no rows: the state before there is a replica.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Follows a change of a replica ([`trieste_ovsdb::replica::Replica::differences`]). Returns `true` if it may change
    /// what a plan says: that a pod comes or goes does not.
    pub fn follow(&mut self, difference: &Difference<'_>) -> bool {
        let Some(table) = Table::from_name(difference.table) else { return false };
        match difference.new {
            Some(row) => self.set(table, difference.uuid, row.clone()),
            None => self.remove(table, difference.uuid),
        }
    }

    /// Sets a row to what the database has, all monitored columns at once. Returns `true` if it may change a plan.
    pub fn set(&mut self, table: Table, uuid: Uuid, row: Row) -> bool {
        self.change((table, uuid), Some(row))
    }

    /// Removes a row that the database has no more. Returns `true` if it may change a plan.
    pub fn remove(&mut self, table: Table, uuid: Uuid) -> bool {
        self.change((table, uuid), None)
    }

    fn change(&mut self, id: RowId, row: Option<Row>) -> bool {
        let (table, uuid) = id;
        let children = self.references(id);
        let was = self.remove_entry(id);
        let is = row.map(|row| Entry { key: table.key(&row), owner: owner_of(table, &row), row });
        let is_same =
            was.as_ref().map(|was| (&was.key, was.owner)) == is.as_ref().map(|is| (&is.key, is.owner));
        let mut matters = [&was, &is].into_iter().flatten().any(|entry| entry.matters(table, is_same));
        // The proposal's router balances what the switches do. While there is none, services come and go without a plan:
        // that it was made matters by itself.
        let balances =
            |entry: &Option<Entry>| entry.as_ref().map(|entry| BALANCERS.map(|column| entry.column(column)));
        matters |= table == Table::LogicalSwitch
            && self.named(Table::LogicalRouter, SUBMARINER_ROUTER).is_some()
            && balances(&was) != balances(&is);
        if let Some(entry) = is {
            self.by_key.entry(table).or_default().entry(entry.key.clone()).or_default().insert(uuid);
            match entry.owner {
                Owner::Us => self.ours.insert(id),
                Owner::Upstream => self.upstream.insert(id),
                Owner::Other => false,
            };
            self.tables.entry(table).or_default().insert(uuid, entry);
        }
        let now = self.references(id);
        for child in children.symmetric_difference(&now) {
            // A row of others that a plan regards matters by itself when it comes and goes.
            matters |= self.entry(*child).is_some_and(|entry| entry.matters(child.0, false));
        }
        self.change_parents(id, &children, &now);
        matters
    }

    /// Returns how many rows are ours.
    #[must_use]
    pub fn count_ours(&self) -> usize {
        self.ours.len()
    }

    /// Returns the networks to which packets are dropped by rows of ours.
    pub fn closed_networks(&self) -> impl Iterator<Item = IpNet> + '_ {
        let policies = self.ours.iter().filter(|(table, _)| *table == Table::Policy);
        let rows = policies.filter_map(|id| self.entry(*id)).map(|entry| &entry.row);
        let text =
            |row: &'_ Row, column: &str| row.get(column).and_then(|value| value.as_str()).map(str::to_owned);
        let drops = rows.filter(move |row| text(row, "action").as_deref() == Some("drop"));
        drops.filter_map(move |row| family::network_of(&text(row, "match")?))
    }

    pub(crate) fn entry(&self, (table, uuid): RowId) -> Option<&Entry> {
        self.tables.get(&table)?.get(&uuid)
    }

    /// Returns the rows of a key, in a fixed order.
    pub(crate) fn with_key(&self, table: Table, key: &str) -> impl Iterator<Item = (Uuid, &Entry)> {
        let uuids = self.by_key.get(&table).and_then(|keys| keys.get(key));
        uuids.into_iter().flatten().filter_map(move |uuid| Some((*uuid, self.entry((table, *uuid))?)))
    }

    /// Returns the first row of a name.
    pub(crate) fn named(&self, table: Table, name: &str) -> Option<(Uuid, &Entry)> {
        self.with_key(table, name).next()
    }

    /// Returns the rows that refer to a row. In the northbound database it is one, but a server lets it be several.
    pub(crate) fn parents(&self, id: RowId) -> impl Iterator<Item = RowId> + '_ {
        self.parents.get(&id).into_iter().flatten().copied()
    }

    /// Returns `true` if `parent` refers to `id`.
    pub(crate) fn is_child(&self, id: RowId, parent: RowId) -> bool {
        self.parents.get(&id).is_some_and(|parents| parents.contains(&parent))
    }

    /// Returns the rows that are ours.
    pub(crate) fn ours(&self) -> impl Iterator<Item = RowId> + '_ {
        let ports = self.ours.iter().filter(|(table, _)| *table == Table::LogicalRouterPort);
        let chassis = ports.flat_map(|port| self.references(*port)).filter(|id| !self.ours.contains(id));
        self.ours.iter().copied().chain(chassis.filter(|id| self.entry(*id).is_some()))
    }

    /// Says whose a row is. A gateway chassis says where a port lives, and is whose the port is.
    pub(crate) fn owner(&self, id: RowId) -> Owner {
        if id.0 == Table::GatewayChassis && self.parents(id).any(|port| self.ours.contains(&port)) {
            return Owner::Us;
        }
        self.entry(id).map_or(Owner::Other, |entry| entry.owner)
    }

    pub(crate) fn upstream(&self) -> impl Iterator<Item = RowId> + '_ {
        self.upstream.iter().copied()
    }

    /// Returns the rows that a row refers to.
    pub(crate) fn references(&self, id: RowId) -> BTreeSet<RowId> {
        let Some(entry) = self.entry(id) else { return BTreeSet::new() };
        let columns = id.0.references().iter().filter_map(|column| Some((*column, entry.row.get(*column)?)));
        let children = columns.filter_map(|(column, value)| Some((child_table(id.0, column)?, value)));
        children.flat_map(|(table, value)| value.uuids().map(move |uuid| (table, uuid))).collect()
    }

    fn remove_entry(&mut self, id: RowId) -> Option<Entry> {
        let entry = self.tables.get_mut(&id.0)?.remove(&id.1)?;
        self.ours.remove(&id);
        self.upstream.remove(&id);
        let keys = self.by_key.get_mut(&id.0)?;
        if let Some(uuids) = keys.get_mut(&entry.key) {
            uuids.remove(&id.1);
            if uuids.is_empty() {
                keys.remove(&entry.key);
            }
        }
        Some(entry)
    }

    fn change_parents(&mut self, parent: RowId, before: &BTreeSet<RowId>, after: &BTreeSet<RowId>) {
        for child in before.difference(after) {
            if let Some(parents) = self.parents.get_mut(child) {
                parents.remove(&parent);
                if parents.is_empty() {
                    self.parents.remove(child);
                }
            }
        }
        for child in after.difference(before) {
            self.parents.entry(*child).or_default().insert(parent);
        }
    }
}

/// Returns the table that a column refers to.
fn child_table(table: Table, column: &str) -> Option<Table> {
    Table::ALL.into_iter().find(|child| child.parent().is_some_and(|parent| parent == (table, column)))
}

/// Says whose a row is.
fn owner_of(table: Table, row: &Row) -> Owner {
    let Some(marks) = row.get(EXTERNAL_IDS) else { return Owner::Other };
    if marks.value_of(OWNER_KEY) == Some(OWNER) {
        return Owner::Us;
    }
    let is_upstreams = marks.value_of(UPSTREAM_KEY).is_some() && is_upstreams_kind(table, row);
    if is_upstreams { Owner::Upstream } else { Owner::Other }
}

/// Returns `true` for exactly what upstream makes: a policy of its priority (for IPv6 also the one that it had before it had
/// two) that reroutes one network, and a route to one network without further conditions.
fn is_upstreams_kind(table: Table, row: &Row) -> bool {
    let text = |column: &str| row.get(column).and_then(|value| value.as_str()).unwrap_or_default();
    match table {
        Table::Policy => {
            let Some(network) = family::network_of(text("match")) else { return false };
            let priority = row.get("priority").and_then(|value| value.as_integer());
            let own = family::Family::of(&network).reroute_priority();
            text("action") == "reroute"
                && [Some(own), Some(family::Family::V4.reroute_priority())].contains(&priority)
        }
        Table::StaticRoute => {
            let is_plain = text("policy").is_empty() && text("output_port").is_empty();
            is_plain && text("ip_prefix").parse::<IpNet>().is_ok()
        }
        Table::LogicalRouter
        | Table::LogicalSwitch
        | Table::LogicalRouterPort
        | Table::LogicalSwitchPort
        | Table::GatewayChassis => false,
    }
}
