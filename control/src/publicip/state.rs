//! When to ask for the public address again, and what to say meanwhile. Sans-IO.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};

use super::resolve::{Failures, Resolution};
use super::spec::Resolvers;
use crate::api::{EndpointSpec, backend_config};

/// From the specification: how often an address that is known is looked at again.
const INTERVAL: Duration = Duration::from_secs(60);
/// From the specification (upstream's for `lb:`; ours for all): the first wait after a failure, how it grows, how far.
const RETRY_FIRST: Duration = Duration::from_secs(5);
const RETRY_FACTOR: f64 = 1.2;
const RETRY_MAX: Duration = Duration::from_secs(6 * 60);
/// Ours: how long the first round may take before it is a problem of its own. Every resolver may take half a minute, and
/// a name server that does not answer takes most of that: nobody should wait for all of them to hear of it.
const SLOW_AFTER: Duration = Duration::from_secs(10);
/// Ours: requests come from events that others cause; this is the least time between two rounds.
const LEAST_GAP: Duration = Duration::from_secs(1);

/// The public address as far as it is known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PublicIp {
    /// The address; `None` until a resolver had one, and for good where nothing may be asked.
    pub address: Option<IpAddr>,
    /// The resolver that said so, such as `lb:submariner-gateway`; empty without an address.
    pub resolver: String,
    /// Whether the address is a load balancer's, or can only become one.
    pub is_load_balancer: bool,
    /// Since when the address is this one, or, with an error, since when there is one; `None` before the first answer.
    pub since: Option<Timestamp>,
    /// Why the last round failed, or how far the first has come if that takes long, and what that means; `None` when it
    /// succeeded or there was none.
    pub error: Option<String>,
    /// When the resolvers are asked again, at the latest.
    pub next_try: Option<Timestamp>,
}

impl PublicIp {
    /// Puts the address into an endpoint: `public_ip` (empty when it is not known) and the load balancer's mark. Gives
    /// whether that changed anything.
    pub fn apply_to(&self, endpoint: &mut EndpointSpec) -> bool {
        let address = self.address.map(|address| address.to_string()).unwrap_or_default();
        let is_marked = endpoint.uses_load_balancer();
        let is_changed = endpoint.public_ip != address || is_marked != self.is_load_balancer;
        endpoint.public_ip = address;
        if self.is_load_balancer {
            let mark = (backend_config::USING_LOAD_BALANCER.to_owned(), "true".to_owned());
            endpoint.backend_config.extend([mark]);
        } else {
            endpoint.backend_config.remove(backend_config::USING_LOAD_BALANCER);
        }
        is_changed
    }

    /// Returns the address to keep over a restart.
    pub fn remembered(&self) -> Option<Remembered> {
        Some(Remembered { address: self.address?, resolver: self.resolver.clone() })
    }
}

/// The last good address, from before a restart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remembered {
    /// The address.
    pub address: IpAddr,
    /// The resolver that had said so.
    pub resolver: String,
}

/// Decides when resolvers are asked, and what is known. Call [`WatchState::handle_timeout`] when
/// [`WatchState::poll_timeout`] says so, and if [`WatchState::poll_slow`] is true then, [`WatchState::handle_slow`]; when [`WatchState::poll_resolve`] is true ask, and hand the outcome to
/// [`WatchState::handle_outcome`].
#[derive(Debug)]
pub struct WatchState {
    resolvers: Resolvers,
    known: PublicIp,
    next_at: Option<Instant>,
    is_due: bool,
    last_asked: Option<Instant>,
    /// When the round under way is slow; `None` where an address or a failure is known already.
    slow_at: Option<Instant>,
    retry: Duration,
}

impl WatchState {
    /// Creates the state. An address from before a restart counts while its resolver is still configured: one that
    /// somebody has configured away must not come back.
    pub fn new(resolvers: Resolvers, remembered: Option<Remembered>) -> Self {
        let mut state = Self {
            resolvers: Resolvers::default(),
            known: PublicIp::default(),
            next_at: None,
            is_due: false,
            last_asked: None,
            slow_at: None,
            retry: RETRY_FIRST,
        };
        if let Some(Remembered { address, resolver }) = remembered {
            state.known = PublicIp { address: Some(address), resolver, ..PublicIp::default() };
        }
        state.take(resolvers);
        state
    }

    /// Takes other resolvers, and asks them at once.
    pub fn handle_resolvers(&mut self, resolvers: Resolvers) {
        if resolvers != self.resolvers {
            self.take(resolvers);
        }
    }

