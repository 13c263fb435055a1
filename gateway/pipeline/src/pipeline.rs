//! One worker's packet path: its state and what drives it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use arc_swap::cache::Cache;
use trieste_cables::{CableEvent, Gate, Jobs, Transmit};
use trieste_nat::{Config as NatConfig, Limits, Nat};
use trieste_packet::wire::Inner;
use trieste_packet::{Batch, CableId, DropReason, Drops, LaneId, Packet, Pool, PoolConfig, WorkerId};

use crate::answers::IcmpLimiter;
use crate::board::Board;
use crate::counters::Counters;
use crate::flow::Flows;
use crate::globalnet::{Copier, EXPIRY_PER_TIMEOUT, Fleet, Flow, Translator, View};
use crate::health;
use crate::lanes::{LaneCommand, LaneReport, Lanes, Slot, Totals, earliest};
use crate::owner::Handoff;
use crate::services::Delivery;
use crate::tables::Tables;
use crate::tap::{Point, Tap};
use crate::watching::Schedule;

/// Most packets that one inbound batch can become: 16 received trains of 64 segments, with room for errors made.
const OUTPUT_LIMIT: usize = 2048;
/// Most events kept for the control plane; a newer one pushes the oldest out. Ours: two for each of 500 lanes that
/// come up at once.
const EVENT_LIMIT: usize = 1024;
/// Control datagrams per call that lanes send of their own accord: greetings, keepalives. Ours: far less than there
/// are buffers, and with [`TIMER_SLACK`] thousands a second, so that 800 cables are greeted in a quarter of a second.
const CONTROL_BURST: u64 = 32;
/// How far timers of lanes may be late: those that are due together are looked at together. Ours: the finest is
/// 250 ms.
const TIMER_SLACK: Duration = Duration::from_millis(10);

/// What a pipeline is made of.
#[derive(Debug, Clone)]
pub struct Config {
    /// This worker.
    pub worker: WorkerId,
    /// Number of workers; lanes that name others do not exist.
    pub workers: u16,
    /// Buffers.
    pub pool: PoolConfig,
    /// Keys the hash of the flow table. Random, and not known outside.
    pub seed: u64,
    /// Timers and limits of globalnet's translation; nothing is allocated before there are rules.
    pub nat: NatConfig,
    /// How paths are probed.
    pub health: health::Config,
    /// What is known of all paths; one for all workers.
    pub board: Arc<Board>,
    /// What is known of the other gateways of the cluster; one for all workers.
    pub fleet: Arc<Fleet>,
}

/// The packet path of one worker. Drive it with [`Self::outbound`], [`Self::inbound`], [`Self::handed_over`] and
/// [`Self::handle_timeout`], and send what is in [`Self::to_wire`], [`Self::to_tun`] and [`Self::to_workers`] after
/// each of them.
pub struct Pipeline {
    pub(crate) config: Config,
    pub(crate) tables: Cache<Arc<ArcSwap<Tables>>, Arc<Tables>>,
    pub(crate) flows: Flows,
    /// Number of what decisions were made by last: tables and states of paths. Grows when either changes.
    pub(crate) version: u64,
    /// Epoch of the tables and generations of board and fleet that `version` stands for.
    decided_by: (u64, u64, u64),
    /// Who of the cluster's gateways owns which translation.
    pub(crate) view: View,
    /// There as long as there are siblings and rules.
    pub(crate) copier: Option<Box<Copier>>,
    /// There once the tables have had rules.
    pub(crate) translator: Option<Box<Translator>>,
    /// There where packets for services go straight to the nodes that serve them.
    pub(crate) delivery: Option<Box<Delivery>>,
    pub(crate) lanes: Lanes,
    pub(crate) gate: Box<dyn Gate>,
    pub(crate) limiter: IcmpLimiter,
    pub(crate) tap: Option<Box<dyn Tap>>,
    pub(crate) events: VecDeque<(LaneId, CableEvent)>,
    pub(crate) headers: Vec<Inner>,
    /// With globalnet, what is known of each packet of a batch, side by side with `headers`.
    pub(crate) known: Vec<Flow>,
    /// Packets of other workers, and of our own that go back inside, that are to be translated here.
    pub(crate) arrivals: Vec<Handoff>,
    /// Fragments that their first has released.
    pub(crate) released: Vec<Packet>,
    /// Packets between two batches.
    pub(crate) loose: Vec<Packet>,
    /// Packets that siblings pass on, and their headers.
    pub(crate) relayed: Batch,
    pub(crate) relayed_headers: Vec<Inner>,
    pub(crate) ready: Vec<Packet>,
    pub(crate) group: Vec<Packet>,
    pub(crate) opened: Batch,
    pub(crate) inner: Batch,
    /// When paths are to be probed.
    pub(crate) schedule: Schedule,
    looked: usize,
    /// Control datagrams since the last [`Self::handle_timeout`], by lanes that were asked in turn.
    paced: u64,
    /// When timers were last looked at.
    timed: Instant,
    /// Buffers of this worker.
    pub pool: Pool,
    /// Drop counters.
    pub drops: Drops,
    /// The other counters.
    pub counters: Counters,
    /// Datagrams to send.
    pub to_wire: Batch,
    /// Packets to deliver.
    pub to_tun: Batch,
    /// Packets that other workers own.
    pub to_workers: Vec<Handoff>,
}

