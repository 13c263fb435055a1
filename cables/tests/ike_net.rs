//! Two engines and a network between them.

mod ike;

use std::time::Duration;

use ike::{Net, config, peer, site};
use trieste_cables::Site;
use trieste_cables::ipsec::ike::{EngineConfig, IkeEvent};
use trieste_cables::ipsec::{Selector, Selectors, TRIESTE as KEY};
use trieste_packet::LaneId;

const A: (usize, LaneId) = (0, LaneId(0x00a1_0001));
const B: (usize, LaneId) = (1, LaneId(0x00b2_0002));
const TRIESTE: &[(&str, &str)] = &[(KEY, "1")];

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

fn sites(settings: &[(&str, &str)]) -> (Site, Site) {
    (
        site("a", "10.0.0.1", &["10.1.0.0/16", "10.11.0.0/16"], settings),
        site("b", "10.0.0.2", &["10.2.0.0/16", "10.12.0.0/16"], settings),
    )
}

fn pair(local: &str, remote: &str) -> Selectors {
    let side = |text: &str| vec![Selector::subnet(text.parse().expect("a subnet"))];
    Selectors { local: side(local), remote: side(remote) }
}

fn all_pairs() -> Vec<Selectors> {
    let locals = ["10.1.0.0/16", "10.11.0.0/16"];
    locals.iter().flat_map(|l| ["10.2.0.0/16", "10.12.0.0/16"].map(|r| pair(l, r))).collect()
}

/// Two gateways with a cable to each other.
fn net(seed: u64, settings: &[(&str, &str)], a: EngineConfig, b: EngineConfig) -> Net {
    let mut net = Net::new(seed);
    net.add("10.0.0.1", a);
    net.add("10.0.0.2", b);
    let (here, there) = sites(settings);
    net.connect(0, peer(A.1.0, &here, &there));
    net.connect(1, peer(B.1.0, &there, &here));
    net
}

fn assert_connected(net: &Net) {
    for selectors in all_pairs() {
        if let Err(problem) = net.check(A, B, &selectors) {
            let reports = [net.nodes[0].report(net.now), net.nodes[1].report(net.now)];
            panic!("{problem}\n{reports:#?}\n{:?}\n{:?}", net.nodes[0].events, net.nodes[1].events);
        }
    }
}

#[test]
fn two_trieste_gateways_connect_within_three_round_trips() {
    let mut net = net(1, TRIESTE, config("secret"), config("secret"));
    net.run(millis(500));
    assert_connected(&net);
    for (node, lane) in [A, B] {
        let report = net.nodes[node].report(net.now);
        assert_eq!(report.ikes.len(), 1, "{report:#?}");
        assert_eq!(report.children.len(), 1, "{report:#?}");
        assert_eq!(report.children[0].algorithms, "aes128gcm16-esn");
        assert_eq!(report.ikes[0].algorithms, "aes256gcm16-prfsha256-x25519");
        assert_eq!((report.encapsulation, report.error), (Some("udp"), None));
        assert!(net.nodes[node].events.contains(&IkeEvent::Up { lane }));
    }
}

#[test]
fn towards_upstream_every_pair_of_subnets_has_a_child_sa_of_its_own() {
    let mut net = net(2, &[], config("secret"), config("secret"));
    net.run(seconds(3));
    assert_connected(&net);
    for node in &net.nodes {
        let report = node.report(net.now);
        assert_eq!((report.ikes.len(), report.children.len()), (1, 4), "{report:#?}");
        assert_eq!(report.encapsulation, Some("esp"));
        assert_eq!(node.lane().path.unwrap().outer.peer.port(), 0);
    }
}
