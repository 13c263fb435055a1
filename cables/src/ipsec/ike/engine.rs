//! The engine: all IKE SAs of a gateway.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rand_core::CryptoRngCore;
use trieste_packet::{LaneId, Outer};

use super::config::MARKER_BYTES;
use super::half_open::HalfOpenTable;
use super::init::Attempt;
use super::peer::{Peer, Planned};
use super::sa::IkeSa;
use super::{EngineConfig, EngineLoad, IkeEvent, Input};
use crate::attempts::AttemptBudget;
use crate::boundary::Transmit;

/// Most datagrams and events that wait to be fetched. The shell fetches all after every call.
const QUEUE_LIMIT: usize = 4096;
/// Bytes of nonces that we make: as many as the longest PRF's key has (RFC 7296 section 2.10: at least half of that).
const NONCE_BYTES: usize = 32;
/// How often everything is looked at that needs no better timing: news, meters, rekeying, signs of life.
const TICK: Duration = Duration::from_millis(500);

/// IKEv2 for all peers of a gateway. No IO, no clock, no randomness but what it is given.
///
/// Call order: any `handle_*`, then `poll_transmit` and `poll_event` until they return `None`, then `poll_timeout` for
/// when to call `handle_timeout`. Orders to lanes are sent before the message that makes the peer use them is queued.
pub struct IkeEngine {
    pub(super) config: EngineConfig,
    pub(super) rng: Box<dyn CryptoRngCore + Send>,
    pub(super) load: Arc<EngineLoad>,
    /// What attempts at peers that do not answer share.
    pub(super) budget: Arc<AttemptBudget>,
    pub(super) peers: BTreeMap<LaneId, Peer>,
    pub(super) half_open: HalfOpenTable,
    /// IKE_SA_INITs of ours that are not answered, by our SPI.
    pub(super) attempts: BTreeMap<u64, Attempt>,
    /// By our SPI. One that is worked on is taken out meanwhile.
    pub(super) sas: BTreeMap<u64, IkeSa>,
    transmits: VecDeque<Transmit>,
    events: VecDeque<IkeEvent>,
    next_tick: Instant,
}

impl IkeEngine {
    /// An engine without peers.
    #[must_use]
    pub fn new(config: EngineConfig, rng: Box<dyn CryptoRngCore + Send>, now: Instant) -> Self {
        Self {
            config,
            rng,
            load: Arc::default(),
            budget: AttemptBudget::new(now),
            peers: BTreeMap::new(),
            half_open: HalfOpenTable::default(),
            attempts: BTreeMap::new(),
            sas: BTreeMap::new(),
            transmits: VecDeque::new(),
            events: VecDeque::new(),
            next_tick: now + TICK,
        }
    }

    /// Goes by the times and amounts of another configuration from now on. An SA that there is keeps those that it was made
    /// with; what is proposed, and the secret, stay.
    pub fn take_times(&mut self, newer: &EngineConfig) {
        self.config.take_times(newer);
    }

    /// Takes what the inbox carries.
    pub fn handle_input(&mut self, input: Input, now: Instant) {
        match input {
            Input::Datagram { message, from } => self.receive(&message, from, now),
            Input::Connect(config, link, news) => self.connect(*config, link, news, now),
            Input::Disconnect(lane) => self.disconnect(lane, now),
            Input::SetAddress(lane, address) => self.set_address(lane, address, now),
            Input::SetNetworks { lane, local, remote } => self.set_networks(lane, local, remote, now),
            Input::Rekey(lane) => self.rekey(lane, now),
        }
        self.poke();
    }

    /// Does what is due. Also reads the lanes' news and meters, about once a second.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.retransmit(now);
        if now >= self.next_tick {
            self.next_tick = now + TICK;
            self.tick(now);
        }
        self.poke();
    }

    /// When `handle_timeout` wants to be called next.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let attempts = self.attempts.values().map(|attempt| attempt.timer.deadline());
        let sas = self.sas.values().flat_map(|sa| {
            let pending = sa.pending.as_ref().map(|pending| pending.timer.deadline());
            pending.into_iter().chain(sa.children.values().filter_map(|child| child.seal_at))
        });
        let is_idle = self.peers.is_empty() && self.sas.is_empty() && self.half_open.len() == 0;
        let tick = (!is_idle).then_some(self.next_tick);
        attempts.chain(sas).chain(tick).min()
    }

    /// The next datagram to send, if any; IKE messages have the non-ESP marker.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        self.transmits.pop_front()
    }

    /// The next thing that happened, if any.
    pub fn poll_event(&mut self) -> Option<IkeEvent> {
        self.events.pop_front()
    }

    /// How busy it is.
    #[must_use]
    pub fn load(&self) -> Arc<EngineLoad> {
        Arc::clone(&self.load)
    }

    /// Returns one of the IKE SAs that there are to be with a peer.
    pub(super) fn planned_mut(&mut self, lane: Option<LaneId>, plan: usize) -> Option<&mut Planned> {
        self.peers.get_mut(&lane?)?.planned.get_mut(plan)
    }

    /// Queues messages, with the marker in front.
    pub(super) fn transmit(&mut self, messages: &[Vec<u8>], outer: Outer) {
        for message in messages {
            self.transmit_raw([&[0; MARKER_BYTES], message.as_slice()].concat(), outer);
        }
    }

    /// Queues a datagram as it is.
    pub(super) fn transmit_raw(&mut self, payload: Vec<u8>, outer: Outer) {
        if self.transmits.len() < QUEUE_LIMIT {
            self.transmits.push_back(Transmit { payload, outer: Outer { tos: 0, ..outer } });
        }
    }

    pub(super) fn tell(&mut self, event: IkeEvent) {
        if self.events.len() < QUEUE_LIMIT {
            self.events.push_back(event);
        }
    }

    /// Has the workers of lanes woken that have orders, and the gates see what there is.
    fn poke(&mut self) {
        let lanes: Vec<LaneId> = self
            .peers
            .values_mut()
            .filter_map(|peer| std::mem::take(&mut peer.has_orders).then(|| peer.lane()))
            .collect();
        lanes.into_iter().for_each(|lane| self.tell(IkeEvent::Poke(lane)));
        let half_open = u64::try_from(self.half_open.len()).unwrap_or(u64::MAX);
        self.load.half_open.store(half_open, Ordering::Relaxed);
        self.publish_directory();
    }

    pub(super) fn nonce(&mut self) -> Vec<u8> {
        let mut nonce = vec![0; NONCE_BYTES];
        self.rng.fill_bytes(&mut nonce);
        nonce
    }

    /// An SPI for an IKE SA: not 0, and not in use.
    pub(super) fn new_spi(&mut self) -> u64 {
        loop {
            let spi = self.rng.next_u64();
            let is_used = self.sas.contains_key(&spi) || self.attempts.contains_key(&spi);
            if spi != 0 && !is_used && self.half_open.get(spi).is_none() {
                return spi;
            }
        }
    }

    /// A moment up to [`EngineConfig::jitter_percent`] before `now + span`.
    pub(super) fn jittered(&mut self, span: Duration, now: Instant) -> Instant {
        let most = span * self.config.jitter_percent.min(100) / 100;
        now + span.saturating_sub(self.random_up_to(most))
    }

    pub(super) fn random_up_to(&mut self, most: Duration) -> Duration {
        let millis = u64::try_from(most.as_millis()).unwrap_or(u64::MAX).max(1);
        Duration::from_millis(self.rng.next_u64() % millis)
    }
}
