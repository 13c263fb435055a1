//! A gateway: an engine, and a real ESP lane for every peer, called as the pipeline calls them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crossbeam::channel::{Receiver, Sender, bounded};
use trieste_cables::ipsec::gate::{GateShared, Inboxes, IpsecGate};
use trieste_cables::ipsec::ike::{EngineConfig, IkeEngine, IkeEvent, Input, PeerConfig, PeerReport};
use trieste_cables::ipsec::link::link;
use trieste_cables::ipsec::{ChildSa, EspCable, EspCableConfig, LaneLink, LaneOrder, LanePort, Spi};
use trieste_cables::{Admission, Cable as _, Gate as _, Jobs, Lane as _, Message, Site, Transmit};
use trieste_packet::{Batch, CableId, Drops, LaneId, LayoutKind, Outer, Packet, Pool, PoolConfig};
use trieste_simulator::Random;

use super::network::Place;

/// How long the lane of a cable that was cut still opens, as in the pipeline.
const CUT_LANE: Duration = Duration::from_secs(5);

/// Buffers of a gateway.
const SLOTS: usize = 96;

/// What a gateway is made of, whichever time it is started.
#[derive(Clone)]
pub(crate) struct Recipe {
    pub(crate) site: Site,
    pub(crate) config: EngineConfig,
    /// Whether its gate believes that there is a flood, and asks everybody for a cookie.
    pub(crate) is_wary: bool,
}

/// Room of an inbox; from a quarter of it on a gate is wary.
const INBOX: usize = 64;

/// A worker's gate, and the inboxes that it fills.
struct Door {
    gate: IpsecGate,
    peers: Receiver<Input>,
    inbox: Receiver<Input>,
    others: Sender<Input>,
}

/// A gateway that runs or not.
pub(crate) struct Gateway {
    pub(crate) recipe: Recipe,
    pub(crate) place: Place,
    pub(crate) engine: Option<IkeEngine>,
    door: Option<Door>,
    pub(crate) lanes: BTreeMap<LaneId, LaneSide>,
    pub(crate) drops: Drops,
    /// Negotiations that the engine said have failed.
    pub(crate) failures: Vec<String>,
    pool: Pool,
    first_lane: u32,
    next_lane: u32,
}

/// A lane with what the engine has ordered it to do.
pub(crate) struct LaneSide {
    /// Number of the gateway at the other end.
    pub(crate) peer: usize,
    pub(crate) cable: EspCable,
    /// Pairs that were added and not removed, and whether they were retired.
    pub(crate) pairs: BTreeMap<Spi, (ChildSa, bool)>,
    /// When its cable was cut.
    pub(crate) cut: Option<Instant>,
    /// What the engine orders comes here first, and goes on when the lane looks for it.
    orders: LanePort,
    relay: LaneLink,
}

/// A message as it leaves a lane, or a packet as it comes out of one.
type Sealed = (Outer, Vec<u8>);

impl Gateway {
    pub(crate) fn new(recipe: Recipe, place: Place, first_lane: u32) -> Self {
        Self {
            recipe,
            place,
            engine: None,
            door: None,
            lanes: BTreeMap::new(),
            drops: Drops::default(),
            failures: Vec::new(),
            pool: Pool::new(PoolConfig { slots: SLOTS, slot_bytes: 16 * 1024 }),
            first_lane,
            next_lane: first_lane,
        }
    }

    /// Begins without any memory.
    pub(crate) fn start(&mut self, random: &mut Random, now: Instant) {
        let engine = IkeEngine::new(self.recipe.config.clone(), Box::new(random.stream()), now);
        let ((others, inbox), (to_peers, peers)) = (bounded(INBOX), bounded(INBOX));
        let inboxes = Inboxes { peers: to_peers, strangers: others.clone() };
        let shared = GateShared::new([7; 32].into(), inboxes, engine.load());
        self.door = Some(Door { gate: IpsecGate::new(shared, now), peers, inbox, others });
        self.engine = Some(engine);
    }

    /// What a datagram is, in the words of the gate. Raw ESP does not come to its port.
    pub(crate) fn classify(&mut self, payload: &[u8], from: &Outer) -> Message {
        self.door.as_mut().map_or(Message::Unknown, |door| door.gate.classify(payload, from))
    }

