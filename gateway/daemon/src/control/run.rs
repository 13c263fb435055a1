//! The control loop itself: what it waits for, and what it does then.

use std::future::Future;
use std::pin::pin;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use futures::{FutureExt as _, StreamExt as _};
use jiff::Timestamp;
use tokio::signal::unix::{SignalKind, signal};
use trieste_control::admin::{BrokerLink, BrokerStatus, Severity};
use trieste_control::api::{Endpoint, Kind, Object, Resource as _};
use trieste_control::store::{Store as _, StoreEvent};

use super::throttle::Throttle;
use super::{Control, translate};
use crate::engine::Engine;

/// How often the status document is put together, in a set that is not very large.
const STATUS_INTERVAL: Duration = Duration::from_millis(500);
/// Ours: the share of a core, in percent, that the status document is to take, and the longest that it rests for that.
const STATUS_SHARE: u32 = 4;
const LONGEST_STATUS: Duration = Duration::from_secs(1);
/// Ours: the share of a core, in percent, that cables and tables are to take while Endpoints change, and the longest that a
/// change waits for others for that.
const CONVERGE_SHARE: u32 = 25;
const LONGEST_REST: Duration = Duration::from_millis(100);
/// How often this node's addresses are looked at.
const ADDRESS_INTERVAL: Duration = Duration::from_secs(5);
/// How long it goes on when the successor is there: peers hear of it through the broker.
const FAREWELL: Duration = Duration::from_millis(250);

