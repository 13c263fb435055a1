//! Applies what a server sends about monitored tables: `update` (RFC 7047, section 4.1.6) and `update2`
//! (ovsdb-server(7), section 4.1.14).
//!
//! A replica is exact or it is none: an update that does not fit ends the session, and the next one starts anew.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::replica::Table;
use crate::schema::ColumnType;
use crate::spec::Plan;
use crate::uuid::Uuid;
use crate::value::{Atom, Datum, Row};

/// Most rows of one table. Some ten thousand are a large cluster's.
pub const MAX_ROWS: usize = 200_000;
/// About the most bytes of memory that all tables take.
pub const MAX_REPLICA_BYTES: usize = 512 << 20;
/// Room of a node of the standard library's B-trees, and how many entries one has at least, but for the only one.
const NODE_ENTRIES: usize = 11;
const MIN_NODE_ENTRIES: usize = 5;
/// What an allocation and a node's own fields take, in bytes, rounded up.
const OVERHEAD_BYTES: usize = 48;

/// An update that does not fit what the replica has, or does not fit into it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UpdateError {
    /// It has another form.
    #[error("invalid update: {0}")]
    Form(&'static str),
    /// It is about a table that was not asked for.
    #[error("update of a table that was not asked for")]
    UnknownTable,
    /// It has a column that was not asked for.
    #[error("update of table {0} has a column that was not asked for")]
    UnknownColumn(String),
    /// A value is invalid or of another type.
    #[error("update of table {0} has an invalid value")]
    InvalidValue(String),
    /// It changes or deletes a row that is not there, or inserts one that is.
    #[error("update of table {0} does not fit its rows")]
    Inconsistent(String),
    /// See [`MAX_ROWS`].
    #[error("table {0} has more than {MAX_ROWS} rows")]
    TooManyRows(String),
    /// See [`MAX_REPLICA_BYTES`].
    #[error("the tables need more than {MAX_REPLICA_BYTES} bytes of memory; the largest is {0}")]
    TooLarge(String),
}

/// How a server writes changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// `update`: old and new values.
    Update,
    /// `update2`: differences.
    Update2,
}

/// The monitored tables as they are now.
#[derive(Debug)]
pub struct Tables {
    plan: Plan,
    tables: BTreeMap<String, Arc<Table>>,
    max_rows: usize,
    max_bytes: usize,
}

impl Tables {
    /// Makes empty tables. `plan` says which columns they have, and of which types.
    pub fn new(plan: Plan) -> Self {
        let tables = plan.keys().map(|name| (name.clone(), Arc::default())).collect();
        Self { plan, tables, max_rows: MAX_ROWS, max_bytes: MAX_REPLICA_BYTES }
    }

    /// Returns what is monitored.
    pub const fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Returns the tables; the rows are shared.
    pub fn tables(&self) -> &BTreeMap<String, Arc<Table>> {
        &self.tables
    }

    /// Applies `<table-updates>` or `<table-updates2>`. Returns `true` if it held any change.
    ///
    /// # Errors
    ///
    /// If it does not fit; the tables are of no use then.
    pub fn apply(&mut self, updates: &Value, format: Format) -> Result<bool, UpdateError> {
        let updates = updates.as_object().ok_or(UpdateError::Form("no object"))?;
        let mut has_changed = false;
        for (name, update) in updates {
            let (Some(columns), Some(table)) = (self.plan.get(name), self.tables.get_mut(name)) else {
                return Err(UpdateError::UnknownTable);
            };
            let rows = update.as_object().ok_or(UpdateError::Form("a table's update is no object"))?;
            let mut target = Target { name, columns, table: Arc::make_mut(table), max_rows: self.max_rows };
            for (uuid, update) in rows {
                let uuid = uuid.parse().map_err(|_| UpdateError::Form("no UUID of a row"))?;
                let update = update.as_object().ok_or(UpdateError::Form("a row's update is no object"))?;
                match format {
                    Format::Update => target.update(uuid, update)?,
                    Format::Update2 => target.update2(uuid, update)?,
                }
                has_changed = true;
            }
        }
        self.check_size()?;
        Ok(has_changed)
    }

