//! Changes of single rows, and the transactions that they are put together to.

use std::collections::{BTreeMap, BTreeSet};

use trieste_ovsdb::operation::{Condition, Function, Mutation, Mutator, Operation, named};
use trieste_ovsdb::uuid::Uuid;
use trieste_ovsdb::value::{Atom, Datum, Row};

use crate::constants::{MAX_CHANGES, OWNER, OWNER_KEY};
use crate::desired::{Stage, Target};
use crate::rows::{Entry, RowId};
use crate::table::{EXTERNAL_IDS, Table};

/// A change of one row.
#[derive(Debug, Clone)]
pub(crate) enum Change {
    /// Makes a row, as a part of another unless it exists by itself.
    Insert {
        /// The table.
        table: Table,
        /// What it is known by.
        key: String,
        /// Values, marks included.
        row: Row,
        /// What it becomes a part of.
        parent: Option<Target>,
    },
    /// Sets columns, adds marks, and makes it a part of another row.
    Update {
        /// The row.
        id: RowId,
        /// Its values before.
        before: Row,
        /// New values.
        row: Row,
        /// Marks that it lacks.
        marks: Vec<(String, String)>,
        /// Of what it stops to be a part.
        from: Vec<RowId>,
        /// Of what it becomes a part.
        to: Option<Target>,
    },
    /// Removes a row from what it is a part of, whereupon the server deletes it.
    Detach {
        /// The row.
        id: RowId,
        /// Its values before.
        before: Row,
        /// What it is a part of.
        from: Vec<RowId>,
    },
    /// Deletes a row that exists by itself, and has no parts any more.
    Delete {
        /// The row.
        id: RowId,
        /// Its values before.
        before: Row,
    },
}

/// What is done together: all of it or nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transaction {
    /// The operations, in their order.
    pub operations: Vec<Operation>,
    /// How many rows are changed.
    pub changes: usize,
}

/// Puts changes together to transactions of at most [`MAX_CHANGES`], in the order of their stages. What is built and what is
/// dismantled is not divided: it is a few dozen rows at most.
pub(crate) fn transactions(mut changes: Vec<(Stage, Change)>) -> Vec<Transaction> {
    changes.sort_by_key(|(stage, _)| *stage);
    let mut done = Vec::new();
    let mut builder = Builder::default();
    let mut left = changes.into_iter().peekable();
    while let Some((stage, change)) = left.next() {
        let mut unit = vec![change];
        while matches!(stage, Stage::Build | Stage::Dismantle)
            && let Some((_, change)) = left.next_if(|(next, _)| *next == stage)
        {
            unit.push(change);
        }
        if builder.changes > 0 && builder.changes + unit.len() > MAX_CHANGES {
            done.push(std::mem::take(&mut builder).finish());
        }
        unit.into_iter().for_each(|change| builder.add(change));
    }
    if builder.changes > 0 {
        done.push(builder.finish());
    }
    done
}

/// References to add to a row and to remove from it, by column.
#[derive(Debug, Default)]
struct References {
    add: BTreeSet<Atom>,
    remove: BTreeSet<Atom>,
}

/// One transaction in the making. Its order: what it relies on, new rows, values, references, deletions.
#[derive(Debug, Default)]
struct Builder {
    changes: usize,
    guards: Vec<Operation>,
    inserts: Vec<Operation>,
    updates: Vec<Operation>,
    references: BTreeMap<(Target, &'static str), References>,
    deletions: Vec<Operation>,
}

impl Builder {
    fn add(&mut self, change: Change) {
        self.changes += 1;
        match change {
            Change::Insert { table, key, row, parent } => self.insert(table, &key, row, parent),
            Change::Update { id, before, row, marks, from, to } => {
                self.guards.push(unchanged(id, &before));
                self.update(id, row, marks);
                self.detach(id, from);
                if let (Some(target), Some((_, column))) = (to, id.0.parent()) {
                    self.references.entry((target, column)).or_default().add.insert(id.1.into());
                }
            }
            Change::Detach { id, before, from } => {
                self.guards.push(unchanged(id, &before));
                self.detach(id, from);
            }
            Change::Delete { id, before } => {
                self.guards.push(unchanged(id, &before));
                self.delete(id);
            }
        }
    }

