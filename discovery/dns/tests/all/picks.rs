//! Which cluster is chosen, by routing.

use std::collections::BTreeMap;
use std::thread;

use domain::base::Rtype;
use trieste_dns::{Change, Import, Routing};

use crate::fixture::{Server, label, name};

const WEB: &str = "web.shop.svc.clusterset.local";

/// `web` in all four clusters, of which west is ours.
fn server(routing: &str) -> Server {
    let mut server = Server::new();
    let import = Import { routing: routing.parse().unwrap(), ..Import::default() };
    server.apply(Change::Import(name("web"), import));
    for (cluster, address) in
        [("west", "10.1.0.1"), ("east", "10.2.0.1"), ("south", "10.3.0.1"), ("north", "10.4.0.1")]
    {
        server.export("web", cluster, &[address], true);
    }
    server
}

/// The own cluster's pods are gone.
fn without_own(server: &mut Server) {
    server.export("web", "west", &["10.1.0.1"], false);
}

fn found(server: &Server, times: usize) -> Vec<String> {
    (0..times).flat_map(|_| server.data(WEB, Rtype::A)).collect()
}

#[test]
fn the_nearest_is_the_own_cluster_and_then_the_shortest_way() {
    let mut server = server("nearest");
    server.cluster("east", true, Some(30));
    server.cluster("south", true, Some(10));
    assert_eq!(found(&server, 1), ["10.1.0.1"]);
    without_own(&mut server);
    assert_eq!(found(&server, 2), ["10.3.0.1", "10.3.0.1"]);
    server.cluster("south", false, Some(10));
    assert_eq!(found(&server, 1), ["10.2.0.1"]);
    server.cluster("east", false, Some(30));
    assert_eq!(found(&server, 1), ["10.4.0.1"], "one that nobody has measured comes last");
}

#[test]
fn local_only_is_never_another_cluster() {
    let mut server = server("local-only");
    assert_eq!(found(&server, 1), ["10.1.0.1"]);
    without_own(&mut server);
    assert_eq!(found(&server, 1), Vec::<String>::new());
}

#[test]
fn failover_goes_by_its_list_and_then_as_by_default() {
    let mut server = server("failover=south,east");
    assert_eq!(found(&server, 1), ["10.3.0.1"], "before the own cluster");
    server.cluster("south", false, None);
    assert_eq!(found(&server, 1), ["10.2.0.1"]);
    server.cluster("east", false, None);
    assert_eq!(found(&server, 1), ["10.1.0.1"]);
    without_own(&mut server);
    assert_eq!(found(&server, 1), ["10.4.0.1"]);
    server.cluster("south", true, None);
    assert_eq!(found(&server, 1), ["10.3.0.1"]);
}

#[test]
fn a_headless_service_is_local_only_too() {
    let mut server = Server::new();
    let import =
        Import { kind: trieste_dns::ServiceKind::Headless, routing: Routing::LocalOnly, ..Import::default() };
    server.apply(Change::Import(name("web"), import));
    server.export_hosts("web", "west", &[("a", "10.1.0.1")]);
    server.export_hosts("web", "east", &[("a", "10.2.0.1")]);
    assert_eq!(server.data(WEB, Rtype::A), ["10.1.0.1"]);
}

#[test]
fn a_weight_of_0_has_no_turn_while_another_cluster_serves() {
    let mut server = server("round-robin");
    without_own(&mut server);
    let weights = [(label("east"), 0), (label("south"), 3)].into_iter().collect();
    server.apply(Change::Import(name("web"), Import { weights, ..Import::default() }));
    let turns = found(&server, 4);
    assert_eq!(turns.iter().filter(|address| *address == "10.3.0.1").count(), 3, "{turns:?}");
    assert!(turns.contains(&"10.4.0.1".to_owned()), "{turns:?}");
    server.cluster("south", false, None);
    server.cluster("north", false, None);
    assert_eq!(found(&server, 1), ["10.2.0.1"]);
}

#[test]
fn families_have_turns_of_their_own() {
    let mut server = Server::new();
    server.import("web");
    server.export("web", "east", &["10.2.0.1", "fd02::1"], true);
    server.export("web", "south", &["10.3.0.1", "fd03::1"], true);
    let mut four = Vec::new();
    // As a resolver does: both at once.
    for _ in 0..4 {
        four.extend(server.data(WEB, Rtype::A));
        server.data(WEB, Rtype::AAAA);
    }
    assert_eq!(four, ["10.2.0.1", "10.3.0.1", "10.2.0.1", "10.3.0.1"]);
}

#[test]
fn a_cluster_without_the_family_has_no_turn() {
    let mut server = Server::new();
    server.import("web");
    server.export("web", "east", &["10.2.0.1"], true);
    server.export("web", "south", &["10.3.0.1", "fd03::1"], true);
    for _ in 0..3 {
        assert_eq!(server.data(WEB, Rtype::AAAA), ["fd03::1"]);
    }
}

#[test]
fn the_distribution_is_exact_over_all_threads() {
    let mut server = server("round-robin");
    without_own(&mut server);
    let weights = [(label("east"), 5)].into_iter().collect();
    server.apply(Change::Import(name("web"), Import { weights, ..Import::default() }));
    let mut counts = BTreeMap::new();
    let each: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| found(&server, 700))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    for address in each {
        *counts.entry(address).or_insert(0) += 1;
    }
    let expected = [("10.2.0.1", 2_000), ("10.3.0.1", 400), ("10.4.0.1", 400)];
    assert_eq!(counts, expected.map(|(address, count)| (address.to_owned(), count)).into_iter().collect());
}
