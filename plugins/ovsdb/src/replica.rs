//! A copy of the tables that a client follows.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::schema::Version;
use crate::uuid::Uuid;
use crate::value::{Datum, Row};

/// Counts the sessions in which a replica was complete. What was decided on a replica of one session is not written in

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation(pub(crate) u64);

/// A copy of the tables at one moment; clones share the rows.
///
/// It is empty before the first session. While there is no session it stays as it was, and is not synced; then it is replaced as
/// a whole by that of the next session, so that the difference of two replicas is what has changed in between.
#[derive(Debug, Clone, Default)]
pub struct Replica {
    pub(crate) generation: Generation,
    pub(crate) is_synced: bool,
    pub(crate) version: Option<Version>,
    pub(crate) tables: BTreeMap<String, Arc<Table>>,
}

/// Rows by UUID.
#[derive(Debug, Clone, Default)]
pub struct Table {
    pub(crate) rows: BTreeMap<Uuid, Arc<Row>>,
    /// About how many bytes they take.
    pub(crate) size: usize,
}

/// A row that differs between two replicas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference<'a> {
    /// The table.
    pub table: &'a str,
    /// The row.
    pub uuid: Uuid,
    /// What it was, if it was there.
    pub old: Option<&'a Row>,
    /// What it is, if it is there.
    pub new: Option<&'a Row>,
}

impl Replica {
    /// Returns `true` if it is complete and its session lasts: it has every change that the server has sent.
    pub const fn is_synced(&self) -> bool {
        self.is_synced
    }

    /// Returns which session it is of.
    pub const fn generation(&self) -> Generation {
        self.generation
    }

    /// Returns the version of the database's schema.
    pub const fn version(&self) -> Option<Version> {
        self.version
    }

    /// Returns a table; `None` if the database lacks it, if nobody asked for it, or before the first session.
    pub fn table(&self, name: &str) -> Option<&Table> {
        self.tables.get(name).map(Arc::as_ref)
    }

    /// Returns the rows of a table in the order of their UUIDs; none if there is no such table.
    pub fn rows(&self, table: &str) -> impl Iterator<Item = (Uuid, &Row)> {
        self.table(table).into_iter().flat_map(Table::rows)
    }

    /// Returns the rows that are not as they were in `old`.
    pub fn differences<'a>(&'a self, old: &'a Self) -> Vec<Difference<'a>> {
        let mut found = Vec::new();
        for (name, table) in &old.tables {
            if !self.tables.contains_key(name) {
                difference(name, table, &EMPTY, &mut found);
            }
        }
        for (name, table) in &self.tables {
            match old.tables.get(name) {
                Some(old) if Arc::ptr_eq(old, table) => {}
                Some(old) => difference(name, old, table, &mut found),
                None => difference(name, &EMPTY, table, &mut found),
            }
        }
        found
    }
}

static EMPTY: Table = Table { rows: BTreeMap::new(), size: 0 };

fn difference<'a>(table: &'a str, old: &'a Table, new: &'a Table, found: &mut Vec<Difference<'a>>) {
    for (&uuid, row) in &old.rows {
        match new.rows.get(&uuid) {
            Some(now) if Arc::ptr_eq(row, now) || row == now => {}
            now => found.push(Difference { table, uuid, old: Some(row), new: now.map(Arc::as_ref) }),
        }
    }
    for (&uuid, row) in &new.rows {
        if !old.rows.contains_key(&uuid) {
            found.push(Difference { table, uuid, old: None, new: Some(row) });
        }
    }
}

impl Table {
    /// Returns a row.
    pub fn row(&self, uuid: Uuid) -> Option<&Row> {
        self.rows.get(&uuid).map(Arc::as_ref)
    }

    /// Returns the rows in the order of their UUIDs.
    pub fn rows(&self) -> impl Iterator<Item = (Uuid, &Row)> {
        self.rows.iter().map(|(&uuid, row)| (uuid, row.as_ref()))
    }

    /// Returns the first row, in the order of their UUIDs, whose column has this value.
    pub fn find(&self, column: &str, value: &Datum) -> Option<(Uuid, &Row)> {
        self.rows().find(|(_, row)| row.get(column) == Some(value))
    }

    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns `true` if it has no row.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}