impl Pipeline {
    /// A pipeline without lanes.
    #[must_use]
    pub fn new(config: Config, tables: Arc<ArcSwap<Tables>>, gate: Box<dyn Gate>, now: Instant) -> Self {
        Self {
            flows: Flows::new(config.seed),
            version: 0,
            decided_by: (0, 0, 0),
            view: View::alone(),
            copier: None,
            translator: None,
            delivery: None,
            pool: Pool::new(config.pool),
            config,
            tables: Cache::new(tables),
            lanes: Lanes::default(),
            gate,
            limiter: IcmpLimiter::new(now),
            tap: None,
            events: VecDeque::with_capacity(EVENT_LIMIT),
            headers: Vec::with_capacity(OUTPUT_LIMIT),
            known: Vec::new(),
            arrivals: Vec::new(),
            released: Vec::new(),
            loose: Vec::new(),
            relayed: Batch::with_limit(OUTPUT_LIMIT),
            relayed_headers: Vec::new(),
            ready: Vec::with_capacity(OUTPUT_LIMIT),
            group: Vec::with_capacity(OUTPUT_LIMIT),
            opened: Batch::with_limit(OUTPUT_LIMIT),
            inner: Batch::with_limit(OUTPUT_LIMIT),
            looked: 0,
            schedule: Schedule::new(now),
            paced: 0,
            timed: now,
            drops: Drops::default(),
            counters: Counters::default(),
            to_wire: Batch::with_limit(OUTPUT_LIMIT),
            to_tun: Batch::with_limit(OUTPUT_LIMIT),
            to_workers: Vec::with_capacity(OUTPUT_LIMIT),
        }
    }

    /// The tables that a batch is decided by. Looks whether decisions made before still hold.
    pub(crate) fn begin(&mut self, now: Instant) -> Arc<Tables> {
        let tables = Arc::clone(self.tables.load());
        self.look_at_siblings(&tables, now);
        let newest = (tables.epoch(), self.config.board.generation(), self.config.fleet.generation());
        if self.decided_by != newest {
            self.decided_by = newest;
            self.version += 1;
        }
        tables
    }

