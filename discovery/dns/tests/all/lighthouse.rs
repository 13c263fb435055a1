//! What upstream's Lighthouse does, behaviour by behaviour, and where ours does more.

use domain::base::Rtype;
use domain::base::iana::Rcode;
use trieste_dns::{Change, Endpoint, Import, Label, Protocol, ServiceKind, Slice, Writer};

use crate::fixture::{Server, ips, label, name, port};

const WEB: &str = "web.shop.svc.clusterset.local";
const DB: &str = "db.shop.svc.clusterset.local";
const NOTHING: &[&str] = &[];

/// `web` in east and south, neither of which is ours.
fn remote() -> Server {
    let mut server = Server::new();
    server.import("web");
    server.export("web", "east", &["10.2.0.1"], true);
    server.export("web", "south", &["10.3.0.1"], true);
    server
}

#[test]
fn a_remote_service_resolves() {
    let mut server = Server::new();
    assert_eq!(server.ask(WEB, Rtype::A).rcode, Rcode::NXDOMAIN);
    server.import("web");
    assert_eq!(server.data(WEB, Rtype::A), NOTHING, "imported, and nobody exports it yet");
    server.export("web", "east", &["10.2.0.1"], true);
    assert_eq!(server.data(WEB, Rtype::A), ["10.2.0.1"]);
    server.apply(Change::ImportRemoved(name("web")));
    assert_eq!(server.ask(WEB, Rtype::A).rcode, Rcode::NXDOMAIN);
}

#[test]
fn slices_may_come_before_the_import() {
    let mut server = Server::new();
    server.export("web", "east", &["10.2.0.1"], true);
    assert_eq!(server.ask(WEB, Rtype::A).rcode, Rcode::NXDOMAIN);
    server.import("web");
    assert_eq!(server.data(WEB, Rtype::A), ["10.2.0.1"]);
}

#[test]
fn the_own_cluster_is_preferred_while_it_serves() {
    let mut server = remote();
    server.export("web", "west", &["10.1.0.1"], true);
    for _ in 0..4 {
        assert_eq!(server.data(WEB, Rtype::A), ["10.1.0.1"]);
    }
    server.export("web", "west", &["10.1.0.1"], false);
    let found: Vec<_> = (0..4).flat_map(|_| server.data(WEB, Rtype::A)).collect();
    assert_eq!(found, ["10.2.0.1", "10.3.0.1", "10.2.0.1", "10.3.0.1"]);
}

#[test]
fn the_own_cluster_counts_as_connected_whatever_is_said() {
    let mut server = remote();
    server.export("web", "west", &["10.1.0.1"], true);
    server.cluster("west", false, None);
    assert_eq!(server.data(WEB, Rtype::A), ["10.1.0.1"]);
}

#[test]
fn clusters_have_turns() {
    let server = remote();
    let found: Vec<_> = (0..4).flat_map(|_| server.data(WEB, Rtype::A)).collect();
    assert_eq!(found, ["10.2.0.1", "10.3.0.1", "10.2.0.1", "10.3.0.1"]);
}

#[test]
fn weights_of_5_1_1_are_spread_smoothly() {
    let mut server = remote();
    server.export("web", "north", &["10.4.0.1"], true);
    let weights = [(label("east"), 5)].into_iter().collect();
    server.apply(Change::Import(name("web"), Import { weights, ..Import::default() }));
    let found: Vec<_> = (0..7).flat_map(|_| server.data(WEB, Rtype::A)).collect();
    let (e, n, s) = ("10.2.0.1", "10.4.0.1", "10.3.0.1");
    assert_eq!(found, [e, e, n, e, s, e, e]);
}

#[test]
fn a_cluster_that_cannot_be_reached_is_left_out() {
    let mut server = remote();
    server.cluster("east", false, None);
    for _ in 0..3 {
        assert_eq!(server.data(WEB, Rtype::A), ["10.3.0.1"]);
    }
    server.cluster("south", false, None);
    assert_eq!(server.data(WEB, Rtype::A), NOTHING, "known, and nothing can be reached");
    assert_eq!(server.ask(WEB, Rtype::A).authorities.len(), 1, "with the zone's SOA");
    server.cluster("east", true, None);
    assert_eq!(server.data(WEB, Rtype::A), ["10.2.0.1"]);
}

#[test]
fn clusters_that_no_gateway_knows_count_as_connected_only_without_gateways() {
    let mut server = remote();
    server.cluster("east", true, None);
    server.apply(Change::UnknownClusters { are_up: false });
    for _ in 0..3 {
        assert_eq!(server.data(WEB, Rtype::A), ["10.2.0.1"]);
    }
    server.apply(Change::Cluster(label("east"), None));
    assert_eq!(server.data(WEB, Rtype::A), NOTHING);
    server.apply(Change::UnknownClusters { are_up: true });
    assert_eq!(server.data(WEB, Rtype::A).len(), 1);
}

