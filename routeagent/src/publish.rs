//! Keeps this node's RouteAgent object, and pings the remote gateways for it.
//!
//! ```text
//!   store ──▶ source ──views, remotes──▶ ┌────────────┐ ──status──▶ RouteAgent object
//!   passes ──reports (conditions, ──────▶│ Publisher  │
//!            addresses)                  └──▲─────────┘
//!                                           └── Probes (not on gateway nodes)
//! ```
//!
//! Level-driven: what the object should say is computed anew at every change. It is written at once when it says
//! something else, but for round-trip times, which wait for the next of upstream's minutes; then it is also looked at, so
//! that an object that somebody deleted comes back. The account needs no `watch` for it (upstream's has none).

use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use rand_core::OsRng;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tracing::warn;
use trieste_control::admin::{self, Severity};
use trieste_control::api::{
    EndpointSpec, Kind, NodeCondition, Object, ObjectKey, Resource as _, RouteAgent, annotation,
};
use trieste_control::backoff::Backoff;
use trieste_control::conditions::Conditions;
use trieste_control::health::{PingerConfig, PingerView, ProbeOptions, Probes};
use trieste_control::store::{Store, StoreError, delete_if_exists};
use trieste_control::timer::sleep_until;

use crate::agent::{Report, changed};
use crate::condition::Condition;
use crate::driver::registry::serving;
use crate::live::WatchedSettings;
use crate::reconcile::Serving;
use crate::state::{DeviceAddress, Node};
use crate::status::{Checking, Content, is_gateway, node_conditions, sources};
use crate::view::ClusterView;

/// From the specification: how often the object is written at least, and looked at.
const REFRESH: Duration = Duration::from_secs(60);
/// Ours: what changes in quick succession is one write.
const AT_MOST_EVERY: Duration = Duration::from_secs(2);
/// Ours: how long to wait for an answer to one request.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// Ours: how long a stop waits for the object to be deleted. A pod's grace period may be a second.
const REMOVE_TIMEOUT: Duration = Duration::from_millis(800);
/// Ours: first and longest wait after a write that failed.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// Ours: how often a race is run again at once.
const MAX_RACES: usize = 5;
/// Name of the condition that the object cannot be written.
const NOT_WRITTEN: &str = "RouteAgentNotWritten";

type Views = Arc<BTreeMap<String, PingerView>>;

/// Inputs of the publisher.
#[derive(Debug, Clone)]
pub struct Inputs {
    /// The cluster set; `None` until it is known.
    pub views: watch::Receiver<Option<ClusterView>>,
    /// The remote gateways, word for word.
    pub remotes: watch::Receiver<Vec<EndpointSpec>>,
    /// How the last pass went.
    pub reports: watch::Receiver<Report>,
}

/// Keeps one node's object. [`Publisher::run`] is the whole of it.
#[derive(Debug)]
pub struct Publisher<S> {
    store: S,
    key: ObjectKey,
    node: Node,
    pinger: Option<PingerConfig>,
    /// The settings, where somebody follows them.
    settings: Option<WatchedSettings>,
    conditions: Conditions,
    probing: Option<Probing>,
    ledger: Ledger,
    /// What the object should say; `None` before the cluster set was read and a pass was made.
    wanted: Option<Content>,
    basis: Option<Basis>,
    /// Whether remote gateways have changed since, as far as was waited for that: who waits for a change has seen it.
    have_moved: bool,
    /// The same of their pings.
    have_answered: bool,
}

/// Everything that the object's content depends on, but for remote gateways and their pings.
#[derive(Debug, PartialEq, Eq)]
struct Basis {
    is_gateway: bool,
    conditions: BTreeSet<Condition>,
    addresses: BTreeSet<DeviceAddress>,
    serving: Serving,
    of_others: Vec<NodeCondition>,
}

/// The pings, where they come from, and what is wrong with them.
#[derive(Debug)]
struct Probing {
    probes: Probes,
    views: watch::Receiver<Views>,
    sources: Vec<IpAddr>,
    conditions: Conditions,
}

