//! All pingers of a gateway: they follow the remote Endpoints.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use rand_core::RngCore;

use super::echo::{EchoReply, EchoRequest};
use super::pinger::{Identity, Pinger, PingerConfig, PingerStatus, PingerView};
use crate::api::EndpointSpec;
use crate::deadlines::Deadlines;

/// Ours: most peers that are pinged. Endpoints come from others, and each costs a packet a second.
const MAX_PINGERS: usize = 1024;
/// Ours: the first requests of many new peers are spread over this time (or the interval, if that is shorter).
const SPREAD: Duration = Duration::from_secs(1);
/// Ours: how much longer a peer that answers is left alone for each one that does. Up to 33 of them it says nothing; more
/// share about 50 requests a second.
const PACE: Duration = Duration::from_millis(20);

/// Pings every remote endpoint that names a health-check address.
///
/// Call [`Checker::handle_endpoints`] with all endpoints whenever one changes, [`Checker::handle_timeout`] when
/// [`Checker::poll_timeout`] says so, [`Checker::handle_reply`] for every echo reply, and after each of them empty
/// [`Checker::poll_transmit`] and [`Checker::poll_event`]. A probe that cannot be sent goes back by
/// [`Checker::handle_send_failure`].
pub struct Checker {
    config: PingerConfig,
    cluster_id: String,
    /// A moment on both clocks. Requests carry wall-clock time that runs as evenly as the other.
    epoch: (Instant, i64),
    random: Box<dyn RngCore + Send>,
    pingers: BTreeMap<String, Pinger>,
    /// When each of them is due.
    deadlines: Deadlines,
    by_id: BTreeMap<u16, String>,
    /// How many answer.
    connected: u32,
    started: u16,
    left_out: usize,
    probes: VecDeque<Probe>,
    changed: BTreeSet<String>,
    reported: BTreeMap<String, PingerStatus>,
}

/// An echo request to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// Whose it is.
    pub cable_name: String,
    /// Where it goes.
    pub to: IpAddr,
    /// Its content.
    pub request: EchoRequest,
}

/// A verdict that changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthEvent {
    /// Whose.
    pub cable_name: String,
    /// The verdict before.
    pub was: PingerStatus,
    /// The present view.
    pub view: PingerView,
}

impl Checker {
    /// Creates a checker of the cluster `cluster_id`, which does not ping itself. `unix_nanos` is the wall clock at
    /// `now`; `random` marks requests and must not be guessable by others.
    pub fn new(
        config: PingerConfig,
        cluster_id: impl Into<String>,
        random: impl RngCore + Send + 'static,
        now: Instant,
        unix_nanos: i64,
    ) -> Self {
        Self {
            config,
            cluster_id: cluster_id.into(),
            epoch: (now, unix_nanos),
            random: Box::new(random),
            pingers: BTreeMap::new(),
            deadlines: Deadlines::default(),
            by_id: BTreeMap::new(),
            connected: 0,
            started: 0,
            left_out: 0,
            probes: VecDeque::new(),
            changed: BTreeSet::new(),
            reported: BTreeMap::new(),
        }
    }

