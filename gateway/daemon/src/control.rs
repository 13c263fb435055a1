//! The control loop: follows the stores, and keeps cables, Endpoint and status up to date.
//!
//! ```text
//!   Endpoints ─────┐                     ┌─▶ engine: cables and tables
//!   discovery ─────┤                     ├─▶ discovery, probes: who is remote
//!   leadership ────┼──▶ control loop ────┼─▶ Endpoint spec ─▶ leader ─▶ local store ─▶ broker
//!   Node, public ──┤                     ├─▶ status document, conditions
//!   IP, addresses ─┤                     └─▶ what is remembered over a restart
//!   Globalnet ─────┘
//! ```
//!
//! Level-driven: whatever changed, everything is worked out again from the newest state of all inputs.

mod addresses;
mod endpoints;
mod globalnet;
mod peers;
mod throttle;

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use arc_swap::ArcSwap;
use futures::{FutureExt as _, StreamExt as _};
use jiff::Timestamp;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use trieste_control::admin::{BrokerLink, BrokerStatus, IpsecStatus, Severity};
use trieste_control::api::{Endpoint, EndpointSpec, Kind, Object, Resource as _};
use trieste_control::conditions::Conditions;
use trieste_control::election::{Candidate, Term};
use trieste_control::health::Probes;
use trieste_control::members::{Leave, targets};
use trieste_control::natdiscovery::Remote;
use trieste_control::notice::GatewayKey;
use trieste_control::publicip::PublicIpWatcher;
use trieste_control::recorder::Recorder;
use trieste_control::store::{AnyStore, Store as _, StoreEvent};

use crate::config::Config;
use crate::engine::{Engine, Gateways};
use crate::ike::IkeHandle;
use crate::memory::{Keeper, Remembered};
use crate::natdiscovery::Discovery;
use crate::node::{Found, Node};
use crate::notice::Notices;
use crate::role::BrokerView;
use crate::shared::Shared;
use crate::status::{self, Fixed, Live};
use crate::tables::{Choice, Choices};

pub(crate) use addresses::discovery_local;
use endpoints::Endpoints;
pub(crate) use globalnet::Globalnet;
pub(crate) use peers::Peers;
pub(crate) use peers::RememberedMembers;
use throttle::Throttle;

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
/// How long the cables of a gateway that no longer leads outlive the Endpoint of the one that does: what peers and
/// workers send by the old way is still delivered meanwhile.
const HANDOVER: Duration = Duration::from_secs(3);
/// How long a planned stop waits for the Lease to be given back.
const RELEASE: Duration = Duration::from_millis(300);
/// How long a gateway that gave the lead away waits for a successor, and since it was asked to stop at the most. Upstream's
/// pods have a second from being asked to being killed.
const LINGER: Duration = Duration::from_millis(500);
const LINGER_UNTIL: Duration = Duration::from_millis(600);
/// How long it goes on when the successor is there: peers hear of it through the broker.
const FAREWELL: Duration = Duration::from_millis(250);
/// How long a cable is in error before its peer's address is looked for anew.
const REDISCOVER_AFTER: Duration = Duration::from_secs(30);

/// What the loop works with.
pub(crate) struct Control<'a> {
    pub(crate) config: &'a Config,
    pub(crate) node: Node,
    pub(crate) store: AnyStore,
    pub(crate) driver: Driver,
    pub(crate) fixed: Fixed,
    pub(crate) shared: Arc<Shared>,
    pub(crate) names: Arc<ArcSwap<BTreeMap<u16, String>>>,
    pub(crate) candidate: Candidate,
    pub(crate) broker: watch::Receiver<BrokerView>,
    pub(crate) announced: watch::Receiver<Option<Term>>,
    pub(crate) endpoint: watch::Sender<EndpointSpec>,
    pub(crate) discovery: Discovery,
    pub(crate) notices: Notices,
    pub(crate) probes: Option<Probes>,
    pub(crate) public_ip: PublicIpWatcher,
    pub(crate) conditions: Conditions,
    pub(crate) recorder: Recorder,
    pub(crate) memory: Option<Keeper>,
    pub(crate) globalnet: Globalnet,
    pub(crate) peers: Peers,
    pub(crate) state: State,
}

/// What the cable driver says of itself.
pub(crate) struct Driver {
    pub(crate) name: String,
    pub(crate) backend_config: BTreeMap<String, String>,
}