    /// Shows an IKE message to the gate, which puts it into the inbox or answers it.
    pub(crate) fn admit(&mut self, payload: &[u8], from: &Outer, now: Instant) -> Option<Vec<u8>> {
        let door = self.door.as_mut()?;
        while self.recipe.is_wary && door.inbox.len() <= INBOX / 4 {
            // What others have sent, and nobody has fetched yet.
            door.others.send(Input::Rekey(LaneId(0))).unwrap();
        }
        match door.gate.admit(payload, from, now) {
            Admission::Reply(answer) => Some(answer),
            Admission::Taken | Admission::Refuse(_) => None,
            Admission::Pass(_) => panic!("a gate hands IKE messages on itself"),
        }
    }

    /// The engine takes what is in its inboxes.
    pub(crate) fn read_inbox(&mut self, now: Instant) {
        if let (Some(door), Some(engine)) = (&self.door, &mut self.engine) {
            door.peers
                .try_iter()
                .chain(door.inbox.try_iter())
                .for_each(|input| engine.handle_input(input, now));
        }
    }

    /// As kill -9 does: nobody is told, and nothing is remembered, not even which lanes there were.
    pub(crate) fn kill(&mut self) {
        (self.engine, self.door) = (None, None);
        self.lanes.clear();
        self.next_lane = self.first_lane;
    }

    /// A cable to a peer, on a lane of its own.
    pub(crate) fn connect(&mut self, peer: usize, remote: &Site, address: SocketAddr, now: Instant) {
        let Some(engine) = &mut self.engine else { return };
        let lane = LaneId(self.next_lane);
        self.next_lane += 1;
        let (engines, orders, _) = link(lane);
        let (relay, port, news) = link(lane);
        let cable = EspCable::new(EspCableConfig { lane, cable: CableId(1), port }, now);
        self.lanes.insert(lane, LaneSide { peer, cable, pairs: BTreeMap::new(), cut: None, orders, relay });
        let local = self.recipe.site.clone();
        let config = PeerConfig { address: Some(address), ..PeerConfig::new(lane, local, remote.clone()) };
        engine.handle_input(Input::Connect(Box::new(config), engines, news), now);
    }

    /// Cuts the cable to a peer.
    pub(crate) fn disconnect(&mut self, peer: usize, now: Instant) {
        let Some(lane) = self.lane_to(peer) else { return };
        self.lanes.get_mut(&lane).expect("it was found there").cut = Some(now);
        if let Some(engine) = &mut self.engine {
            engine.handle_input(Input::Disconnect(lane), now);
        }
    }

    pub(crate) fn input(&mut self, input: Input, now: Instant) {
        if let Some(engine) = &mut self.engine {
            engine.handle_input(input, now);
        }
    }

    /// The lane of the cable to a peer.
    pub(crate) fn lane_to(&self, peer: usize) -> Option<LaneId> {
        self.lanes.iter().find(|(_, side)| side.peer == peer && side.cut.is_none()).map(|(lane, _)| *lane)
    }

    /// Hands orders on to a lane; returns them.
    pub(crate) fn relay(&mut self, lane: LaneId) -> Vec<LaneOrder> {
        let Some(side) = self.lanes.get_mut(&lane) else { return Vec::new() };
        let mut orders = Vec::new();
        while let Some(order) = side.orders.take() {
            side.note(&order);
            side.relay.send(order.clone());
            orders.push(order);
        }
        orders
    }

    /// Seals inner packets, as one batch; with none, what is held.
    pub(crate) fn seal(&mut self, lane: LaneId, packets: &[Vec<u8>], now: Instant) -> Vec<Sealed> {
        self.work(lane, packets, Outer::NONE, now, |cable, jobs, now| cable.seal(jobs, now))
    }

    /// Opens a message.
    pub(crate) fn open(&mut self, lane: LaneId, message: Vec<u8>, from: Outer, now: Instant) -> Vec<Vec<u8>> {
        let opened = self.work(lane, &[message], from, now, |cable, jobs, now| cable.open(jobs, now));
        opened.into_iter().map(|(_, packet)| packet).collect()
    }

