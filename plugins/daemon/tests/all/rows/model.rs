//! A model of a northbound database: what a server makes of operations, rows that nothing refers to and names included.

use std::collections::{BTreeMap, BTreeSet};

use trieste_ovn::{Rows, Table};
use trieste_ovsdb::operation::{Condition, Function, Mutation, Mutator, Operation, Until};
use trieste_ovsdb::uuid::Uuid;
use trieste_ovsdb::value::{Atom, Datum, Row};

/// Columns that refer to rows: table, column, table of the rows.
const REFERENCES: [(Table, &str, Table); 5] = [
    (Table::LogicalRouter, "ports", Table::LogicalRouterPort),
    (Table::LogicalRouter, "static_routes", Table::StaticRoute),
    (Table::LogicalRouter, "policies", Table::Policy),
    (Table::LogicalSwitch, "ports", Table::LogicalSwitchPort),
    (Table::LogicalRouterPort, "gateway_chassis", Table::GatewayChassis),
];
/// Tables with an index of names (ovn-nb.ovsschema).
const UNIQUE: [Table; 3] = [Table::LogicalRouterPort, Table::LogicalSwitchPort, Table::GatewayChassis];
/// Columns that hold maps.
const MAPS: [&str; 2] = ["external_ids", "options"];

const FIRST: Uuid = Uuid::from_bytes([0; 16]);
const LAST: Uuid = Uuid::from_bytes([0xff; 16]);

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Model {
    pub(crate) rows: BTreeMap<(Table, Uuid), Row>,
    /// Whether its schema lacks the optional columns.
    is_old: bool,
    made: u32,
}

impl Model {
    /// Makes an empty database.
    pub(crate) fn new(is_old: bool) -> Self {
        Self { is_old, ..Self::default() }
    }

    /// Makes a row with these columns, the others empty, as a part of `parent`.
    pub(crate) fn add(&mut self, table: Table, parent: Option<Uuid>, columns: &[(&str, Datum)]) -> Uuid {
        let row = columns.iter().map(|(column, value)| ((*column).to_owned(), value.clone())).collect();
        let uuid = self.insert(table, row);
        if let (Some(parent), Some((owner, column, _))) =
            (parent, REFERENCES.iter().find(|(.., child)| *child == table))
        {
            let mutation = Mutation::new(column, Mutator::Insert, uuid);
            mutate(self.rows.get_mut(&(*owner, parent)).unwrap(), &mutation);
        }
        uuid
    }

    fn insert(&mut self, table: Table, mut row: Row) -> Uuid {
        self.made += 1;
        // Not in the order in which they are made.
        let mixed = u128::from(self.made).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        let uuid = Uuid::from_bytes(mixed.to_be_bytes());
        for &column in self.columns(table) {
            let empty = if MAPS.contains(&column) { Datum::Map(BTreeMap::new()) } else { Datum::empty() };
            row.entry(column.to_owned()).or_insert(empty);
        }
        self.rows.insert((table, uuid), row);
        uuid
    }

    fn columns(&self, table: Table) -> impl Iterator<Item = &'static &'static str> + use<> {
        let optional = if self.is_old { &[] } else { table.optional_columns() };
        table.columns().iter().chain(optional)
    }

    /// Fails as a server does that has one of these columns not.
    fn check_columns(&self, table: &str, row: &Row) -> Result<(), String> {
        let columns: BTreeSet<&str> = self.columns(table_of(table)?).copied().collect();
        let unknown = row.keys().find(|column| !columns.contains(column.as_str()));
        unknown.map_or(Ok(()), |column| Err(format!("no column {column}")))
    }

    /// Does all of a transaction or nothing.
    pub(crate) fn transact(&mut self, operations: &[Operation]) -> Result<(), String> {
        self.transact_all([operations])
    }