impl<S: Store> Publisher<S> {
    /// Returns a publisher for the Node object `node_name`. Without a `pinger` no gateway is pinged.
    pub fn new(store: S, namespace: &str, node_name: &str, node: Node, pinger: Option<PingerConfig>) -> Self {
        Self {
            store,
            key: ObjectKey::new(Kind::RouteAgent, namespace, node_name),
            node,
            pinger,
            settings: None,
            conditions: Conditions::new(),
            probing: None,
            ledger: Ledger::default(),
            wanted: None,
            basis: None,
            have_moved: false,
            have_answered: false,
        }
    }

    /// Goes by settings that may change.
    #[must_use]
    pub fn with_settings(self, settings: WatchedSettings) -> Self {
        Self { settings: Some(settings), ..self }
    }

    /// Pings by the setting of the moment. Whether anybody is pinged at all does not change.
    fn follow_settings(&mut self) {
        let Some(settings) = &mut self.settings else { return };
        let newest = *settings.pinger.borrow_and_update();
        if let (Some(pinger), true) = (newest, self.pinger.is_some() && newest != self.pinger) {
            self.pinger = newest;
            self.probing.iter().for_each(|probing| probing.probes.set_pinger(pinger));
        }
    }

    /// Keeps the object until `stop` is ready, then deletes it.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub async fn run(mut self, mut inputs: Inputs, stop: impl Future<Output = ()>) {
        tokio::pin!(stop);
        loop {
            self.renew(&mut inputs);
            let due = self.wanted.as_ref().map(|wanted| self.ledger.due(wanted, Instant::now()));
            tokio::select! {
                () = &mut stop => break,
                () = changed(&mut inputs.views) => {}
                () = changed(&mut inputs.remotes) => self.have_moved = true,
                () = changed(&mut inputs.reports) => {}
                () = settled_anew(self.settings.as_mut()) => self.follow_settings(),
                () = probed(self.probing.as_mut()) => self.have_answered = true,
                () = sleep_until(due) => if let Some(wanted) = self.wanted.clone() {
                    tokio::select! {
                        () = &mut stop => break,
                        () = self.write(wanted) => {}
                    }
                },
            }
        }
        drop(self.probing.take());
        match timeout(REMOVE_TIMEOUT, delete_if_exists(&self.store, &self.key)).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => warn!(object = %self.key, %error, "cannot remove the RouteAgent object"),
            Err(_) => {
                warn!(object = %self.key, timeout = ?REMOVE_TIMEOUT, "no answer when removing the RouteAgent object")
            }
        }
    }

    /// Computes the content of the object anew, if anything has changed that it depends on.
    fn renew(&mut self, inputs: &mut Inputs) {
        let is_gateway = inputs.views.borrow_and_update().as_ref().map(|view| {
            if self.node.follow(view.own_networks.as_ref()) {
                self.basis = None;
            }
            is_gateway(view, &self.node)
        });
        self.have_moved |= inputs.remotes.has_changed().unwrap_or(false);
        let remotes = inputs.remotes.borrow_and_update();
        let report = inputs.reports.borrow_and_update();
        let Some(is_gateway) = is_gateway.filter(|_| report.passes > 0) else {
            (self.wanted, self.basis) = (None, None);
            return;
        };
        let basis = Basis {
            is_gateway,
            conditions: report.conditions.clone(),
            addresses: report.addresses.clone(),
            serving: report.serving,
            of_others: self.conditions_of_others(),
        };
        let is_answered = |probing: &Probing| probing.views.has_changed().unwrap_or(false);
        self.have_answered |= self.probing.as_ref().is_some_and(is_answered);
        let have_moved = std::mem::take(&mut self.have_moved);
        let have_answered = std::mem::take(&mut self.have_answered);
        if self.basis.as_ref() == Some(&basis) && !have_moved && !have_answered {
            return;
        }
        let checking = self.check(is_gateway, (&remotes, have_moved), &report.addresses);
        let mut conditions = node_conditions(&report.conditions);
        conditions.extend(self.conditions_of_others());
        let content = Content::new(&remotes, &checking, conditions);
        self.wanted = Some(Content { services: services(report.serving), ..content });
        self.basis = Some(basis);
    }

    /// Returns the conditions of pings and of settings.
    fn conditions_of_others(&self) -> Vec<NodeCondition> {
        let of_settings = self.settings.iter().flat_map(|settings| settings.conditions.list());
        let conditions = self.probing.iter().flat_map(|probing| probing.conditions.list()).chain(of_settings);
        let of_node = |condition: admin::Condition| NodeCondition {
            name: condition.name,
            severity: condition.severity,
            message: condition.message,
        };
        conditions.map(of_node).collect()
    }

    /// Starts, changes or ends the pings as the node's role wants it.
    fn check(
        &mut self,
        is_gateway: bool,
        (remotes, have_moved): (&[EndpointSpec], bool),
        addresses: &BTreeSet<DeviceAddress>,
    ) -> Checking {
        let role = match self.pinger {
            None => Err(Checking::Off),
            Some(_) if is_gateway => Err(Checking::Gateway),
            Some(pinger) => Ok(pinger),
        };
        let in_use = self.probing.as_ref().map(|probing| probing.sources.clone()).unwrap_or_default();
        let sources = sources(addresses, &self.node, &in_use);
        let pinger = match role {
            Ok(_) if sources.is_empty() => Err(Checking::NoSource),
            role => role,
        };
        let pinger = match pinger {
            Ok(pinger) => pinger,
            Err(checking) => {
                self.probing = None;
                return checking;
            }
        };
        let is_new = self.probing.is_none() || sources != in_use;
        if is_new {
            self.probing = Some(Probing::start(&self.node, pinger, sources));
        }
        let Some(probing) = &mut self.probing else { return Checking::NoSource };
        if is_new || have_moved {
            probing.probes.follow(remotes.to_vec());
        }
        Checking::Pings(Arc::clone(&probing.views.borrow_and_update()))
    }

    async fn write(&mut self, wanted: Content) {
        let answer = bounded("write", &self.key, put(&self.store, &self.key, &wanted)).await;
        let problem = answer
            .as_ref()
            .err()
            .map(|error| format!("{error}; this node's state is not shown. Its routes are not affected"));
        self.conditions.put(NOT_WRITTEN, Severity::Warning, "", problem);
        self.ledger.note(answer.is_ok().then_some(wanted), Instant::now());
    }
}

