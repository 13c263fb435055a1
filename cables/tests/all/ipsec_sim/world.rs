//! Gateways, the network between them, and what happens when.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use trieste_cables::Message;
use trieste_cables::ipsec::ike::{EngineConfig, Input};
use trieste_cables::ipsec::{LaneOrder, Outbound};
use trieste_packet::{LaneId, Outer};
use trieste_simulator::{Queue, Random, seeds};

use super::checker::Checker;
use super::gateway::{Gateway, Recipe};
use super::impostor::Impostor;
use super::network::{Frame, Kind, Place, Weather, kind};
use super::shape::{self, Shape};
use super::trace;
use super::traffic::{self, Pace};

/// Most steps at one moment. More would be a gateway that keeps asking to be called.
const STEPS_AT_ONCE: u32 = 500;

/// Soft lifetime of child SAs from which on no test sees one renewed because of its age.
const LONG: Duration = Duration::from_secs(3000);

/// Frames that somebody on the way remembers.
const REMEMBERED: usize = 400;

/// Something that is done to the world.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Action {
    /// A person asks a gateway for new keys.
    Rekey(usize),
    Kill(usize),
    Start(usize),
    /// The impostor begins anew, and floods.
    Impersonate,
    /// A gateway closes its cables.
    Disconnect(usize),
    /// A gateway makes cables to all others that it has none to.
    Connect(usize),
    /// Both.
    Reconnect(usize),
    /// The NAT in front of a gateway takes another mapping.
    Rebind(usize, SocketAddr),
    /// What a gateway says of where it is reached is what is true, and the others learn of it.
    Publish(usize),
    Weather(Weather),
}

enum Event {
    Arrive(Frame),
    Traffic(usize, usize),
    Wake(usize, LaneId),
    ReadInbox(usize),
    ReadImpostorsInbox,
    Act(Action),
}

/// The world.
pub(crate) struct World {
    pub(crate) shape: Shape,
    queue: Queue<Event>,
    pub(crate) random: Random,
    pub(crate) weather: Weather,
    pub(crate) gateways: Vec<Gateway>,
    pub(crate) checker: Checker,
    pub(crate) pace: Option<Pace>,
    pub(crate) next_serial: u64,
    /// Whether keys are renewed every few seconds.
    pub(crate) is_restless: bool,
    /// What others are told of where each gateway is.
    published: Vec<SocketAddr>,
    /// Of 1000 frames, how many have somebody send one again.
    pub(crate) mischief: u64,
    remembered: Vec<Frame>,
    /// Somebody with the set's key who says that it is one of the gateways.
    pub(crate) impostor: Option<Impostor>,
    is_traced: bool,
}

impl World {
    /// Gateways with these settings, none of which runs.
    pub(crate) fn new(shape: Shape, configs: &[EngineConfig], seed: u64) -> Self {
        let count = configs.len();
        let gateways: Vec<Gateway> = configs
            .iter()
            .enumerate()
            .map(|(index, config)| {
                let recipe =
                    Recipe { site: shape.site(index, count), config: config.clone(), is_wary: false };
                let place = Place { own: shape::own_address(index), mapping: None };
                Gateway::new(recipe, place, 0x00a0_0000 + 0x1000 * u32::try_from(index).unwrap())
            })
            .collect();
        let is_restless = configs.iter().any(|config| config.child_lifetime.soft < LONG);
        let published = gateways.iter().map(|gateway| gateway.place.public()).collect();
        Self {
            shape,
            queue: Queue::new(),
            random: Random::new(seed),
            weather: Weather::FAIR,
            gateways,
            checker: Checker::default(),
            pace: None,
            next_serial: 0,
            is_restless,
            published,
            mischief: 0,
            remembered: Vec::new(),
            impostor: None,
            is_traced: seeds::is_traced(),
        }
    }

    /// Two gateways alike.
    pub(crate) fn pair(shape: Shape, config: &EngineConfig, seed: u64) -> Self {
        Self::new(shape, &[config.clone(), config.clone()], seed)
    }

    /// Puts a NAT in front of a gateway, before it runs.
    pub(crate) fn put_behind_nat(&mut self, gateway: usize) {
        let mapping = shape::nat_address(gateway, 113, 4500);
        self.gateways[gateway].place.mapping = Some(mapping);
        self.published[gateway] = mapping;
    }

