//! The engine: all IKE SAs of a gateway.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use crossbeam::channel::Receiver;
use rand_core::CryptoRngCore;
use trieste_packet::LaneId;

use super::{EngineConfig, EngineLoad, IkeEvent, Input, PeerConfig, PeerReport, SaSecrets};
use crate::boundary::Transmit;
use crate::ipsec::{LaneLink, LaneNews};

/// A peer and the way to its lane.
struct Peer {
    config: PeerConfig,
    _link: LaneLink,
    _news: Receiver<LaneNews>,
}

/// IKEv2 for all peers of a gateway. No IO, no clock, no randomness but what it is given.
///
/// Call order: any `handle_*`, then `poll_transmit` and `poll_event` until they return `None`, then `poll_timeout` for
/// when to call `handle_timeout`. Orders to lanes are sent before the message that makes the peer use them is queued.
pub struct IkeEngine {
    _config: EngineConfig,
    _rng: Box<dyn CryptoRngCore + Send>,
    load: Arc<EngineLoad>,
    peers: BTreeMap<LaneId, Peer>,
    transmits: VecDeque<Transmit>,
    events: VecDeque<IkeEvent>,
}

impl IkeEngine {
    /// An engine without peers.
    #[must_use]
    pub fn new(config: EngineConfig, rng: Box<dyn CryptoRngCore + Send>, _now: Instant) -> Self {
        Self {
            _config: config,
            _rng: rng,
            load: Arc::default(),
            peers: BTreeMap::new(),
            transmits: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// Takes what the inbox carries.
    pub fn handle_input(&mut self, input: Input, _now: Instant) {
        match input {
            Input::Connect(config, link, news) => {
                self.peers.insert(config.lane, Peer { config: *config, _link: link, _news: news });
            }
            Input::Disconnect(lane) => {
                self.peers.remove(&lane);
            }
            Input::Datagram { .. } | Input::SetAddress(..) | Input::Rekey(_) => {}
        }
    }

    /// Does what is due. Also reads the lanes' news and meters, about once a second.
    pub fn handle_timeout(&mut self, _now: Instant) {}

    /// When `handle_timeout` wants to be called next.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// The next datagram to send, if any; IKE messages have the non-ESP marker.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        self.transmits.pop_front()
    }

    /// The next thing that happened, if any.
    pub fn poll_event(&mut self) -> Option<IkeEvent> {
        self.events.pop_front()
    }

    /// What is known of every peer, in the order of their lanes.
    #[must_use]
    pub fn report(&self, _now: Instant) -> Vec<PeerReport> {
        self.peers
            .values()
            .map(|peer| PeerReport {
                lane: peer.config.lane,
                name: peer.config.name.clone(),
                mode: "bidirectional",
                is_trieste: false,
                is_up: false,
                address: peer.config.address,
                encapsulation: None,
                handshake_age: None,
                handshakes: 0,
                ikes: Vec::new(),
                children: Vec::new(),
                error: None,
            })
            .collect()
    }

    /// The keys of all SAs, for captures.
    #[must_use]
    pub fn secrets(&self) -> Vec<SaSecrets> {
        Vec::new()
    }

    /// How busy it is.
    #[must_use]
    pub fn load(&self) -> Arc<EngineLoad> {
        Arc::clone(&self.load)
    }
}