    fn check_size(&self) -> Result<(), UpdateError> {
        let sum: usize = self.tables.values().map(|table| table.size).sum();
        if sum <= self.max_bytes {
            return Ok(());
        }
        let largest = self.tables.iter().max_by_key(|(_, table)| table.size);
        Err(UpdateError::TooLarge(largest.map(|(name, _)| name.clone()).unwrap_or_default()))
    }
}

/// One table that is updated.
struct Target<'a> {
    name: &'a str,
    columns: &'a BTreeMap<String, ColumnType>,
    table: &'a mut Table,
    max_rows: usize,
}

impl Target<'_> {
    /// Applies `<row-update>`: `old` alone deletes, `new` alone inserts, both modify, and `new` has all columns.
    fn update(&mut self, uuid: Uuid, update: &Map<String, Value>) -> Result<(), UpdateError> {
        let member = |name: &str| update.get(name).filter(|value| !value.is_null());
        match (member("old"), member("new")) {
            (None, None) => Err(UpdateError::Form("a row's update without old and new")),
            (Some(_), None) => self.delete(uuid),
            (None, Some(new)) => {
                let row = self.whole_row(new)?;
                self.insert(uuid, row)
            }
            (Some(_), Some(new)) => {
                let row = self.whole_row(new)?;
                self.replace(uuid, row)
            }
        }
    }

    /// Applies `<row-update2>`: exactly one of `initial`, `insert`, `modify` and `delete`.
    fn update2(&mut self, uuid: Uuid, update: &Map<String, Value>) -> Result<(), UpdateError> {
        let mut members = update.iter();
        let (Some((kind, value)), None) = (members.next(), members.next()) else {
            return Err(UpdateError::Form("a row's update has not one kind"));
        };
        match kind.as_str() {
            "initial" | "insert" => {
                let row = self.whole_row(value)?;
                self.insert(uuid, row)
            }
            "delete" => self.delete(uuid),
            "modify" => {
                let row = self.modified_row(uuid, value)?;
                self.replace(uuid, row)
            }
            _ => Err(UpdateError::Form("unknown kind of a row's update")),
        }
    }

    fn insert(&mut self, uuid: Uuid, row: Row) -> Result<(), UpdateError> {
        if self.table.rows.contains_key(&uuid) {
            return Err(self.inconsistent());
        }
        if self.table.rows.len() >= self.max_rows {
            return Err(UpdateError::TooManyRows(self.name.to_owned()));
        }
        self.table.size += size_of_row(&row);
        self.table.rows.insert(uuid, Arc::new(row));
        Ok(())
    }

    fn replace(&mut self, uuid: Uuid, row: Row) -> Result<(), UpdateError> {
        let Some(old) = self.table.rows.get_mut(&uuid) else { return Err(self.inconsistent()) };
        self.table.size = self.table.size - size_of_row(old) + size_of_row(&row);
        *old = Arc::new(row);
        Ok(())
    }

    fn delete(&mut self, uuid: Uuid) -> Result<(), UpdateError> {
        let Some(old) = self.table.rows.remove(&uuid) else { return Err(self.inconsistent()) };
        self.table.size -= size_of_row(&old);
        Ok(())
    }

    /// Reads a row; columns that the server leaves out have their default.
    fn whole_row(&self, json: &Value) -> Result<Row, UpdateError> {
        let mut row = self.read(json)?;
        for (name, kind) in self.columns {
            if !row.contains_key(name) {
                row.insert(name.clone(), kind.default_datum());
            }
        }
        Ok(row)
    }

    /// Returns the row as it is after `differences`.
    fn modified_row(&self, uuid: Uuid, differences: &Value) -> Result<Row, UpdateError> {
        let old = self.table.rows.get(&uuid).ok_or_else(|| self.inconsistent())?;
        let mut row = Row::clone(old);
        for (name, difference) in self.read(differences)? {
            let (Some(kind), Some(value)) = (self.columns.get(&name), row.get_mut(&name)) else {
                return Err(UpdateError::UnknownColumn(self.name.to_owned()));
            };
            apply_difference(value, difference, kind);
        }
        Ok(row)
    }

    fn read(&self, json: &Value) -> Result<Row, UpdateError> {
        let columns = json.as_object().ok_or(UpdateError::Form("a row is no object"))?;
        let invalid = || UpdateError::InvalidValue(self.name.to_owned());
        let mut row = Row::new();
        for (name, json) in columns {
            let Some(kind) = self.columns.get(name) else {
                return Err(UpdateError::UnknownColumn(self.name.to_owned()));
            };
            let value = Datum::from_json(json).map_err(|_| invalid())?;
            row.insert(name.clone(), kind.convert(value).map_err(|_| invalid())?);
        }
        Ok(row)
    }

    fn inconsistent(&self) -> UpdateError {
        UpdateError::Inconsistent(self.name.to_owned())
    }
}

