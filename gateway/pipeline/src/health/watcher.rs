//! The machine of one path's health.

use std::time::{Duration, Instant};

use trieste_packet::SplitMix64;

use super::config::{Config, IDLE_INTERVAL};
use super::hold::Hold;
use super::jitter::Jitter;
use super::loss::Loss;
use super::mtu::MtuSearch;
use super::probe::Probe;
use super::report::Report;
use crate::board::PathState;

/// A path that has carried nothing for as long is idle.
const IDLE_AFTER: Duration = Duration::from_secs(2);
/// A missing probe and no more is jitter: what was silent meanwhile was late, not cut off.
const MISSED_BY_JITTER: u32 = 1;
/// How long after a silence what was missing may still come.
const BELATED: Duration = Duration::from_secs(1);
/// The share of a round trip in its average (RFC 6298: alpha).
const RTT_SHARE: u32 = 8;

/// A probe to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outgoing {
    /// What it says.
    pub probe: Probe,
    /// To how many bytes of inner packet it is to be padded; it must not be fragmented then. `None` for one that is
    /// only to arrive.
    pub padded_to: Option<u16>,
}

/// One end's view of a path. All times are awake time ([`super::awake`]).
///
/// Call order: any `handle_*`, then [`Self::poll_transmit`] until it returns `None`, then [`Self::poll_timeout`] for when
/// to call [`Self::handle_timeout`]. [`Self::state`], [`Self::mtu`] and [`Self::rtt`] may have changed after each.
#[derive(Debug, Clone)]
pub struct Watcher {
    config: Config,
    epoch: Instant,
    boot: u32,
    random: SplitMix64,
    is_draining: bool,

    state: PathState,
    since: Instant,
    transitions: u64,
    hold: Hold,

    /// When anything of the far end's last arrived; `None` while it is not heard.
    heard: Option<Instant>,
    /// The newest arrival, heard or not.
    arrived: Option<Instant>,
    jitter: Jitter,
    /// The largest lateness since the last probe.
    lateness: Duration,
    /// Lateness of a time in which probes went missing: jitter after all if they come.
    doubted: Option<(Duration, Instant)>,
    loss: Loss,
    /// What the far end last said, and when that came, in real time: round trips are nobody's stalls.
    far: Option<(Probe, Instant)>,
    /// How often it sends when it is in a hurry.
    far_fast: Duration,
    /// How often this end would probe, and be probed, while the path is idle.
    idle: Duration,
    rtt: Option<Duration>,

    traffic: Option<Instant>,
    /// Packets go out after a pause, and the far end has not said yet that it knows: since when.
    asked: Option<Instant>,
    next: Instant,
    sequence: u32,
    sent: u64,
    search: Option<MtuSearch>,
}

impl Watcher {
    /// Begins to watch a path that could take inner packets of up to `most_bytes`. `seed` is random: from it come the
    /// number of this process and the jitter of its probes.
    #[must_use]
    pub fn new(config: Config, most_bytes: u16, seed: u64, now: Instant) -> Self {
        let mut watcher = Self {
            config,
            epoch: now,
            boot: 0,
            random: SplitMix64::new(seed),
            is_draining: false,
            state: PathState::Down,
            since: now,
            transitions: 0,
            hold: Hold::default(),
            heard: None,
            arrived: None,
            jitter: Jitter::new(now),
            lateness: Duration::ZERO,
            doubted: None,
            loss: Loss::default(),
            far: None,
            far_fast: config.interval,
            idle: IDLE_INTERVAL,
            rtt: None,
            traffic: Some(now),
            asked: None,
            next: now,
            sequence: 0,
            sent: 0,
            search: config.probes_mtu.then(|| MtuSearch::new(most_bytes, now)),
        };
        let [a, b, c, d, ..] = watcher.random.draw().to_le_bytes();
        watcher.boot = u32::from_le_bytes([a, b, c, d]);
        watcher
    }

    /// Probes by another setting from now on. What the far end was promised holds until the next probe; `most_bytes` is as for
    /// [`Self::new`].
    pub fn set_config(&mut self, config: Config, most_bytes: u16, now: Instant) {
        self.config = config;
        if config.probes_mtu != self.search.is_some() {
            self.search = config.probes_mtu.then(|| MtuSearch::new(most_bytes, now));
        }
    }

    /// The path's state.
    #[must_use]
    pub fn state(&self) -> PathState {
        self.state
    }

    /// Largest inner packet that gets through, in bytes, where that has been found out.
    #[must_use]
    pub fn mtu(&self) -> Option<u16> {
        self.search.as_ref().and_then(MtuSearch::found)
    }

    /// The round trip, smoothed, once it has been measured.
    #[must_use]
    pub fn rtt(&self) -> Option<Duration> {
        self.rtt
    }

    /// What is told of it.
    #[must_use]
    pub fn report(&self, now: Instant) -> Report {
        let (received, missing) = self.loss.totals();
        Report {
            state: self.state,
            since: now.saturating_duration_since(self.since),
            transitions: self.transitions,
            rtt: self.rtt,
            loss_in_permille: self.loss.permille(),
            loss_out_permille: self.far.map_or(0, |(far, _)| far.loss_permille),
            mtu_bytes: self.mtu(),
            timeout: self.timeout(now),
            held_for: self.hold.until(now).map(|until| until.saturating_duration_since(now)),
            is_fast: self.is_fast(now),
            sent: self.sent,
            received,
            missing,
        }
    }

