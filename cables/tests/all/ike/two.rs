//! Two gateways with a cable to each other, and what is expected of them.

use std::time::Duration;

use trieste_cables::Site;
use trieste_cables::ipsec::ike::EngineConfig;
use trieste_cables::ipsec::{Selector, Selectors, TRIESTE as KEY};
use trieste_packet::LaneId;

use super::{Net, config, peer, site};

pub(crate) const A: (usize, LaneId) = (0, LaneId(0x00a1_0001));
pub(crate) const B: (usize, LaneId) = (1, LaneId(0x00b2_0002));
pub(crate) const TRIESTE: &[(&str, &str)] = &[(KEY, "1")];

pub(crate) fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

pub(crate) fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

pub(crate) fn sites(settings: &[(&str, &str)]) -> (Site, Site) {
    (
        site("a", "10.0.0.1", &["10.1.0.0/16", "10.11.0.0/16"], settings),
        site("b", "10.0.0.2", &["10.2.0.0/16", "10.12.0.0/16"], settings),
    )
}

pub(crate) fn pair(local: &str, remote: &str) -> Selectors {
    let side = |text: &str| vec![Selector::subnet(text.parse().expect("a subnet"))];
    Selectors { local: side(local), remote: side(remote) }
}

pub(crate) fn all_pairs() -> Vec<Selectors> {
    let locals = ["10.1.0.0/16", "10.11.0.0/16"];
    locals.iter().flat_map(|l| ["10.2.0.0/16", "10.12.0.0/16"].map(|r| pair(l, r))).collect()
}

/// Two gateways with a cable to each other.
pub(crate) fn net(seed: u64, settings: &[(&str, &str)], a: EngineConfig, b: EngineConfig) -> Net {
    let mut net = Net::new(seed);
    net.add("10.0.0.1", a);
    net.add("10.0.0.2", b);
    let (here, there) = sites(settings);
    net.connect(0, peer(A.1.0, &here, &there));
    net.connect(1, peer(B.1.0, &there, &here));
    net
}

pub(crate) fn assert_connected(net: &Net) {
    for selectors in all_pairs() {
        if let Err(problem) = net.check(A, B, &selectors) {
            let reports = [net.nodes[0].report(net.now()), net.nodes[1].report(net.now())];
            panic!("{problem}\n{reports:#?}\n{:?}\n{:?}", net.nodes[0].events, net.nodes[1].events);
        }
    }
}

/// One child SA and one IKE SA on both sides, and the same ones.
pub(crate) fn assert_single(net: &Net) {
    assert_connected(net);
    let reports = [net.nodes[0].report(net.now()), net.nodes[1].report(net.now())];
    for (node, report) in net.nodes.iter().zip(&reports) {
        assert_eq!((report.ikes.len(), report.children.len()), (1, 1), "{reports:#?}");
        assert_eq!(node.lane().live().count(), 1, "{reports:#?}");
    }
    let spis = |index: usize| (reports[index].ikes[0].initiator_spi, reports[index].ikes[0].responder_spi);
    assert_eq!(spis(0), spis(1));
}

/// Both begin at the same moment.
pub(crate) fn eager(psk: &str) -> EngineConfig {
    EngineConfig { courtesy: Duration::ZERO, ..config(psk) }
}

pub(crate) fn everything() -> Selectors {
    pair("10.1.0.0/16", "10.2.0.0/16")
}

/// Packets in both directions, ten per second and direction, while time passes.
pub(crate) fn traffic(net: &mut Net, span: Duration) {
    let (there, back) = (everything(), pair("10.2.0.0/16", "10.1.0.0/16"));
    let end = net.now() + span;
    while net.now() < end {
        net.run(millis(50));
        net.packet(A.0, A.1, &there);
        net.run(millis(50));
        net.packet(B.0, B.1, &back);
    }
}

pub(crate) fn lost(net: &Net) -> u64 {
    net.nodes.iter().map(|node| node.lane().lost).sum()
}
