//! What a transaction consists of, as JSON (RFC 7047, section 5.2).

use std::time::Duration;

use serde_json::{Map, Value};

use crate::value::{Atom, Datum, Row, row_to_json};

/// Comparison of a [`Condition`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Function {
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `==`
    Equal,
    /// `!=`
    NotEqual,
    /// `>=`
    GreaterOrEqual,
    /// `>`
    Greater,
    /// The column has all elements of the value.
    Includes,
    /// The column has no element of the value.
    Excludes,
}

impl Function {
    /// Returns the name in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Equal => "==",
            Self::NotEqual => "!=",
            Self::GreaterOrEqual => ">=",
            Self::Greater => ">",
            Self::Includes => "includes",
            Self::Excludes => "excludes",
        }
    }
}

/// `<condition>`: which rows an operation or a monitor concerns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// The column; `_uuid` is one of every table.
    pub column: String,
    /// The comparison.
    pub function: Function,
    /// What the column is compared with.
    pub value: Datum,
}

impl Condition {
    /// Makes a condition.
    pub fn new(column: &str, function: Function, value: impl Into<Datum>) -> Self {
        Self { column: column.to_owned(), function, value: value.into() }
    }

    /// Makes the condition that `column` equals `value`.
    pub fn equal(column: &str, value: impl Into<Datum>) -> Self {
        Self::new(column, Function::Equal, value)
    }

    /// Writes `<condition>`.
    pub fn to_json(&self) -> Value {
        Value::Array(vec![self.column.as_str().into(), self.function.name().into(), self.value.to_json()])
    }
}

/// How a [`Mutation`] changes a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutator {
    /// `+=`
    Add,
    /// `-=`
    Subtract,
    /// `*=`
    Multiply,
    /// `/=`
    Divide,
    /// `%=`
    Remainder,
    /// Adds elements to a set, or pairs to a map for keys that it has not.
    Insert,
    /// Removes elements of a set, or pairs of a map by key or as a whole.
    Delete,
}

impl Mutator {
    /// Returns the name in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Add => "+=",
            Self::Subtract => "-=",
            Self::Multiply => "*=",
            Self::Divide => "/=",
            Self::Remainder => "%=",
            Self::Insert => "insert",
            Self::Delete => "delete",
        }
    }
}

/// `<mutation>`: a change of one column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mutation {
    /// The column.
    pub column: String,
    /// What is done to it.
    pub mutator: Mutator,
    /// By what.
    pub value: Datum,
}

impl Mutation {
    /// Makes a mutation.
    pub fn new(column: &str, mutator: Mutator, value: impl Into<Datum>) -> Self {
        Self { column: column.to_owned(), mutator, value: value.into() }
    }

    /// Writes `<mutation>`.
    pub fn to_json(&self) -> Value {
        Value::Array(vec![self.column.as_str().into(), self.mutator.name().into(), self.value.to_json()])
    }
}

/// Whether a `wait` waits for the rows that it names, or for others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// The rows found are those given.
    Equal,
    /// The rows found are others.
    NotEqual,
}

/// `<operation>`: one of a transaction. Where `conditions` are several, a row has to fulfil all of them; without any, every
/// row does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// Inserts a row. Columns that are not named get their default value.
    Insert {
        /// The table.
        table: String,
        /// Values by column.
        row: Row,
        /// The identifier by which other operations name the row ([`Atom::NamedUuid`]).
        uuid_name: Option<String>,
    },
    /// Reads rows.
    Select {
        /// The table.
        table: String,
        /// Which rows.
        conditions: Vec<Condition>,
        /// Which columns; all (`_uuid` and `_version` as well) if empty.
        columns: Vec<String>,
    },
    /// Sets columns of rows.
    Update {
        /// The table.
        table: String,
        /// Which rows.
        conditions: Vec<Condition>,
        /// New values by column; the others stay.
        row: Row,
    },
    /// Changes columns of rows.
    Mutate {
        /// The table.
        table: String,
        /// Which rows.
        conditions: Vec<Condition>,
        /// The changes, in their order.
        mutations: Vec<Mutation>,
    },
    /// Deletes rows.
    Delete {
        /// The table.
        table: String,
        /// Which rows.
        conditions: Vec<Condition>,
    },
    /// Makes the transaction wait until the rows found are (or are not) those given, or fail.
    Wait {
        /// The table.
        table: String,
        /// How long; zero fails at once, and `None` waits without end. In whole milliseconds.
        timeout: Option<Duration>,
        /// Which rows.
        conditions: Vec<Condition>,
        /// Which columns are compared; all if empty.
        columns: Vec<String>,
        /// Whether they have to be equal.
        until: Until,
        /// The rows, in any order.
        rows: Vec<Row>,
    },
    /// Makes the result wait until the transaction is on disk, if `durable`.
    Commit {
        /// Whether it has to be on disk.
        durable: bool,
    },
    /// Aborts the transaction; for tests.
    Abort,
    /// Writes a text to the server's log.
    Comment(String),
    /// Aborts the transaction unless the client owns the lock.
    Assert {
        /// Name of the lock.
        lock: String,
    },
}