    fn insert(&mut self, table: Table, key: &str, row: Row, parent: Option<Target>) {
        let name = format!("row{}", self.inserts.len());
        match (parent, table.parent()) {
            (Some(target), Some((_, column))) => {
                self.references.entry((target, column)).or_default().add.insert(named(&name));
            }
            // No index keeps two rows of one name apart that exist by themselves.
            _ => self.guards.push(Operation::expect(
                table.name(),
                vec![Condition::equal("name", key)],
                &["name"],
                vec![],
            )),
        }
        self.inserts.push(Operation::Insert { table: table.name().to_owned(), row, uuid_name: Some(name) });
    }

    fn update(&mut self, id: RowId, row: Row, marks: Vec<(String, String)>) {
        let (table, conditions) = (id.0.name().to_owned(), vec![Condition::equal("_uuid", id.1)]);
        if !row.is_empty() {
            self.updates.push(Operation::Update {
                table: table.clone(),
                conditions: conditions.clone(),
                row,
            });
        }
        if !marks.is_empty() {
            let mutations = vec![Mutation::new(EXTERNAL_IDS, Mutator::Insert, Datum::map(marks))];
            self.updates.push(Operation::Mutate { table, conditions, mutations });
        }
    }

    fn detach(&mut self, id: RowId, from: Vec<RowId>) {
        let Some((_, column)) = id.0.parent() else { return };
        for parent in from {
            self.references.entry((Target::Existing(parent), column)).or_default().remove.insert(id.1.into());
        }
    }

    fn delete(&mut self, (table, uuid): RowId) {
        let conditions = vec![Condition::equal("_uuid", uuid)];
        let empty: Row =
            table.references().iter().map(|&column| (column.to_owned(), Datum::empty())).collect();
        // Whatever was added to it meanwhile would go with it.
        self.deletions.push(Operation::expect(
            table.name(),
            conditions.clone(),
            table.references(),
            vec![empty],
        ));
        self.deletions.push(Operation::Delete { table: table.name().to_owned(), conditions });
    }

    fn finish(self) -> Transaction {
        let mut operations = self.guards;
        operations.extend(self.inserts);
        operations.extend(self.updates);
        for ((target, column), references) in self.references {
            operations.extend(refer(&target, column, references));
        }
        operations.extend(self.deletions);
        Transaction { operations, changes: self.changes }
    }
}

/// Returns the operations that change the references of a row, which has to be there: a change of no row is no error.
fn refer(target: &Target, column: &str, references: References) -> [Operation; 2] {
    let (table, conditions, expected) = match target {
        Target::Existing((table, uuid)) => {
            (*table, vec![Condition::equal("_uuid", *uuid)], ("_uuid", Datum::from(*uuid)))
        }
        Target::Named(table, name) => {
            let marks = Datum::map([(OWNER_KEY, OWNER)]);
            let is_ours = Condition::new(EXTERNAL_IDS, Function::Includes, marks);
            (*table, vec![Condition::equal("name", *name), is_ours], ("name", Datum::from(*name)))
        }
    };
    let row = Row::from([(expected.0.to_owned(), expected.1)]);
    let mutations = [(Mutator::Delete, references.remove), (Mutator::Insert, references.add)];
    let mutations = mutations.into_iter().filter(|(_, rows)| !rows.is_empty());
    let mutations =
        mutations.map(|(mutator, rows)| Mutation::new(column, mutator, Datum::set(rows))).collect();
    [
        Operation::expect(table.name(), conditions.clone(), &[expected.0], vec![row]),
        Operation::Mutate { table: table.name().to_owned(), conditions, mutations },
    ]
}

/// Returns the operation that fails the transaction unless a row is as it was: its marks, and all that was compared.
fn unchanged((table, uuid): (Table, Uuid), before: &Row) -> Operation {
    let columns: Vec<&str> = before.keys().map(String::as_str).collect();
    let conditions = vec![Condition::equal("_uuid", uuid)];
    Operation::expect(table.name(), conditions, &columns, vec![before.clone()])
}

/// Returns the values of a row that a change relies on: all but its references, which change by themselves.
pub(crate) fn relied_on(table: Table, entry: &Entry) -> Row {
    let mut row = entry.row.clone();
    row.retain(|column, _| !table.references().contains(&column.as_str()));
    row
}
