//! Transactions and how they fail.

use std::time::Duration;

use trieste_ovsdb::operation::{Condition, Function, Mutation, Mutator, Operation, Until, named};
use trieste_ovsdb::outcome::{Failure, OperationResult, TransactError};
use trieste_ovsdb::spec::{DatabaseSpec, TableSpec};
use trieste_ovsdb::value::{Datum, Row};

use crate::follower::{Follower, options};
use crate::server::{Server, create_database};

fn row<const N: usize>(columns: [(&str, Datum); N]) -> Row {
    columns.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn insert(table: &str, row: Row, name: Option<&str>) -> Operation {
    Operation::Insert { table: table.to_owned(), row, uuid_name: name.map(str::to_owned) }
}

fn policy(priority: i64, destination: &str) -> Row {
    row([
        ("priority", priority.into()),
        ("match", format!("ip4.dst == {destination}").into()),
        ("action", "reroute".into()),
        ("nexthops", "10.1.1.1".into()),
        ("external_ids", Datum::map([("owner", "test")])),
    ])
}

/// Inserts a policy and gives it to a router.
fn add_policy(router: &str, policy: Row) -> Vec<Operation> {
    vec![
        insert("Logical_Router_Policy", policy, Some("new")),
        Operation::Mutate {
            table: "Logical_Router".to_owned(),
            conditions: vec![Condition::equal("name", router)],
            mutations: vec![Mutation::new("policies", Mutator::Insert, named("new"))],
        },
    ]
}

#[tokio::test]
async fn plugin_ovn_db_what_a_transaction_writes_is_in_the_replica_when_it_returns() {
    let server = Server::start(&[]);
    server.nbctl(&["lr-add", "one"]);
    let mut follower = Follower::new(&server.unix());
    follower.synced().await;
    let results = follower.client.transact(add_policy("one", policy(20_000, "10.2.0.0/16"))).await.unwrap();
    let [OperationResult::Inserted(uuid), OperationResult::Count(1)] = results[..] else {
        panic!("{results:?}")
    };
    let replica = follower.replica.borrow().clone();
    assert_eq!(
        replica.table("Logical_Router_Policy").unwrap().row(uuid),
        Some(&policy(20_000, "10.2.0.0/16"))
    );
    let (_, router) = replica.table("Logical_Router").unwrap().find("name", &"one".into()).unwrap();
    assert_eq!(router["policies"], uuid.into());
    assert!(server.nbctl(&["lr-policy-list", "one"]).contains("10.2.0.0/16"));

    // A policy of no router is none: the database removes it (RFC 7047, section 3.2).
    let delete = vec![Operation::Mutate {
        table: "Logical_Router".to_owned(),
        conditions: vec![Condition::new("policies", Function::Includes, uuid)],
        mutations: vec![Mutation::new("policies", Mutator::Delete, uuid)],
    }];
    assert_eq!(follower.client.transact(delete).await, Ok(vec![OperationResult::Count(1)]));
    assert!(follower.replica.borrow().table("Logical_Router_Policy").unwrap().is_empty());
}

#[tokio::test]
async fn plugin_ovn_db_a_transaction_on_what_is_no_longer_true_changes_nothing() {
    let server = Server::start(&[]);
    server.nbctl(&["lr-add", "one"]);
    let mut follower = Follower::new(&server.unix());
    follower.synced().await;
    let guarded = |expected: Vec<Row>| {
        let router = vec![Condition::equal("name", "one")];
        let expect = Operation::expect("Logical_Router", router, &["policies"], expected);
        [vec![expect], add_policy("one", policy(1, "10.3.0.0/16"))].concat()
    };
    let none = || row([("policies", Datum::empty())]);
    let error = follower.client.transact(guarded(Vec::new())).await.unwrap_err();
    assert_eq!(error.failure(), Some(&Failure::TimedOut), "{error}");
    assert!(matches!(error, TransactError::Operation { index: 0, operation: "wait", .. }), "{error}");
    assert!(error.is_without_effect());
    assert_eq!(server.nbctl(&["lr-policy-list", "one"]).matches("10.3.0.0/16").count(), 0);
    follower.client.transact(guarded(vec![none()])).await.unwrap();
    let error = follower.client.transact(guarded(vec![none()])).await.unwrap_err();
    assert_eq!(error.failure(), Some(&Failure::TimedOut), "{error}");
    assert_eq!(server.nbctl(&["lr-policy-list", "one"]).matches("10.3.0.0/16").count(), 1);
}

#[tokio::test]
async fn plugin_ovn_db_a_transaction_waits_for_rows_in_its_time() {
    let server = Server::start(&[]);
    let mut follower = Follower::new(&server.unix());
    follower.synced().await;
    let wait = vec![Operation::Wait {
        table: "Logical_Router".to_owned(),
        timeout: Some(Duration::from_secs(20)),
        conditions: vec![Condition::equal("name", "late")],
        columns: vec!["name".to_owned()],
        until: Until::NotEqual,
        rows: Vec::new(),
    }];
    let client = follower.client.clone();
    let waiting = tokio::spawn(async move { client.transact(wait).await });
    server.nbctl(&["lr-add", "late"]);
    assert_eq!(waiting.await.unwrap(), Ok(vec![OperationResult::Done]));
}

#[tokio::test]
async fn plugin_ovn_db_a_transaction_without_end_is_cancelled() {
    let server = Server::start(&[]);
    let options =
        trieste_ovsdb::options::ClientOptions { transact_timeout: Duration::from_millis(300), ..options() };
    let mut follower = Follower::with(&server.unix(), crate::follower::spec(), options);
    let generation = follower.synced().await.generation();
    let wait = Operation::Wait {
        table: "Logical_Router".to_owned(),
        timeout: None,
        conditions: vec![Condition::equal("name", "never")],
        columns: vec!["name".to_owned()],
        until: Until::NotEqual,
        rows: Vec::new(),
    };
    assert_eq!(follower.client.transact(vec![wait]).await, Err(TransactError::NoAnswer));
    // The server has answered the cancellation: the session goes on.
    tokio::time::sleep(Duration::from_millis(700)).await;
    let comment = vec![Operation::Comment("a".to_owned())];
    assert_eq!(follower.client.transact_on(generation, comment).await, Ok(vec![OperationResult::Done]));
}

#[tokio::test]
async fn plugin_ovn_db_failures_are_told_apart() {
    let server = Server::start(&[]);
    server.nbctl(&["lr-add", "one"]);
    let mut follower = Follower::new(&server.unix());
    follower.synced().await;
    let fail = async |operations: Vec<Operation>| follower.client.transact(operations).await.unwrap_err();

    let error = fail(vec![insert("Logical_Router_Policy", row([("priority", 40_000.into())]), None)]).await;
    assert_eq!(error.failure(), Some(&Failure::ConstraintViolation), "{error}");
    let error = fail(vec![Operation::Comment("a".to_owned()), Operation::Abort]).await;
    assert!(matches!(error, TransactError::Operation { index: 1, failure: Failure::Aborted, .. }), "{error}");
    let error = fail(vec![Operation::Assert { lock: "nobody".to_owned() }]).await;
    assert_eq!(error.failure(), Some(&Failure::NotOwner), "{error}");
    let missing = trieste_ovsdb::uuid::Uuid::from_bytes([7; 16]);
    let error = fail(vec![Operation::Mutate {
        table: "Logical_Router".to_owned(),
        conditions: Vec::new(),
        mutations: vec![Mutation::new("policies", Mutator::Insert, missing)],
    }])
    .await;
    assert!(matches!(error, TransactError::Commit { failure: Failure::ReferentialIntegrity, .. }), "{error}");
    let twice = || insert("Logical_Router", row([("name", "x".into())]), Some("same"));
    let error = fail(vec![twice(), twice()]).await;
    assert_eq!(error.failure(), Some(&Failure::DuplicateUuidName), "{error}");
    let error = fail(vec![insert("No_Table", Row::new(), None)]).await;
    assert!(matches!(error.failure(), Some(Failure::Invalid(_))), "{error}");
    let error = fail(vec![insert("Logical_Router", row([("name", 5.into())]), None)]).await;
    assert!(matches!(error.failure(), Some(Failure::Invalid(_))), "{error}");
    assert_eq!(follower.replica.borrow().rows("Logical_Router").count(), 1, "nothing was changed");
}

#[tokio::test]
async fn plugin_ovn_db_rows_are_selected() {
    let server = Server::start(&[]);
    server.nbctl(&["lr-add", "one", "--", "lr-add", "two"]);
    let mut follower = Follower::new(&server.unix());
    follower.synced().await;
    let select = Operation::Select {
        table: "Logical_Router".to_owned(),
        conditions: vec![Condition::equal("name", "two")],
        columns: vec!["name".to_owned(), "ports".to_owned()],
    };
    let results = follower.client.transact(vec![select]).await.unwrap();
    let expected = row([("name", "two".into()), ("ports", Datum::empty())]);
    assert_eq!(results, [OperationResult::Rows(vec![expected])]);
}

/// Values of all types, in a database of our own.
#[tokio::test]
async fn plugin_ovn_db_values_of_all_types_come_back_as_they_were() {
    let folder = tempfile::tempdir().unwrap();
    let many = |kind: &str| format!(r#"{{"type": {{"key": "{kind}", "min": 0, "max": "unlimited"}}}}"#);
    let map = r#"{"type": {"key": "integer", "value": "real", "min": 0, "max": "unlimited"}}"#;
    let schema = format!(
        r#"{{"name": "Types", "version": "1.0.0", "tables": {{"T": {{"columns": {{
            "real": {{"type": "real"}}, "optional": {{"type": {{"key": "real", "min": 0}}}}, "integers": {},
            "reals": {}, "booleans": {}, "strings": {}, "uuids": {}, "map": {map}}}, "isRoot": true}}}}}}"#,
        many("integer"),
        many("real"),
        many("boolean"),
        many("string"),
        many("uuid"),
    );
    std::fs::write(folder.path().join("schema"), schema).unwrap();
    create_database(&folder.path().join("nb.db"), &folder.path().join("schema"));
    let server = Server::of_database(folder, &[]);
    let columns = ["real", "optional", "integers", "reals", "booleans", "strings", "uuids", "map"];
    let spec = DatabaseSpec {
        name: "Types".to_owned(),
        min_version: None,
        tables: vec![TableSpec::new("T", &columns)],
    };
    let mut follower = Follower::with(&server.unix(), spec, options());
    follower.synced().await;
    let real = |value: f64| trieste_ovsdb::value::Real::new(value).unwrap();
    let uuid = |byte: u8| trieste_ovsdb::uuid::Uuid::from_bytes([byte; 16]);
    // The server writes 2.0 as 2.
    let mut values = row([
        ("real", real(2.0).into()),
        ("optional", real(0.5).into()),
        ("integers", Datum::set([i64::MIN, 0, i64::MAX])),
        ("reals", Datum::set([real(1.0), real(1e300), real(-1.5)])),
        ("booleans", Datum::set([true, false])),
        ("strings", Datum::set(["", "ü\"\\\n\u{1F600}", "[\"set\"]"])),
        ("uuids", Datum::set([uuid(1), uuid(2)])),
        ("map", Datum::map([(1, real(1.0)), (2, real(2.5))])),
    ]);
    let results = follower.client.transact(vec![insert("T", values.clone(), None)]).await.unwrap();
    let [OperationResult::Inserted(id)] = results[..] else { panic!("{results:?}") };
    assert_eq!(follower.replica.borrow().table("T").unwrap().row(id), Some(&values));

    values.insert("integers".to_owned(), Datum::set([0, 5]));
    values.insert("map".to_owned(), Datum::map([(2, real(3.0)), (4, real(4.0))]));
    values.insert("optional".to_owned(), Datum::empty());
    let update = Operation::Update { table: "T".to_owned(), conditions: Vec::new(), row: values.clone() };
    follower.client.transact(vec![update]).await.unwrap();
    assert_eq!(follower.replica.borrow().table("T").unwrap().row(id), Some(&values));
}
