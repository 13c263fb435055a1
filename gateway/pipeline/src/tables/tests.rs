use std::net::Ipv4Addr;

use super::*;

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn selection_looks_at_both_ends() {
    let mut builder = TablesBuilder::new(1, &[net("10.1.0.0/16"), net("fd01::/64")], &[]);
    let cluster = builder.cluster("b", &[net("10.2.0.0/16"), net("fd02::/64")]).unwrap();
    let path = builder.path(cluster, LaneId(0x0102), CableId(1), 1420).unwrap();
    let tables = builder.build();
    let paths = [path];
    assert_eq!(tables.select(ip("10.1.2.3"), ip("10.2.9.9")), Selection::Paths(&paths));
    assert_eq!(tables.select(ip("fd01::1"), ip("fd02::1")), Selection::Paths(&paths));
    assert_eq!(tables.select(ip("192.0.2.1"), ip("10.2.9.9")), Selection::SourceNotLocal);
    assert_eq!(tables.select(ip("10.1.2.3"), ip("10.3.0.1")), Selection::NoRoute);
    assert_eq!(tables.path(path).unwrap().owner, WorkerId(2));
    assert_eq!(tables.lane(LaneId(0x0102)).unwrap().end, LaneEnd::Cluster(cluster));
}

#[test]
fn the_later_cluster_loses_an_overlap() {
    let mut builder = TablesBuilder::new(1, &[net("10.1.0.0/16")], &[]);
    builder.cluster("b", &[net("10.2.0.0/16")]).unwrap();
    assert!(matches!(builder.cluster("c", &[net("10.2.128.0/24")]), Err(TablesError::OverlapsRemote { .. })));
    assert!(matches!(builder.cluster("d", &[net("10.0.0.0/8")]), Err(TablesError::OverlapsLocal { .. })));
    let wide = builder.cluster("e", &[net("10.2.0.0/15")]);
    let Err(TablesError::OverlapsRemote { other_cluster, other, .. }) = wide else { panic!("{wide:?}") };
    assert_eq!((other_cluster.as_str(), other), ("b", net("10.2.0.0/16")));
    assert!(matches!(
        builder.cluster("f", &[net("10.7.0.0/16"), net("10.2.0.0/16")]),
        Err(TablesError::OverlapsRemote { .. })
    ));
    let tables = builder.build();
    assert_eq!(tables.clusters().len(), 1);
    assert_eq!(tables.cluster_of(ip("10.2.128.1")), Some(ClusterId(0)));
    assert_eq!(tables.cluster_of(ip("10.7.0.1")), None, "nothing of a refused cluster is added");
}

#[test]
fn a_cluster_without_a_path_keeps_its_addresses() {
    let mut builder = TablesBuilder::new(1, &[net("10.1.0.0/16")], &[]);
    builder.cluster("b", &[net("10.2.0.0/16")]).unwrap();
    let tables = builder.build();
    assert_eq!(tables.select(ip("10.1.0.1"), ip("10.2.0.1")), Selection::Paths(&[]));
}

#[test]
fn tunnel_addresses_belong_to_their_lane() {
    let mut builder = TablesBuilder::new(1, &[], &[]);
    builder.tunnel_address(LaneId(0x0200), ip("192.0.2.1"));
    builder.tunnel_address(LaneId(0x0100), ip("241.0.2.1"));
    let tables = builder.build();
    assert!(tables.is_tunnel_address(LaneId(0x0200), ip("192.0.2.1")));
    assert!(!tables.is_tunnel_address(LaneId(0x0100), ip("192.0.2.1")));
    assert!(!tables.is_tunnel_address(LaneId(0x0300), ip("241.0.2.1")));
}

#[test]
fn prefixes_are_cut_to_their_length() {
    let mut builder = TablesBuilder::new(1, &[net("10.1.0.7/16")], &[]);
    builder.cluster("b", &[net("10.2.3.4/16")]).unwrap();
    let tables = builder.build();
    assert!(tables.is_local(ip("10.1.200.1")));
    assert_eq!(tables.cluster_of(ip("10.2.200.1")), Some(ClusterId(0)));
}

#[test]
fn with_globalnet_inside_networks_are_translated_and_nobody_elses() {
    let inside = ["10.1.0.0/16".parse().unwrap()];
    let owners = trieste_nat::RulesBuilder::owners_among(1);
    let rules = trieste_nat::RulesBuilder::new(1, trieste_nat::OwnerKey([1; 16]), owners).build();
    let gateway = Some(Ipv4Addr::new(242, 1, 255, 254));
    let mut builder = TablesBuilder::new(1, &[net("242.1.0.0/16")], &[ip("10.1.0.1")]).globalnet(
        &inside,
        Arc::new(rules),
        gateway,
    );
    builder.cluster("b", &[net("242.2.0.0/16")]).unwrap();
    let without = builder.cluster("c", &[net("10.1.128.0/17")]);
    assert!(matches!(without, Err(TablesError::OverlapsLocal { ours, .. }) if ours == net("10.1.0.0/16")));
    let tables = builder.build();
    let [pod, remote] = [Ipv4Addr::new(10, 1, 0, 9), Ipv4Addr::new(242, 2, 0, 1)];
    assert!(tables.rules().is_some() && tables.is_inside(pod) && !tables.is_inside(remote));
    assert_eq!(tables.select_translated(pod, remote), Selection::Paths(&[]));
    assert_eq!(tables.select_translated(remote, remote), Selection::SourceNotLocal);
    assert_eq!(tables.select_translated(pod, pod), Selection::NoRoute);
    assert!(tables.is_probed(ip("242.1.255.254")) && tables.is_probed(ip("10.1.0.1")));
    assert!(!tables.is_probed(ip("242.1.0.1")));
}