    /// Makes the pingers those of these endpoints, local ones included (they are left out). A pinger whose endpoint
    /// still has its address goes on undisturbed.
    pub fn handle_endpoints<'a>(
        &mut self,
        endpoints: impl IntoIterator<Item = &'a EndpointSpec>,
        now: Instant,
    ) {
        let targets = self.targets(endpoints);
        let is_wanted = |name: &str, pinger: &Pinger| {
            targets.get(name).is_some_and(|addresses| addresses.contains(&pinger.ip()))
        };
        let stale: Vec<String> = self
            .pingers
            .iter()
            .filter(|(name, pinger)| !is_wanted(name, pinger))
            .map(|(name, _)| name.clone())
            .collect();
        stale.iter().for_each(|name| self.remove(name));
        self.left_out = 0;
        for (name, addresses) in targets {
            if self.pingers.contains_key(&name) {
                continue;
            }
            if self.pingers.len() == MAX_PINGERS {
                self.left_out += 1;
                continue;
            }
            self.add(name, addresses[0], now);
        }
    }

    /// Pings by another setting from now on. Verdicts stay.
    pub fn set_config(&mut self, config: PingerConfig, now: Instant) {
        if self.config == config {
            return;
        }
        self.config = config;
        for (name, pinger) in &mut self.pingers {
            pinger.set_config(config, now);
            self.deadlines.set(name, Some(pinger.poll_timeout()));
        }
    }

    /// Takes an echo reply in, whosever it is.
    pub fn handle_reply(&mut self, reply: &EchoReply, now: Instant) {
        let Some(name) = self.by_id.get(&reply.id) else { return };
        let Some(pinger) = self.pingers.get_mut(name) else { return };
        let was = pinger.status();
        if pinger.handle_reply(reply, now) {
            count(&mut self.connected, was, pinger.status());
            self.changed.insert(name.clone());
        }
    }

    /// Notes that a probe could not be sent.
    pub fn handle_send_failure(&mut self, probe: &Probe, reason: &str, now: Instant) {
        let is_current = |pinger: &Pinger| pinger.identity().id == probe.request.id;
        // The run may have ended with this very request; its successor would fail alike, and soon says so itself.
        if self.pingers.get(&probe.cable_name).is_none_or(|pinger| !is_current(pinger)) {
            return;
        }
        let fresh = self.draw_identity();
        self.mark(&probe.cable_name, fresh);
        if let Some(pinger) = self.pingers.get_mut(&probe.cable_name) {
            self.by_id.remove(&pinger.identity().id);
            let was = pinger.status();
            pinger.handle_send_failure(reason, now, fresh);
            count(&mut self.connected, was, pinger.status());
            self.deadlines.set(&probe.cable_name, Some(pinger.poll_timeout()));
        }
        self.changed.insert(probe.cable_name.clone());
    }

    /// Lets every pinger that is due ask.
    pub fn handle_timeout(&mut self, now: Instant) {
        for name in self.deadlines.take_due(now) {
            let pace = self.draw_pace();
            let spare = self.draw_identity();
            let Some(pinger) = self.pingers.get_mut(&name) else { continue };
            let (before, was, to) = (pinger.identity(), pinger.status(), pinger.ip());
            let asked = pinger.handle_timeout(now, pace, || spare);
            count(&mut self.connected, was, pinger.status());
            self.deadlines.set(&name, Some(pinger.poll_timeout()));
            let Some((identity, sequence)) = asked else { continue };
            if pinger.identity() != before {
                self.by_id.remove(&before.id);
                self.mark(&name, spare);
                self.changed.insert(name.clone());
            }
            let request = EchoRequest {
                id: identity.id,
                sequence,
                unix_nanos: self.unix_nanos(now),
                tracker: identity.tracker,
            };
            self.probes.push_back(Probe { cable_name: name, to, request });
        }
    }

    /// Returns the time at which to call [`Checker::handle_timeout`]; `None` while nobody is pinged.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.deadlines.first()
    }

    /// Returns the next probe to send.
    pub fn poll_transmit(&mut self) -> Option<Probe> {
        self.probes.pop_front()
    }

    /// Returns the next verdict that changed; several changes of one peer since the last call are one.
    pub fn poll_event(&mut self) -> Option<HealthEvent> {
        while let Some(name) = self.changed.pop_first() {
            let Some(pinger) = self.pingers.get(&name) else { continue };
            let view = pinger.view();
            let was = self.reported.insert(name.clone(), view.status).unwrap_or_default();
            if was != view.status {
                return Some(HealthEvent { cable_name: name, was, view });
            }
        }
        None
    }

    /// Returns the view of every pinged peer, by cable name.
    pub fn views(&self) -> BTreeMap<String, PingerView> {
        self.pingers.iter().map(|(name, pinger)| (name.clone(), pinger.view())).collect()
    }

    /// Returns how many endpoints are not pinged because there are too many.
    pub fn left_out(&self) -> usize {
        self.left_out
    }

    /// Returns the addresses that each cable's endpoints name; more than one only where two endpoints claim one cable.
    fn targets<'a>(
        &self,
        endpoints: impl IntoIterator<Item = &'a EndpointSpec>,
    ) -> BTreeMap<String, Vec<IpAddr>> {
        let mut targets: BTreeMap<String, Vec<IpAddr>> = BTreeMap::new();
        for endpoint in endpoints {
            if endpoint.cluster_id == self.cluster_id {
                continue;
            }
            if let Some(address) = host_address(endpoint.health_check_address()) {
                targets.entry(endpoint.cable_name.clone()).or_default().push(address);
            }
        }
        targets
    }

    fn add(&mut self, name: String, ip: IpAddr, now: Instant) {
        // Halves, quarters, eighths …: evenly spread, however many come and when. The first asks at once.
        let window = SPREAD.min(self.config.interval());
        let offset = window * u32::from(self.started.reverse_bits()) / (u32::from(u16::MAX) + 1);
        self.started = self.started.wrapping_add(1);
        let identity = self.draw_identity();
        self.mark(&name, identity);
        self.deadlines.set(&name, Some(now + offset));
        self.pingers.insert(name, Pinger::new(ip, self.config, identity, now + offset));
    }

    fn remove(&mut self, name: &str) {
        if let Some(pinger) = self.pingers.remove(name) {
            count(&mut self.connected, pinger.status(), PingerStatus::Unknown);
            self.by_id.remove(&pinger.identity().id);
            self.deadlines.set(name, None);
        }
        self.reported.remove(name);
        self.changed.remove(name);
        self.probes.retain(|probe| probe.cable_name != name);
    }

    /// Draws how long a peer that answers is left alone: between half of the mean and half as much again, so that those
    /// who began together do not go on together.
    fn draw_pace(&mut self) -> Duration {
        let mean = PACE.saturating_mul(self.connected);
        let [share, ..] = self.random.next_u64().to_le_bytes();
        mean / 2 + mean * u32::from(share) / u32::from(u8::MAX)
    }

    fn mark(&mut self, name: &str, identity: Identity) {
        self.by_id.insert(identity.id, name.to_owned());
    }

    /// Draws an identity that no pinger has. Ids are many more than pingers, so the search is short.
    fn draw_identity(&mut self) -> Identity {
        let mut tracker = [0; super::TRACKER_LEN];
        self.random.fill_bytes(&mut tracker);
        // A UUID of version 4, as upstream's.
        tracker[6] = tracker[6] & 0x0f | 0x40;
        tracker[8] = tracker[8] & 0x3f | 0x80;
        let [low, high, ..] = self.random.next_u32().to_le_bytes();
        let mut id = u16::from_le_bytes([low, high]);
        while self.by_id.contains_key(&id) {
            id = id.wrapping_add(1);
        }
        Identity { id, tracker }
    }

    fn unix_nanos(&self, now: Instant) -> i64 {
        let elapsed = now.saturating_duration_since(self.epoch.0).as_nanos();
        self.epoch.1.saturating_add(i64::try_from(elapsed).unwrap_or(i64::MAX))
    }
}

/// Counts those that are connected when a verdict may have changed.
fn count(connected: &mut u32, was: PingerStatus, is: PingerStatus) {
    *connected += u32::from(is == PingerStatus::Connected);
    *connected -= u32::from(was == PingerStatus::Connected);
}

/// Parses the address of a host; `None` if the text is none: a peer must not make us ping a group or ourselves.
fn host_address(text: &str) -> Option<IpAddr> {
    let address: IpAddr = text.parse().ok()?;
    let is_broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
    let is_host =
        !(address.is_unspecified() || address.is_multicast() || address.is_loopback() || is_broadcast);
    is_host.then_some(address)
}

#[cfg(test)]
#[path = "checker/tests.rs"]
mod tests;
