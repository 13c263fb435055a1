//! The health check's shell: the task around [`Checker`], which decides everything, and its raw sockets.
//!
//! ```text
//!   follow(endpoints) ──▶ task: Checker ◀──▶ raw sockets (one per IP version, opened at the first need)
//!   merge(connection) ◀── views (a snapshot, swapped in whole)
//! ```
//!
//! The sockets carry **no mark**: a probe has to take the way that pods' packets take, by the host's routes into the
//! device that leads to the cable. Marked like the cables' own sockets it would go around the tunnel that it is there
//! to judge. Where no source is given the kernel chooses it as it routes; a peer may answer to whatever source it sees.
//!
//! They are **bound to that device** by both programs that probe: the gateway's TUN, a worker's `vx-submariner`. Before
//! the route agent has made its routes, and when it has taken them away, the way that is left is the default route: a
//! probe would leave in clear, and where the network plugin masquerades it, the kernel's memory of that one packet gives
//! all later ones the wrong source (measured §5). It also keeps answers out that did not come through a tunnel.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use rand_core::OsRng;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::sockets::Sockets;
use super::{Checker, PingerConfig, PingerStatus, PingerView};
use crate::admin::{HealthStatus, Severity};
use crate::api::{Connection, EndpointSpec};
use crate::conditions::Conditions;
use crate::timer::sleep_until;

/// Name of the condition that there are more peers than are pinged.
pub const TOO_MANY: &str = "TooManyToProbe";

/// Ours: statistics are shown this late at most; a verdict is shown at once.
const PUBLISH_INTERVAL: Duration = Duration::from_millis(200);
/// What is known of every pinged peer, by cable name.
pub type PingResults = BTreeMap<String, PingerView>;

/// The configuration of probing.
#[derive(Debug, Clone)]
pub struct ProbeOptions {
    /// Our cluster, which is not pinged.
    pub cluster_id: String,
    /// How often, and how much silence is too much.
    pub pinger: PingerConfig,
    /// The source of probes, one per IP version; none means that the kernel chooses. It must be an address of this
    /// node, and answers to others are not heard.
    pub sources: Vec<IpAddr>,
    /// The only device that probes leave and answers come by; `None` for any.
    pub device: Option<String>,
}

/// Pings the peers. Dropping it ends that.
#[derive(Debug)]
pub struct Probes {
    endpoints: watch::Sender<Vec<EndpointSpec>>,
    pinger: watch::Sender<PingerConfig>,
    views: watch::Receiver<Arc<PingResults>>,
    task: JoinHandle<()>,
}

impl Probes {
    /// Starts, on the current tokio runtime. Never fails: what is missing is a condition.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    #[must_use]
    pub fn spawn(options: ProbeOptions, conditions: Conditions) -> Self {
        let (endpoints, receiver) = watch::channel(Vec::new());
        let (pinger, settings) = watch::channel(options.pinger);
        let (publisher, views) = watch::channel(Arc::default());
        let unix_nanos = i64::try_from(Timestamp::now().as_nanosecond()).unwrap_or_default();
        let checker = Checker::new(options.pinger, options.cluster_id, OsRng, Instant::now(), unix_nanos);
        let prober = Prober {
            checker,
            sockets: Sockets::new(options.sources, options.device, conditions.clone()),
            conditions,
            views: publisher,
            published: None,
            is_stale: false,
        };
        Self { endpoints, pinger, views, task: tokio::spawn(prober.run(receiver, settings)) }
    }

    /// Pings by another setting from now on.
    pub fn set_pinger(&self, pinger: PingerConfig) {
        self.pinger.send_replace(pinger);
    }

    /// Pings these endpoints from now on, and no others.
    pub fn follow(&self, endpoints: Vec<EndpointSpec>) {
        self.endpoints.send_if_modified(|known| {
            let is_changed = *known != endpoints;
            if is_changed {
                *known = endpoints;
            }
            is_changed
        });
    }

