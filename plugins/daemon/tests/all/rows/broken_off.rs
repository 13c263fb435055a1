//! A worker that ends between any two transactions: the next one makes what an undisturbed one makes, and a removal leaves what
//! was there before.

use trieste_ovn::wanted::{RouteKind, Topology, Zone};
use trieste_ovn::{Plan, plan, uninstall};

use crate::rows::ovn::{Addresses, Ovn};
use crate::rows::support::{Facts, converge, networks, remove_all, route};

/// So many networks, of both families, that a plan is several transactions.
fn many(facts: Facts, next_hops: &[&str]) -> Facts {
    let v4 = (0..190).map(|at| format!("10.160.{at}.0/24"));
    let v6 = (0..70).map(|at| format!("fd00:a0:{at:x}::/48"));
    let cidrs: Vec<String> = v4.chain(v6).collect();
    let cidrs: Vec<&str> = cidrs.iter().map(String::as_str).collect();
    Facts { routes: vec![route("east", RouteKind::Gateway, next_hops, &cidrs)], ..facts }
}

/// Upstream's topology in the gateway's zone.
fn cluster_router() -> Facts {
    many(Facts::upstream(), &["10.128.0.2", "fd00:10:128::2"])
}

/// The proposal's topology, with the gateway on this node.
fn submariner_router(gateway: &str) -> Facts {
    let mut facts = many(Facts::proposal(), &[]);
    facts.own.extend(networks(&["fd00:10:128::/48"]));
    Facts { topology: Topology::SubmarinerRouter, gateway_node: Some(gateway.to_owned()), ..facts }
}

/// Makes at most so many transactions of a plan; returns `true` if it came to its end.
fn apply_first(ovn: &Ovn, plan: &Plan, most: usize) -> bool {
    plan.transactions.iter().take(most).for_each(|transaction| ovn.transact(transaction).unwrap());
    plan.transactions.len() <= most
}

/// Ends a worker after each number of transactions, on its way from one state to another; returns how many there are.
fn end_everywhere(ovn: &Ovn, name: &str, from: Option<&Facts>, to: &Facts) -> usize {
    let before = ovn.everything();
    let prepare = || from.iter().for_each(|facts| converge(ovn, facts));
    let is_clean = |what: &str| {
        remove_all(ovn);
        assert_eq!(different(&ovn.everything(), &before), [""; 0], "{name}: {what}, then removed");
    };
    prepare();
    converge(ovn, to);
    let complete = ovn.everything();
    is_clean("undisturbed");
    for made in 0.. {
        let begin = || {
            prepare();
            apply_first(ovn, &plan(&to.wanted(), &ovn.rows(), &ovn.chassis()), made)
        };
        let was_done = begin();
        is_clean(&format!("ended after {made} transactions"));
        begin();
        converge(ovn, to);
        let different = different(&ovn.everything(), &complete);
        assert_eq!(different, [""; 0], "{name}: ended after {made} transactions, then started again");
        let was_removed = apply_first(ovn, &uninstall(&ovn.rows()), made);
        is_clean(&format!("removal ended after {made} transactions"));
        if was_done && was_removed {
            return made;
        }
    }
    unreachable!("numbers do not end")
}

/// Returns the rows that are there and should not be, and those that are missing.
fn different(found: &[String], wanted: &[String]) -> Vec<String> {
    let more = found.iter().filter(|row| !wanted.contains(row)).map(|row| format!("+ {row}"));
    let less = wanted.iter().filter(|row| !found.contains(row)).map(|row| format!("- {row}"));
    more.chain(less).collect()
}

#[test]
fn plugin_ovn_a_worker_that_ends_after_any_transaction_is_finished_by_the_next_or_leaves_no_row() {
    let ovn = Ovn::start();
    ovn.add_kubernetes(&["node1", "node2"], Addresses::Dual);
    ovn.add_management_port("node1", "0a:58:0a:80:00:02 10.128.0.2 fd00:10:128::2");
    ovn.sync();
    let other_zone = Facts { zone: Zone::Other, ..cluster_router() };
    let cases = [
        ("upstream's topology", None, cluster_router()),
        ("the proposal's topology", None, submariner_router("node1")),
        ("another zone's gateway", Some(cluster_router()), other_zone),
        ("another node's gateway", Some(submariner_router("node1")), submariner_router("node2")),
        ("from upstream's topology", Some(cluster_router()), submariner_router("node1")),
        ("to upstream's topology", Some(submariner_router("node1")), cluster_router()),
    ];
    for (name, from, to) in cases {
        let transactions = end_everywhere(&ovn, name, from.as_ref(), &to);
        eprintln!("{name}: {transactions} transactions");
        assert!(transactions > 1, "{name}");
    }
}
