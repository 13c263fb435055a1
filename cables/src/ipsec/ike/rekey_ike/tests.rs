//! A peer that asks for new keys without end.

use std::net::SocketAddr;
use std::time::Duration;

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng as _;
use trieste_packet::{LaneId, Outer};

use super::*;
use crate::boundary::Site;
use crate::ipsec::ike::{EngineConfig, IkeEvent, Input, PeerConfig};
use crate::ipsec::wire::Header;
use crate::ipsec::{LanePort, TRIESTE, link};

const LANE: LaneId = LaneId(0x100);
const ADDRESSES: [&str; 2] = ["192.0.2.1:4500", "192.0.2.2:4500"];

/// Two gateways with nothing in between. The first one is the greedy one, made so from inside.
struct Two {
    engines: [IkeEngine; 2],
    _ports: Vec<LanePort>,
    downs: usize,
    now: Instant,
}

impl Two {
    fn new() -> Self {
        #[expect(clippy::disallowed_methods, reason = "a virtual clock has to start somewhere")]
        let now = Instant::now();
        let sites = [(ADDRESSES[0], "10.1.0.0/16"), (ADDRESSES[1], "10.2.0.0/16")].map(|(address, net)| {
            let address: SocketAddr = address.parse().unwrap();
            Site {
                cable_name: format!("cable-{}", address.ip()),
                private_ip: address.ip(),
                public_ip: None,
                subnets: vec![net.parse().unwrap()],
                driver: String::new(),
                backend_config: [(TRIESTE.to_owned(), "1".to_owned())].into(),
            }
        });
        let mut ports = Vec::new();
        let engines = [(0, 1), (1, 0)].map(|(own, other)| {
            let config = EngineConfig { psk: b"a secret".to_vec().into(), ..EngineConfig::default() };
            let seed = Box::new(ChaCha20Rng::seed_from_u64(own as u64));
            let mut engine = IkeEngine::new(config, seed, now);
            let (link, port, news) = link::link(LANE);
            ports.push(port);
            let peer = PeerConfig {
                address: Some(ADDRESSES[other].parse().unwrap()),
                uses_nat: true,
                ..PeerConfig::new(LANE, sites[own].clone(), sites[other].clone())
            };
            engine.handle_input(Input::Connect(Box::new(peer), link, news), now);
            engine
        });
        let mut two = Self { engines, _ports: ports, downs: 0, now };
        two.exchange(true);
        assert_eq!(two.engines.each_ref().map(|engine| engine.sas.len()), [1, 1]);
        two
    }

    /// Lets both speak until nobody has anything to say. Without deletions the first one's are lost.
    fn exchange(&mut self, has_deletions: bool) {
        for from in [0, 1, 0, 1, 0, 1, 0, 1] {
            if self.engines[from].poll_timeout().is_some_and(|due| due <= self.now) {
                self.engines[from].handle_timeout(self.now);
            }
            while let Some(event) = self.engines[from].poll_event() {
                self.downs += usize::from(matches!(event, IkeEvent::Down { .. }));
            }
            while let Some(transmit) = self.engines[from].poll_transmit() {
                let Some(([0, 0, 0, 0], message)) = transmit.payload.split_first_chunk() else { continue };
                let exchange = Header::parse(message).unwrap().0.exchange;
                if !has_deletions && from == 0 && exchange == Exchange::Informational {
                    continue;
                }
                let from = Outer { peer: ADDRESSES[from].parse().unwrap(), ..Outer::NONE };
                let to = usize::from(from.peer == ADDRESSES[0].parse().unwrap());
                let input = Input::Datagram { message: message.to_vec(), from };
                self.engines[to].handle_input(input, self.now);
            }
        }
    }

    /// Has the first one ask for something in its IKE SA, whether it should wait or not.
    fn ask(&mut self, ask: impl FnOnce(&mut IkeEngine, &mut IkeSa, Instant)) {
        let greedy = &mut self.engines[0];
        let in_use = greedy.sas.values().find(|sa| sa.is_established() && sa.pending.is_none());
        let spi = in_use.expect("an IKE SA stays").spi;
        let mut sa = greedy.sas.remove(&spi).unwrap();
        ask(greedy, &mut sa, self.now);
        greedy.sas.insert(spi, sa);
    }

    fn count(&self, name: &str) -> u64 {
        let counts = self.engines[1].load().counts();
        counts.into_iter().find(|(other, _)| *other == name).expect("there is such a counter").1
    }

    fn children(&self) -> usize {
        self.engines[1].sas.values().map(|sa| sa.children.len()).sum()
    }
}

#[test]
fn a_peer_that_renews_its_ike_sa_ten_thousand_times_has_few_and_keeps_its_cable() {
    let mut two = Two::new();
    let mut most = 0;
    for _ in 0..10_000 {
        two.ask(|greedy, sa, now| greedy.ask_for_ike(sa, now));
        two.exchange(false);
        // What it should delete it forgets.
        two.engines[0].sas.retain(|_, sa| sa.is_established());
        two.now += Duration::from_millis(100);
        most = most.max(two.engines[1].sas.len());
    }
    let renewed = two.count("established") - 1;
    println!("{renewed} of 10000 renewed in 1000 s, at most {most} IKE SAs");
    assert!(most <= 1 + MAX_REPLACED, "{most} IKE SAs at once");
    assert!((50..120).contains(&renewed), "{renewed} renewed in 1000 s");
    assert_eq!((two.children(), two.downs), (1, 0));
    // It is the same SA on both sides, which answers.
    two.now += Duration::from_secs(20);
    two.ask(|greedy, sa, now| greedy.ask_for_ike(sa, now));
    two.exchange(true);
    assert_eq!((two.count("established") - 1, two.children(), two.downs), (renewed + 1, 1, 0));
}

#[test]
fn a_peer_that_renews_its_child_sa_ten_thousand_times_has_one_and_keeps_its_cable() {
    let mut two = Two::new();
    let mut most = 0;
    for _ in 0..10_000 {
        two.ask(|greedy, sa, now| {
            let newest = sa.children.values().next_back().map(|child| child.inbound);
            greedy.ask_for_child(sa, 0, newest, now);
        });
        two.exchange(true);
        two.now += Duration::from_millis(100);
        most = most.max(two.children());
    }
    let made = two.count("children") - 1;
    println!("{made} of 10000 made in 1000 s, at most {most} at once");
    assert!(most <= 2 && two.children() == 1 && two.downs == 0, "{most} at most");
    assert!((500..2200).contains(&made), "{made} made in 1000 s");
}

#[test]
fn a_peer_that_asks_for_ever_more_child_sas_has_no_more_than_an_ike_sa_can() {
    let mut two = Two::new();
    for _ in 0..200 {
        two.ask(|greedy, sa, now| greedy.ask_for_child(sa, 0, None, now));
        two.exchange(true);
    }
    assert_eq!((two.children(), two.downs), (64, 0));
}
