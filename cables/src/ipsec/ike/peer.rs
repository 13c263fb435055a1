//! A peer as the engine knows it: what there is to be with it, and what there is.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use crossbeam::channel::Receiver;
use ipnet::IpNet;
use trieste_packet::{LaneId, Outer, TokenBucket};

use super::child::Child;
use super::policy::{self, Mode, Plan};
use super::retransmit::Backoff;
use super::spis::SpiPool;
use super::{EngineConfig, PeerConfig};
use crate::attempts::{AttemptTimer, Due, NEW_FOR};
use crate::boundary::Site;
use crate::ipsec::announced::is_trieste;
use crate::ipsec::{EspPath, LaneLink, LaneNews, LaneOrder, Selectors, Spi};

/// How long networks may be missing in a child SA before the peer is asked for them, first and at most: each time that it still has
/// fewer, twice as long. Ours.
const COMPARE_AFTER: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(3600));

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
    /// How often it has become another one.
    pub(super) version: u32,
    /// The version that child SAs have to be of: those of an earlier one are renewed.
    pub(super) least_version: u32,
    /// Whether the peer has asked for networks that are not of the plan, the last time that it asked.
    pub(super) has_narrowed: bool,
    /// When the child SA in use is compared with the plan next, and how long after that.
    pub(super) compare_at: Instant,
    pub(super) compare_after: Duration,
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
    /// When it is tried while it has been silent for long.
    pub(super) attempts: AttemptTimer,
    /// Since when there has been no IKE SA, if there is none: when the cable was made, the peer moved, or the last was lost.
    pub(super) lost: Instant,
    /// Whether the lane has orders that its worker is to be woken for.
    pub(super) has_orders: bool,
}

