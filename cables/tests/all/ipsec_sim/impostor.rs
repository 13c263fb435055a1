//! Somebody who has the set's key and says that it is one of the others: a whole gateway, elsewhere, with another's Endpoint
//! and INITIAL_CONTACT. It begins again and again, and floods with the messages that it begins with. A guest of every
//! troubled world; nothing of what is claimed of that world excepts it.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use trieste_cables::ipsec::LaneOrder;
use trieste_cables::ipsec::ike::EngineConfig;
use trieste_cables::{Message, Site};
use trieste_packet::{LaneId, Outer};
use trieste_simulator::Random;

use super::gateway::{Gateway, Recipe};
use super::network::{Frame, Place};
use super::shape::{self, Shape};

/// Messages of a flood.
const FLOOD: usize = 40;

/// An Endpoint without settings: whoever has such a peer begins.
fn plain(site: Site) -> Site {
    Site { backend_config: BTreeMap::new(), ..site }
}

/// See the module.
pub(crate) struct Impostor {
    gateway: Gateway,
    /// Whom it says that it is.
    victim: usize,
    /// Of its own: what it does changes nothing that is drawn for the others.
    pub(crate) random: Random,
    /// The messages that it began with, and to whom.
    begun: Vec<(SocketAddr, Vec<u8>)>,
    /// What it has sent, and the tries that ended with a refusal.
    pub(crate) sent: u64,
    pub(crate) refusals: usize,
}

impl Impostor {
    pub(crate) fn new(shape: Shape, count: usize, seed: u64) -> Self {
        let mut random = Random::new(!seed);
        let victim = random.below(count);
        // It hurries.
        let config = EngineConfig { give_up: Duration::from_secs(10), ..shape::config() };
        let recipe = Recipe { site: plain(shape.site(victim, count)), config, is_wary: false };
        let own = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(198, 51, 100, 66)), 4500);
        let gateway = Gateway::new(recipe, Place { own, mapping: None }, 0x00b0_0000);
        Self { gateway, victim, random, begun: Vec::new(), sent: 0, refusals: 0 }
    }

    /// Tells whether an address is its own, at any port.
    pub(crate) fn takes(&self, address: SocketAddr) -> bool {
        address.ip() == self.gateway.place.ip()
    }

    /// Begins anew, without any memory, with all but whom it says that it is.
    pub(crate) fn begin(&mut self, gateways: &[Gateway], published: &[SocketAddr], now: Instant) {
        self.gateway.kill();
        self.gateway.start(&mut self.random, now);
        for (peer, gateway) in gateways.iter().enumerate().filter(|(peer, _)| *peer != self.victim) {
            self.gateway.connect(peer, &plain(gateway.recipe.site.clone()), published[peer], now);
        }
    }

    /// Repeats what it began with, as if others did, from many ports.
    pub(crate) fn flood(&mut self) -> Vec<Frame> {
        if self.begun.is_empty() {
            return Vec::new();
        }
        let frames = (0..FLOOD).map(|_| {
            let (destination, mut payload) = self.random.choose(&self.begun).clone();
            // Another initiator's SPI, behind the marker of four bytes.
            payload[4..12].copy_from_slice(&self.random.draw().to_be_bytes());
            let source = SocketAddr::new(self.gateway.place.ip(), self.random.between(1024, 65_535));
            Frame { source, destination, payload, is_forged: true }
        });
        let frames: Vec<Frame> = frames.collect();
        self.sent += FLOOD as u64;
        frames
    }

    /// Takes a frame; returns whether its inbox has to be read.
    pub(crate) fn arrive(&mut self, frame: &Frame, now: Instant) -> bool {
        let from = Outer { peer: frame.source, local: Some(self.gateway.place.ip()), tos: 0 };
        if !self.gateway.place.takes(frame.destination) {
            return false;
        }
        match self.gateway.classify(&frame.payload, &from) {
            Message::Negotiation => {
                self.gateway.admit(&frame.payload, &from, now);
                true
            }
            Message::Data(lane) => {
                let opened = self.gateway.open(lane, frame.payload.clone(), from, now);
                assert!(opened.is_empty(), "the impostor was sent a packet for whom it says that it is");
                false
            }
            Message::Control(_)
            | Message::Greeting
            | Message::Keepalive
            | Message::Stranger
            | Message::Unknown => false,
        }
    }

    pub(crate) fn read_inbox(&mut self, now: Instant) {
        self.gateway.read_inbox(now);
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.gateway.poll_timeout()
    }

    pub(crate) fn timeouts(&mut self, now: Instant) {
        self.gateway.timeouts(now);
    }

    /// What it sends.
    ///
    /// # Panics
    /// When somebody has let it in.
    pub(crate) fn frames(&mut self) -> Vec<Frame> {
        let (transmits, _) = self.gateway.drain();
        let lanes: Vec<LaneId> = self.gateway.lanes.keys().copied().collect();
        for lane in lanes {
            let is_in = |order: &LaneOrder| matches!(order, LaneOrder::Add(_));
            assert!(!self.gateway.relay(lane).iter().any(is_in), "the impostor has a child SA");
        }
        self.refusals += std::mem::take(&mut self.gateway.failures).len();
        let mut frames = Vec::new();
        for transmit in transmits {
            let Some(mut frame) = self.gateway.place.leave(transmit.outer.peer, transmit.payload) else {
                continue;
            };
            frame.is_forged = true;
            // An IKE_SA_INIT has no responder's SPI yet (RFC 7296 section 3.1).
            if frame.payload.get(12..20) == Some(&[0; 8]) && self.begun.len() < FLOOD {
                self.begun.push((frame.destination, frame.payload.clone()));
            }
            self.sent += 1;
            frames.push(frame);
        }
        frames
    }
}
