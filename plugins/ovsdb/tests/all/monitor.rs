//! The replica is what the database is, whatever writes to it.

use std::collections::BTreeMap;

use trieste_ovsdb::operation::{Condition, Operation};
use trieste_ovsdb::outcome::OperationResult;
use trieste_ovsdb::replica::Replica;
use trieste_ovsdb::spec::Rows;
use trieste_ovsdb::value::{Datum, Row};

use crate::follower::{Follower, texts};
use crate::server::Server;

const TABLES: [&str; 3] = ["Logical_Router", "Logical_Router_Policy", "Logical_Router_Static_Route"];

/// Waits until the replica has the rows that the server has, read by `select`.
async fn equal_to_the_server(follower: &mut Follower) {
    for table in TABLES {
        let spec = crate::follower::spec();
        let mut columns = spec.tables.iter().find(|spec| spec.name == table).unwrap().columns.clone();
        columns.push("_uuid".to_owned());
        let select = Operation::Select { table: table.to_owned(), conditions: Vec::new(), columns };
        let results = follower.client.transact(vec![select]).await.unwrap();
        let [OperationResult::Rows(rows)] = &results[..] else { panic!("{results:?}") };
        let server: BTreeMap<_, Row> = rows
            .iter()
            .cloned()
            .map(|mut row| (row.remove("_uuid").unwrap().as_uuid().unwrap(), row))
            .collect();
        let replica = follower.replica.borrow().clone();
        let ours: BTreeMap<_, Row> = replica.rows(table).map(|(uuid, row)| (uuid, row.clone())).collect();
        assert_eq!(ours, server, "{table}");
    }
}

#[tokio::test]
async fn plugin_ovn_db_what_ovn_nbctl_writes_is_followed() {
    let server = Server::start(&[]);
    let mut follower = Follower::new(&server.unix());
    follower.synced().await;
    let steps: [&[&str]; 11] = [
        &["lr-add", "one", "--", "lr-add", "two"],
        &["lr-policy-add", "one", "20000", "ip4.dst == 10.2.0.0/16", "reroute", "10.1.1.1"],
        &["lr-policy-add", "one", "10", "ip4.dst == 10.3.0.0/16", "reroute", "10.1.1.1,10.1.1.2"],
        &["lr-route-add", "one", "10.2.0.0/16", "10.1.1.1"],
        &["lr-route-add", "two", "fd00::/64", "fd01::1"],
        &["set", "Logical_Router", "one", "options:a=1", "options:b=2", "enabled=false"],
        &[
            "set",
            "Logical_Router",
            "one",
            "options:a=3",
            "--",
            "remove",
            "Logical_Router",
            "one",
            "options",
            "b",
        ],
        &["clear", "Logical_Router", "one", "enabled"],
        &[
            "set",
            "Logical_Router",
            "two",
            "enabled=true",
            "--",
            "set",
            "Logical_Router",
            "two",
            "enabled=false",
        ],
        &["lr-policy-del", "one", "20000"],
        &["lr-del", "two"],
    ];
    for step in steps {
        server.nbctl(step);
        equal_to_the_server(&mut follower).await;
    }
    let replica = follower.replica.borrow().clone();
    let (_, router) = replica.table("Logical_Router").unwrap().find("name", &"one".into()).unwrap();
    assert_eq!(router["options"], Datum::map([("a", "3")]));
    assert_eq!(texts(&replica, "Logical_Router_Static_Route", "ip_prefix"), ["10.2.0.0/16"]);
    let (_, policy) = replica.rows("Logical_Router_Policy").next().unwrap();
    assert_eq!(policy["nexthops"], Datum::set(["10.1.1.1", "10.1.1.2"]));
}

#[tokio::test]
async fn plugin_ovn_db_rows_are_followed_by_conditions_that_change() {
    let server = Server::start(&[]);
    server.nbctl(&["lr-add", "one", "--", "lr-add", "two", "--", "lr-add", "three"]);
    let mut spec = crate::follower::spec();
    spec.tables[0].rows = Rows::AnyOf(vec![Condition::equal("name", "one")]);
    let mut follower = Follower::with(&server.unix(), spec, crate::follower::options());
    let names = |replica: &Replica| texts(replica, "Logical_Router", "name");
    assert_eq!(names(&follower.synced().await), ["one"]);

    let two = Rows::AnyOf(vec![Condition::equal("name", "two"), Condition::equal("name", "three")]);
    follower.client.follow_rows("Logical_Router", two).await.unwrap();
    assert_eq!(names(&follower.replica.borrow()), ["three", "two"]);
    // A row that comes to fulfil a condition is new, and one that ceases to is gone.
    server.nbctl(&[
        "set",
        "Logical_Router",
        "one",
        "name=three",
        "--",
        "set",
        "Logical_Router",
        "two",
        "name=x",
    ]);
    follower.until("followed", |replica| names(replica) == ["three", "three"]).await;
    follower.client.follow_rows("Logical_Router", Rows::Nothing).await.unwrap();
    assert_eq!(names(&follower.replica.borrow()), [""; 0]);
    follower.client.follow_rows("Logical_Router", Rows::All).await.unwrap();
    assert_eq!(names(&follower.replica.borrow()), ["three", "three", "x"]);
    follower.client.follow_rows("No_Such_Table", Rows::All).await.unwrap();
}

#[tokio::test]
async fn plugin_ovn_db_thousands_of_rows_are_followed_exactly() {
    let server = Server::start(&[]);
    let mut follower = Follower::new(&server.unix());
    follower.synced().await;
    for hundreds in 0..40 {
        let insert = |number: i64| Operation::Insert {
            table: "Logical_Router".to_owned(),
            row: Row::from([("name".to_owned(), format!("router-{}", hundreds * 100 + number).into())]),
            uuid_name: None,
        };
        follower.client.transact((0..100).map(insert).collect()).await.unwrap();
    }
    assert_eq!(follower.replica.borrow().table("Logical_Router").unwrap().len(), 4_000);
    equal_to_the_server(&mut follower).await;
    let mut second = Follower::new(&server.unix());
    assert_eq!(second.synced().await.differences(&follower.replica.borrow()), []);
    let all = Operation::Delete { table: "Logical_Router".to_owned(), conditions: Vec::new() };
    follower.client.transact(vec![all]).await.unwrap();
    second.until("empty", |replica| replica.rows("Logical_Router").count() == 0).await;
}
