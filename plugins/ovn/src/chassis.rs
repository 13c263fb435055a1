//! The chassis of the southbound database, by host name (ovn-sb(5), Chassis).

use std::collections::{BTreeMap, BTreeSet};

use trieste_ovsdb::replica::Difference;
use trieste_ovsdb::uuid::Uuid;
use trieste_ovsdb::value::Row;

/// The table of the southbound database.
pub const CHASSIS_TABLE: &str = "Chassis";
/// Its columns to monitor.
pub const CHASSIS_COLUMNS: &[&str] = &["name", "hostname"];

/// Chassis by host name, kept up to date with a replica of the southbound database.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Chassis {
    rows: BTreeMap<Uuid, (String, String)>,
    by_host: BTreeMap<String, BTreeSet<String>>,
}

impl Chassis {
    /// Returns no chassis: the state before there is a replica.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Follows a change of a replica of the southbound database.
    pub fn follow(&mut self, difference: &Difference<'_>) {
        match difference.new {
            Some(row) if difference.table == CHASSIS_TABLE => self.set(difference.uuid, row),
            _ => self.remove(difference.uuid),
        }
    }

    /// Sets a row to what the database has.
    pub fn set(&mut self, uuid: Uuid, row: &Row) {
        self.remove(uuid);
        let text =
            |column: &str| row.get(column).and_then(|value| value.as_str()).unwrap_or_default().to_owned();
        let (name, host) = (text("name"), text("hostname"));
        self.by_host.entry(host.clone()).or_default().insert(name.clone());
        self.rows.insert(uuid, (name, host));
    }

    /// Removes a row that the database has no more.
    pub fn remove(&mut self, uuid: Uuid) {
        let Some((name, host)) = self.rows.remove(&uuid) else { return };
        if let Some(names) = self.by_host.get_mut(&host) {
            names.remove(&name);
            if names.is_empty() {
                self.by_host.remove(&host);
            }
        }
    }

    /// Returns the names of a host's chassis in a fixed order. OVN-Kubernetes sets a chassis' host name to the node's name.
    pub(crate) fn of_host(&self, host: &str) -> impl ExactSizeIterator<Item = &str> {
        static NONE: BTreeSet<String> = BTreeSet::new();
        self.by_host.get(host).unwrap_or(&NONE).iter().map(String::as_str)
    }
}
