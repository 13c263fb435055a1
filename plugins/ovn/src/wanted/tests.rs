use super::*;
use proptest::prelude::*;

fn route(cluster: &str, kind: RouteKind, next_hops: &[&str], remote_cidrs: &[&str]) -> RouteObject {
    let owned = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
    RouteObject {
        cluster: cluster.to_owned(),
        kind,
        next_hops: owned(next_hops),
        remote_cidrs: owned(remote_cidrs),
    }
}

fn networks(texts: &[&str]) -> Vec<IpNet> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

/// Reads objects in the gateway's zone, with management port 10.128.0.2 and fd00:1::2.
fn read(zone: Zone, routes: &[RouteObject], closed: &[&str]) -> (Vec<(String, Reach)>, Vec<Condition>) {
    let wanted = Wanted::new(&Input {
        topology: Topology::ClusterRouter,
        zone,
        routes,
        is_complete: true,
        closed: &networks(closed),
        own: &networks(&["10.128.0.0/14", "172.30.0.0/16", "fd00:1::/48"]),
        protected: &networks(&["192.168.77.11/32"]),
        gateway_node: None,
        management_port: &["10.128.0.2".parse().unwrap(), "fd00:1::2".parse().unwrap()],
        version: "v0.1.0",
    });
    let networks = wanted.networks.iter().map(|(network, reach)| (network.to_string(), *reach)).collect();
    (networks, wanted.conditions().iter().collect())
}

fn open(text: &str, next_hop: &str) -> (String, Reach) {
    (text.to_owned(), Reach::Open(Some(next_hop.parse().unwrap())))
}

fn closed(text: &str) -> (String, Reach) {
    (text.to_owned(), Reach::Closed)
}

#[test]
fn plugin_ovn_each_family_has_its_own_next_hop() {
    let object =
        route("east", RouteKind::Gateway, &["fd00:1::2", "10.128.0.2"], &["10.132.0.0/14", "fd00:2::/48"]);
    let (networks, conditions) = read(Zone::Gateway, &[object], &[]);
    assert_eq!(networks, [open("10.132.0.0/14", "10.128.0.2"), open("fd00:2::/48", "fd00:1::2")]);
    assert_eq!(conditions, []);
}

#[test]
fn plugin_ovn_a_family_without_next_hop_is_closed_and_named() {
    let object = route(
        "east",
        RouteKind::NonGateway,
        &["100.88.0.3"],
        &["10.132.0.0/14", "fd00:2::/48", "fd00:3::/48"],
    );
    let (networks, conditions) = read(Zone::Other, &[object], &[]);
    assert_eq!(networks, [open("10.132.0.0/14", "100.88.0.3"), closed("fd00:2::/48"), closed("fd00:3::/48")]);
    let network = "fd00:2::/48".parse().unwrap();
    assert_eq!(conditions, [Condition::NoNextHop { cluster: "east".to_owned(), network, count: 2 }]);
}

#[test]
fn plugin_ovn_objects_for_other_zones_close_without_a_condition() {
    for (zone, kind) in [(Zone::Gateway, RouteKind::NonGateway), (Zone::Other, RouteKind::Gateway)] {
        let (networks, conditions) =
            read(zone, &[route("east", kind, &["100.88.0.3"], &["10.132.0.0/14"])], &[]);
        assert_eq!((networks, conditions), (vec![closed("10.132.0.0/14")], vec![]));
    }
    let both = [
        route("east", RouteKind::Gateway, &["10.128.0.2"], &["10.132.0.0/14"]),
        route("east", RouteKind::NonGateway, &["100.88.0.3"], &["10.132.0.0/14"]),
    ];
    assert_eq!(read(Zone::Gateway, &both, &[]).0, [open("10.132.0.0/14", "10.128.0.2")]);
    assert_eq!(read(Zone::Other, &both, &[]).0, [open("10.132.0.0/14", "100.88.0.3")]);
}

#[test]
fn plugin_ovn_a_route_of_a_gateway_that_was_is_closed() {
    let object = route("east", RouteKind::Gateway, &["10.128.2.2"], &["10.132.0.0/14"]);
    let (networks, conditions) = read(Zone::Gateway, &[object], &[]);
    assert_eq!(networks, [closed("10.132.0.0/14")]);
    assert!(conditions.iter().any(|condition| matches!(condition, Condition::NextHopElsewhere { .. })));
}

#[test]
fn plugin_ovn_networks_that_are_not_a_clusters_to_have_are_left_out_and_change_nothing_else() {
    let hostile = [
        "0.0.0.0/0",
        "::/0",
        "10.128.0.0/14",
        "10.0.0.0/8",
        "10.129.3.0/24",
        "172.30.0.1/32",
        "fd00:1::/64",
        "127.0.0.0/8",
        "169.254.34.0/29",
        "224.0.0.0/4",
        "224.0.0.0/3",
        "240.1.0.0/16",
        "255.255.255.255/32",
        "fe80::/64",
        "ff00::/8",
        "fd53:7562:6d34::/126",
        "192.168.77.0/24",
        "10.132.0.0/33",
        "10.132.0.0",
        "east",
        "",
        "10.132.0.0/14; drop",
    ];
    let good = route("west", RouteKind::Gateway, &["10.128.0.2"], &["10.140.0.0/16"]);
    let (networks, conditions) =
        read(Zone::Gateway, &[route("east", RouteKind::Gateway, &["10.128.0.2"], &hostile), good], &[]);
    assert_eq!(networks, [open("10.140.0.0/16", "10.128.0.2")]);
    assert_eq!(conditions.len(), hostile.len(), "{conditions:?}");
    for condition in conditions {
        let text = condition.to_string();
        assert!(text.contains("cluster east") && text.contains(": it "), "{text}");
    }
}