    /// Says from now on that this gateway is about to stop, or that it is not any more.
    pub fn set_draining(&mut self, is_draining: bool, now: Instant) {
        if self.is_draining != is_draining {
            self.is_draining = is_draining;
            self.next = now;
        }
    }

    /// Sets how often this end would probe, and be probed, while the path carries nothing, from the next probe on; the
    /// slower one of both ends' is taken.
    pub fn set_idle_interval(&mut self, interval: Duration) {
        self.idle = interval;
    }

    /// Packets were sealed for the path, or opened, that are no probes.
    pub fn handle_traffic(&mut self, now: Instant) {
        let was_fast = self.is_fast(now);
        self.traffic = Some(now);
        if !was_fast {
            // The far end has to know, and to say that it does.
            self.asked = Some(now);
            self.next = now;
        }
    }

    /// Something came by the path that the cable has authenticated.
    pub fn handle_arrival(&mut self, now: Instant) {
        if let (Some(arrived), Some((far, _))) = (self.arrived, &self.far) {
            let lateness = now.saturating_duration_since(arrived).saturating_sub(far.interval);
            self.lateness = self.lateness.max(lateness);
        }
        self.arrived = Some(now);
        if self.heard.replace(now).is_none() {
            // The far end is waiting to hear this.
            self.next = now;
        }
        self.judge(now);
    }

    /// Takes a probe of the far end that arrived; after [`Self::handle_arrival`]. `real` is the time by the clock that does not stand
    /// still: by it round trips are measured.
    pub fn handle_probe(&mut self, probe: &Probe, now: Instant, real: Instant) {
        if self.far.as_ref().is_some_and(|(far, _)| far.boot != probe.boot) {
            self.loss.restart();
            self.jitter.beware(now);
            self.far = None;
            self.rtt = None;
        }
        let newest = self.far.as_ref().map_or(probe.sequence, |(far, _)| far.sequence);
        if probe.sequence.wrapping_sub(newest) > u32::MAX / 2 {
            // Overtaken by a newer one: what it says is not so any more.
            self.loss.take(probe.sequence);
            self.believe(now);
            return;
        }
        if probe.mtu_probe == 0 {
            let missing = self.loss.take(probe.sequence);
            let lateness = std::mem::take(&mut self.lateness);
            match self.far {
                Some(_) if missing <= MISSED_BY_JITTER => self.jitter.learn(lateness, now),
                Some(_) => self.doubted = Some((lateness, now)),
                None => {}
            }
            self.measure(probe, real);
        }
        if probe.is_fast {
            self.far_fast = probe.interval;
            self.asked = None;
        }
        let was_fast = self.is_fast(now);
        self.mtu_heard(probe, now);
        let padded = if probe.mtu_probe == 0 { self.padded() } else { probe.mtu_probe };
        self.far = Some((Probe { mtu_probe: padded, ..*probe }, real));
        if self.is_fast(now) && !was_fast {
            self.next = now;
        }
        self.judge(now);
    }

