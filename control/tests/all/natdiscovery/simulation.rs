//! Two gateways with NAT on either or both sides, lost datagrams and a silent peer, under a virtual clock.
//!
//! ```text
//!   a 10.1.0.1 ── [NAT 198.51.100.1] ── internet ── [NAT 198.51.100.2] ── b 10.2.0.1
//! ```

use std::collections::BTreeMap;

use trieste_simulator::{Random, seeds};

use super::*;

const PRIVATES: [&str; 2] = ["10.1.0.1", "10.2.0.1"];
const PUBLICS: [&str; 2] = ["198.51.100.1", "198.51.100.2"];

/// What stands between a gateway and the internet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Edge {
    /// Nothing: its address is reachable from everywhere. Its public address is its private one.
    Open,
    /// 1:1, as clouds do: in both directions, ports kept.
    OneToOne,
    /// Source NAT with the discovery port forwarded, source ports rewritten.
    Forwarding,
    /// Source NAT without forwarding, source ports rewritten: from outside only answers come in.
    Hiding,
}

/// A datagram on its way.
#[derive(Debug, Clone)]
struct Flight {
    from: SocketAddr,
    to: SocketAddr,
    payload: Vec<u8>,
}

struct World {
    machines: [Machine; 2],
    edges: [Edge; 2],
    /// Per side: the outer port of what it sent to an address, while the NAT remembers.
    mappings: [BTreeMap<u16, SocketAddr>; 2],
    now: Instant,
    /// How many datagrams of 100 are lost.
    loss: u64,
    random: Random,
    flown: usize,
    /// Whether b's process is up.
    b_listens: bool,
    hostile: Option<Hostile>,
}

/// Somebody elsewhere who sees all datagrams, and sends what it has seen on from an address of its own: as it was, cut short
/// or changed, to either gateway.
struct Hostile {
    /// Of its own: what it does changes nothing that is drawn for the others.
    random: Random,
    seen: Vec<Vec<u8>>,
    sent: u64,
}

impl Hostile {
    const ADDRESS: &str = "203.0.113.66";

    fn datagram(&mut self) -> Option<Vec<u8>> {
        if self.seen.is_empty() {
            return None;
        }
        let mut payload = self.random.choose(&self.seen).clone();
        let place = self.random.below(payload.len());
        match self.random.below(3) {
            0 => {}
            1 => payload.truncate(place),
            _ => payload[place] ^= 1 << self.random.below(8),
        }
        self.sent += 1;
        Some(payload)
    }
}

impl World {
    fn new(edges: [Edge; 2]) -> Self {
        let now = Instant::now();
        let side = |index: usize, name: &str, secret: [u8; 32]| {
            let local = Local {
                cluster_id: name.to_owned(),
                cable_name: cable(name),
                private_ips: vec![ip(PRIVATES[index])],
                port: PORT,
            };
            Machine::new(local, secret, Memory::default())
        };
        let mut world = Self {
            machines: [side(0, "a", [1; 32]), side(1, "b", [2; 32])],
            edges,
            mappings: [BTreeMap::new(), BTreeMap::new()],
            now,
            loss: 0,
            random: Random::new(0),
            flown: 0,
            b_listens: true,
            hostile: None,
        };
        for (index, peer) in [(0, "b"), (1, "a")] {
            world.machines[index].add(world.endpoint(1 - index, peer), now).unwrap();
        }
        world
    }

    fn endpoint(&self, index: usize, name: &str) -> Remote {
        let is_open = self.edges[index] == Edge::Open;
        let public = if is_open { PRIVATES[index] } else { PUBLICS[index] };
        Remote {
            cluster_id: name.to_owned(),
            cable_name: cable(name),
            private_ip: Some(ip(PRIVATES[index])),
            public_ip: Some(ip(public)),
            nat_enabled: true,
            ..remote()
        }
    }

