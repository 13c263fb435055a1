//! A client of a northbound database, and what tests wait for.

use std::time::Duration;

use tokio::sync::watch;
use trieste_ovsdb::client::Client;
use trieste_ovsdb::options::{ClientOptions, Status};
use trieste_ovsdb::replica::Replica;
use trieste_ovsdb::schema::Version;
use trieste_ovsdb::spec::{DatabaseSpec, TableSpec};

/// How long something may take that is waited for.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A client and its replica.
pub(crate) struct Follower {
    pub(crate) client: Client,
    pub(crate) replica: watch::Receiver<Replica>,
}

/// What the tests follow.
pub(crate) fn spec() -> DatabaseSpec {
    let policy = ["priority", "match", "action", "nexthops", "external_ids"];
    DatabaseSpec {
        name: "OVN_Northbound".to_owned(),
        min_version: Some(Version(6, 1, 0)),
        tables: vec![
            TableSpec::new("Logical_Router", &["name", "policies", "static_routes", "options", "enabled"])
                .with_optional(&["a_column_of_the_future"]),
            TableSpec::new("Logical_Router_Policy", &policy),
            TableSpec::new("Logical_Router_Static_Route", &["ip_prefix", "nexthop", "external_ids"]),
            TableSpec::new("A_Table_Of_The_Future", &["name"]).optional(),
        ],
    }
}

/// Options that do not make tests wait.
pub(crate) fn options() -> ClientOptions {
    ClientOptions {
        first_wait: Duration::from_millis(50),
        max_wait: Duration::from_millis(500),
        probe_interval: Duration::from_secs(2),
        ..ClientOptions::default()
    }
}

impl Follower {
    pub(crate) fn new(remotes: &str) -> Self {
        Self::with(remotes, spec(), options())
    }

    pub(crate) fn with(remotes: &str, spec: DatabaseSpec, options: ClientOptions) -> Self {
        let (client, replica) = Client::spawn(&remotes.parse().unwrap(), spec, options);
        Self { client, replica }
    }

    /// Waits until the replica is as wanted.
    pub(crate) async fn until(&mut self, what: &str, wanted: impl Fn(&Replica) -> bool) -> Replica {
        let waiting = self.replica.wait_for(|replica| wanted(replica));
        let reached = tokio::time::timeout(TIMEOUT, waiting).await.map(|replica| replica.unwrap().clone());
        match reached {
            Ok(replica) => replica,
            Err(_) => {
                let status = self.client.status().borrow().clone();
                panic!("not {what} within {TIMEOUT:?}: {status:?}, {:?}", self.replica.borrow())
            }
        }
    }

    /// Waits until the replica is complete.
    pub(crate) async fn synced(&mut self) -> Replica {
        self.until("synced", Replica::is_synced).await
    }

    /// Waits until the client is doing this.
    pub(crate) async fn until_status(&self, wanted: &Status) {
        let mut status = self.client.status();
        let waiting = tokio::time::timeout(TIMEOUT, status.wait_for(|status| status == wanted)).await;
        assert!(waiting.is_ok(), "not {wanted:?} within {TIMEOUT:?}: {:?}", self.client.status().borrow());
    }

    /// Waits until the client has failed for a reason that has this text, and returns the reason.
    pub(crate) async fn failed(&self, text: &str) -> String {
        let mut status = self.client.status();
        let has_failed =
            |status: &Status| matches!(status, Status::Failed { error, .. } if error.contains(text));
        let waiting = status.wait_for(has_failed);
        let reached = tokio::time::timeout(TIMEOUT, waiting).await.map(|status| status.unwrap().clone());
        match reached {
            Ok(Status::Failed { error, .. }) => error,
            _ => panic!("no failure {text:?} within {TIMEOUT:?}: {:?}", self.client.status().borrow()),
        }
    }
}

/// The texts that a column has in a table, in order.
pub(crate) fn texts(replica: &Replica, table: &str, column: &str) -> Vec<String> {
    let mut found: Vec<String> =
        replica.rows(table).filter_map(|(_, row)| row[column].as_str().map(str::to_owned)).collect();
    found.sort();
    found
}
