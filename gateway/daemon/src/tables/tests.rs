use super::*;
use std::time::Instant;
use trieste_cables::drivers::Drivers;
use trieste_cables::vxlan::VxlanKind;
use trieste_cables::wireguard::WireguardKind;
use trieste_cables::{CableKind, keys};
use trieste_control::claims::Allowed;
use trieste_control::members::{Members, Target, targets};
use trieste_packet::{CableId, LaneId};
use trieste_pipeline::LaneEnd;

fn kind() -> WireguardKind {
    WireguardKind::new(WireguardKind::generate_private_key(), "psk", "submariner", Instant::now())
}

fn endpoint(cluster: &str, host: u8, subnet: &str, created: &str) -> Endpoint {
    let spec = EndpointSpec {
        cluster_id: cluster.to_owned(),
        cable_name: format!("submariner-cable-{cluster}-192-0-2-{host}"),
        hostname: format!("{cluster}-gw"),
        subnets: vec![subnet.to_owned()],
        private_ip: format!("192.0.2.{host}"),
        public_ip: format!("198.51.100.{host}"),
        backend: "wireguard".to_owned(),
        backend_config: [("publicKey".to_owned(), keys::emit(&[host; 32]))].into(),
        ..EndpointSpec::default()
    };
    let mut endpoint = Endpoint::new("ns", spec).unwrap();
    endpoint.metadata.creation_timestamp = Some(created.parse().unwrap());
    endpoint
}

fn local() -> Local {
    Local {
        cluster_id: "a".to_owned(),
        site: Site { subnets: vec!["10.1.0.0/16".parse().unwrap()], ..BTreeMap::new().into() },
        icmp_sources: vec![],
        path_mtu: 1420,
        translation: None,
        allowed: Allowed::default(),
        node_addresses: BTreeSet::new(),
    }
}

fn admit(endpoints: &[Endpoint], local: &Local, kind: &dyn CableKind) -> Admitted {
    Reader::default().read(&all(endpoints), &[], local, kind)
}

/// What there are cables to where nobody knows of several gateways.
fn all(endpoints: &[Endpoint]) -> Vec<Target> {
    let shared: Vec<_> = endpoints.iter().cloned().map(Arc::new).collect();
    targets("a", &shared, &Members::default())
}

fn rows(remote: Vec<Row>) -> Rows {
    Rows { remote, ..Rows::default() }
}

fn lanes(peers: &[Arc<Peer>]) -> Vec<Row> {
    let lane = |index: u32| Lane { lane: LaneId(index << 8), cable: CableId(u16::try_from(index).unwrap()) };
    let row = |(peer, lane): (&Arc<Peer>, Lane)| Row { peer: Arc::clone(peer), lane: Some(lane) };
    peers.iter().zip((1..).map(lane)).map(row).collect()
}

fn fallback(peer: &Peer) -> Choice {
    fallback_choice(&peer.facts, &peer.spec)
}

#[test]
fn the_older_cluster_keeps_an_overlapping_subnet() {
    let endpoints = [
        endpoint("c", 3, "10.2.0.0/16", "2026-01-02T00:00:00Z"),
        endpoint("b", 2, "10.2.128.0/17", "2026-01-01T00:00:00Z"),
        endpoint("a", 1, "10.1.0.0/16", "2026-01-01T00:00:00Z"),
    ];
    let admitted = admit(&endpoints, &local(), &kind());
    let (tables, refused) = build(1, &local(), &rows(lanes(&admitted.peers)));
    assert_eq!(tables.clusters().len(), 1);
    assert_eq!(tables.clusters()[0].name, "b");
    assert_eq!(refused[0].cluster, "c");
    assert!(refused[0].reason.contains("10.2.128.0/17"), "{}", refused[0].reason);
}

#[test]
fn the_newest_endpoint_of_a_cluster_carries_it() {
    let endpoints = [
        endpoint("b", 2, "10.2.0.0/16", "2026-01-01T00:00:00Z"),
        endpoint("b", 3, "10.2.0.0/16", "2026-01-03T00:00:00Z"),
    ];
    let admitted = admit(&endpoints, &local(), &kind());
    assert_eq!(admitted.peers[0].address(fallback(&admitted.peers[0])), "192.0.2.3:4500".parse().unwrap());
    let (tables, refused) = build(1, &local(), &rows(lanes(&admitted.peers)));
    assert!(refused.is_empty());
    assert_eq!(tables.paths().len(), 1);
    assert_eq!(tables.paths()[0].lane, LaneId(1 << 8));
    assert!(tables.lane(LaneId(2 << 8)).is_some());
}