    pub(crate) fn now(&self) -> Instant {
        self.queue.now()
    }

    /// Time since the beginning.
    pub(crate) fn age(&self) -> Duration {
        self.queue.elapsed()
    }

    pub(crate) fn act_in(&mut self, wait: Duration, action: Action) {
        self.queue.after(wait, Event::Act(action));
    }

    /// Starts all gateways at once.
    pub(crate) fn start_all(&mut self) {
        for gateway in 0..self.gateways.len() {
            self.act(Action::Start(gateway));
        }
    }

    /// Begins traffic between all gateways, until [`Self::pace`] is none.
    pub(crate) fn begin_traffic(&mut self, pace: Pace) {
        self.pace = Some(pace);
        for (from, to) in self.ends() {
            let wait = pace.wait(&mut self.random);
            self.queue.after(wait, Event::Traffic(from, to));
        }
    }

    /// All gateways with all others.
    pub(crate) fn ends(&self) -> Vec<(usize, usize)> {
        let count = self.gateways.len();
        let all = (0..count).flat_map(|from| (0..count).map(move |to| (from, to)));
        all.filter(|(from, to)| from != to).collect()
    }

    /// Lets time pass.
    pub(crate) fn run(&mut self, span: Duration) {
        let end = self.queue.now() + span;
        let mut steps = 0;
        loop {
            let impostors = self.impostor.as_ref().and_then(Impostor::poll_timeout);
            let timers = self.gateways.iter().filter_map(Gateway::poll_timeout).chain(impostors).min();
            let event = self.queue.next();
            let Some(next) = timers.into_iter().chain(event).min().filter(|due| *due <= end) else { break };
            steps = if next > self.queue.now() { 0 } else { steps + 1 };
            assert!(steps < STEPS_AT_ONCE, "time stands still at {:?}", self.age());
            self.queue.advance(next);
            self.step();
        }
        self.queue.advance(end);
    }

    /// Does what is due: one event, or the timers.
    fn step(&mut self) {
        if let Some(event) = self.queue.pop(self.queue.now()) {
            return match event {
                Event::Arrive(frame) => self.arrive(&frame),
                Event::Traffic(from, to) => self.traffic(from, to),
                Event::Wake(gateway, lane) => self.wake(gateway, lane),
                Event::ReadInbox(index) => {
                    self.gateways[index].read_inbox(self.queue.now());
                    self.flush(index);
                }
                Event::ReadImpostorsInbox => {
                    let now = self.queue.now();
                    self.impersonate(|impostor| impostor.read_inbox(now));
                }
                Event::Act(action) => self.act(action),
            };
        }
        let now = self.queue.now();
        if self.impostor.as_ref().and_then(Impostor::poll_timeout).is_some_and(|due| due <= now) {
            self.impersonate(|impostor| impostor.timeouts(now));
        }
        for index in 0..self.gateways.len() {
            if self.gateways[index].poll_timeout().is_some_and(|due| due <= self.queue.now()) {
                self.relay_all(index);
                self.gateways[index].timeouts(self.queue.now());
                self.flush(index);
            }
        }
    }

    pub(crate) fn act(&mut self, action: Action) {
        self.trace(|| format!("{action:?}"));
        match action {
            Action::Rekey(index) => {
                let lanes: Vec<LaneId> = self.gateways[index].lanes.keys().copied().collect();
                for lane in lanes {
                    self.gateways[index].input(Input::Rekey(lane), self.queue.now());
                }
                self.flush(index);
            }
            Action::Kill(index) => self.gateways[index].kill(),
            // Of two who restart it at once, one finds it running.
            Action::Start(index) if self.gateways[index].engine.is_some() => {}
            Action::Start(index) => {
                self.gateways[index].start(&mut self.random, self.queue.now());
                self.connect(index);
            }
            Action::Impersonate => {
                let (now, published) = (self.queue.now(), self.published.clone());
                let gateways = std::mem::take(&mut self.gateways);
                self.impersonate(|impostor| impostor.begin(&gateways, &published, now));
                self.gateways = gateways;
                let flood = self.impostor.as_mut().map(Impostor::flood);
                self.forge(flood.unwrap_or_default());
            }
            Action::Disconnect(index) => self.disconnect(index),
            Action::Connect(index) => self.connect(index),
            Action::Reconnect(index) => {
                self.disconnect(index);
                self.connect(index);
            }
            Action::Rebind(index, mapping) => self.gateways[index].place.mapping = Some(mapping),
            Action::Publish(index) => self.publish(index),
            Action::Weather(weather) => self.weather = weather,
        }
    }

