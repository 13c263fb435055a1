//! What is to be followed of the two databases, and whether a database has it.

use trieste_ovsdb::schema::Version;
use trieste_ovsdb::spec::{DatabaseSpec, TableSpec};

use crate::chassis::{CHASSIS_COLUMNS, CHASSIS_TABLE};
use crate::condition::Condition;
use crate::constants::{NORTHBOUND, OLDEST_SCHEMA, SOUTHBOUND};
use crate::table::Table;

/// Returns what is followed of a northbound database.
#[must_use]
pub fn northbound_spec() -> DatabaseSpec {
    let table =
        |table: Table| TableSpec::new(table.name(), table.columns()).with_optional(table.optional_columns());
    DatabaseSpec {
        name: NORTHBOUND.to_owned(),
        min_version: Some(OLDEST_SCHEMA),
        tables: Table::ALL.into_iter().map(table).collect(),
    }
}

/// Returns what is followed of a southbound database; only [`crate::wanted::Topology::SubmarinerRouter`] needs it.
#[must_use]
pub fn southbound_spec() -> DatabaseSpec {
    DatabaseSpec {
        name: SOUTHBOUND.to_owned(),
        min_version: None,
        tables: vec![TableSpec::new(CHASSIS_TABLE, CHASSIS_COLUMNS)],
    }
}

/// Checks the version of a northbound database's schema.
///
/// # Errors
/// [`Condition::SchemaTooOld`], also for a schema without version.
pub fn check_schema(version: Option<Version>) -> Result<(), Condition> {
    match version {
        Some(version) if version >= OLDEST_SCHEMA => Ok(()),
        Some(version) => Err(Condition::SchemaTooOld { version: version.to_string() }),
        None => Err(Condition::SchemaTooOld { version: "without version".to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_number() {
        for version in [Version(6, 1, 0), Version(6, 10, 0), Version(7, 0, 0), Version(10, 0, 0)] {
            assert_eq!(check_schema(Some(version)), Ok(()), "{version}");
        }
        for version in [Version(6, 0, 9), Version(5, 34, 1)] {
            let condition = check_schema(Some(version)).unwrap_err();
            assert!(condition.to_string().contains(&version.to_string()), "{condition}");
        }
        assert!(check_schema(None).is_err());
    }
}