    fn work(
        &mut self,
        lane: LaneId,
        packets: &[Vec<u8>],
        outer: Outer,
        now: Instant,
        job: impl FnOnce(&mut EspCable, &mut Jobs<'_>, Instant),
    ) -> Vec<Sealed> {
        let Some(side) = self.lanes.get_mut(&lane) else { return Vec::new() };
        let mut input: Vec<Packet> = Vec::new();
        for bytes in packets {
            let mut packet = Packet::new(self.pool.alloc_copy(bytes).expect("all buffers are given back"));
            packet.outer = outer;
            input.push(packet);
        }
        let mut output = Batch::with_limit(256);
        let mut consumed = 0;
        let mut jobs = Jobs {
            input: &mut input,
            output: &mut output,
            pool: &mut self.pool,
            drops: &mut self.drops,
            consumed: &mut consumed,
        };
        job(&mut side.cable, &mut jobs, now);
        while side.cable.poll_event().is_some() {}
        assert!(input.is_empty(), "a lane leaves nothing of its input");
        let mut made = Vec::new();
        for packet in output.drain() {
            made.extend(messages(&packet).into_iter().map(|bytes| (packet.outer, bytes)));
            self.pool.recycle(packet.buf);
        }
        assert_eq!(self.pool.available(), SLOTS, "no buffer is lost");
        made
    }

    /// Timers of the engine and of all lanes. Lanes that were cut long ago go.
    pub(crate) fn timeouts(&mut self, now: Instant) {
        if let Some(engine) = &mut self.engine
            && engine.poll_timeout().is_some_and(|due| due <= now)
        {
            engine.handle_timeout(now);
        }
        for side in self.lanes.values_mut() {
            if side.cable.poll_timeout().is_some_and(|due| due <= now) {
                side.cable.handle_timeout(now, &mut self.drops);
            }
        }
        self.lanes.retain(|_, side| side.cut.is_none_or(|cut| now < cut + CUT_LANE));
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let engine = self.engine.as_ref().and_then(IkeEngine::poll_timeout);
        let lanes = self.lanes.values().filter_map(|side| side.cable.poll_timeout());
        engine.into_iter().chain(lanes).min()
    }

    /// What the engine wants to send, and the lanes to be woken.
    pub(crate) fn drain(&mut self) -> (Vec<Transmit>, Vec<LaneId>) {
        let Some(engine) = &mut self.engine else { return Default::default() };
        let transmits: Vec<Transmit> = std::iter::from_fn(|| engine.poll_transmit()).collect();
        let mut pokes = Vec::new();
        while let Some(event) = engine.poll_event() {
            match event {
                IkeEvent::Poke(lane) => pokes.push(lane),
                IkeEvent::Failed { reason, .. } | IkeEvent::ChildFailed { reason, .. } => {
                    self.failures.push(reason);
                }
                IkeEvent::Up { .. } | IkeEvent::Down { .. } => {}
            }
        }
        (transmits, pokes)
    }

    /// What the engine says of a peer.
    pub(crate) fn report(&self, peer: usize, now: Instant) -> Option<PeerReport> {
        let lane = self.lane_to(peer)?;
        self.engine.as_ref()?.report(now).into_iter().find(|report| report.lane == lane)
    }

    /// Packets that wait for keys.
    pub(crate) fn held(&self, now: Instant) -> u64 {
        self.lanes.values().map(|side| side.cable.stats(now).held).sum()
    }
}

impl LaneSide {
    fn note(&mut self, order: &LaneOrder) {
        match order {
            LaneOrder::Add(child) => {
                self.pairs.insert(child.inbound, (ChildSa::clone(child), false));
            }
            LaneOrder::Retire(spi) => {
                if let Some((_, is_retired)) = self.pairs.get_mut(spi) {
                    *is_retired = true;
                }
            }
            LaneOrder::Remove(spi) => {
                self.pairs.remove(spi);
            }
            LaneOrder::Expect(_)
            | LaneOrder::Abandon(_)
            | LaneOrder::Seal(_)
            | LaneOrder::Path(_)
            | LaneOrder::Down => {}
        }
    }
}

/// The messages or packets that a buffer holds.
fn messages(packet: &Packet) -> Vec<Vec<u8>> {
    let all = (0..usize::from(packet.layout.count)).filter(|index| match packet.layout.kind {
        LayoutKind::Packets => packet.layout.present >> index & 1 == 1,
        LayoutKind::Single | LayoutKind::Datagrams => true,
        LayoutKind::Tcp | LayoutKind::Udp => panic!("no lane makes {:?}", packet.layout.kind),
    });
    let slots = all.map(|index| {
        let (start, end) = packet.segment_range(index);
        packet.bytes()[start..end].to_vec()
    });
    if packet.layout.kind == LayoutKind::Packets {
        // A slot is as long as its message was; the packet in it says where it ends.
        return slots
            .map(|slot| slot[..usize::from(u16::from_be_bytes([slot[2], slot[3]]))].to_vec())
            .collect();
    }
    slots.collect()
}