    fn disconnect(&mut self, index: usize) {
        for peer in 0..self.gateways.len() {
            self.gateways[index].disconnect(peer, self.queue.now());
        }
        self.flush(index);
    }

    fn connect(&mut self, index: usize) {
        for peer in (0..self.gateways.len()).filter(|peer| *peer != index) {
            if self.gateways[index].lane_to(peer).is_some() {
                continue;
            }
            let site = self.gateways[peer].recipe.site.clone();
            self.gateways[index].connect(peer, &site, self.published[peer], self.queue.now());
        }
        self.flush(index);
    }

    fn publish(&mut self, index: usize) {
        let address = self.gateways[index].place.public();
        self.published[index] = address;
        for other in (0..self.gateways.len()).filter(|other| *other != index) {
            if let Some(lane) = self.gateways[other].lane_to(index) {
                self.gateways[other].input(Input::SetAddress(lane, address), self.queue.now());
                self.flush(other);
            }
        }
    }

    fn traffic(&mut self, from: usize, to: usize) {
        let Some(pace) = self.pace else { return };
        let wait = pace.wait(&mut self.random);
        self.queue.after(wait, Event::Traffic(from, to));
        let packets = traffic::batch(&mut self.next_serial, (from, to), pace.most, &mut self.random);
        self.offer(from, to, packets);
    }

    /// Sends one packet for each pair of subnets, both ways; returns their serial numbers.
    pub(crate) fn probe(&mut self) -> RangeInclusive<u64> {
        let first = self.next_serial + 1;
        for (from, to) in self.ends() {
            let packets = traffic::probes(&mut self.next_serial, from, to);
            self.offer(from, to, packets);
        }
        first..=self.next_serial
    }

    /// Gives packets to the lane of a cable. Where there is none, nothing is sent.
    pub(crate) fn offer(&mut self, from: usize, to: usize, packets: Vec<(u64, Vec<u8>)>) {
        let Some(lane) = self.gateways[from].lane_to(to) else { return };
        for (serial, bytes) in &packets {
            self.checker.offer(from, to, *serial, bytes);
        }
        let packets: Vec<Vec<u8>> = packets.into_iter().map(|(_, bytes)| bytes).collect();
        self.seal(from, lane, &packets);
    }

    fn seal(&mut self, index: usize, lane: LaneId, packets: &[Vec<u8>]) {
        self.relay(index, lane);
        for (outer, payload) in self.gateways[index].seal(lane, packets, self.queue.now()) {
            self.send(index, outer, payload);
        }
    }

    fn wake(&mut self, index: usize, lane: LaneId) {
        self.seal(index, lane, &[]);
    }

    /// What an engine queued goes out; lanes that it has orders for are woken, a little later, as on other threads.
    fn flush(&mut self, index: usize) {
        let (transmits, pokes) = self.gateways[index].drain();
        for transmit in transmits {
            self.send(index, transmit.outer, transmit.payload);
        }
        for lane in pokes {
            let wait = self.random.millis(0, 3);
            self.queue.after(wait, Event::Wake(index, lane));
        }
    }

    fn send(&mut self, index: usize, outer: Outer, payload: Vec<u8>) {
        let place = self.gateways[index].place;
        let is_raw = outer.peer.port() == 0;
        self.trace(|| format!("{index} -> {} {}", outer.peer, trace::message(&payload, is_raw)));
        assert!(outer.local.is_none_or(|local| local == place.ip()), "sent from an address that it has not");
        if let Some(impostor) = self.impostor.as_mut().filter(|impostor| impostor.takes(outer.peer)) {
            // What strangers are answered is no message of a cable's, nor drawn from what befalls those.
            assert_eq!(kind(&payload, is_raw), Kind::Ike, "the impostor is sent packets");
            let Some(frame) = place.leave(outer.peer, payload) else { return };
            for wait in self.weather.fate(Kind::Ike, &mut impostor.random) {
                self.queue.after(wait, Event::Arrive(frame.clone()));
            }
            return;
        }
        self.checker.leaves(index, &payload, is_raw, self.queue.now());
        let Some(frame) = place.leave(outer.peer, payload) else { return };
        for wait in self.weather.fate(frame.kind(), &mut self.random) {
            self.queue.after(wait, Event::Arrive(frame.clone()));
        }
    }