impl Probing {
    /// Probes leave by the device to the gateway alone, and so never in clear.
    fn start(node: &Node, pinger: PingerConfig, sources: Vec<IpAddr>) -> Self {
        let conditions = Conditions::new();
        let options = ProbeOptions {
            cluster_id: node.cluster.clone(),
            pinger,
            sources: sources.clone(),
            device: Some(serving(&node.plugin).device_to_gateway().to_owned()),
        };
        let probes = Probes::spawn(options, conditions.clone());
        Self { views: probes.watch(), probes, sources, conditions }
    }
}

/// The last write, and the time of the next one. Pure.
#[derive(Debug)]
struct Ledger {
    written: Option<Content>,
    at: Option<Instant>,
    backoff: Backoff,
}

impl Default for Ledger {
    fn default() -> Self {
        Self { written: None, at: None, backoff: Backoff::new(RETRY.0, RETRY.1) }
    }
}

impl Ledger {
    /// Returns when the object has to be written or compared next.
    fn due(&self, wanted: &Content, now: Instant) -> Instant {
        let Some(at) = self.at else { return now };
        let is_same = self.written.as_ref().is_some_and(|written| written.is_same_but_latency(wanted));
        at + if is_same { REFRESH } else { AT_MOST_EVERY }
    }

    /// Records the result of a write.
    fn note(&mut self, written: Option<Content>, now: Instant) {
        if written.is_some() {
            self.backoff.reset();
            self.at = Some(now);
        } else {
            // Due when the wait is over, since nothing counts as written.
            self.at = Some(now + self.backoff.next_wait(&mut OsRng));
        }
        self.written = written;
    }
}