    /// Returns the view of every pinged peer, by cable name.
    #[must_use]
    pub fn views(&self) -> Arc<BTreeMap<String, PingerView>> {
        Arc::clone(&self.views.borrow())
    }

    /// Subscribes to the views, published when they change: at once for a verdict, a little later for statistics.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<Arc<BTreeMap<String, PingerView>>> {
        self.views.clone()
    }

    /// Returns one peer's status for people; `None` where nobody pings it.
    #[must_use]
    pub fn status(&self, cable_name: &str) -> Option<HealthStatus> {
        self.views.borrow().get(cable_name).map(HealthStatus::from)
    }

    /// Merges what is known of a connection's peer into it, by the rules of [`merge`](super::merge()).
    pub fn merge(&self, connection: &mut Connection) {
        let views = self.views();
        super::merge(connection, views.get(&connection.endpoint.cable_name));
    }
}

impl Drop for Probes {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The task.
struct Prober {
    checker: Checker,
    sockets: Sockets,
    conditions: Conditions,
    views: watch::Sender<Arc<PingResults>>,
    published: Option<Instant>,
    is_stale: bool,
}

impl Prober {
    async fn run(
        mut self,
        mut endpoints: watch::Receiver<Vec<EndpointSpec>>,
        mut pinger: watch::Receiver<PingerConfig>,
    ) {
        loop {
            let wake = self.next_wake();
            tokio::select! {
                // Answers before timers: after a stall they are here already, and must count first.
                biased;
                replies = self.sockets.recv() => {
                    let now = Instant::now();
                    replies.iter().for_each(|reply| self.checker.handle_reply(reply, now));
                    self.is_stale |= !replies.is_empty();
                }
                changed = endpoints.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    self.follow(&endpoints.borrow_and_update());
                }
                changed = pinger.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    self.checker.set_config(*pinger.borrow_and_update(), Instant::now());
                }
                () = sleep_until(wake) => {}
            }
            self.checker.handle_timeout(Instant::now());
            self.send();
            self.publish();
        }
    }

    fn follow(&mut self, endpoints: &[EndpointSpec]) {
        self.checker.handle_endpoints(endpoints, Instant::now());
        let left_out = self.checker.left_out();
        let message = (left_out > 0).then(|| {
            format!("{left_out} remote endpoints are not pinged: there are more than this node probes")
        });
        self.conditions.put(TOO_MANY, Severity::Warning, "", message);
        self.is_stale = true;
    }

    fn send(&mut self) {
        while let Some(probe) = self.checker.poll_transmit() {
            self.is_stale = true;
            if let Err(reason) = self.sockets.send(&probe) {
                self.checker.handle_send_failure(&probe, &reason, Instant::now());
            }
        }
    }

    fn publish(&mut self) {
        let mut is_verdict = false;
        while let Some(event) = self.checker.poll_event() {
            is_verdict = true;
            let (cable, view) = (event.cable_name.as_str(), &event.view);
            match view.status {
                PingerStatus::Connected => {
                    tracing::info!(cable, ip = %view.ip, "the health check is answered")
                }
                PingerStatus::Error | PingerStatus::Unknown => {
                    let status = view.status.as_str();
                    tracing::warn!(cable, status, reason = %view.message, "the health check is not answered");
                }
            }
        }
        let now = Instant::now();
        if is_verdict || (self.is_stale && self.publish_at().is_none_or(|at| at <= now)) {
            self.views.send_replace(Arc::new(self.checker.views()));
            self.published = Some(now);
            self.is_stale = false;
        }
    }

    fn publish_at(&self) -> Option<Instant> {
        self.published.map(|published| published + PUBLISH_INTERVAL)
    }

    fn next_wake(&self) -> Option<Instant> {
        let publish_at = if self.is_stale { self.publish_at() } else { None };
        [self.checker.poll_timeout(), publish_at].into_iter().flatten().min()
    }
}