    /// The impostor does something, and what it sends leaves.
    fn impersonate(&mut self, act: impl FnOnce(&mut Impostor)) {
        let Some(impostor) = &mut self.impostor else { return };
        act(impostor);
        let frames = impostor.frames();
        self.forge(frames);
    }

    fn forge(&mut self, frames: Vec<Frame>) {
        let Some(impostor) = &mut self.impostor else { return };
        for frame in frames {
            for wait in self.weather.fate(frame.kind(), &mut impostor.random) {
                self.queue.after(wait, Event::Arrive(frame.clone()));
            }
        }
    }

    fn arrive(&mut self, frame: &Frame) {
        if let Some(impostor) = self.impostor.as_mut().filter(|impostor| impostor.takes(frame.destination)) {
            if impostor.arrive(frame, self.queue.now()) {
                self.queue.after(Duration::from_millis(1), Event::ReadImpostorsInbox);
            }
            return;
        }
        self.meddle(frame);
        let Some(index) = self.gateways.iter().position(|gateway| gateway.place.takes(frame.destination))
        else {
            return;
        };
        let from = Outer { peer: frame.source, local: Some(self.gateways[index].place.ip()), tos: 0 };
        let is_raw = frame.destination.port() == 0;
        match self.gateways[index].classify(&frame.payload, &from) {
            Message::Negotiation if !is_raw => {
                self.trace(|| {
                    format!("{index} <- {} {}", frame.source, trace::message(&frame.payload, false))
                });
                let answer = self.gateways[index].admit(&frame.payload, &from, self.queue.now());
                let random = match &mut self.impostor {
                    Some(impostor) if impostor.takes(frame.source) => &mut impostor.random,
                    _ => &mut self.random,
                };
                let wait = random.millis(0, 3);
                self.queue.after(wait, Event::ReadInbox(index));
                if let Some(payload) = answer {
                    self.send(index, Outer { tos: 0, ..from }, payload);
                }
            }
            Message::Data(lane) => self.open(index, lane, frame, from),
            Message::Negotiation
            | Message::Keepalive
            | Message::Stranger
            | Message::Unknown
            | Message::Control(_)
            | Message::Greeting => {}
        }
    }

    /// Somebody on the way remembers frames, and sends some of them again later, as they were or not.
    fn meddle(&mut self, frame: &Frame) {
        if self.mischief == 0 || frame.is_forged {
            return;
        }
        if self.remembered.len() < REMEMBERED {
            self.remembered.push(frame.clone());
        } else if self.random.chance(100) {
            let index = self.random.below(REMEMBERED);
            self.remembered[index] = frame.clone();
        }
        if self.random.chance(self.mischief) {
            let mut forged = self.random.choose(&self.remembered).clone();
            forged.spoil(&mut self.random);
            let wait = self.random.millis(0, 30);
            self.queue.after(wait, Event::Arrive(forged));
        }
    }

    fn open(&mut self, index: usize, lane: LaneId, frame: &Frame, from: Outer) {
        self.relay(index, lane);
        let Some(peer) = self.gateways[index].lanes.get(&lane).map(|side| side.peer) else { return };
        for packet in self.gateways[index].open(lane, frame.payload.clone(), from, self.queue.now()) {
            self.checker.arrives(index, peer, &packet);
        }
        if self.gateways[index].held(self.queue.now()) > 0 {
            self.seal(index, lane, &[]);
        }
    }

    fn relay_all(&mut self, index: usize) {
        let lanes: Vec<LaneId> = self.gateways[index].lanes.keys().copied().collect();
        for lane in lanes {
            self.relay(index, lane);
        }
    }

    fn relay(&mut self, index: usize, lane: LaneId) {
        for order in self.gateways[index].relay(lane) {
            self.trace(|| format!("{index} lane {:x}: {}", lane.0, trace::order(&order)));
            if let LaneOrder::Add(child) = &order {
                self.checker.added(index, child);
                if child.activation == Outbound::Now {
                    *self.checker.made_by.entry(index).or_default() += 1;
                }
            }
        }
    }

    fn trace(&self, line: impl FnOnce() -> String) {
        if self.is_traced {
            println!("{:12.6} {}", self.age().as_secs_f64(), line());
        }
    }
}
