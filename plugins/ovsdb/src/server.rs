//! What a server says of itself: the table `Database` of its database `_Server` (ovsdb-server(5)).
//!
//! OVN's own clients leave the server of a clustered database that is not its leader, or that has lost the cluster; so do
//! we, or we would read what is stale and write what is refused.

use crate::replica::Table;
use crate::spec::{DatabaseSpec, TableSpec};
use crate::uuid::Uuid;
use crate::value::Row;

/// The database in which a server describes itself (since Open vSwitch 2.9).
pub const SERVER_DATABASE: &str = "_Server";
/// Its table of databases.
pub const DATABASE_TABLE: &str = "Database";

/// Returns what is followed of `_Server`.
pub fn server_spec() -> DatabaseSpec {
    let columns = ["name", "connected", "leader", "model", "schema"];
    let table = TableSpec::new(DATABASE_TABLE, &columns).with_optional(&["cid", "index"]);
    DatabaseSpec { name: SERVER_DATABASE.to_owned(), min_version: None, tables: vec![table] }
}

/// Which server of a clustered database will do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// Only the leader.
    pub leader_only: bool,
    /// Only one of this cluster.
    pub cluster: Option<Uuid>,
    /// Only one that has what an earlier session had seen; another cluster's server cannot have it.
    pub seen: Option<Seen>,
}

/// How far a clustered database was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// The cluster.
    pub cluster: Uuid,
    /// Length of its log.
    pub index: i64,
}

/// Why a server will not do; another may.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unsuitable {
    /// It does not have the database.
    #[error("server does not have the database")]
    NoDatabase,
    /// Its database is of another cluster.
    #[error("server is of another cluster")]
    OtherCluster,
    /// It has not joined the cluster yet, or not seen what it relays.
    #[error("server has not joined the cluster yet")]
    NotJoined,
    /// It has lost the cluster, or what it relays.
    #[error("server is not connected to the cluster")]
    Disconnected,
    /// Another one leads.
    #[error("server is not the leader of the cluster")]
    NotLeader,
    /// It lacks what another server of the cluster had.
    #[error("server has stale data")]
    Stale,
}

/// What is remembered of a suitable server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// The database's schema, as text: if it changes, everything is read anew.
    pub schema: Option<String>,
    /// How far a clustered database has come.
    pub seen: Option<Seen>,
}

/// Decides whether a server with these databases will do for the one with this name.
///
/// # Errors
///
/// If it will not.
pub fn evaluate(databases: &Table, name: &str, wanted: Wanted) -> Result<Standing, Unsuitable> {
    let (_, row) = databases.find("name", &name.into()).ok_or(Unsuitable::NoDatabase)?;
    let flag = |column: &str| row.get(column).is_some_and(|value| value.as_bool() == Some(true));
    let schema = text(row, "schema");
    let cluster = row.get("cid").and_then(|cid| cid.as_uuid());
    if let (Some(wanted), Some(found)) = (wanted.cluster, cluster)
        && wanted != found
    {
        return Err(Unsuitable::OtherCluster);
    }
    let index = row.get("index").and_then(|index| index.as_integer());
    let seen = cluster.zip(index).map(|(cluster, index)| Seen { cluster, index });
    let is_stale =
        wanted.seen.zip(seen).is_some_and(|(old, new)| old.cluster == new.cluster && new.index < old.index);
    match text(row, "model").as_deref() {
        Some("clustered" | "relay") if schema.is_none() => Err(Unsuitable::NotJoined),
        Some("clustered" | "relay") if !flag("connected") => Err(Unsuitable::Disconnected),
        Some("clustered") if wanted.leader_only && !flag("leader") => Err(Unsuitable::NotLeader),
        Some("relay") if wanted.leader_only => Err(Unsuitable::NotLeader),
        Some("clustered") if is_stale => Err(Unsuitable::Stale),
        Some("clustered") => Ok(Standing { schema, seen }),
        _ => Ok(Standing { schema, seen: None }),
    }
}

fn text(row: &Row, column: &str) -> Option<String> {
    row.get(column)?.as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::value::Datum;

    const ANY: Wanted = Wanted { leader_only: false, cluster: None, seen: None };
    const OURS: Uuid = Uuid::from_bytes([3; 16]);
    const LEADER: Wanted = Wanted { leader_only: true, ..ANY };

    fn table(columns: &[(&str, Datum)]) -> Table {
        let mut row = Row::from([
            ("name".to_owned(), "D".into()),
            ("model".to_owned(), "clustered".into()),
            ("connected".to_owned(), true.into()),
            ("leader".to_owned(), true.into()),
            ("schema".to_owned(), "{}".into()),
            ("index".to_owned(), 7.into()),
            ("cid".to_owned(), OURS.into()),
        ]);
        row.extend(columns.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        let mut table = Table::default();
        table.rows.insert(Uuid::from_bytes([1; 16]), Arc::new(row));
        table
    }

    #[test]
    fn a_server_of_a_cluster_is_connected_and_leads_if_that_is_wanted() {
        let check = |columns: &[(&str, Datum)], wanted| {
            evaluate(&table(columns), "D", wanted).map(|standing| standing.seen.map(|seen| seen.index))
        };
        assert_eq!(check(&[], LEADER), Ok(Some(7)));
        assert_eq!(check(&[("leader", false.into())], LEADER), Err(Unsuitable::NotLeader));
        assert_eq!(check(&[("leader", false.into())], ANY), Ok(Some(7)));
        assert_eq!(check(&[("connected", false.into())], ANY), Err(Unsuitable::Disconnected));
        assert_eq!(check(&[("schema", Datum::empty())], ANY), Err(Unsuitable::NotJoined));
        assert_eq!(check(&[("model", "relay".into())], LEADER), Err(Unsuitable::NotLeader));
        assert_eq!(check(&[("model", "relay".into())], ANY), Ok(None));
        let seen = |cluster: Uuid, index: i64| Wanted { seen: Some(Seen { cluster, index }), ..ANY };
        assert_eq!(check(&[], seen(OURS, 7)), Ok(Some(7)));
        assert_eq!(check(&[], seen(OURS, 8)), Err(Unsuitable::Stale));
        assert_eq!(check(&[], seen(Uuid::from_bytes([2; 16]), 8)), Ok(Some(7)), "the cluster was made anew");
        let other = Uuid::from_bytes([2; 16]);
        let cluster = Wanted { cluster: Some(OURS), ..ANY };
        assert_eq!(check(&[("cid", other.into())], cluster), Err(Unsuitable::OtherCluster));
        assert_eq!(evaluate(&table(&[]), "E", ANY), Err(Unsuitable::NoDatabase));
    }

    #[test]
    fn a_server_alone_always_does() {
        let alone = [
            ("model", "standalone".into()),
            ("leader", true.into()),
            ("index", Datum::empty()),
            ("cid", Datum::empty()),
        ];
        let standing = evaluate(&table(&alone), "D", LEADER).unwrap();
        assert_eq!(standing, Standing { schema: Some("{}".to_owned()), seen: None });
    }
}