    /// Does what the control plane says about lanes.
    pub fn command(&mut self, command: LaneCommand, now: Instant) {
        match command {
            LaneCommand::Add { lane, cable, tunnel, watch } => {
                if let Some(mut replaced) = self.lanes.insert(Slot::new(lane, cable, tunnel, now)) {
                    let entry = replaced.watching.as_mut().map(|watching| &mut watching.entry);
                    self.schedule.remove(lane, entry);
                    self.retire(&replaced, now);
                }
                self.set_watch(lane, watch, now);
                self.service_in_turn(lane, now);
            }
            LaneCommand::Drain { lane, until } => {
                // Before its cable's number may be another's.
                self.set_watch(lane, None, now);
                if let Some(slot) = self.lanes.find(lane) {
                    slot.ends = Some(until);
                }
                self.lanes.set_timer(lane);
            }
            LaneCommand::SetPeer { lane, peer } => {
                if let Some(slot) = self.lanes.find(lane) {
                    slot.tunnel.set_peer(peer, now);
                    self.service_in_turn(lane, now);
                }
            }
            LaneCommand::Look { lane } => {
                if let Some(slot) = self.lanes.find(lane) {
                    slot.tunnel.handle_timeout(now, &mut self.drops);
                    self.service(lane, now);
                    self.open_early(lane, now);
                }
            }
            LaneCommand::Watch { lane, watch } => self.set_watch(lane, watch, now),
            LaneCommand::Draining(is_draining) => self.set_draining(is_draining, now),
            LaneCommand::Rekey { lane } => {
                if let Some(slot) = self.lanes.find(lane) {
                    slot.tunnel.rekey(now);
                    self.service_in_turn(lane, now);
                }
            }
        }
    }

    /// Queues a datagram of the slow half that all cables share.
    pub fn transmit(&mut self, transmit: &Transmit) {
        self.counters.made += 1;
        self.counters.control_out += 1;
        let Transmit { payload, outer } = transmit;
        send_control(payload, *outer, CableId(0), &mut self.to_wire, &mut self.pool, &mut self.drops);
    }