    /// Carries a datagram from the machine `index` through both edges to the other.
    fn carry(&mut self, index: usize, mut flight: Flight) -> Option<Flight> {
        self.flown += 1;
        if let Some(hostile) = &mut self.hostile {
            hostile.seen.push(flight.payload.clone());
        }
        if self.random.percent(self.loss) {
            return None;
        }
        match self.edges[index] {
            Edge::Open => {}
            Edge::OneToOne => flight.from.set_ip(ip(PUBLICS[index])),
            Edge::Forwarding | Edge::Hiding => {
                let port = 40_000 + u16::try_from(self.flown % 1000).unwrap();
                // An answer to what came in over a forwarded port leaves through it.
                let is_forwarded = self.edges[index] == Edge::Forwarding && flight.to.port() != PORT;
                let port = if is_forwarded { PORT } else { port };
                self.mappings[index].insert(port, flight.to);
                flight.from = SocketAddr::new(ip(PUBLICS[index]), port);
            }
        }
        let other = 1 - index;
        let is_for = |address: &str| flight.to.ip() == ip(address);
        let arrives = match self.edges[other] {
            Edge::Open => is_for(PRIVATES[other]),
            Edge::OneToOne => is_for(PUBLICS[other]) && flight.to.port() == PORT,
            Edge::Forwarding | Edge::Hiding => {
                let port = flight.to.port();
                let is_answer = self.mappings[other].get(&port).is_some_and(|peer| *peer == flight.from);
                let is_forwarded = self.edges[other] == Edge::Forwarding && port == PORT;
                is_for(PUBLICS[other]) && (is_answer || is_forwarded)
            }
        };
        flight.to = SocketAddr::new(ip(PRIVATES[other]), PORT);
        (arrives && (other == 0 || self.b_listens)).then_some(flight)
    }

    /// The hostile one sends to both.
    fn be_hostile(&mut self) {
        let Some(hostile) = &mut self.hostile else { return };
        for (machine, own) in self.machines.iter_mut().zip(PRIVATES) {
            let from = SocketAddr::new(ip(Hostile::ADDRESS), hostile.random.between(1024, 65_535));
            if let Some(payload) = hostile.datagram() {
                machine.handle_datagram(&payload, from, Some(ip(own)), self.now);
            }
        }
    }

    /// Lets everything happen that happens at this moment.
    fn settle(&mut self) {
        loop {
            let mut is_quiet = true;
            for (index, own) in PRIVATES.into_iter().enumerate().take(if self.b_listens { 2 } else { 1 }) {
                self.machines[index].handle_timeout(self.now);
                let own = ip(own);
                while let Some(transmit) = self.machines[index].poll_transmit(|_| Some(own)) {
                    is_quiet = false;
                    if transmit.to.ip() == ip(Hostile::ADDRESS) {
                        continue;
                    }
                    let from = SocketAddr::new(own, PORT);
                    let flight = Flight { from, to: transmit.to, payload: transmit.payload };
                    if let Some(Flight { from, to, payload }) = self.carry(index, flight) {
                        self.machines[1 - index].handle_datagram(&payload, from, Some(to.ip()), self.now);
                    }
                }
            }
            if is_quiet {
                return;
            }
        }
    }

    fn run(&mut self, seconds: u64) {
        for _ in 0..seconds * 10 {
            self.settle();
            self.be_hostile();
            self.now += Duration::from_millis(100);
        }
        self.settle();
    }

    /// What a and b have chosen: address, NAT, how.
    fn chosen(&self) -> [Option<(IpAddr, bool, How)>; 2] {
        let of = |index: usize, peer: &str| {
            let selection = self.machines[index].selection(&cable(peer))?;
            Some((selection.ip, selection.use_nat, selection.how))
        };
        [of(0, "b"), of(1, "a")]
    }
}

fn private(index: usize) -> Option<(IpAddr, bool, How)> {
    Some((ip(PRIVATES[index]), false, How::Private))
}