#[test]
fn endpoints_that_cannot_be_connected_to_are_named_with_the_reason() {
    let mut other = endpoint("b", 2, "10.2.0.0/16", "2026-01-01T00:00:00Z");
    other.spec.backend = "libreswan".to_owned();
    let mut keyless = endpoint("c", 3, "10.3.0.0/16", "2026-01-01T00:00:00Z");
    keyless.spec.backend_config.clear();
    let mut crooked = endpoint("d", 4, "10.4.0.0/16", "2026-01-01T00:00:00Z");
    crooked.spec.subnets = vec!["10.4.0.0/99".to_owned()];
    let same = endpoint("e", 5, "10.5.0.0/16", "2026-01-01T00:00:00Z");
    let mut double = endpoint("f", 6, "10.6.0.0/16", "2026-01-02T00:00:00Z");
    double.spec.backend_config = same.spec.backend_config.clone();
    let admitted = admit(&[other, keyless, crooked, same, double], &local(), &kind());
    assert_eq!(admitted.peers.len(), 1);
    let reasons: Vec<_> = admitted.refused.iter().map(|refused| refused.reason.as_str()).collect();
    for expected in ["libreswan", "publicKey", "10.4.0.0/99", "same key"] {
        assert!(reasons.iter().any(|reason| reason.contains(expected)), "{expected} in {reasons:?}");
    }
}

#[test]
fn a_cable_name_belongs_to_the_oldest_cluster_that_uses_it() {
    let honest = endpoint("cluster-b", 2, "10.2.0.0/16", "2026-01-01T00:00:00Z");
    let mut thief = endpoint("aaa", 3, "10.3.0.0/16", "2026-01-02T00:00:00Z");
    thief.spec.cable_name.clone_from(&honest.spec.cable_name);
    let admitted = admit(&[thief, honest], &local(), &kind());
    assert_eq!(admitted.peers.len(), 1);
    assert_eq!(admitted.peers[0].facts.cluster_id, "cluster-b");
    assert!(admitted.refused[0].reason.contains("spec.cable_name"), "{:?}", admitted.refused);
}

#[test]
fn nat_chooses_the_public_address() {
    let mut endpoint = endpoint("b", 2, "10.2.0.0/16", "2026-01-01T00:00:00Z");
    endpoint.spec.nat_enabled = true;
    let admitted = admit(&[endpoint], &local(), &kind());
    let choice = fallback(&admitted.peers[0]);
    assert_eq!(admitted.peers[0].address(choice), "198.51.100.2:4500".parse().unwrap());
    assert!(choice.use_nat);
}

#[test]
fn without_an_answer_the_endpoint_says_which_address_to_use() {
    let choice = |change: fn(&mut EndpointSpec)| {
        let mut endpoint = endpoint("b", 2, "10.2.0.0/16", "2026-01-01T00:00:00Z");
        change(&mut endpoint.spec);
        let choices = fallback_choices(&[endpoint]);
        let choice = choices["submariner-cable-b-192-0-2-2"];
        (choice.ip.to_string(), choice.use_nat)
    };
    let (private, public) = (("192.0.2.2".to_owned(), false), ("198.51.100.2".to_owned(), true));
    assert_eq!(choice(|_| {}), private);
    assert_eq!(choice(|spec| spec.nat_enabled = true), public);
    assert_eq!(
        choice(|spec| {
            spec.backend_config.insert("using-loadbalancer".to_owned(), "true".to_owned());
        }),
        public
    );
    assert_eq!(
        choice(|spec| {
            spec.nat_enabled = true;
            spec.public_ip.clear();
        }),
        private
    );
}

#[test]
fn a_peers_tunnel_has_its_nodes_addresses_and_upstreams_vtep() {
    let mut endpoint = endpoint("b", 2, "10.2.0.0/16", "2026-01-01T00:00:00Z");
    endpoint.spec.private_ip = "172.31.1.11".to_owned();
    endpoint.spec.private_ips =
        vec!["172.31.1.11".to_owned(), "2001:db8::11".to_owned(), "nonsense".to_owned()];
    let admitted = admit(&[endpoint], &local(), &kind());
    let addresses: Vec<String> = admitted.peers[0].tunnel_addresses().map(|ip| ip.to_string()).collect();
    assert_eq!(addresses, ["172.31.1.11", "198.51.100.2", "241.31.1.11", "2001:db8::11"]);
    let (tables, _) = build(1, &local(), &rows(lanes(&admitted.peers)));
    assert!(tables.is_tunnel_address(LaneId(1 << 8), "241.31.1.11".parse().unwrap()));
}

#[test]
fn of_too_many_endpoints_of_a_cluster_the_newest_stay() {
    let of_day = |day: u8| endpoint("b", day, "10.2.0.0/16", &format!("2026-01-{day:02}T00:00:00Z"));
    let endpoints: Vec<Endpoint> = (1..=10).map(of_day).collect();
    let admitted = admit(&endpoints, &local(), &kind());
    assert_eq!((admitted.peers.len(), admitted.refused.len()), (8, 2));
    assert_eq!(admitted.peers[0].facts.private_ip.to_string(), "192.0.2.10");
    assert!(admitted.refused[0].reason.contains("8 newer"), "{}", admitted.refused[0].reason);
}