/// Applies a difference (ovsdb-server(7), section 4.1.14). That of a column with one element at most is the new value; that of a
/// set are the elements that only one of both has; that of a map are pairs to be added, removed (if they are there as they are)
/// or changed.
fn apply_difference(value: &mut Datum, difference: Datum, kind: &ColumnType) {
    if kind.is_scalar {
        *value = difference;
        return;
    }
    match (&mut *value, difference) {
        (Datum::Map(map), Datum::Map(difference)) => {
            for (key, new) in difference {
                if map.get(&key) == Some(&new) {
                    map.remove(&key);
                } else {
                    map.insert(key, new);
                }
            }
        }
        (value, difference) => {
            let mut set: BTreeSet<Atom> = value.atoms().cloned().collect();
            for atom in difference.atoms() {
                if !set.remove(atom) {
                    set.insert(atom.clone());
                }
            }
            *value = Datum::of_set(set);
        }
    }
}

/// Returns about how many bytes a row takes, rather too many than too few.
fn size_of_row(row: &Row) -> usize {
    let columns = row.iter().map(|(name, value)| size_of_text(name) + size_of_datum(value));
    OVERHEAD_BYTES + size_of_tree::<(String, Datum)>(row.len()) + columns.sum::<usize>()
}

fn size_of_datum(datum: &Datum) -> usize {
    match datum {
        Datum::Atom(atom) => size_of_atom(atom),
        Datum::Set(set) => size_of_tree::<Atom>(set.len()) + set.iter().map(size_of_atom).sum::<usize>(),
        Datum::Map(map) => {
            let texts = map.iter().map(|(key, value)| size_of_atom(key) + size_of_atom(value));
            size_of_tree::<(Atom, Atom)>(map.len()) + texts.sum::<usize>()
        }
    }
}

/// Returns what an atom takes beside its own entry.
fn size_of_atom(atom: &Atom) -> usize {
    match atom {
        Atom::String(text) | Atom::NamedUuid(text) => size_of_text(text),
        Atom::Integer(_) | Atom::Real(_) | Atom::Boolean(_) | Atom::Uuid(_) => 0,
    }
}

const fn size_of_text(text: &str) -> usize {
    if text.is_empty() { 0 } else { OVERHEAD_BYTES + text.len() }
}

/// Returns what the nodes of a tree of entries `T` take: their entries have room whether they are there or not.
const fn size_of_tree<T>(entries: usize) -> usize {
    entries.div_ceil(MIN_NODE_ENTRIES) * (OVERHEAD_BYTES + NODE_ENTRIES * size_of::<T>())
}

#[cfg(test)]
mod tests;