fn public(index: usize) -> Option<(IpAddr, bool, How)> {
    Some((ip(PUBLICS[index]), true, How::Public))
}

#[test]
fn without_nat_both_choose_the_private_address_at_once() {
    let mut world = World::new([Edge::Open, Edge::Open]);
    world.settle();
    assert_eq!(world.chosen(), [private(1), private(0)]);
}

#[test]
fn with_one_to_one_nat_on_one_side_that_side_is_reached_over_its_public_address() {
    let mut world = World::new([Edge::OneToOne, Edge::Open]);
    world.settle();
    // b sees a's requests come from another address; a's answers come from its public one.
    assert_eq!(world.chosen(), [Some((ip(PRIVATES[1]), true, How::Private)), public(0)]);
}

#[test]
fn with_nat_on_both_sides_both_use_public_addresses() {
    for edge in [Edge::OneToOne, Edge::Forwarding] {
        let mut world = World::new([edge, edge]);
        world.settle();
        assert_eq!(world.chosen(), [public(1), public(0)], "{edge:?}");
    }
}

#[test]
fn a_hidden_gateway_finds_the_open_one_and_is_itself_found_by_rule() {
    let mut world = World::new([Edge::Hiding, Edge::Open]);
    world.run(1);
    let nat = Some((ip(PRIVATES[1]), true, How::Private));
    assert_eq!(world.chosen(), [nat, None], "the rewritten port is noticed");
    world.run(1);
    let provisional = Some((ip(PUBLICS[0]), true, How::Provisional));
    assert_eq!(world.chosen()[1], provisional, "who asks is there, and needs a cable");
    world.run(60);
    assert_eq!(world.chosen(), [nat, Some((ip(PUBLICS[0]), true, How::Fallback))]);
}

#[test]
fn lost_datagrams_only_cost_time() {
    seeds::each("lost_datagrams_only_cost_time", 200, |seed| {
        let mut world = World::new([Edge::Open, Edge::OneToOne]);
        (world.loss, world.random) = (40, Random::new(seed));
        world.hostile = Some(Hostile { random: Random::new(!seed), seen: Vec::new(), sent: 0 });
        world.run(59);
        assert!(world.hostile.as_ref().unwrap().sent > 1000);
        let nat = Some((ip(PRIVATES[0]), true, How::Private));
        let public_of_a = Some((ip(PRIVATES[0]), true, How::Public));
        assert_eq!(world.chosen()[0], public(1), "seed {seed}");
        // a's public address is its private one: which of the two requests is answered first plays no part.
        assert!([nat, public_of_a].contains(&world.chosen()[1]), "seed {seed}");
    });
}

#[test]
fn a_peer_that_is_down_is_found_within_a_second_of_its_return() {
    let mut world = World::new([Edge::OneToOne, Edge::OneToOne]);
    world.b_listens = false;
    world.run(200);
    assert_eq!(world.chosen()[0], Some((ip(PUBLICS[1]), true, How::Fallback)));
    world.b_listens = true;
    world.run(1);
    assert_eq!(world.chosen(), [public(1), public(0)]);
}

#[test]
fn a_legacy_peer_that_never_answers_costs_seconds() {
    let mut world = World::new([Edge::Open, Edge::Open]);
    world.b_listens = false;
    world.run(3);
    assert_eq!(world.chosen()[0], Some((ip(PRIVATES[1]), true, How::Provisional)));
    world.run(60);
    assert_eq!(world.chosen()[0], Some((ip(PRIVATES[1]), true, How::Fallback)));
    assert!(world.machines[0].counters().requests <= 2 * 31);
}

#[test]
fn the_same_world_runs_the_same_way_twice() {
    let run = || {
        let mut world = World::new([Edge::Forwarding, Edge::OneToOne]);
        world.loss = 30;
        world.run(100);
        (world.chosen(), world.flown, *world.machines[0].counters())
    };
    assert_eq!(run(), run());
}
