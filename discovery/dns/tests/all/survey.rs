//! What is said of who answers is what answers do.

use std::collections::BTreeSet;

use domain::base::Rtype;
use trieste_dns::{Change, Import, Label, ServiceKind, Survey};

use crate::fixture::{Server, ips, label, name};

const WEB: &str = "web.shop.svc.clusterset.local";

/// `web` in four clusters, of which west is ours and north has IPv6 alone.
fn server(routing: &str) -> Server {
    let mut server = Server::new();
    let weights = [(label("south"), 3), (label("east"), 0)].into();
    let import = Import { routing: routing.parse().unwrap(), weights, ..Import::default() };
    server.apply(Change::Import(name("web"), import));
    server.export("web", "west", &["10.1.0.1"], true);
    server.export("web", "east", &["10.2.0.1", "fd00:2::1"], true);
    server.export("web", "south", &["10.3.0.1", "fd00:3::1"], true);
    server.export("web", "north", &["fd00:4::1"], true);
    server
}

fn survey(server: &Server) -> Survey {
    server.records.survey(&name("web")).unwrap()
}

/// The clusters whose addresses many answers have had.
fn answered(server: &Server, rtype: Rtype) -> BTreeSet<Label> {
    let found = survey(server).clusters;
    let addresses: BTreeSet<_> = (0..40).flat_map(|_| server.data(WEB, rtype)).collect();
    let has = |address: &std::net::IpAddr| addresses.contains(&address.to_string());
    found
        .iter()
        .filter(|cluster| cluster.addresses.iter().any(has))
        .map(|cluster| cluster.id.clone())
        .collect()
}

#[test]
fn clusters_that_are_named_are_those_that_are_answered() {
    for routing in ["round-robin", "nearest", "local-only", "failover=south,east"] {
        for own_is_ready in [true, false] {
            for down in ["", "south", "east"] {
                let mut server = server(routing);
                server.cluster("north", true, Some(5));
                server.export("web", "west", &["10.1.0.1"], own_is_ready);
                if !down.is_empty() {
                    server.cluster(down, false, None);
                }
                let found = survey(&server);
                let case = format!("{routing} {own_is_ready} {down}");
                assert_eq!(BTreeSet::from_iter(found.v4), answered(&server, Rtype::A), "{case}");
                assert_eq!(BTreeSet::from_iter(found.v6), answered(&server, Rtype::AAAA), "{case}");
            }
        }
    }
}

#[test]
fn a_headless_service_is_answered_by_all_that_can_be_reached() {
    let mut server = Server::new();
    server.import_headless("web");
    server.export_hosts("web", "east", &[("a", "10.2.0.1")]);
    server.export_hosts("web", "south", &[("b", "fd00:3::1")]);
    let found = survey(&server);
    assert_eq!(
        (found.kind, found.v4, found.v6),
        (ServiceKind::Headless, vec![label("east")], vec![label("south")])
    );
    server.cluster("east", false, None);
    let found = survey(&server);
    assert!(found.v4.is_empty() && !found.clusters[0].is_up && found.clusters[0].is_ready);
}

#[test]
fn clusterset_ips_stand_for_all_clusters_and_a_missing_service_is_none() {
    let mut server = server("round-robin");
    server.apply(Change::Import(name("web"), Import { ips: ips(&["243.0.0.1"]), ..Import::default() }));
    let found = survey(&server);
    assert_eq!(found.ips, ips(&["243.0.0.1"]));
    assert!(found.v4.is_empty() && found.v6.is_empty() && found.clusters.len() == 4);
    assert_eq!(server.records.survey(&name("other")), None);
}
