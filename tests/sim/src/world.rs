//! One clock, one queue of events.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use mock_instant::MockClock;
use trieste_simulator::{Link, Network, Queue, Random};

use crate::gateway::Gateway;
use crate::hostile::Hostile;
use crate::traffic::{self, Flow, Ledger};

/// 5 ms, in order, nothing lost.
pub const GOOD: Link = Link::millis(5, 5);

/// 20 ms and up to 30 more, a tenth lost, a twentieth doubled.
pub const BAD: Link =
    Link { loss: 100, copies: 50, copy_delay: Duration::from_millis(200), ..Link::millis(20, 50) };

/// How often gateways are asked for what is due: as a worker does when nothing else wakes it.
const TICK: Duration = Duration::from_millis(50);

/// How long what the hostile one forges is on its way.
const FORGED_DELAY: Duration = Duration::from_millis(7);

/// Gateways, flows and the network between them; and a member that is hostile, whom nothing of what is claimed excepts.
pub struct World {
    /// What the network does; may be changed at any time.
    pub network: Network,
    /// What is drawn for the world.
    pub random: Random,
    gateways: Vec<Gateway>,
    flows: Vec<Flow>,
    queue: Queue<Event>,
    workers: u16,
    hostile: Hostile,
}

enum Event {
    /// A datagram to a gateway, from an address.
    Arrive(usize, SocketAddr, Vec<u8>),
    /// A flow sends.
    Send(usize),
    /// A datagram of the hostile one's, or one that has to do with it.
    Forged(usize, SocketAddr, Vec<u8>),
    /// The hostile one acts.
    Hostile,
    Tick,
}

impl World {
    /// Gateways that all know of one another, and have not spoken yet.
    #[must_use]
    pub fn new(seed: u64, gateways: usize, workers: u16, link: Link) -> Self {
        MockClock::set_time(Duration::from_secs(1));
        let queue = Queue::new();
        let now = queue.now();
        // The last one is a member that does what it likes.
        let addresses: Vec<_> = (0..=gateways).map(address).collect();
        let network = Network::new(gateways + 1, link);
        let hostile = Hostile::new(gateways, seed);
        let mut gateways: Vec<_> =
            (0..gateways).map(|index| Gateway::new(index, &addresses, workers, now)).collect();
        gateways.push(Gateway::hostile(hostile.index, &addresses, Hostile::VICTIM, now));
        let (random, flows) = (Random::new(seed), Vec::new());
        let mut world = Self { network, random, gateways, flows, queue, workers, hostile };
        world.queue.after(TICK, Event::Tick);
        world.queue.after(TICK, Event::Hostile);
        world.settle_outputs();
        world
    }

    /// Adds a flow of packets with this many bytes of payload; returns its number. It sends from now on.
    pub fn flow(&mut self, from: usize, to: usize, is_v6: bool, interval: Duration, bytes: usize) -> usize {
        self.flows.push(Flow::new(from, to, is_v6, interval, bytes, self.queue.now()));
        self.flows.len() - 1
    }

    /// Lets time pass. Flows send in it, and stop at its end.
    pub fn run(&mut self, duration: Duration) {
        let (now, end) = (self.queue.now(), self.queue.now() + duration);
        for (index, flow) in self.flows.iter_mut().enumerate() {
            flow.until = end;
            flow.next = flow.next.max(now);
            if flow.next < end {
                self.queue.at(flow.next, Event::Send(index));
            }
        }
        self.run_to(end);
    }

    /// Lets time pass without new packets, so that those on their way arrive.
    pub fn rest(&mut self, duration: Duration) {
        self.run_to(self.queue.now() + duration);
    }

    /// What became of a flow so far; gaps are counted anew from here.
    pub fn ledger(&mut self, flow: usize) -> Ledger {
        self.flows[flow].settle(self.queue.now())
    }