impl Control<'_> {
    /// Runs until `leaving` completes; then gives the lead away, and goes on until a successor is there or the time is
    /// up.
    ///
    /// # Errors
    /// A part of the gateway that should run for ever has ended, or the gateway has to start again.
    pub(crate) async fn run(
        &mut self,
        engine: &mut Engine,
        leaving: impl Future<Output = ()>,
    ) -> anyhow::Result<()> {
        let mut leaving = pin!(leaving);
        let mut end: Option<Instant> = None;
        let mut endpoints = self.store.list_watch(Kind::Endpoint, &self.config.namespace);
        let mut node = self.follow_node();
        let mut gateway = self.follow_gateway();
        let mut leadership = self.candidate.leadership();
        let mut term = None;
        let mut selections = self.discovery.selections();
        let mut public_ip = self.public_ip.public_ip.clone();
        let mut members = self.peers.handle.members.clone();
        let mut converging = Throttle::new(CONVERGE_SHARE, LONGEST_REST);
        let mut reporting = Throttle::new(STATUS_SHARE, LONGEST_STATUS);
        reporting.ask(Instant::now());
        let mut addresses = tokio::time::interval(ADDRESS_INTERVAL);
        let mut globalnet = self.globalnet_states();
        let mut rekey = signal(SignalKind::user_defined1()).ok();
        self.start(engine).await;
        loop {
            tokio::select! {
                event = endpoints.next() => {
                    let Some(event) = event else { anyhow::bail!("the store has no more events") };
                    let mut is_news = self.take(&event);
                    // A burst is one change.
                    while let Some(Some(event)) = endpoints.next().now_or_never() {
                        is_news |= self.take(&event);
                    }
                    if is_news {
                        converging.ask(Instant::now());
                    }
                }
                () = reached(converging.due()) => {
                    let began = Instant::now();
                    self.converge(engine).await;
                    converging.done(began, Instant::now());
                }
                Some(event) = node.next() => self.take_node(event),
                Some(event) = gateway.next() => self.take_gateway(event, engine),
                changed = members.changed() => {
                    changed.context("following the other gateways has ended")?;
                    members.borrow_and_update();
                    self.take_members(engine).await;
                }
                changed = leadership.changed() => {
                    changed.context("the election has ended")?;
                    // Every renewal comes by here; only another term is news.
                    let newest = leadership.borrow_and_update().map(|held| held.term);
                    if std::mem::replace(&mut term, newest) != newest {
                        self.follow_public_ip();
                        self.converge(engine).await;
                    }
                }
                changed = selections.changed() => {
                    changed.context("NAT discovery has ended")?;
                    selections.borrow_and_update();
                    converging.ask(Instant::now());
                }
                changed = public_ip.changed() => {
                    changed.context("the public address's watcher has ended")?;
                    public_ip.borrow_and_update();
                    self.take_public_ip();
                }
                () = reached(reporting.due()) => {
                    let began = Instant::now();
                    self.follow_public_ip();
                    self.hand_over(engine).await;
                    self.refresh(engine).await;
                    reporting.done(began, Instant::now());
                    reporting.ask(Instant::now() + STATUS_INTERVAL);
                }
                () = translate::changed(&mut globalnet) => self.take_globalnet(engine).await,
                _ = addresses.tick() => {
                    self.look_at_addresses(engine).await;
                    self.translate(engine).await;
                }
                () = received(&mut rekey) => engine.rekey_all(),
                () = &mut leaving, if end.is_none() => match self.step_down(engine).await {
                    Some(until) => end = Some(until),
                    None => return Ok(()),
                },
                () = reached(end) => return Ok(()),
            }
            if let Some(reason) = self.state.restart.take() {
                anyhow::bail!("{reason}");
            }
            if end.is_some() && self.members().siblings.is_empty() && self.has_successor() {
                let soon = Instant::now() + FAREWELL;
                end = end.map(|end| end.min(soon));
            }
        }
    }

    /// Carries on from what is remembered, before any store has answered.
    async fn start(&mut self, engine: &mut Engine) {
        let remembered = self.state.remembered.take().unwrap_or_default();
        self.begin(engine, Instant::now());
        engine.set_active(remembered.was_active, Instant::now()).await;
        self.state.link = link(BrokerLink::Connecting, None);
        self.take_public_ip();
        if let Some(name) = &self.config.node_name {
            self.follow_label(&format!("Node {name}"), self.state.found.settings.is_gateway);
        }
        self.remember_globalnet(engine, remembered.globalnet).await;
        let endpoints = read_endpoints(remembered.endpoints.iter());
        self.state.begun_with.clone_from(&endpoints);
        if !endpoints.is_empty() || !self.members().remote.is_empty() {
            engine.set_resumes(true);
            self.connect(engine, &endpoints, Instant::now()).await;
            engine.set_resumes(false);
            self.watch_health(engine);
            tracing::info!(
                endpoints = endpoints.len(),
                active = remembered.was_active,
                "started from what was remembered"
            );
        }
        self.look_at_addresses(engine).await;
    }

    /// Takes an event of the Endpoints in. Gives whether there is something to do about it.
    fn take(&mut self, event: &StoreEvent) -> bool {
        let newest = match event {
            StoreEvent::Unavailable(error) => link(BrokerLink::Away, Some(error.to_string())),
            StoreEvent::Listed(_) | StoreEvent::Applied(_) | StoreEvent::Deleted(_) | _ => {
                link(BrokerLink::Synced, None)
            }
        };
        let known = &mut self.state.link;
        if known.state == newest.state {
            known.error = newest.error;
        } else {
            match (known.state, &newest.error) {
                (_, Some(error)) => self.recorder.record(Severity::Warning, "StoreAway", error),
                (BrokerLink::Away, None) => {
                    self.recorder.record(
                        Severity::Info,
                        "StoreBack",
                        "this cluster's own store answers again",
                    );
                }
                _ => {}
            }
            *known = newest;
        }
        let away = self.state.link.error.as_ref().map(|error| {
            format!("this cluster's own store is away: {error}; cables stay up with what is known")
        });
        self.conditions.put("StoreAway", Severity::Warning, "", away);
        self.state.mirror.apply(event)
    }
}

fn link(state: BrokerLink, error: Option<String>) -> BrokerStatus {
    BrokerStatus { state, since: Some(Timestamp::now()), error, next_try: None }
}

/// Waits until a moment; for ever if there is none.
async fn reached(end: Option<Instant>) {
    match end {
        Some(end) => tokio::time::sleep_until(end.into()).await,
        None => std::future::pending().await,
    }
}

async fn received(signal: &mut Option<tokio::signal::unix::Signal>) {
    match signal {
        Some(signal) => {
            signal.recv().await;
        }
        None => std::future::pending().await,
    }
}

fn read_endpoints<'a>(objects: impl Iterator<Item = &'a Object>) -> Vec<Endpoint> {
    objects.filter_map(|object| Endpoint::from_object(object).ok()).collect()
}