#[test]
fn clusters_without_active_pods_are_left_out() {
    let mut server = remote();
    server.export("web", "east", &["10.2.0.1"], false);
    for _ in 0..3 {
        assert_eq!(server.data(WEB, Rtype::A), ["10.3.0.1"]);
    }
    server.export("web", "south", &["10.3.0.1"], false);
    assert_eq!(server.data(WEB, Rtype::A), NOTHING);
}

#[test]
fn a_clusters_id_bypasses_health() {
    let mut server = remote();
    server.export("web", "east", &["10.2.0.1"], false);
    server.cluster("east", false, None);
    assert_eq!(server.data(&format!("east.{WEB}"), Rtype::A), ["10.2.0.1"]);
    assert_eq!(server.ask(&format!("north.{WEB}"), Rtype::A).rcode, Rcode::NXDOMAIN);
}

#[test]
fn nothing_is_denied_before_all_has_been_read() {
    let mut server = Server::new();
    let (writer, records) = Writer::new(label("west"));
    (server.writer, server.records) = (writer, records);
    let reply = server.ask(WEB, Rtype::A);
    assert_eq!((reply.rcode, reply.authorities.len()), (Rcode::SERVFAIL, 0));
    assert_eq!(server.ask("x.clusterset.org", Rtype::A).rcode, Rcode::REFUSED);
    server.import("web");
    server.export("web", "east", &["10.2.0.1"], true);
    assert_eq!(server.data(WEB, Rtype::A), ["10.2.0.1"], "what is there is answered");
    server.apply(Change::Synced);
    assert_eq!(server.ask(DB, Rtype::A).rcode, Rcode::NXDOMAIN);
}

#[test]
fn clusterset_ips_are_answered_instead_of_clusters() {
    let mut server = remote();
    let import = Import { ips: ips(&["243.0.0.9"]), ..Import::default() };
    server.apply(Change::Import(name("web"), import));
    server.cluster("east", false, None);
    server.cluster("south", false, None);
    assert_eq!(server.data(WEB, Rtype::A), ["243.0.0.9"]);
    assert_eq!(server.data(WEB, Rtype::AAAA), NOTHING);
    server.import("web");
    server.cluster("east", true, None);
    assert_eq!(server.data(WEB, Rtype::A), ["10.2.0.1"], "released");
}

#[test]
fn ports_are_those_that_all_clusters_have() {
    let mut server = remote();
    let endpoints = vec![Endpoint { addresses: ips(&["10.3.0.1"]), host: None, is_ready: true }];
    let ports = vec![port("http", Protocol::Tcp, 80), port("extra", Protocol::Tcp, 90)];
    server.slice("web", "south", Slice { endpoints, ports, publishes_not_ready: false });
    assert_eq!(server.data(WEB, Rtype::SRV), [format!("0 50 80 {WEB}")]);
    assert_eq!(server.data(&format!("_extra._tcp.{WEB}"), Rtype::SRV), NOTHING);
    assert_eq!(
        server.data(&format!("_extra._tcp.south.{WEB}"), Rtype::SRV),
        [format!("0 50 90 south.{WEB}")]
    );
}

#[test]
fn a_headless_service_has_the_pods_of_all_clusters() {
    let mut server = Server::new();
    server.import_headless("db");
    server.export_hosts("db", "east", &[("db-0", "10.2.1.1"), ("db-1", "10.2.1.2")]);
    server.export_hosts("db", "west", &[("db-0", "10.1.1.1")]);
    assert_eq!(server.data(DB, Rtype::A), ["10.1.1.1", "10.2.1.1", "10.2.1.2"]);
    server.cluster("east", false, None);
    assert_eq!(server.data(DB, Rtype::A), ["10.1.1.1"], "cut off");
    assert_eq!(server.data(&format!("east.{DB}"), Rtype::A), ["10.2.1.1", "10.2.1.2"], "asked for by name");
    server.cluster("east", true, None);
    server.export_hosts("db", "east", &[("db-0", "10.2.1.1"), ("db-1", "10.2.1.2"), ("db-2", "10.2.1.3")]);
    assert_eq!(server.data(DB, Rtype::A).len(), 4, "scaled up");
    server.export_hosts("db", "east", &[("db-0", "10.2.1.1")]);
    assert_eq!(server.data(DB, Rtype::A), ["10.1.1.1", "10.2.1.1"], "scaled down");
    assert_eq!(server.ask(&format!("db-1.east.{DB}"), Rtype::A).rcode, Rcode::NXDOMAIN);
    server.apply(Change::SliceRemoved(name("db"), label("east"), "slice".into()));
    assert_eq!(server.data(DB, Rtype::A), ["10.1.1.1"]);
}