    /// Asks soon, because somebody has a reason to.
    pub fn handle_request(&mut self, now: Instant) {
        if self.is_due || self.resolvers.is_empty() {
            return;
        }
        let earliest = self.last_asked.map_or(now, |asked| asked + LEAST_GAP).max(now);
        self.next_at = Some(self.next_at.map_or(earliest, |planned| planned.min(earliest)));
    }

    /// Notes that time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.next_at.is_some_and(|at| at <= now) {
            self.next_at = None;
            self.is_due = true;
        }
    }

    /// Takes the outcome of a round in. `wall` is the wall clock at `now`.
    pub fn handle_outcome(&mut self, outcome: Result<Resolution, Failures>, now: Instant, wall: Timestamp) {
        self.slow_at = None;
        let wait = match outcome {
            Ok(resolution) => {
                self.succeed(&resolution, wall);
                INTERVAL
            }
            Err(failures) => self.fail(&failures, wall),
        };
        // A request that came during the round is younger than its answer, and stays.
        let at = now + wait;
        self.next_at = Some(self.next_at.map_or(at, |asked| asked.min(at)));
        let wait = SignedDuration::try_from(wait).unwrap_or(SignedDuration::MAX);
        self.known.next_try = wall.checked_add(wait).ok();
    }

    /// Returns the time at which to call [`WatchState::handle_timeout`].
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.next_at.into_iter().chain(self.slow_at).min()
    }

    /// Returns `true`, once per round, when [`WatchState::handle_slow`] is to report how far the round under way has
    /// come.
    pub fn poll_slow(&mut self, now: Instant) -> bool {
        self.slow_at.take_if(|at| *at <= now).is_some()
    }

    /// Takes in what has failed of the round under way.
    pub fn handle_slow(&mut self, failures: &Failures, wall: Timestamp) {
        let so_far = failures.so_far(&self.resolvers);
        self.explain(&so_far, wall);
    }

    /// Returns `true`, once per round, when [`WatchState::resolvers`] are to be asked.
    pub fn poll_resolve(&mut self, now: Instant) -> bool {
        if !self.is_due {
            return false;
        }
        self.is_due = false;
        self.last_asked = Some(now);
        let is_unknown = self.known.address.is_none() && self.known.error.is_none();
        self.slow_at = is_unknown.then(|| now + SLOW_AFTER);
        true
    }

    /// Returns the resolvers to ask.
    pub fn resolvers(&self) -> &Resolvers {
        &self.resolvers
    }

    /// Returns the public address as far as it is known.
    pub fn public_ip(&self) -> &PublicIp {
        &self.known
    }

    fn take(&mut self, resolvers: Resolvers) {
        let is_kept = resolvers.valid().any(|resolver| resolver.to_string() == self.known.resolver);
        if !is_kept {
            self.known = PublicIp::default();
        }
        self.known.is_load_balancer =
            match resolvers.valid().find(|one| one.to_string() == self.known.resolver) {
                Some(resolver) => resolver.is_load_balancer(),
                None => resolvers.is_load_balancer_only(),
            };
        self.retry = RETRY_FIRST;
        self.next_at = None;
        self.slow_at = None;
        self.is_due = !resolvers.is_empty();
        self.resolvers = resolvers;
    }

    fn succeed(&mut self, resolution: &Resolution, wall: Timestamp) {
        let known = &mut self.known;
        let is_changed =
            known.address != Some(resolution.address) || known.error.is_some() || known.since.is_none();
        if is_changed {
            known.since = Some(wall);
        }
        known.address = Some(resolution.address);
        known.resolver = resolution.resolver.to_string();
        known.is_load_balancer = resolution.resolver.is_load_balancer();
        known.error = None;
        self.retry = RETRY_FIRST;
    }

    /// Gives the wait until the next round.
    fn fail(&mut self, failures: &Failures, wall: Timestamp) -> Duration {
        self.explain(failures, wall);
        let wait = self.retry;
        self.retry = self.retry.mul_f64(RETRY_FACTOR).min(RETRY_MAX);
        wait
    }

    fn explain(&mut self, failures: &Failures, wall: Timestamp) {
        let meaning = match self.known.address {
            Some(address) => format!("the last known public address {address} stays"),
            None => "no public address is published, and gateways that cannot reach the private one cannot \
                     connect to this one"
                .to_owned(),
        };
        if self.known.error.is_none() {
            self.known.since = Some(wall);
        }
        self.known.error = Some(format!("{meaning}: {failures}"));
    }
}

#[cfg(test)]
#[path = "state/tests.rs"]
mod tests;
