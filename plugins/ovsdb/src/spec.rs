//! What a client wants of a database: the tables and columns that it follows and the schema that it needs.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::operation::Condition;
use crate::schema::{ColumnType, Schema, Version};

/// A database and what is followed of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatabaseSpec {
    /// Its name.
    pub name: String,
    /// The oldest schema that will do.
    pub min_version: Option<Version>,
    /// The tables.
    pub tables: Vec<TableSpec>,
}

/// A table and what is followed of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableSpec {
    /// Its name.
    pub name: String,
    /// The columns that there have to be.
    pub columns: Vec<String>,
    /// Columns that are followed where the database has them.
    pub optional_columns: Vec<String>,
    /// Whether the database may lack the table; a replica does not have it then.
    pub is_optional: bool,
    /// Which rows are followed.
    pub rows: Rows,
}

/// Which rows of a table are followed.
///
/// This narrows what is sent. A server that does not know conditions (before Open vSwitch 2.6) sends all rows, so nobody
/// may rely on a row not being there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rows {
    /// All of them.
    All,
    /// None.
    Nothing,
    /// Those that fulfil at least one condition.
    AnyOf(Vec<Condition>),
}

impl TableSpec {
    /// Makes one with these columns, all of which there have to be, and all rows.
    pub fn new(name: &str, columns: &[&str]) -> Self {
        Self {
            name: name.to_owned(),
            columns: columns.iter().map(|&column| column.to_owned()).collect(),
            optional_columns: Vec::new(),
            is_optional: false,
            rows: Rows::All,
        }
    }

    /// Adds columns that are followed where the database has them.
    #[must_use]
    pub fn with_optional(mut self, columns: &[&str]) -> Self {
        self.optional_columns.extend(columns.iter().map(|&column| column.to_owned()));
        self
    }

    /// Narrows the rows that are followed.
    #[must_use]
    pub fn with_rows(mut self, rows: Rows) -> Self {
        self.rows = rows;
        self
    }

    /// Allows the database to lack the table.
    #[must_use]
    pub const fn optional(mut self) -> Self {
        self.is_optional = true;
        self
    }
}

impl Rows {
    /// Writes the `where` of a `monitor_cond` request (ovsdb-server(7), section 4.1.12).
    pub fn to_json(&self) -> Value {
        match self {
            Self::All => json!([true]),
            Self::Nothing => json!([false]),
            Self::AnyOf(conditions) if conditions.is_empty() => json!([false]),
            Self::AnyOf(conditions) => conditions.iter().map(Condition::to_json).collect(),
        }
    }
}

/// Columns that are followed, with their types, by table.
pub type Plan = BTreeMap<String, BTreeMap<String, ColumnType>>;

/// A database that does not have what is needed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SchemaError {
    /// Its schema is too old.
    #[error("schema of {database} is {found}, and {needed} or newer is needed")]
    TooOld {
        /// The database.
        database: String,
        /// Its version.
        found: Version,
        /// The oldest that will do.
        needed: Version,
    },
    /// Its schema has no version, and one is needed.
    #[error("schema of {database} has no version, and {needed} or newer is needed")]
    NoVersion {
        /// The database.
        database: String,
        /// The oldest that will do.
        needed: Version,
    },
    /// It has no such table.
    #[error("{database} has no table {table}")]
    NoTable {
        /// The database.
        database: String,
        /// The table.
        table: String,
    },
    /// A table has no such column.
    #[error("table {table} of {database} has no column {column}")]
    NoColumn {
        /// The database.
        database: String,
        /// The table.
        table: String,
        /// The column.
        column: String,
    },
}

impl DatabaseSpec {
    /// Compares the schema with what is needed, and returns what can be followed of it.
    ///
    /// # Errors
    ///
    /// If it is too old, or lacks a table or a column.
    pub fn plan(&self, schema: &Schema) -> Result<Plan, SchemaError> {
        let database = || self.name.clone();
        if let Some(needed) = self.min_version {
            match schema.version {
                Some(found) if found < needed => {
                    return Err(SchemaError::TooOld { database: database(), found, needed });
                }
                Some(_) => {}
                None => return Err(SchemaError::NoVersion { database: database(), needed }),
            }
        }
        let mut plan = Plan::new();
        for table in &self.tables {
            match schema.tables.get(&table.name) {
                Some(columns) => {
                    plan.insert(table.name.clone(), self.plan_table(table, columns)?);
                }
                None if table.is_optional => {}
                None => return Err(SchemaError::NoTable { database: database(), table: table.name.clone() }),
            }
        }
        Ok(plan)
    }