    /// Ends a gateway and starts it again with the same key and no memory, now.
    pub fn restart(&mut self, gateway: usize) {
        let mut addresses: Vec<_> = (0..self.gateways.len()).map(address).collect();
        addresses[gateway] = self.gateways[gateway].address;
        self.gateways[gateway] = Gateway::new(gateway, &addresses, self.workers, self.queue.now());
        self.hostile.forget_handshakes();
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

    /// Handshakes that a gateway has completed since it started.
    #[must_use]
    pub fn handshakes(&self, gateway: usize) -> u64 {
        self.gateways[gateway].handshakes(self.hostile.index, self.queue.now())
    }

    /// Packets that a gateway has dropped since it started.
    #[must_use]
    pub fn dropped(&self, gateway: usize) -> u64 {
        self.gateways[gateway].dropped()
    }

    /// Packets that a gateway holds.
    #[must_use]
    pub fn held(&self, gateway: usize) -> u64 {
        self.gateways[gateway].held(self.queue.now())
    }

    fn run_to(&mut self, end: Instant) {
        while let Some(next) = self.queue.next().filter(|next| *next <= end) {
            self.advance(next);
            if let Some(event) = self.queue.pop(next) {
                self.handle(event);
                self.settle_outputs();
            }
        }
        self.advance(end);
    }

    /// Both clocks: ours, which is handed around, and the one that boringtun reads.
    fn advance(&mut self, to: Instant) {
        MockClock::advance(to - self.queue.now());
        self.queue.advance(to);
    }

    fn handle(&mut self, event: Event) {
        let now = self.queue.now();
        // What the hostile one does changes nothing that is drawn for the others.
        let random = match &event {
            Event::Arrive(to, ..) | Event::Forged(to, ..) if *to == self.hostile.index => {
                &mut self.hostile.random
            }
            Event::Forged(..) | Event::Hostile => &mut self.hostile.random,
            Event::Arrive(..) | Event::Send(_) | Event::Tick => &mut self.random,
        };
        let worker = random.below(u64::from(self.workers));
        match event {
            Event::Arrive(to, from, bytes) | Event::Forged(to, from, bytes) => {
                let gateway = &mut self.gateways[to];
                if gateway.is_running {
                    gateway.take_outer(&bytes, from, worker, now);
                }
            }
            Event::Send(index) => {
                let flow = &mut self.flows[index];
                let packet = flow.send(index as u64);
                if flow.next < flow.until {
                    self.queue.at(flow.next, Event::Send(index));
                }
                let gateway = &mut self.gateways[flow.from];
                if gateway.is_running {
                    gateway.take_inner(&packet, worker, now);
                }
            }
            Event::Hostile => {
                self.queue.after(TICK, Event::Hostile);
                let hostile = &mut self.gateways[self.hostile.index];
                for packet in self.hostile.packets(now) {
                    hostile.take_inner(&packet, 0, now);
                }
                for (to, from, bytes) in self.hostile.datagrams(now) {
                    self.queue.after(FORGED_DELAY, Event::Forged(to, from, bytes));
                }
            }
            Event::Tick => {
                self.queue.after(TICK, Event::Tick);
                for gateway in self.gateways.iter_mut().filter(|gateway| gateway.is_running) {
                    gateway.handle_timeout(now);
                }
            }
        }
    }

    /// Moves what gateways have for the wire and for pods, and checks the laws.
    fn settle_outputs(&mut self) {
        for index in 0..self.gateways.len() {
            let from = self.gateways[index].address;
            for (address, bytes) in self.gateways[index].drain_wire() {
                let Some(to) = self.gateways.iter().position(|gateway| gateway.address == address) else {
                    continue;
                };
                let is_hostile = index == self.hostile.index || to == self.hostile.index;
                let random = if is_hostile { &mut self.hostile.random } else { &mut self.random };
                let arrivals = self.network.arrivals(index, to, self.queue.now(), random);
                if !is_hostile && !arrivals.is_empty() {
                    self.hostile.record(to, from, &bytes, self.queue.now());
                }
                for arrival in arrivals {
                    let bytes = bytes.clone();
                    let event = if is_hostile { Event::Forged } else { Event::Arrive };
                    self.queue.at(arrival, event(to, from, bytes));
                }
            }
            for packet in self.gateways[index].drain_tun() {
                let (flow, number) = traffic::label(&packet).expect("pods exchange labelled packets only");
                let account = self.flows.get_mut(usize::try_from(flow).expect("few flows"));
                account.expect("the flow is one of ours").receive(flow, number, &packet, self.queue.now());
            }
            self.gateways[index].assert_conserved(self.queue.now());
        }
    }
}

fn address(gateway: usize) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, u8::try_from(gateway + 1).expect("few gateways")], 4500))
}