    /// Does what is due: probes, timers of lanes and gate, lanes whose time is over.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.handle_probes(now);
        self.gate.handle_timeout(now);
        self.timed = now;
        let due = self.lanes.take_due(now);
        for &lane in &due {
            self.handle_lane_timeout(lane, now);
        }
        self.paced = 0;
        while self.paced < CONTROL_BURST
            && let Some(lane) = self.lanes.dequeue()
        {
            self.service_in_turn(lane, now);
        }
        for &lane in &due {
            self.open_early(lane, now);
        }
        self.lanes.due = due;
        self.expire_translations(EXPIRY_PER_TIMEOUT, now);
        self.answer_unsolicited(now);
        self.seal_ready(now);
        self.tell_siblings(now);
    }

    /// Calls one lane's timers, and removes it if its time is over.
    fn handle_lane_timeout(&mut self, lane: LaneId, now: Instant) {
        let Some(slot) = self.lanes.find(lane) else { return };
        slot.tunnel.handle_timeout(now, &mut self.drops);
        match self.lanes.take_ended(lane, now) {
            Some(ended) => self.retire(&ended, now),
            None => {
                self.lanes.set_timer(lane);
                self.lanes.enqueue(lane);
            }
        }
    }

    /// When [`Self::handle_timeout`] wants to be called next, but for probes ([`Self::poll_probes`]).
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let soon = self.timed + TIMER_SLACK;
        let translator = self.translator.as_ref().and_then(|translator| translator.poll_timeout());
        let copier = self.copier.as_ref().and_then(|copier| copier.poll_timeout(self.timed));
        earliest(earliest(self.poll_lanes(), translator), copier).map(|due| due.max(soon))
    }

    /// Returns when a lane wants [`Self::handle_timeout`] to be called next. Cheap enough to be asked after every batch, which may
    /// bring the time forward.
    #[must_use]
    pub fn poll_lanes(&self) -> Option<Instant> {
        let soon = self.timed + TIMER_SLACK;
        if self.lanes.has_queued() {
            return Some(soon);
        }
        self.lanes.poll_timeout().map(|due| due.max(soon))
    }

    /// The translation of globalnet, once there is any: for metrics, and to carry its sessions over a restart.
    #[must_use]
    pub fn nat(&self) -> Option<&Nat> {
        self.translator.as_ref().map(|translator| &translator.nat)
    }

    /// The same, to take changes from and to restore sessions to; begins it if need be.
    pub fn nat_mut(&mut self, now: Instant) -> &mut Nat {
        &mut self.begin_translating(now).nat
    }

    /// Translates by other timers and limits from now on ([`Nat::set_config`]); the sizes of tables stay as at the start, also
    /// where none is there yet.
    pub fn set_nat(&mut self, config: NatConfig) {
        let Limits { sessions, changes, unsolicited, .. } = self.config.nat.limits;
        let limits = Limits { sessions, changes, unsolicited, ..config.limits };
        self.config.nat = NatConfig { limits, ..config };
        if let Some(translator) = &mut self.translator {
            translator.nat.set_config(self.config.nat);
        }
    }

    /// Begins to translate, if that has not happened yet. Allocates once.
    pub(crate) fn begin_translating(&mut self, now: Instant) -> &mut Translator {
        let config = &self.config;
        let begin = || Box::new(Translator::new(config.nat, config.seed, now));
        self.translator.get_or_insert_with(begin)
    }

    /// The next event of a lane, for the control plane.
    pub fn poll_event(&mut self) -> Option<(LaneId, CableEvent)> {
        self.events.pop_front()
    }

    /// What is known of all paths.
    #[must_use]
    pub fn board(&self) -> &Arc<Board> {
        &self.config.board
    }

    /// The state of all lanes.
    pub fn reports(&self, now: Instant) -> impl Iterator<Item = LaneReport> + '_ {
        self.lanes.iter().map(move |slot| slot.report(now, &self.schedule.awake))
    }

    /// Brings the reports of all lanes up to date, in a list that nobody else changes, and returns the counters. Costs what has
    /// happened to lanes since the last call, and once a second what lanes there are.
    pub fn publish(&mut self, reports: &mut Vec<LaneReport>, now: Instant) -> Counters {
        let awake = &self.schedule.awake;
        let totals = self.lanes.update_reports(reports, now, |slot| slot.report(now, awake));
        self.counters_with(totals)
    }

    /// The counters, with what is held at present.
    #[must_use]
    pub fn snapshot(&self, now: Instant) -> Counters {
        self.counters_with(self.lanes.totals(now))
    }

    fn counters_with(&self, lanes: Totals) -> Counters {
        let queued = self.to_wire.segments() + self.to_tun.segments();
        Counters {
            dropped: self.drops.total(),
            held: lanes.held + queued + self.waiting_fragments(),
            silent_lanes: lanes.silent,
            deferred_attempts: self.counters.deferred_attempts + lanes.deferred,
            flows: self.flows.len() as u64 + self.translated_flows(),
            ..self.counters
        }
    }

    /// Begins or ends a capture.
    pub fn set_tap(&mut self, tap: Option<Box<dyn Tap>>) {
        self.tap = tap;
    }

    /// Comes back after a panic somewhere in the line: what was in the hands of a stage is dropped and counted,
    /// the flow caches are emptied, lanes keep their keys and translations their sessions.
    pub fn recover(&mut self, now: Instant) {
        self.headers.clear();
        self.ready.clear();
        self.group.clear();
        self.known.clear();
        self.arrivals.clear();
        self.released.clear();
        self.loose.clear();
        self.relayed = Batch::with_limit(OUTPUT_LIMIT);
        self.opened.drain();
        self.inner = Batch::with_limit(OUTPUT_LIMIT);
        if let Some(translator) = &mut self.translator {
            translator.memo.clear();
        }
        self.looked = self.looked.min(self.to_wire.len());
        self.flows.clear();
        if let Some(delivery) = &mut self.delivery {
            delivery.clear();
        }
        let balance = self.snapshot(now).conservation();
        let lost =
            (balance.input + balance.made).saturating_sub(balance.output + balance.held + balance.dropped);
        self.drops.count(CableId(0), DropReason::WorkerPanic, lost);
    }

    /// Counts what goes with a lane that ends.
    fn retire(&mut self, slot: &Slot, now: Instant) {
        let stats = slot.tunnel.stats(now);
        self.drops.count(slot.cable, DropReason::HeldExpired, stats.held);
        self.counters.deferred_attempts += stats.deferred;
    }

    /// Serves a lane as [`Self::service`] does, for what it sends unasked. When many lanes want to send at once, it waits for
    /// its turn.
    fn service_in_turn(&mut self, lane: LaneId, now: Instant) {
        if self.paced >= CONTROL_BURST {
            self.lanes.enqueue(lane);
            return;
        }
        let before = self.counters.control_out;
        self.service(lane, now);
        self.paced += self.counters.control_out - before;
    }

    /// Takes out of a lane's slow half what it wants sent, and seals what waited when its keys have come.
    pub(crate) fn service(&mut self, lane: LaneId, now: Instant) {
        let Some(slot) = self.lanes.find(lane) else { return };
        let cable = slot.cable;
        let mut is_up = false;
        while let Some(event) = slot.tunnel.poll_event() {
            is_up |= event == CableEvent::LaneUp;
            if self.events.len() == EVENT_LIMIT {
                self.events.pop_front();
            }
            self.events.push_back((lane, event));
        }
        while let Some(transmit) = slot.tunnel.poll_transmit() {
            let Transmit { payload, outer } = transmit;
            self.counters.made += 1;
            self.counters.control_out += 1;
            send_control(&payload, outer, cable, &mut self.to_wire, &mut self.pool, &mut self.drops);
        }
        if is_up {
            // Not `self.group`: in the middle of a batch it holds another lane's datagrams.
            let mut nothing = Vec::new();
            let mut jobs = Jobs {
                input: &mut nothing,
                output: &mut self.to_wire,
                pool: &mut self.pool,
                drops: &mut self.drops,
                consumed: &mut self.counters.control_in,
            };
            slot.tunnel.seal(&mut jobs, now);
            if let Some(watching) = slot.watching.as_deref_mut() {
                self.schedule.hasten(lane, watching, now);
            }
        }
        if slot.is_called_late() {
            self.lanes.set_timer(lane);
        }
    }

    /// Opens and delivers what came for a lane before its keys did, if it has got them.
    fn open_early(&mut self, lane: LaneId, now: Instant) {
        while self.lanes.find(lane).is_some_and(|slot| slot.tunnel.has_openable()) {
            self.open(lane, &mut Vec::new(), now);
            self.handed_over(std::iter::empty(), now);
        }
    }

    /// Shows what is about to be sent to the capture. To be called before every attempt to send
    /// [`Self::to_wire`], and followed by [`Self::sent`].
    pub fn look_outgoing(&mut self, now: Instant) {
        let fresh = &self.to_wire.as_slice()[self.looked..];
        Self::look(&mut self.tap, Point::OuterTx, fresh, now);
    }

    /// Counts what has gone out of [`Self::to_wire`]; what is left in it has been looked at.
    pub fn sent(&mut self, packets: u64) {
        self.counters.wire_out += packets;
        self.looked = self.to_wire.len();
    }

    /// Shows a batch to the capture, if there is one.
    pub(crate) fn look(tap: &mut Option<Box<dyn Tap>>, point: Point, packets: &[Packet], now: Instant) {
        if let Some(tap) = tap {
            for packet in packets {
                let outer = matches!(point, Point::OuterRx | Point::OuterTx).then_some(&packet.outer);
                tap.see(point, packet, outer, now);
            }
        }
    }
}

/// Queues a control datagram.
pub(crate) fn send_control(
    payload: &[u8],
    outer: trieste_packet::Outer,
    cable: CableId,
    to_wire: &mut Batch,
    pool: &mut Pool,
    drops: &mut Drops,
) {
    let Some(buf) = pool.alloc_copy(payload) else {
        drops.count(cable, DropReason::NoBuffer, 1);
        return;
    };
    let mut packet = Packet::new(buf);
    packet.outer = outer;
    packet.decision.cable = cable;
    if let Err(packet) = to_wire.push(packet) {
        drops.discard(packet, DropReason::SocketFull, pool);
    }
}