#[test]
fn a_lane_that_was_cut_still_opens_for_a_cluster_that_is_there() {
    let admitted = admit(&[endpoint("b", 2, "10.2.0.0/16", "2026-01-01T00:00:00Z")], &local(), &kind());
    let far = |name: &str| Far::Cluster(name.to_owned());
    let leaving = vec![(far("b"), LaneId(0x900)), (far("c"), LaneId(0xa00))];
    let (tables, _) = build(1, &local(), &Rows { leaving, ..rows(lanes(&admitted.peers)) });
    assert_eq!(tables.lane(LaneId(0x900)).unwrap().end, LaneEnd::Cluster(tables.clusters()[0].id));
    assert!(tables.lane(LaneId(0xa00)).is_none());
}

#[test]
fn a_version_is_read_once_and_another_one_anew() {
    let mut reader = Reader::default();
    let kind = kind();
    let mut endpoints = [endpoint("b", 2, "10.2.0.0/16", "2026-01-01T00:00:00Z")];
    let mut bad = endpoint("c", 3, "10.3.0.0/16", "2026-01-01T00:00:00Z");
    bad.spec.subnets = vec!["nonsense".to_owned()];
    bad.metadata.resource_version = Some("1".to_owned());
    let both = |first: &Endpoint| all(&[first.clone(), bad.clone()]);
    let first = reader.read(&both(&endpoints[0]), &[], &local(), &kind);
    assert_eq!(reader.read(&both(&endpoints[0]), &[], &local(), &kind), first);
    assert_eq!(reader.reads(), 2);
    endpoints[0].spec.subnets = vec!["10.7.0.0/16".to_owned()];
    let second = reader.read(&both(&endpoints[0]), &[], &local(), &kind);
    assert_eq!(reader.reads(), 3);
    assert_eq!(second.peers[0].facts.subnets, ["10.7.0.0/16".parse::<IpNet>().unwrap()]);
    assert_eq!(second.refused, first.refused);
    // A re-created object with the same version is another one.
    bad.metadata.uid = Some("new".to_owned());
    bad.spec.subnets = vec!["10.3.0.0/16".to_owned()];
    assert_eq!(reader.read(&all(&[bad]), &[], &local(), &kind).peers.len(), 1);
}

#[test]
fn a_cluster_that_claims_what_no_member_may_have_is_not_connected() {
    let honest = endpoint("b", 2, "10.2.0.0/16", "2026-01-01T00:00:00Z");
    for claim in ["8.8.8.0/24", "0.0.0.0/0", "128.0.0.0/1", "172.16.0.0/12"] {
        let mut thief = endpoint("c", 3, "10.3.0.0/16", "2026-01-01T00:00:01Z");
        thief.spec.subnets.push(claim.to_owned());
        let admitted = admit(&[honest.clone(), thief], &local(), &kind());
        assert_eq!(
            admitted.peers.iter().map(|peer| peer.facts.cluster_id.as_str()).collect::<Vec<_>>(),
            ["b"]
        );
        let reason = &admitted.refused[0].reason;
        assert!(
            reason.starts_with(&format!("field `spec.subnets[1]`: it claims {claim}: it is ")),
            "{reason}"
        );
        assert!(reason.contains("--allow-remote-cidrs"), "{reason}");
    }
}

#[test]
fn an_endpoint_of_two_drivers_is_taken_by_the_one_that_we_have() {
    let now = Instant::now();
    let both = Drivers::new(Arc::new(VxlanKind::new("tun", now)), Arc::new(kind()));
    let mut changing = endpoint("b", 2, "10.2.0.0/16", "2026-01-01T00:00:00Z");
    changing.spec.backend = both.name().to_owned();
    changing.spec.backend_config = both.backend_config();
    assert_eq!(changing.spec.drivers().collect::<Vec<_>>(), both.names(), "it is read as it is written");
    let vxlan = VxlanKind::new("tun", now);
    for (kind, driver) in [(&kind() as &dyn CableKind, "wireguard"), (&vxlan, "vxlan")] {
        let admitted = admit(std::slice::from_ref(&changing), &local(), kind);
        let taken = admitted.peers[0].spec_by_driver();
        assert_eq!((taken.backend.as_str(), admitted.peers[0].driver.as_str()), (driver, driver));
        assert_eq!(taken.backend_config.contains_key("publicKey"), driver == "wireguard");
        assert!(taken.backend_config.keys().all(|key| !key.starts_with("trieste.former")));
    }
}