/// Deletes a node's object, for an uninstall; gives `false` if there was none.
///
/// # Errors
///
/// [`StoreError`]: it may still be there.
pub async fn withdraw(store: &impl Store, namespace: &str, node_name: &str) -> Result<bool, StoreError> {
    let key = ObjectKey::new(Kind::RouteAgent, namespace, node_name);
    bounded("delete", &key, delete_if_exists(store, &key)).await
}

/// Waits [`ANSWER_WITHIN`] for the answer to a request.
async fn bounded<T>(
    verb: &str,
    key: &ObjectKey,
    request: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    timeout(ANSWER_WITHIN, request).await.unwrap_or_else(|_| {
        let source = io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {ANSWER_WITHIN:?}"));
        Err(StoreError::Unavailable { operation: format!("{verb} {key}"), source })
    })
}

/// Writes the object, if it differs. A new one is owned by its Node, and is removed with it.
async fn put(store: &impl Store, key: &ObjectKey, wanted: &Content) -> Result<(), StoreError> {
    let mut races = 0;
    loop {
        let existing = store.get(key).await?;
        let object = object(key, existing.clone(), wanted)?;
        let answer = match &existing {
            Some(existing) if existing.same_content(&object) => return Ok(()),
            Some(_) => store.update(object).await,
            None => store.create(owned(object, store).await).await,
        };
        match answer {
            Err(error) if error.is_race() && races < MAX_RACES => races += 1,
            answer => return answer.map(drop),
        }
    }
}

/// Returns what is said of services: where the node takes packets for them, or that it takes none.
fn services(serving: Serving) -> Option<String> {
    let off = || serving.is_off.then(|| annotation::NO_SERVICES.to_owned());
    serving.address.map(|address| address.to_string()).or_else(off)
}

/// Returns the object to write. Labels and annotations of others stay.
fn object(key: &ObjectKey, existing: Option<Object>, wanted: &Content) -> Result<Object, StoreError> {
    let invalid = |source| StoreError::Invalid { key: key.clone(), source };
    let fresh =
        RouteAgent::new(&key.namespace, &key.name, wanted.status.clone()).map_err(invalid)?.to_object();
    let mut object = existing.unwrap_or_else(|| fresh.clone());
    object.body.extend(fresh.body);
    let version = wanted.status.version.clone();
    object.metadata.annotations.insert(annotation::ROUTE_AGENT.to_owned(), version);
    object.metadata.annotations.remove(annotation::SERVICES);
    let services = wanted.services.clone().map(|value| (annotation::SERVICES.to_owned(), value));
    object.metadata.annotations.extend(services);
    object.metadata.annotations.remove(annotation::CONDITIONS);
    if !wanted.conditions.is_empty() {
        let text = serde_json::to_string(&wanted.conditions).unwrap_or_default();
        object.metadata.annotations.insert(annotation::CONDITIONS.to_owned(), text);
    }
    Ok(object)
}

/// Adds the owner, if there is such a Node and it may be read. Whoever cleans up after a node that is gone for good then
/// cleans up this object; upstream's stay for ever.
async fn owned(mut object: Object, store: &impl Store) -> Object {
    let key = ObjectKey::new(Kind::Node, "", &object.metadata.name);
    if let Ok(Some(node)) = store.get(&key).await
        && let Some(uid) = node.metadata.uid
    {
        let owner = json!([{"apiVersion": "v1", "kind": "Node", "name": key.name, "uid": uid}]);
        object.metadata.extra.insert("ownerReferences".to_owned(), owner);
    }
    object
}

async fn settled_anew(settings: Option<&mut WatchedSettings>) {
    match settings {
        Some(settings) => changed(&mut settings.pinger).await,
        None => pending().await,
    }
}

async fn probed(probing: Option<&mut Probing>) {
    match probing {
        Some(probing) => changed(&mut probing.views).await,
        None => pending().await,
    }
}

#[cfg(test)]
mod tests;
