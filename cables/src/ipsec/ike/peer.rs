//! A peer as the engine knows it: what there is to be with it, and what there is.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use crossbeam::channel::Receiver;
use trieste_packet::{LaneId, Outer, TokenBucket};

use super::policy::{self, Mode, Plan};
use super::retransmit::Backoff;
use super::spis::SpiPool;
use super::{EngineConfig, PeerConfig};
use crate::boundary::Site;
use crate::ipsec::{EspPath, LaneLink, LaneNews, LaneOrder, Selectors, Spi};

/// A child SA that there is to be.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) selectors: Selectors,
    /// Those that are in use, newest last.
    pub(super) live: Vec<Spi>,
    /// Whether it is being asked for.
    pub(super) is_asked: bool,
    pub(super) backoff: Backoff,
    pub(super) error: Option<String>,
}

/// An IKE SA that there is to be.
#[derive(Debug)]
pub(super) struct Planned {
    pub(super) plan: Plan,
    pub(super) wanted: Vec<Wanted>,
    /// Our SPIs of those that are established, newest last.
    pub(super) sas: Vec<u64>,
    /// Our SPI of the attempt under way.
    pub(super) attempt: Option<u64>,
    /// Whether a new one is wanted although there is one: the peer has moved.
    pub(super) is_replaced: bool,
    pub(super) backoff: Backoff,
    /// IKE SAs and child SAs that the peer may ask for.
    pub(super) ike_requests: TokenBucket,
    pub(super) child_requests: TokenBucket,
}

/// A remote gateway.
pub(super) struct Peer {
    pub(super) config: PeerConfig,
    pub(super) mode: Mode,
    pub(super) is_trieste: bool,
    pub(super) link: LaneLink,
    pub(super) news: Receiver<LaneNews>,
    pub(super) planned: Vec<Planned>,
    pub(super) spis: SpiPool,
    pub(super) path: Option<EspPath>,
    pub(super) is_up: bool,
    /// Inbound halves that still open what is under way, and until when.
    pub(super) lingering: BTreeSet<(Instant, Spi)>,
    pub(super) handshakes: u64,
    pub(super) last_handshake: Option<Instant>,
    pub(super) last_keepalive: Instant,
    pub(super) error: Option<String>,
    /// Whether the lane has orders that its worker is to be woken for.
    pub(super) has_orders: bool,
}

impl Peer {
    /// One that nothing is done about yet. `start` says where its SPIs begin.
    pub(super) fn new(
        config: PeerConfig,
        link: LaneLink,
        news: Receiver<LaneNews>,
        settings: &EngineConfig,
        start: u8,
        now: Instant,
    ) -> Self {
        let mode = Mode::of(&config.local, &config.remote);
        let begin = if config.begins { now } else { now + courtesy(&config, mode, settings) };
        let planned = policy::plans(&config)
            .into_iter()
            .map(|plan| Planned {
                wanted: plan.children.iter().map(|selectors| Wanted::new(selectors.clone(), now)).collect(),
                plan,
                sas: Vec::new(),
                attempt: None,
                is_replaced: false,
                backoff: Backoff::new(begin),
                ike_requests: TokenBucket::new(settings.ike_requests, now),
                child_requests: TokenBucket::new(settings.child_requests, now),
            })
            .collect();
        Self {
            mode,
            is_trieste: policy::is_trieste(&config.local) && policy::is_trieste(&config.remote),
            spis: SpiPool::new(config.lane, start),
            config,
            link,
            news,
            planned,
            path: None,
            is_up: false,
            lingering: BTreeSet::new(),
            handshakes: 0,
            last_handshake: None,
            last_keepalive: now,
            error: None,
            has_orders: false,
        }
    }

    pub(super) fn lane(&self) -> LaneId {
        self.config.lane
    }

    /// How long we leave the first word to the peer.
    pub(super) fn courtesy(&self, settings: &EngineConfig) -> Duration {
        courtesy(&self.config, self.mode, settings)
    }

    /// Gives the lane an order; its worker is woken when the engine has done what it does.
    pub(super) fn order(&mut self, order: LaneOrder) {
        self.link.send(order);
        self.has_orders = true;
    }

    /// Says where packets go from here on, if that is new.
    pub(super) fn set_path(&mut self, path: EspPath) {
        if self.path != Some(path) {
            self.path = Some(path);
            self.order(LaneOrder::Path(path));
        }
    }

    /// Whether packets go through UDP whatever IKE finds.
    pub(super) fn is_encapsulated(&self) -> bool {
        self.is_trieste || self.config.uses_nat
    }

    /// Whether the peer is to be made to believe that there is a NAT. A Trieste gateway needs no such trick, and can then
    /// tell where NATs really are.
    pub(super) fn is_nat_feigned(&self) -> bool {
        self.config.uses_nat && !self.is_trieste
    }

    /// The address it is at, with the address of ours that it uses, if that is known.
    pub(super) fn outer(&self) -> Option<Outer> {
        let known = self.path.map(|path| path.outer);
        let local = known.and_then(|outer| outer.local);
        self.config.address.map(|peer| Outer { peer, local, tos: 0 })
    }

    /// Lists the addresses that it may send from: where it is reached, its own, and where it was last.
    pub(super) fn addresses(&self) -> impl Iterator<Item = IpAddr> + use<> {
        let chosen = self.config.address.map(|address| address.ip());
        let path = self.path.map(|path| path.outer.peer.ip());
        let Site { private_ip, public_ip, .. } = self.config.remote;
        [chosen, Some(private_ip), public_ip, path].into_iter().flatten()
    }

    /// Tells whether it proves who it is by a key that nobody else has, wherever it is.
    pub(super) fn has_pair_key(&self) -> bool {
        self.config.pair_key.is_some()
    }

    /// Tells whether it may be at this address.
    pub(super) fn is_at(&self, address: IpAddr) -> bool {
        self.addresses().any(|known| known.to_canonical() == address.to_canonical())
    }

    /// Our address as the peer sees it if nothing is in between.
    pub(super) fn local_address(&self, outer: &Outer, port: u16) -> SocketAddr {
        SocketAddr::new(outer.local.unwrap_or(self.config.local.private_ip), port)
    }

    /// Whether a pair is the one that is sealed with for something.
    pub(super) fn is_newest(&self, plan: usize, spi: Spi) -> bool {
        let planned = self.planned.get(plan);
        planned.is_some_and(|planned| planned.wanted.iter().any(|wanted| wanted.live.last() == Some(&spi)))
    }

    /// Whether any pair is in use.
    pub(super) fn has_children(&self) -> bool {
        self.planned.iter().any(|planned| planned.wanted.iter().any(|wanted| !wanted.live.is_empty()))
    }
}

impl Wanted {
    fn new(selectors: Selectors, now: Instant) -> Self {
        Self { selectors, live: Vec::new(), is_asked: false, backoff: Backoff::new(now), error: None }
    }
}

/// Of two that both begin, the one with the greater name lets the other one begin.
fn courtesy(config: &PeerConfig, mode: Mode, settings: &EngineConfig) -> Duration {
    let is_greater = config.local.cable_name > config.remote.cable_name;
    if mode == Mode::Bidirectional && is_greater { settings.courtesy } else { Duration::ZERO }
}