impl Peer {
    /// Makes one that nothing is done about yet. `start` says where its SPIs begin.
    pub(super) fn new(
        config: PeerConfig,
        (link, news): (LaneLink, Receiver<LaneNews>),
        settings: &EngineConfig,
        start: u8,
        attempts: AttemptTimer,
        now: Instant,
    ) -> Self {
        let mode = Mode::of(&config.local, &config.remote);
        let begin = if config.begins { now } else { now + courtesy(&config, mode, settings) };
        let planned = policy::plans(&config)
            .into_iter()
            .map(|plan| Planned {
                wanted: plan.children.iter().map(|selectors| Wanted::new(selectors.clone(), now)).collect(),
                plan,
                version: 0,
                least_version: 0,
                has_narrowed: false,
                compare_at: now + COMPARE_AFTER.0,
                compare_after: COMPARE_AFTER.0,
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
            is_trieste: is_trieste(&config.local) && is_trieste(&config.remote),
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
            attempts,
            lost: now,
            has_orders: false,
        }
    }

    /// Takes other networks at the ends of a cable between Trieste gateways; returns `true` if other child SAs are to be asked for.
    /// A cable to another gateway is made anew.
    ///
    /// Whose networks have changed has taken them before the other end learns of it, so it is the other end that asks: until then
    /// nothing is lost by child SAs for the former ones, and afterwards one exchange is enough. Otherwise only an end asks that has
    /// refused a part of what its peer has asked for.
    pub(super) fn set_networks(&mut self, local: Vec<IpNet>, remote: Vec<IpNet>, now: Instant) -> bool {
        if !self.is_trieste {
            return false;
        }
        let is_theirs = self.config.remote.subnets != remote;
        (self.config.local.subnets, self.config.remote.subnets) = (local, remote);
        let mut has_to_ask = false;
        for (planned, plan) in self.planned.iter_mut().zip(policy::plans(&self.config)) {
            if planned.plan == plan {
                continue;
            }
            for (wanted, selectors) in planned.wanted.iter_mut().zip(&plan.children) {
                wanted.selectors = selectors.clone();
                wanted.error = None;
                wanted.backoff.reset(now);
            }
            planned.plan = plan;
            planned.version += 1;
            (planned.compare_at, planned.compare_after) = (now + COMPARE_AFTER.0, COMPARE_AFTER.0);
            if std::mem::take(&mut planned.has_narrowed) || is_theirs {
                planned.least_version = planned.version;
                has_to_ask = true;
            }
        }
        has_to_ask
    }

    /// Compares the child SA in use with the plan when that is due, and has it renewed if it lacks a network: one that both ends have
    /// may be missing where an end has changed forth and back before the other one learnt of it.
    pub(super) fn compare(&mut self, plan: usize, children: &BTreeMap<Spi, Child>, now: Instant) {
        let planned = self.planned.get_mut(plan).filter(|planned| now >= planned.compare_at);
        let Some(planned) = planned.filter(|_| self.is_trieste) else { return };
        let lacks = |wanted: &Wanted| {
            let newest = wanted.live.last().and_then(|spi| children.get(spi));
            newest.is_some_and(|child| !child.selectors.include(&wanted.selectors))
        };
        if planned.wanted.iter().any(lacks) {
            planned.version += 1;
            planned.least_version = planned.version;
            planned.compare_after = COMPARE_AFTER.1.min(planned.compare_after * 2);
        }
        planned.compare_at = now + planned.compare_after;
    }

    pub(super) fn lane(&self) -> LaneId {
        self.config.lane
    }

    /// Tries the peer as one that is new: it is somewhere else, or has proved who it is.
    pub(super) fn begin_anew(&mut self, now: Instant) {
        self.lost = now;
        self.attempts.stop();
        self.link.show(&self.attempts);
    }

    /// Returns `true` if an attempt that is due may be made. A peer that never answered waits for its turn among those that
    /// did not, and one that has been silent for long is tried by their schedule.
    pub(super) fn may_try(&mut self, is_due: bool, now: Instant) -> bool {
        let may_try = self.is_its_turn(is_due, now);
        self.link.show(&self.attempts);
        may_try
    }

    fn is_its_turn(&mut self, is_due: bool, now: Instant) -> bool {
        let has_sas = self.planned.iter().any(|planned| !planned.sas.is_empty());
        if has_sas || now < self.lost + NEW_FOR {
            return is_due && (self.handshakes > 0 || self.attempts.take_turn(now));
        }
        if !self.attempts.is_silent() {
            self.attempts.fall_silent(now);
        }
        if self.link.take_wanted() {
            self.attempts.want(now);
        }
        self.attempts.poll(now) == Due::Attempt
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attempts::AttemptBudget;
    use crate::ipsec::link;

    #[test]
    fn packets_have_a_silent_peer_tried_and_a_new_address_makes_it_new() {
        #[expect(clippy::disallowed_methods, reason = "any start will do")]
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let (settings, lane) = (EngineConfig::default(), LaneId(0x100));
        let (to_lane, port, news) = link::link(lane);
        let (here, there) = (BTreeMap::new().into(), BTreeMap::new().into());
        let attempts = AttemptTimer::new(AttemptBudget::new(start), 1, start);
        let config = PeerConfig::new(lane, here, there);
        let mut peer = Peer::new(config, (to_lane, news), &settings, 0, attempts, start);
        assert!(peer.may_try(true, start) && !peer.may_try(false, at(1)));
        assert!(!peer.may_try(true, at(100)) && port.is_silent(), "it has fallen silent");
        assert!(peer.may_try(false, at(106)) && peer.may_try(false, at(117)));
        // From here on every twenty seconds, or after five when packets wait.
        assert!(!peer.may_try(false, at(123)));
        port.want();
        assert!(peer.may_try(false, at(123)));
        port.want();
        assert!(!peer.may_try(false, at(127)) && peer.may_try(false, at(128)));
        peer.begin_anew(at(130));
        assert!(!port.is_silent() && peer.may_try(true, at(130)));
    }
}