    fn plan_table(
        &self,
        table: &TableSpec,
        known: &BTreeMap<String, ColumnType>,
    ) -> Result<BTreeMap<String, ColumnType>, SchemaError> {
        let mut columns = BTreeMap::new();
        for column in &table.columns {
            let Some(kind) = known.get(column) else {
                return Err(SchemaError::NoColumn {
                    database: self.name.clone(),
                    table: table.name.clone(),
                    column: column.clone(),
                });
            };
            columns.insert(column.clone(), *kind);
        }
        for column in &table.optional_columns {
            if let Some(kind) = known.get(column) {
                columns.insert(column.clone(), *kind);
            }
        }
        Ok(columns)
    }

    /// Writes the requests of a `monitor`, or of a `monitor_cond`, for what can be followed.
    pub fn monitor_requests(&self, plan: &Plan, with_conditions: bool) -> Value {
        let request = |table: &TableSpec| {
            let columns: Vec<&String> = plan.get(&table.name)?.keys().collect();
            let mut request = json!({"columns": columns});
            if with_conditions {
                request["where"] = table.rows.to_json();
            }
            Some((table.name.clone(), json!([request])))
        };
        Value::Object(self.tables.iter().filter_map(request).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema(version: Option<&str>) -> Schema {
        let mut schema = json!({"name": "D", "tables": {"T": {"columns": {
            "name": {"type": "string"}, "age": {"type": "integer"}}}}});
        if let Some(version) = version {
            schema["version"] = version.into();
        }
        Schema::from_json(&schema).unwrap()
    }

    fn spec(tables: Vec<TableSpec>) -> DatabaseSpec {
        DatabaseSpec { name: "D".to_owned(), min_version: Some(Version(6, 1, 0)), tables }
    }

    #[test]
    fn an_old_schema_is_refused_with_both_versions() {
        let spec = spec(Vec::new());
        let error = spec.plan(&schema(Some("5.34.1"))).unwrap_err();
        assert_eq!(error.to_string(), "schema of D is 5.34.1, and 6.1.0 or newer is needed");
        let error = spec.plan(&schema(None)).unwrap_err();
        assert_eq!(error.to_string(), "schema of D has no version, and 6.1.0 or newer is needed");
        assert!(spec.plan(&schema(Some("6.1.0"))).is_ok());
    }

    #[test]
    fn what_is_missing_is_named_unless_it_is_optional() {
        let plan = |table: TableSpec| spec(vec![table]).plan(&schema(Some("7.0.0")));
        assert_eq!(plan(TableSpec::new("U", &[])).unwrap_err().to_string(), "D has no table U");
        let error = plan(TableSpec::new("T", &["name", "size"])).unwrap_err();
        assert_eq!(error.to_string(), "table T of D has no column size");
        assert_eq!(plan(TableSpec::new("U", &[]).optional()).unwrap(), Plan::new());
        let columns = plan(TableSpec::new("T", &["name"]).with_optional(&["age", "size"])).unwrap();
        assert_eq!(columns["T"].keys().collect::<Vec<_>>(), ["age", "name"]);
    }

    #[test]
    fn requests_name_columns_and_rows() {
        let rows = Rows::AnyOf(vec![Condition::equal("name", "a")]);
        let spec =
            spec(vec![TableSpec::new("T", &["name"]).with_rows(rows), TableSpec::new("U", &[]).optional()]);
        let plan = spec.plan(&schema(Some("7.0.0"))).unwrap();
        assert_eq!(
            spec.monitor_requests(&plan, true),
            json!({"T": [{"columns": ["name"], "where": [["name", "==", "a"]]}]})
        );
        assert_eq!(spec.monitor_requests(&plan, false), json!({"T": [{"columns": ["name"]}]}));
        assert_eq!(Rows::All.to_json(), json!([true]));
        assert_eq!(Rows::Nothing.to_json(), json!([false]));
        assert_eq!(Rows::AnyOf(Vec::new()).to_json(), json!([false]));
    }
}