#[test]
fn plugin_ovn_global_networks_are_remote_like_others_and_so_is_the_own_one() {
    let objects = [
        route("east", RouteKind::Gateway, &["10.128.0.2"], &["242.1.0.0/16"]),
        route("west", RouteKind::Gateway, &["10.128.0.2"], &["242.2.0.0/16"]),
    ];
    let (networks, conditions) = read(Zone::Gateway, &objects, &["242.3.0.0/16"]);
    assert_eq!(
        networks,
        [open("242.1.0.0/16", "10.128.0.2"), open("242.2.0.0/16", "10.128.0.2"), closed("242.3.0.0/16")]
    );
    assert_eq!(conditions, []);
}

#[test]
fn plugin_ovn_host_bits_are_cleared() {
    let object = route("east", RouteKind::Gateway, &["10.128.0.2"], &["10.132.1.9/14"]);
    assert_eq!(read(Zone::Gateway, &[object], &[]).0, [open("10.132.0.0/14", "10.128.0.2")]);
}

#[test]
fn plugin_ovn_the_first_cluster_by_name_has_what_two_claim() {
    let east = route("east", RouteKind::NonGateway, &["100.88.0.3"], &["10.132.0.0/14"]);
    let west = route("west", RouteKind::NonGateway, &["100.88.0.4"], &["10.132.0.0/14"]);
    for routes in [[east.clone(), west.clone()], [west, east]] {
        let (networks, conditions) = read(Zone::Other, &routes, &[]);
        assert_eq!(networks, [open("10.132.0.0/14", "100.88.0.3")]);
        let (owner, claimant) = ("east".to_owned(), "west".to_owned());
        let network = "10.132.0.0/14".parse().unwrap();
        assert_eq!(conditions, [Condition::Disputed { network, owner, claimant }]);
    }
}

#[test]
fn plugin_ovn_what_is_closed_is_closed_whatever_objects_say() {
    let object = route("east", RouteKind::Gateway, &["10.128.0.2"], &["10.132.0.0/14"]);
    let (networks, _) = read(Zone::Gateway, &[object], &["10.132.0.0/14", "10.136.0.0/14", "10.128.0.0/16"]);
    assert_eq!(networks, [closed("10.132.0.0/14"), closed("10.136.0.0/14")], "own networks stay open");
}

#[test]
fn plugin_ovn_numbers_are_bounded() {
    let cidrs: Vec<String> = (0..6_000)
        .map(|at| format!("10.{}.{}.{}/30", 64 + at / 16_384, at / 64 % 256, at % 64 * 4))
        .collect();
    let cidrs: Vec<&str> = cidrs.iter().map(String::as_str).collect();
    let routes: Vec<RouteObject> = (0..8)
        .map(|cluster| {
            let mut object = route(&format!("c{cluster}"), RouteKind::Gateway, &["10.128.0.2"], &cidrs);
            let moved = |text: &String| text.replacen("10.64.", &format!("10.{}.", 64 + cluster), 1);
            object.remote_cidrs = object.remote_cidrs.iter().map(moved).collect();
            object
        })
        .collect();
    let (networks, conditions) = read(Zone::Gateway, &routes, &[]);
    assert_eq!(networks.len(), MAX_NETWORKS);
    let left_out = 8 * 6_000 - MAX_NETWORKS;
    assert_eq!(conditions, [Condition::TooManyNetworks { left_out }]);
}

#[test]
fn plugin_ovn_conditions_are_bounded_and_quote_little() {
    let long = "x".repeat(100_000);
    let texts: Vec<String> = (0..1_000).map(|at| format!("{at}\u{1b}[31m{long}")).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let (_, conditions) = read(Zone::Gateway, &[route("east", RouteKind::Gateway, &texts, &texts)], &[]);
    assert_eq!(conditions.len(), crate::constants::MAX_CONDITIONS + 1);
    assert!(matches!(conditions.last(), Some(Condition::More { count: 936 })), "{:?}", conditions.last());
    for condition in conditions {
        let text = condition.to_string();
        assert!(text.len() < 300 && !text.contains('\u{1b}'), "{text}");
    }
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(
        next_hops in prop::collection::vec("\\PC{0,20}|[0-9a-f:./]{0,20}", 0..4),
        cidrs in prop::collection::vec("\\PC{0,20}|[0-9]{1,3}\\.[0-9]{1,3}\\.0\\.0/[0-9]{1,2}|[0-9a-f:]{1,9}/[0-9]{1,3}", 0..8),
    ) {
        let object = RouteObject { cluster: "c".to_owned(), kind: RouteKind::NonGateway, next_hops, remote_cidrs: cidrs };
        let (networks, _) = read(Zone::Other, &[object], &[]);
        for (text, _) in networks {
            let network: IpNet = text.parse().unwrap();
            prop_assert_eq!(network, network.trunc());
            for own in ["10.128.0.0/14", "172.30.0.0/16", "fd00:1::/48", "127.0.0.0/8"] {
                let own: IpNet = own.parse().unwrap();
                prop_assert!(!own.contains(&network) && !network.contains(&own), "{}", network);
            }
        }
    }
}