/// What the loop knows.
#[derive(Default)]
pub(crate) struct State {
    found: Found,
    remembered: Option<Remembered>,
    mirror: Endpoints,
    link: BrokerStatus,
    /// Since when another gateway's Endpoint is there while this one does not lead.
    superseded: Option<Instant>,
    /// Since when each cable has been in error.
    in_error: BTreeMap<String, Instant>,
    /// Whether something may have changed that is remembered over a restart.
    is_dirty: bool,
    /// The Endpoints that were remembered, until the store has answered.
    begun_with: Vec<Endpoint>,
    /// Whether the node has been labelled as a gateway.
    was_gateway: bool,
    /// Whether the Node's settings could not be read at start, and what was taken instead is a guess.
    is_guess: bool,
    /// The setting by which the public address is sought, and whether without its load balancers, which lead to another
    /// gateway.
    sought: (Option<String>, bool),
    /// Why this gateway has to start again.
    restart: Option<String>,
    globalnet: globalnet::Known,
    drain: peers::Drain,
}

impl State {
    /// Makes what is known at start; the public address is sought already.
    pub(crate) fn new(config: &Config, found: Found, remembered: Option<Remembered>, is_guess: bool) -> Self {
        let was_gateway =
            found.settings.is_gateway || remembered.as_ref().is_some_and(|known| known.was_gateway);
        let sought = (found.resolvers(config).map(str::to_owned), false);
        Self { found, remembered, was_gateway, is_guess, sought, ..Self::default() }
    }
}

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
                () = globalnet::changed(&mut globalnet) => self.take_globalnet(engine).await,
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

    /// Gives the lead away before a planned stop. Gives until when a successor is waited for; `None` if there is nothing
    /// to wait for.
    async fn step_down(&mut self, engine: &Engine) -> Option<Instant> {
        let latest = Instant::now() + LINGER_UNTIL;
        let is_relieved = self.drain_to_stop(engine);
        let was_leader = self.candidate.is_leader(Instant::now());
        let is_released = self.candidate.release(RELEASE).await;
        if was_leader {
            let message = if is_released {
                "the lead is given away before a stop"
            } else {
                "the Lease could not be given back in time"
            };
            self.recorder.record(Severity::Info, "SteppingDown", message);
        }
        // Nobody else can take over a Lease that was not given back.
        (is_relieved || (was_leader && is_released)).then(|| latest.min(Instant::now() + LINGER))
    }

    /// How this gateway leaves: for good where its node is no gateway's any more.
    pub(crate) fn leave(&self) -> Leave {
        let is_gateway = self.state.found.settings.is_gateway || !self.state.was_gateway;
        if is_gateway { Leave::ToReturn } else { Leave::ForGood }
    }

    /// Ends what must end in order. Who leaves for good has ended its workers before.
    pub(crate) async fn stop(self, within: Duration) {
        let leave = self.leave();
        let mut memory = self.memory;
        let is_for_good = leave == Leave::ForGood;
        if is_for_good && let Some(memory) = memory.take() {
            // First, or a restart would begin with shares that are somebody else's.
            memory.forget_slots();
            memory.stop(within).await;
        }
        let memory = async {
            if let Some(memory) = memory {
                memory.stop(within).await;
            }
        };
        // What discovery has found is worth a moment, and no more.
        let discovery = tokio::time::timeout(within, self.discovery.stop());
        let globalnet = async {
            if let Some(controllers) = &self.globalnet.controllers {
                controllers.release(within).await;
            }
        };
        // Siblings remove what stays behind, so that a store that is slow costs no more than half of it; shares of the outside
        // ports that are given up are worth all of it.
        let within = if is_for_good { within } else { within / 2 };
        let _ = tokio::join!(memory, discovery, globalnet, self.peers.handle.leave(leave, within));
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

    /// Makes everything fit what is known.
    async fn converge(&mut self, engine: &mut Engine) {
        let now = Instant::now();
        self.state.is_dirty = true;
        if self.candidate.is_leader(now) {
            engine.set_active(true, now).await;
        }
        if self.state.mirror.is_complete() {
            let endpoints = self.read_mirror();
            self.connect(engine, &endpoints, now).await;
        }
        self.watch_health(engine);
        self.hand_over(engine).await;
        self.refresh(engine).await;
    }

    /// Makes cables fit the Endpoints. Discovery asks only those that the engine admits: what is refused must not stand
    /// in the way of anybody else's answers.
    async fn connect(&self, engine: &mut Engine, endpoints: &[Endpoint], now: Instant) {
        let before = self.choices();
        let members = self.members();
        let targets = targets(&self.config.cluster_id, endpoints, &members);
        globalnet::share_ports(engine, &members);
        let own = endpoints.iter().find(|endpoint| endpoint.spec.cluster_id == self.config.cluster_id);
        let gateways = Gateways {
            targets: &targets,
            siblings: &members.siblings,
            leader: own.map(|own| own.spec.cable_name.as_str()),
        };
        engine.reconcile(&gateways, &before, now).await;
        let remotes: Vec<Remote> =
            engine.peers().iter().map(|peer| Remote::new(&peer.facts, &peer.spec)).collect();
        self.discovery.set_remotes(&remotes);
        let known_at_once = self.choices();
        if known_at_once != before {
            engine.reconcile(&gateways, &known_at_once, now).await;
        }
    }

    /// Says which cables notices to route agents are about.
    fn give_notice(&self, engine: &Engine) {
        let (near, remote) = engine.far_ends();
        let siblings = near.into_iter().map(|(name, cable)| (GatewayKey::of_cable(name), cable)).collect();
        self.notices.set_paths(siblings, remote);
    }

    /// Takes in what the other gateways say.
    async fn take_members(&mut self, engine: &mut Engine) {
        self.publish_endpoint();
        self.take_others(engine);
        let now = Instant::now();
        // Before the own store has answered, what is remembered of it stands.
        if self.state.mirror.is_complete() {
            self.converge(engine).await;
        } else {
            let endpoints = self.state.begun_with.clone();
            self.connect(engine, &endpoints, now).await;
            self.watch_health(engine);
        }
    }

    /// Gives the cables up when another gateway has taken over, and only then.
    async fn hand_over(&mut self, engine: &mut Engine) {
        let now = Instant::now();
        let is_superseded = !self.candidate.is_leader(now) && engine.is_active() && self.has_successor();
        if !is_superseded {
            self.state.superseded = None;
            return;
        }
        let since = *self.state.superseded.get_or_insert(now);
        if now.duration_since(since) >= HANDOVER {
            self.state.superseded = None;
            self.recorder.record(
                Severity::Info,
                "HandedOver",
                "another gateway of this cluster has taken over",
            );
            engine.set_active(false, now).await;
            self.state.is_dirty = true;
            self.watch_health(engine);
        }
    }

    /// Whether another gateway's Endpoint stands for this cluster.
    fn has_successor(&self) -> bool {
        self.state.mirror.is_complete() && self.others_soles().next().is_some()
    }

    /// Sole Endpoints of this cluster that are another gateway's, of whatever shape otherwise.
    fn others_soles(&self) -> impl Iterator<Item = &Object> {
        self.state.mirror.objects().filter(|object| {
            let spec = object.body.get("spec");
            let text = |key: &str| spec.and_then(|spec| spec.get(key)).and_then(|value| value.as_str());
            object.metadata.origin().is_none()
                && text("cluster_id") == Some(self.config.cluster_id.as_str())
                && text("hostname").is_some_and(|name| name != self.node.hostname)
        })
    }

    fn read_mirror(&mut self) -> Vec<Endpoint> {
        let (endpoints, unreadable) = self.state.mirror.read();
        self.conditions.replace("UnreadableObject", Severity::Warning, &unreadable);
        endpoints
    }

    fn choices(&self) -> Choices {
        let selections = self.discovery.selections();
        let chosen = selections.borrow();
        chosen
            .iter()
            .map(|(cable, selection)| {
                (cable.clone(), Choice { ip: selection.ip, use_nat: selection.use_nat })
            })
            .collect()
    }

    /// Pings the peers of the cables that there are.
    fn watch_health(&self, engine: &Engine) {
        let Some(probes) = &self.probes else { return };
        let peers = engine.own_peers().filter(|_| !self.lacks_address());
        probes.follow(peers.map(|peer| peer.spec.clone()).collect());
    }

    pub(crate) async fn refresh(&mut self, engine: &mut Engine) {
        let now = Instant::now();
        self.come_forward(engine, now);
        let is_settled = self.is_settled(engine, now);
        self.shared.settle(is_settled);
        self.refresh_globalnet(now);
        self.tell_heard(engine);
        self.report_older_leader();
        let drain = self.look_at_drain(engine, now);
        let mut endpoint = self.endpoint.borrow().clone();
        Self::mark_drain(&mut endpoint, drain.as_ref());
        engine.observe(now, Timestamp::now().as_second());
        self.give_notice(engine);
        let broker = self.broker.borrow().clone();
        let failure = self.shared.failure.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut election = self.candidate.status().borrow().clone();
        election.is_leader = self.candidate.is_leader(now);
        let live = Live {
            endpoint,
            is_multi: self.members().is_multi,
            is_announced: self.is_announced(now),
            drain,
            broker: if self.config.broker.is_some() { broker.state } else { BrokerStatus::default() },
            refused: broker.refused,
            store: self.state.link.clone(),
            election,
            conditions: self.conditions.list(),
            events: self.recorder.recent(),
            failure,
        };
        let mut document = status::document(&self.fixed, engine, live, now);
        for cable in &mut document.connections {
            cable.discovery = self.discovery.status(&cable.connection.endpoint.cable_name);
            if let Some(probes) = &self.probes {
                probes.merge(&mut cable.connection);
                cable.health = probes.status(&cable.connection.endpoint.cable_name);
            }
            // A peer that answers pings may lack the SA of another pair of subnets all the same.
            if cable.connection.status_message.is_empty()
                && let Some(remark) = cable.ipsec.as_ref().and_then(IpsecStatus::remark)
            {
                cable.connection.status_message = remark;
            }
        }
        self.rediscover(&document.connections, now);
        self.shared.publish(document);
        *self.shared.discovery.lock().unwrap_or_else(PoisonError::into_inner) = self.discovery.counters();
        *self.shared.notices.lock().unwrap_or_else(PoisonError::into_inner) = self.notices.numbers();
        *self.shared.ike.lock().unwrap_or_else(PoisonError::into_inner) =
            engine.ike().map(IkeHandle::numbers);
        let seconds = |at: i64| Duration::from_secs(u64::try_from(at).unwrap_or_default());
        let established = engine.established().into_iter().map(|(name, at)| (name, seconds(at))).collect();
        *self.shared.established.lock().unwrap_or_else(PoisonError::into_inner) = established;
        let counters =
            engine.workers().iter().map(|worker| (u32::from(worker.id.0), worker.published().counters));
        *self.shared.workers.lock().unwrap_or_else(PoisonError::into_inner) = counters.collect();
        self.names.store(Arc::new(engine.cable_names()));
        self.remember(engine);
    }

    /// Returns whether this gateway leads, and the own store has said so in this term.
    fn is_announced(&self, now: Instant) -> bool {
        let term = self.candidate.term(now);
        term.is_some() && *self.announced.borrow() == term
    }

    /// A peer that has been in error for a while may be reached by another of its addresses.
    fn rediscover(&mut self, connections: &[trieste_control::admin::CableStatus], now: Instant) {
        use trieste_control::api::ConnectionStatus;
        let failing: BTreeSet<&str> = connections
            .iter()
            .filter(|cable| {
                // Upstream's word for an IPsec cable that fails is `connecting`.
                let is_down = cable.ipsec.as_ref().is_some_and(|ipsec| !ipsec.is_up);
                cable.connection.status == ConnectionStatus::Error || is_down
            })
            .map(|cable| cable.connection.endpoint.cable_name.as_str())
            .collect();
        let known = &mut self.state.in_error;
        known.retain(|cable, _| failing.contains(cable.as_str()));
        for cable in failing {
            let since = known.entry(cable.to_owned()).or_insert(now);
            if now.duration_since(*since) >= REDISCOVER_AFTER {
                *since = now;
                self.discovery.rediscover(cable);
            }
        }
    }

    /// Says what a restart should start from, when it changed.
    fn remember(&mut self, engine: &Engine) {
        let Some(memory) = &self.memory else { return };
        if !self.state.mirror.is_complete() || !std::mem::take(&mut self.state.is_dirty) {
            return;
        }
        let public = self.public_ip.public_ip.borrow().remembered();
        memory.set(Remembered {
            was_active: engine.is_active(),
            endpoints: self.state.mirror.objects().map(without_bookkeeping).collect(),
            node: self.config.node_name.is_some().then(|| self.state.found.settings.clone()),
            was_gateway: self.state.was_gateway,
            public_ip: public.as_ref().map(|public| public.address),
            public_ip_resolver: public.map(|public| public.resolver),
            members: RememberedMembers::of(
                &self.peers.handle.members.borrow(),
                Instant::now(),
                Timestamp::now(),
            ),
            globalnet: self.state.globalnet.remembered(),
        });
    }
}

/// What changes without meaning anything would only wear the disk.
fn without_bookkeeping(object: &Object) -> Object {
    let mut object = object.clone();
    object.metadata.resource_version = None;
    object.metadata.generation = None;
    object.metadata.extra.clear();
    object
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