    /// Does what is due: time-outs, holds that end.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.judge(now);
    }

    /// When [`Self::handle_timeout`] and [`Self::poll_transmit`] want to be called next.
    #[must_use]
    pub fn poll_timeout(&self, now: Instant) -> Instant {
        let padded = self.search.as_ref().filter(|_| self.is_up()).map(MtuSearch::poll_timeout);
        [self.poll_timeout_of_far_end(now), padded].into_iter().flatten().fold(self.next, Instant::min)
    }

    /// Returns when [`Self::handle_timeout`] wants to be called next while nothing can be sent.
    #[must_use]
    pub fn poll_timeout_of_far_end(&self, now: Instant) -> Option<Instant> {
        let silence = self.heard.map(|heard| self.deadline(heard, now));
        let held = self.hold.until(now).filter(|_| self.state == PathState::Held);
        [silence, held].into_iter().flatten().min()
    }

    /// Returns the next probe to send now, if any. `real` as for [`Self::handle_probe`].
    pub fn poll_transmit(&mut self, now: Instant, real: Instant) -> Option<Outgoing> {
        if now >= self.next {
            let interval = self.interval(now);
            // Between three quarters of it and all of it (RFC 5880 section 6.8.7), so that paths do not fall into step.
            let quarter = interval / 4;
            let share = u32::try_from(self.random.draw() >> 48).unwrap_or_default();
            self.next = now + interval - quarter.mul_f64(f64::from(share) / 65_536.0);
            self.sequence = self.sequence.wrapping_add(1);
            return Some(self.outgoing(None, now, real));
        }
        if !self.is_up() {
            return None;
        }
        let (id, bytes) = self.search.as_mut()?.poll_transmit(now)?;
        Some(self.outgoing(Some((id, bytes)), now, real))
    }

    fn outgoing(&mut self, padded: Option<(u16, u16)>, now: Instant, real: Instant) -> Outgoing {
        self.sent += 1;
        let echo =
            self.far.as_ref().map(|(far, at)| (far.sent_us, micros(real.saturating_duration_since(*at))));
        let probe = Probe {
            hears: self.heard.is_some(),
            is_draining: self.is_draining,
            is_active: self.is_active(now),
            is_fast: self.is_fast(now),
            interval: self.interval(now),
            boot: self.boot,
            sequence: self.sequence,
            sent_us: micros(real.saturating_duration_since(self.epoch)),
            echo,
            loss_permille: self.loss.permille(),
            mtu_probe: padded.map_or(0, |(id, _)| id),
            mtu_heard: self.padded(),
            idle_interval: self.idle,
        };
        Outgoing { probe, padded_to: padded.map(|(_, bytes)| bytes) }
    }

    /// The number of the newest padded probe of the far end.
    fn padded(&self) -> u16 {
        self.far.as_ref().map_or(0, |(far, _)| far.mtu_probe)
    }

    fn mtu_heard(&mut self, probe: &Probe, now: Instant) {
        if let Some(search) = &mut self.search {
            search.handle_heard(probe.mtu_heard, now);
        }
    }

    /// What was missing has come: it was not lost.
    fn believe(&mut self, now: Instant) {
        let is_fresh = |at: Instant| now.saturating_duration_since(at) < BELATED;
        if let Some((lateness, at)) = self.doubted.take()
            && is_fresh(at)
        {
            self.jitter.learn(lateness, now);
        }
    }

    fn measure(&mut self, probe: &Probe, real: Instant) {
        let Some((sent_us, age_us)) = probe.echo else { return };
        let elapsed = micros(real.saturating_duration_since(self.epoch)).wrapping_sub(sent_us);
        // Beyond a minute it is no round trip but a clock of somebody else's.
        let Some(trip) = elapsed.checked_sub(age_us).filter(|trip| *trip < 60_000_000) else { return };
        let trip = Duration::from_micros(trip.into());
        self.rtt = Some(self.rtt.map_or(trip, |rtt| (rtt * (RTT_SHARE - 1) + trip) / RTT_SHARE));
    }

    /// Whether packets have lately gone either way.
    #[must_use]
    pub fn is_active(&self, now: Instant) -> bool {
        self.traffic.is_some_and(|at| now.saturating_duration_since(at) < IDLE_AFTER)
    }

    /// Whether this end or the far end has seen packets.
    fn is_fast(&self, now: Instant) -> bool {
        self.is_active(now) || self.far.as_ref().is_some_and(|(far, _)| far.is_active && self.heard.is_some())
    }

    fn interval(&self, now: Instant) -> Duration {
        let fast = self.config.interval;
        if self.is_fast(now) {
            return fast;
        }
        let far = self.far.as_ref().map_or(Duration::ZERO, |(far, _)| far.idle_interval);
        fast.max(self.idle).max(far)
    }

    fn timeout(&self, now: Instant) -> Duration {
        let promised = match &self.far {
            Some((far, _)) if self.asked.is_none() => far.interval,
            _ => self.far_fast,
        };
        self.jitter.timeout(&self.config, promised, now)
    }

    /// When the far end has been silent for too long.
    fn deadline(&self, heard: Instant, now: Instant) -> Instant {
        let answer = self.asked.map(|asked| asked + self.rtt.unwrap_or_default() * 2);
        answer.map_or(heard, |answer| answer.max(heard)) + self.timeout(now)
    }

    fn is_up(&self) -> bool {
        self.heard.is_some() && self.far.as_ref().is_some_and(|(far, _)| far.hears)
    }

    /// Works out the state anew.
    fn judge(&mut self, now: Instant) {
        if self.heard.is_some_and(|heard| now >= self.deadline(heard, now)) {
            self.heard = None;
            self.asked = None;
            self.next = now;
            // Whether it hears us has to be heard anew: a packet that was under way says nothing of that.
            if let Some((far, _)) = &mut self.far {
                far.hears = false;
            }
        }
        let was_up = self.state != PathState::Down;
        match (was_up, self.is_up()) {
            (false, true) => self.hold.recover(now),
            (true, false) => {
                if self.state == PathState::Draining {
                    self.hold.leave();
                } else {
                    self.hold.fail(now);
                }
                if let Some(search) = &mut self.search {
                    search.interrupt(now);
                }
            }
            (true, true) | (false, false) => {}
        }
        let is_leaving = self.far.as_ref().is_some_and(|(far, _)| far.is_draining);
        let state = if !self.is_up() {
            PathState::Down
        } else if is_leaving {
            PathState::Draining
        } else if self.hold.until(now).is_some() {
            PathState::Held
        } else {
            PathState::Up
        };
        if state != self.state {
            self.state = state;
            self.since = now;
            self.transitions += 1;
        }
    }
}

/// Microseconds of a clock that goes round every 71 minutes.
#[expect(clippy::cast_possible_truncation, reason = "the clock goes round")]
fn micros(duration: Duration) -> u32 {
    duration.as_micros() as u32
}
