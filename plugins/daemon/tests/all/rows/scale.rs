//! What plans cost, by number of remote networks: `cargo test -p trieste-ovn figures -- --nocapture` prints a table.

use std::time::Instant;

use serde_json::Value;
use trieste_ovn::constants::{MAX_CHANGES, MAX_NETWORKS_PER_OBJECT};
use trieste_ovn::wanted::RouteKind;
use trieste_ovn::{Chassis, Table, Transaction, plan};
use trieste_ovsdb::operation::Operation;
use trieste_ovsdb::value::Datum;

use crate::rows::model::Model;
use crate::rows::support::{Facts, route};

/// Most bytes of JSON of one transaction that holds at most [`MAX_CHANGES`] changes.
const MAX_BYTES: usize = 512 << 10;

/// The gateway's zone with this many remote networks, of as many clusters as it takes.
fn facts(count: usize) -> Facts {
    let cidrs: Vec<String> = (0..count)
        .map(|at| format!("10.{}.{}.{}/28", 160 + at / 4_096, at / 16 % 256, at % 16 * 16))
        .collect();
    let cidrs: Vec<&str> = cidrs.iter().map(String::as_str).collect();
    let clusters = cidrs.chunks(MAX_NETWORKS_PER_OBJECT).enumerate();
    let routes =
        clusters.map(|(at, cidrs)| route(&format!("c{at}"), RouteKind::Gateway, &["10.128.0.2"], cidrs));
    Facts { routes: routes.collect(), ..Facts::upstream() }
}

/// A database of OVN-Kubernetes with as many rows of its own.
fn kubernetes(count: usize) -> Model {
    let mut model = Model::default();
    let router = model.add(Table::LogicalRouter, None, &[("name", "ovn_cluster_router".into())]);
    let (mut routes, mut policies) = (Vec::new(), Vec::new());
    for at in 0..count {
        let prefix = format!("10.{}.{}.0/24", 64 + at / 256, at % 256);
        let columns = [
            ("ip_prefix", Datum::from(prefix.clone())),
            ("nexthop", "100.64.0.2".into()),
            ("policy", "src-ip".into()),
        ];
        routes.push(model.add(Table::StaticRoute, None, &columns));
        let matched = format!("ip4.src == {prefix}");
        policies.push(model.add(
            Table::Policy,
            None,
            &[("priority", 1_004.into()), ("match", matched.into())],
        ));
    }
    let row = model.rows.get_mut(&(Table::LogicalRouter, router)).unwrap();
    row.insert("static_routes".to_owned(), Datum::set(routes));
    row.insert("policies".to_owned(), Datum::set(policies));
    model
}

fn bytes(transaction: &Transaction) -> usize {
    Value::Array(transaction.operations.iter().map(Operation::to_json).collect()).to_string().len()
}

#[test]
fn plugin_ovn_figures_of_plans_follow_what_changes() {
    println!("networks  transactions  operations   KiB  first ms  again ms  index ms  one more: operations");
    for count in [10, 100, 1_000, 10_000] {
        let (facts, chassis) = (facts(count), Chassis::new());
        let (wanted, mut model) = (facts.wanted(), kubernetes(count));

        let rows = model.replica();
        let began = Instant::now();
        let first = plan(&wanted, &rows, &chassis).transactions;
        let first_ms = began.elapsed().as_millis();
        let operations: usize = first.iter().map(|transaction| transaction.operations.len()).sum();
        let changes: usize = first.iter().map(|transaction| transaction.changes).sum();
        let sizes: Vec<usize> = first.iter().map(bytes).collect();
        assert_eq!((changes, first.len()), (3 * count, (3 * count).div_ceil(MAX_CHANGES)));
        // An insertion per row, and per transaction a guard and a change of each of two columns.
        assert!(operations <= changes + 4 * first.len(), "{operations}");
        assert!(sizes.iter().all(|size| *size < MAX_BYTES), "{sizes:?}");

        model.transact_all(first.iter().map(|transaction| transaction.operations.as_slice())).unwrap();
        let began = Instant::now();
        let rows = model.replica();
        let index_ms = began.elapsed().as_millis();
        let began = Instant::now();
        assert_eq!(plan(&wanted, &rows, &chassis).transactions, []);
        let again_ms = began.elapsed().as_millis();

        let mut more = facts.clone();
        more.routes[0].remote_cidrs[0] = "10.250.0.0/16".to_owned();
        let [one] = plan(&more.wanted(), &rows, &chassis).transactions.try_into().unwrap();
        assert_eq!(one.changes, 6, "three rows come, three go");
        assert_eq!(one.operations.len(), 10);

        println!(
            "{count:8}  {:12}  {operations:10}  {:4}  {first_ms:8}  {again_ms:8}  {index_ms:8}  {}",
            first.len(),
            sizes.iter().sum::<usize>() >> 10,
            one.operations.len(),
        );
    }
}