    /// Does all of several transactions or nothing; the rows are looked at once, at the end.
    pub(crate) fn transact_all<'a>(
        &mut self,
        transactions: impl IntoIterator<Item = &'a [Operation]>,
    ) -> Result<(), String> {
        let mut next = self.clone();
        for operations in transactions {
            let mut names = BTreeMap::new();
            for operation in operations {
                next.operate(operation, &mut names).map_err(|why| format!("{why}: {operation:?}"))?;
            }
        }
        next.commit()?;
        *self = next;
        Ok(())
    }

    /// Returns the rows as a replica has them.
    pub(crate) fn replica(&self) -> Rows {
        let mut rows = Rows::new();
        for ((table, uuid), row) in &self.rows {
            rows.set(*table, *uuid, row.clone());
        }
        rows
    }

    fn operate(&mut self, operation: &Operation, names: &mut BTreeMap<String, Uuid>) -> Result<(), String> {
        match operation {
            Operation::Insert { table, row, uuid_name } => {
                self.check_columns(table, row)?;
                let row =
                    row.iter().map(|(column, value)| (column.clone(), resolved(value, names))).collect();
                let uuid = self.insert(table_of(table)?, row);
                if names.insert(uuid_name.clone().unwrap(), uuid).is_some() {
                    return Err("duplicate uuid-name".to_owned());
                }
            }
            Operation::Update { table, conditions, row } => {
                self.check_columns(table, row)?;
                for id in self.find(table, conditions)? {
                    self.rows.get_mut(&id).unwrap().extend(row.clone());
                }
            }
            Operation::Mutate { table, conditions, mutations } => {
                for id in self.find(table, conditions)? {
                    for mutation in mutations {
                        let value = resolved(&mutation.value, names);
                        let mutation = Mutation { value, ..mutation.clone() };
                        mutate(self.rows.get_mut(&id).unwrap(), &mutation);
                    }
                }
            }
            Operation::Delete { table, conditions } => {
                for id in self.find(table, conditions)? {
                    self.rows.remove(&id);
                }
            }
            Operation::Wait { table, timeout, conditions, columns, until, rows } => {
                assert!(timeout.is_some_and(|timeout| timeout.is_zero()) && *until == Until::Equal);
                let found = self.find(table, conditions)?.into_iter().map(|id| self.project(id, columns));
                if found.collect::<BTreeSet<_>>() != rows.iter().map(|row| format!("{row:?}")).collect() {
                    return Err("timed out".to_owned());
                }
            }
            other @ (Operation::Select { .. }
            | Operation::Commit { .. }
            | Operation::Abort
            | Operation::Comment(_)
            | Operation::Assert { .. }) => return Err(format!("not in the model: {other:?}")),
        }
        Ok(())
    }

    /// Returns the columns of a row as text, which has an order.
    fn project(&self, id: (Table, Uuid), columns: &[String]) -> String {
        let value =
            |column: &String| if column == "_uuid" { id.1.into() } else { self.rows[&id][column].clone() };
        format!("{:?}", columns.iter().map(|column| (column.clone(), value(column))).collect::<Row>())
    }

    fn find(&self, table: &str, conditions: &[Condition]) -> Result<Vec<(Table, Uuid)>, String> {
        let table = table_of(table)?;
        let uuid = conditions.iter().find(|condition| condition.column == "_uuid");
        let one = uuid.and_then(|condition| condition.value.as_uuid());
        let (from, to) = (one.unwrap_or(FIRST), one.unwrap_or(LAST));
        let rows = self.rows.range((table, from)..=(table, to));
        let fits = |uuid: Uuid, row: &Row| {
            conditions.iter().all(|condition| match (condition.column.as_str(), condition.function) {
                ("_uuid", Function::Equal) => condition.value == Datum::from(uuid),
                (column, Function::Equal) => row[column] == condition.value,
                (column, Function::Includes) => {
                    let (all, some) = (row[column].as_map().unwrap(), condition.value.as_map().unwrap());
                    some.iter().all(|(key, value)| all.get(key) == Some(value))
                }
                (column, function) => panic!("not in the model: {column} {function:?}"),
            })
        };
        Ok(rows.filter(|((_, uuid), row)| fits(*uuid, row)).map(|(id, _)| *id).collect())
    }

    /// Removes what nothing refers to, and looks that names are unique and references lead to rows.
    fn commit(&mut self) -> Result<(), String> {
        loop {
            let referred: BTreeSet<(Table, Uuid)> = self.references().collect();
            let is_root = |table: Table| matches!(table, Table::LogicalRouter | Table::LogicalSwitch);
            let before = self.rows.len();
            self.rows.retain(|id, _| is_root(id.0) || referred.contains(id));
            if self.rows.len() == before {
                break;
            }
        }
        if let Some(dangling) = self.references().find(|id| !self.rows.contains_key(id)) {
            return Err(format!("referential integrity violation: {dangling:?}"));
        }
        let mut names = BTreeSet::new();
        for ((table, _), row) in &self.rows {
            if UNIQUE.contains(table) && !names.insert((*table, row["name"].as_str().unwrap())) {
                return Err(format!("constraint violation: {table:?} {:?}", row["name"]));
            }
            if *table == Table::LogicalRouterPort && row["networks"].is_empty() {
                return Err("constraint violation: networks".to_owned());
            }
        }
        Ok(())
    }

    fn references(&self) -> impl Iterator<Item = (Table, Uuid)> {
        self.rows.iter().flat_map(|((table, _), row)| {
            let columns = REFERENCES.iter().filter(move |(parent, ..)| parent == table);
            columns.flat_map(move |(_, column, child)| row[*column].uuids().map(move |uuid| (*child, uuid)))
        })
    }
}

fn table_of(name: &str) -> Result<Table, String> {
    Table::from_name(name).ok_or_else(|| format!("no table {name}"))
}

fn resolved(value: &Datum, names: &BTreeMap<String, Uuid>) -> Datum {
    if value.as_map().is_some() {
        return value.clone();
    }
    Datum::set(value.atoms().map(|atom| match atom {
        Atom::NamedUuid(name) => Atom::Uuid(names[name]),
        Atom::Integer(_) | Atom::Real(_) | Atom::Boolean(_) | Atom::String(_) | Atom::Uuid(_) => atom.clone(),
    }))
}

fn mutate(row: &mut Row, mutation: &Mutation) {
    let column = row.get_mut(&mutation.column).unwrap();
    if let (Some(map), Some(pairs)) = (column.as_map(), mutation.value.as_map()) {
        assert_eq!(mutation.mutator, Mutator::Insert);
        let mut map = map.clone();
        for (key, value) in pairs {
            map.entry(key.clone()).or_insert_with(|| value.clone());
        }
        *column = Datum::Map(map);
        return;
    }
    let mut set: BTreeSet<Atom> = column.atoms().cloned().collect();
    match mutation.mutator {
        Mutator::Insert => set.extend(mutation.value.atoms().cloned()),
        Mutator::Delete => set.retain(|atom| !mutation.value.atoms().any(|removed| removed == atom)),
        other @ (Mutator::Add
        | Mutator::Subtract
        | Mutator::Multiply
        | Mutator::Divide
        | Mutator::Remainder) => {
            panic!("not in the model: {other:?}")
        }
    }
    *column = Datum::set(set);
}