impl Operation {
    /// Returns the operation that fails the transaction at once unless the rows have these values: what a transaction that
    /// was decided on a replica begins with.
    pub fn expect(table: &str, conditions: Vec<Condition>, columns: &[&str], rows: Vec<Row>) -> Self {
        Self::Wait {
            table: table.to_owned(),
            timeout: Some(Duration::ZERO),
            conditions,
            columns: columns.iter().map(|&column| column.to_owned()).collect(),
            until: Until::Equal,
            rows,
        }
    }

    /// Returns the name in JSON.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Insert { .. } => "insert",
            Self::Select { .. } => "select",
            Self::Update { .. } => "update",
            Self::Mutate { .. } => "mutate",
            Self::Delete { .. } => "delete",
            Self::Wait { .. } => "wait",
            Self::Commit { .. } => "commit",
            Self::Abort => "abort",
            Self::Comment(_) => "comment",
            Self::Assert { .. } => "assert",
        }
    }

    /// Writes `<operation>`.
    pub fn to_json(&self) -> Value {
        let mut json = Map::new();
        let mut put = |key: &str, value: Value| {
            json.insert(key.to_owned(), value);
        };
        put("op", self.name().into());
        match self {
            Self::Insert { table, row, uuid_name } => {
                put("table", table.as_str().into());
                put("row", row_to_json(row));
                if let Some(name) = uuid_name {
                    put("uuid-name", name.as_str().into());
                }
            }
            Self::Select { table, conditions, columns } => {
                put("table", table.as_str().into());
                put("where", list(conditions, Condition::to_json));
                if !columns.is_empty() {
                    put("columns", list(columns, |column| column.as_str().into()));
                }
            }
            Self::Update { table, conditions, row } => {
                put("table", table.as_str().into());
                put("where", list(conditions, Condition::to_json));
                put("row", row_to_json(row));
            }
            Self::Mutate { table, conditions, mutations } => {
                put("table", table.as_str().into());
                put("where", list(conditions, Condition::to_json));
                put("mutations", list(mutations, Mutation::to_json));
            }
            Self::Delete { table, conditions } => {
                put("table", table.as_str().into());
                put("where", list(conditions, Condition::to_json));
            }
            Self::Wait { table, timeout, conditions, columns, until, rows } => {
                put("table", table.as_str().into());
                if let Some(timeout) = timeout {
                    put("timeout", milliseconds(*timeout).into());
                }
                put("where", list(conditions, Condition::to_json));
                if !columns.is_empty() {
                    put("columns", list(columns, |column| column.as_str().into()));
                }
                put("until", if *until == Until::Equal { "==" } else { "!=" }.into());
                put("rows", list(rows, row_to_json));
            }
            Self::Commit { durable } => put("durable", (*durable).into()),
            Self::Abort => {}
            Self::Comment(text) => put("comment", text.as_str().into()),
            Self::Assert { lock } => put("lock", lock.as_str().into()),
        }
        Value::Object(json)
    }
}

/// Returns the name by which other operations of a transaction mean the row that one of them inserts.
pub fn named(uuid_name: &str) -> Atom {
    Atom::NamedUuid(uuid_name.to_owned())
}

fn list<T>(items: &[T], to_json: impl Fn(&T) -> Value) -> Value {
    Value::Array(items.iter().map(to_json).collect())
}

/// Returns the time in whole milliseconds; what is longer than a server can count is as good as endless.
fn milliseconds(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
