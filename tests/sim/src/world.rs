//! One clock, one heap of events.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use mock_instant::MockClock;

use crate::gateway::Gateway;
use crate::network::Network;
use crate::random::Random;
use crate::traffic::{self, Flow, Ledger};

/// How often gateways are asked for what is due: as a worker does when nothing else wakes it.
const TICK: Duration = Duration::from_millis(50);

/// Gateways, flows and the network between them.
pub struct World {
    /// What the network does; may be changed at any time.
    pub network: Network,
    gateways: Vec<Gateway>,
    flows: Vec<Flow>,
    in_flight: BinaryHeap<Reverse<Datagram>>,
    cut: Vec<(usize, usize)>,
    random: Random,
    workers: u16,
    now: Instant,
    next_tick: Instant,
    sequence: u64,
}

/// A datagram on its way. The sequence makes the order of simultaneous arrivals that of sending.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Datagram {
    arrives: Instant,
    sequence: u64,
    from: SocketAddr,
    to: SocketAddr,
    bytes: Vec<u8>,
}

impl World {
    /// Gateways that all know of one another, and have not spoken yet.
    #[must_use]
    pub fn new(seed: u64, gateways: usize, workers: u16, network: Network) -> Self {
        MockClock::set_time(Duration::from_secs(1));
        let now = Instant::now();
        let addresses: Vec<_> = (0..gateways).map(address).collect();
        let gateways = (0..gateways).map(|index| Gateway::new(index, &addresses, workers, now)).collect();
        let mut world = Self {
            network,
            gateways,
            flows: Vec::new(),
            in_flight: BinaryHeap::new(),
            cut: Vec::new(),
            random: Random::new(seed),
            workers,
            now,
            next_tick: now + TICK,
            sequence: 0,
        };
        world.settle_outputs();
        world
    }

    /// Adds a flow of packets with this many bytes of payload; returns its number. It sends from now on.
    pub fn flow(&mut self, from: usize, to: usize, is_v6: bool, interval: Duration, bytes: usize) -> usize {
        self.flows.push(Flow::new(from, to, is_v6, interval, bytes, self.now));
        self.flows.len() - 1
    }

    /// Lets time pass. Flows send in it, and stop at its end.
    pub fn run(&mut self, duration: Duration) {
        let end = self.now + duration;
        for flow in &mut self.flows {
            flow.until = end;
            flow.next = flow.next.max(self.now);
        }
        self.run_to(end);
    }

    /// Lets time pass without new packets, so that those on their way arrive.
    pub fn rest(&mut self, duration: Duration) {
        self.run_to(self.now + duration);
    }

    /// What became of a flow so far; gaps are counted anew from here.
    pub fn ledger(&mut self, flow: usize) -> Ledger {
        self.flows[flow].settle(self.now)
    }

    /// Ends a gateway and starts it again with the same key and no memory, now.
    pub fn restart(&mut self, gateway: usize) {
        let mut addresses: Vec<_> = (0..self.gateways.len()).map(address).collect();
        addresses[gateway] = self.gateways[gateway].address;
        self.gateways[gateway] = Gateway::new(gateway, &addresses, self.workers, self.now);
        self.settle_outputs();
    }

    /// Ends a gateway; [`World::restart`] brings it back.
    pub fn kill(&mut self, gateway: usize) {
        self.gateways[gateway].is_running = false;
    }

    /// Gives a gateway another outer address, as a NAT or a new lease does. The others are not told.
    pub fn move_to(&mut self, gateway: usize, address: &str) {
        self.gateways[gateway].address = address.parse().expect("an address and a port");
    }

    /// Cuts one direction between two gateways.
    pub fn cut(&mut self, from: usize, to: usize) {
        self.cut.push((from, to));
    }

    /// Heals all cuts.
    pub fn heal(&mut self) {
        self.cut.clear();
    }

    /// Handshakes that a gateway has completed since it started.
    #[must_use]
    pub fn handshakes(&self, gateway: usize) -> u64 {
        self.gateways[gateway].handshakes(self.now)
    }

    /// Packets that a gateway has dropped since it started.
    #[must_use]
    pub fn dropped(&self, gateway: usize) -> u64 {
        self.gateways[gateway].dropped()
    }

    /// Packets that a gateway holds.
    #[must_use]
    pub fn held(&self, gateway: usize) -> u64 {
        self.gateways[gateway].held(self.now)
    }

    /// A random number below `limit`, of the world's own stream.
    pub fn random(&mut self, limit: u64) -> u64 {
        self.random.below(limit)
    }

    fn run_to(&mut self, end: Instant) {
        loop {
            let sends = self.flows.iter().filter(|flow| flow.next < flow.until).map(|flow| flow.next);
            let arrival = self.in_flight.peek().map(|datagram| datagram.0.arrives);
            let next = sends.chain(arrival).chain([self.next_tick]).min().expect("there always is a tick");
            if next > end {
                self.advance(end);
                return;
            }
            self.advance(next);
            self.step();
            self.settle_outputs();
        }
    }

    /// Both clocks: ours, which is handed around, and the one that boringtun reads.
    fn advance(&mut self, to: Instant) {
        MockClock::advance(to - self.now);
        self.now = to;
    }

    /// One event that is due: an arrival before a send, a send before a tick.
    fn step(&mut self) {
        if self.in_flight.peek().is_some_and(|datagram| datagram.0.arrives <= self.now) {
            let Some(Reverse(datagram)) = self.in_flight.pop() else { return };
            self.arrive(&datagram);
        } else if let Some(index) =
            self.flows.iter().position(|flow| flow.next <= self.now && flow.next < flow.until)
        {
            let packet = self.flows[index].send(index as u64);
            let worker = self.random.below(u64::from(self.workers));
            let gateway = &mut self.gateways[self.flows[index].from];
            if gateway.is_running {
                gateway.take_inner(&packet, worker, self.now);
            }
        } else {
            self.next_tick = self.now + TICK;
            for gateway in self.gateways.iter_mut().filter(|gateway| gateway.is_running) {
                gateway.handle_timeout(self.now);
            }
        }
    }

    fn arrive(&mut self, datagram: &Datagram) {
        let worker = self.random.below(u64::from(self.workers));
        let Some(to) = self.gateways.iter().position(|gateway| gateway.address == datagram.to) else {
            return;
        };
        let from = self.gateways.iter().position(|gateway| gateway.address == datagram.from);
        if !self.gateways[to].is_running || from.is_some_and(|from| self.cut.contains(&(from, to))) {
            return;
        }
        self.gateways[to].take_outer(&datagram.bytes, datagram.from, worker, self.now);
    }

    /// Moves what gateways have for the wire and for pods, and checks the laws.
    fn settle_outputs(&mut self) {
        for index in 0..self.gateways.len() {
            let from = self.gateways[index].address;
            for (to, bytes) in self.gateways[index].drain_wire() {
                for delay in self.network.arrivals(&mut self.random) {
                    self.sequence += 1;
                    let (arrives, sequence, bytes) = (self.now + delay, self.sequence, bytes.clone());
                    self.in_flight.push(Reverse(Datagram { arrives, sequence, from, to, bytes }));
                }
            }
            for packet in self.gateways[index].drain_tun() {
                let (flow, number) = traffic::label(&packet).expect("pods exchange labelled packets only");
                let account = self.flows.get_mut(usize::try_from(flow).expect("few flows"));
                account.expect("the flow is one of ours").receive(flow, number, &packet, self.now);
            }
            self.gateways[index].assert_conserved(self.now);
        }
    }
}

fn address(gateway: usize) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, u8::try_from(gateway + 1).expect("few gateways")], 4500))
}