#[test]
fn several_slices_of_a_cluster_are_one_answer() {
    let mut server = Server::new();
    server.import_headless("db");
    for number in 1..=3 {
        let addresses = ips(&[&format!("10.2.1.{number}")]);
        let endpoint = Endpoint { addresses, host: Some(label(&format!("db-{number}"))), is_ready: true };
        let slice = Slice { endpoints: vec![endpoint], ..Slice::default() };
        server.apply(Change::Slice(name("db"), label("east"), format!("s{number}").into(), slice));
    }
    assert_eq!(server.data(DB, Rtype::A), ["10.2.1.1", "10.2.1.2", "10.2.1.3"]);
    server.apply(Change::SliceRemoved(name("db"), label("east"), "s2".into()));
    assert_eq!(server.data(DB, Rtype::A), ["10.2.1.1", "10.2.1.3"]);
}

#[test]
fn pods_that_are_not_ready_are_answered_only_where_they_are_published() {
    let mut server = Server::new();
    server.import_headless("db");
    let pod = |address: &str, is_ready| Endpoint { addresses: ips(&[address]), host: None, is_ready };
    let slice = |publishes_not_ready| Slice {
        endpoints: vec![pod("10.2.1.1", true), pod("10.2.1.2", false)],
        ports: Vec::new(),
        publishes_not_ready,
    };
    server.slice("db", "east", slice(false));
    assert_eq!(server.data(DB, Rtype::A), ["10.2.1.1"]);
    server.slice("db", "east", slice(true));
    assert_eq!(server.data(DB, Rtype::A), ["10.2.1.1", "10.2.1.2"]);
    server.slice("db", "east", Slice { endpoints: vec![pod("10.2.1.2", false)], ..Slice::default() });
    assert_eq!(server.data(DB, Rtype::A), NOTHING, "known, none is ready: no data, since names may be below");
}

#[test]
fn the_kind_of_a_service_may_change() {
    let mut server = remote();
    server.import_headless("web");
    assert_eq!(server.data(WEB, Rtype::A), ["10.2.0.1", "10.3.0.1"]);
    server.import("web");
    assert_eq!(server.data(WEB, Rtype::A).len(), 1);
}

#[test]
fn each_answer_of_a_headless_service_begins_with_another_pod() {
    let mut server = Server::new();
    server.import_headless("db");
    server.export_hosts("db", "east", &[("", "10.2.1.1"), ("", "10.2.1.2"), ("", "10.2.1.3")]);
    let first = |_| server.ask(DB, Rtype::A).answers[0].rsplit(' ').next().unwrap().to_owned();
    let firsts: Vec<_> = (0..4).map(first).collect();
    assert_eq!(firsts, ["10.2.1.1", "10.2.1.2", "10.2.1.3", "10.2.1.1"]);
}

#[test]
fn other_types_are_no_data_with_the_zones_authority() {
    let server = remote();
    for rtype in [Rtype::MX, Rtype::CNAME, Rtype::HTTPS, Rtype::DS, Rtype::AAAA] {
        let reply = server.ask(WEB, rtype);
        assert_eq!(
            (reply.rcode, reply.answers.len(), reply.authorities.len()),
            (Rcode::NOERROR, 0, 1),
            "{rtype}"
        );
    }
}

#[test]
fn two_clusters_whose_ids_differ_by_case_are_one() {
    assert_eq!(label("East"), Label::new("east").unwrap());
    let mut server = Server::new();
    server.apply(Change::Import(name("db"), Import { kind: ServiceKind::Headless, ..Import::default() }));
    server.export_hosts("db", "EAST", &[("DB-0", "10.2.1.1")]);
    assert_eq!(server.data(&format!("db-0.east.{DB}"), Rtype::A), ["10.2.1.1"]);
}

#[test]
fn answers_are_counted_for_the_clusters_that_they_name() {
    let mut server = remote();
    server.import_headless("db");
    server.export_hosts("db", "east", &[("db-0", "10.2.1.1"), ("db-1", "10.2.1.2")]);
    for _ in 0..3 {
        server.ask(WEB, Rtype::A);
    }
    server.ask(DB, Rtype::A);
    server.ask(&format!("db-0.east.{DB}"), Rtype::SRV);
    server.ask(DB, Rtype::AAAA);
    server.ask(&format!("x.{DB}"), Rtype::A);
    server.export("web", "east", &["10.2.0.9"], true);
    let mut found = Vec::new();
    server.records.each_answered(|answered| {
        let cluster = answered.cluster.map(ToString::to_string).unwrap_or_default();
        let ips: Vec<_> = answered.ips.iter().map(ToString::to_string).collect();
        found.push(format!("{} {cluster} {} {}", answered.service, ips.join(","), answered.count));
    });
    found.sort();
    assert_eq!(found, ["db east 10.2.1.1,10.2.1.2 2", "web east 10.2.0.9 2", "web south 10.3.0.1 1"]);
}
