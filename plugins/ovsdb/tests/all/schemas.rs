//! Databases that will not do, and one that becomes another.

use std::fs;

use serde_json::Value;
use trieste_ovsdb::spec::TableSpec;

use crate::follower::{Follower, options, spec};
use crate::server::{SCHEMA, Server, create_database};

/// Writes OVN's schema with another version into a folder, and returns its path.
fn schema_of_version(folder: &std::path::Path, version: &str) -> std::path::PathBuf {
    let mut schema: Value = serde_json::from_str(&fs::read_to_string(SCHEMA).unwrap()).unwrap();
    schema["version"] = version.into();
    let file = folder.join("schema");
    fs::write(&file, schema.to_string()).unwrap();
    file
}

#[tokio::test]
async fn an_old_schema_is_refused_with_both_versions() {
    let folder = tempfile::tempdir().unwrap();
    let schema = schema_of_version(folder.path(), "5.34.1");
    create_database(&folder.path().join("nb.db"), &schema);
    let server = Server::of_database(folder, &[]);
    let follower = Follower::new(&server.unix());
    let error = follower.failed("schema").await;
    assert_eq!(error, "schema of OVN_Northbound is 5.34.1, and 6.1.0 or newer is needed");
    assert!(!follower.replica.borrow().is_synced());
}

#[tokio::test]
async fn plugin_ovn_db_what_a_database_lacks_is_named() {
    let server = Server::start(&[]);
    let mut other = spec();
    other.name = "Open_vSwitch".to_owned();
    let follower = Follower::with(&server.unix(), other, options());
    let error = follower.failed("no database").await;
    assert!(error.contains("Open_vSwitch") && error.contains("OVN_Northbound"), "{error}");

    let mut more = spec();
    more.tables.push(TableSpec::new("NB_Global", &["name", "a_column_of_the_future"]));
    let follower = Follower::with(&server.unix(), more, options());
    let error = follower.failed("column").await;
    assert_eq!(error, "table NB_Global of OVN_Northbound has no column a_column_of_the_future");
}

#[tokio::test]
async fn plugin_ovn_db_a_database_that_is_converted_is_read_anew() {
    let server = Server::start(&[]);
    server.nbctl(&["lr-add", "one"]);
    let mut follower = Follower::new(&server.unix());
    let before = follower.synced().await;
    let schema = schema_of_version(&server.directory, "9.0.0");
    crate::server::run("ovsdb-client", &["convert", &server.unix(), &schema.display().to_string()]);
    let is_new = |replica: &trieste_ovsdb::replica::Replica| {
        replica.is_synced() && replica.version() == Some(trieste_ovsdb::schema::Version(9, 0, 0))
    };
    let after = follower.until("converted", is_new).await;
    assert_eq!(after.differences(&before), []);
}
