//! Carries out what the machines of this module plan, on two stores that do not wait for one another. No decisions.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::StreamExt as _;
use jiff::Timestamp;
use rand_core::OsRng;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use super::{
    FURTHER_PREFIX, Janitor, Member, Members, SlotTimes, Slots, further_name, paths_namespace, plan_own,
};
use crate::admin::Severity;
use crate::api::{EndpointSpec, Kind, NoticeKey, Object, ObjectKey};
use crate::backoff::Backoff;
use crate::conditions::Conditions;
use crate::runner::Write;
use crate::store::{Cache, Store, StoreError, StoreEvent, delete_if_exists};
use crate::timer::clock;

/// The condition that says that this cluster's gateways cannot all be active, and why.
pub const ONE_GATEWAY: &str = "OneActiveGateway";
/// The condition that says that the broker does not take this gateway's further Endpoint.
pub const NOT_ON_BROKER: &str = "GatewayNotOnBroker";

/// Who this gateway is, and where it tells so.
#[derive(Debug, Clone)]
pub struct MembersConfig {
    /// The namespace of this cluster's objects; that of further Endpoints is made of it.
    pub namespace: String,
    /// The namespace that all clusters share on the broker.
    pub broker_namespace: String,
    /// This cluster.
    pub cluster_id: String,
    /// This gateway.
    pub hostname: String,
    /// Whether all gateways of this cluster are to be active. If not, what this one once said of itself is removed.
    pub is_wanted: bool,
    /// Whether shares of outside ports are claimed: with Globalnet.
    pub has_slots: bool,
    /// The key of this gateway's notices.
    pub notice_key: Option<NoticeKey>,
    /// What takes how long with shares.
    pub times: SlotTimes,
}

/// What may change at any time.
#[derive(Debug, Clone)]
pub struct Inputs {
    /// What this gateway says of itself.
    pub endpoint: watch::Receiver<EndpointSpec>,
    /// Whether it is to get no new flows.
    pub draining: watch::Receiver<bool>,
    /// The cables to siblings that are not dead.
    pub heard: watch::Receiver<BTreeSet<String>>,
    /// Where problems are told.
    pub conditions: Conditions,
}

impl Inputs {
    /// Waits until something is to be said that was not. Can be cancelled. Who has nothing more to say changes nothing.
    async fn changed(&mut self) {
        tokio::select! {
            Ok(()) = self.endpoint.changed() => {}
            Ok(()) = self.draining.changed() => {}
            else => std::future::pending().await,
        }
    }
}

/// The other gateways, followed. Dropping it ends it; what it has written stays.
#[derive(Debug)]
pub struct MembersHandle {
    /// The other gateways. What was known before stays known while a store is away.
    pub members: watch::Receiver<Members>,
    leaving: watch::Sender<Leave>,
    tasks: JoinSet<()>,
}

impl MembersHandle {
    /// Removes what this gateway has said of itself, and ends; waits at most `within`. A gateway that comes back finds its
    /// shares of the outside ports again; one that leaves for good gives them up, and must make no mappings any more.
    pub async fn leave(mut self, leave: Leave, within: Duration) {
        let _ = self.leaving.send(leave);
        let all = async { while self.tasks.join_next().await.is_some() {} };
        if timeout(within, all).await.is_err() {
            tracing::warn!("this gateway's further Endpoint may stay behind; its siblings will remove it");
        }
    }
}

/// Whether a gateway stops, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leave {
    /// It goes on.
    No,
    /// It is started again some time.
    ToReturn,
    /// Its node is no gateway's any more.
    ForGood,
}

/// Starts to tell of this gateway and to follow the others, from what was `known` before.
///
/// # Panics
/// Outside a tokio runtime.
pub fn spawn<S: Store + Clone, B: Store>(
    store: S,
    broker: Option<B>,
    config: &MembersConfig,
    inputs: &Inputs,
    known: Members,
) -> MembersHandle {
    let (sender, members) = watch::channel(known);
    let (leaving, left) = watch::channel(Leave::No);
    let (vanished, gone) = watch::channel(BTreeSet::new());
    let mut tasks = JoinSet::new();
    let here = Place {
        scope: Scope::Own,
        namespace: paths_namespace(&config.namespace),
        config: config.clone(),
        inputs: inputs.clone(),
        members: sender,
        left,
    };
    let there = Place { scope: Scope::Broker, namespace: config.broker_namespace.clone(), ..here.clone() };
    tasks.spawn(here.own(store, vanished));
    if let Some(broker) = broker {
        tasks.spawn(there.broker(broker, gone));
    }
    MembersHandle { members, leaving, tasks }
}

/// Ours: how long to wait for an answer to one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Ours: the first and the longest wait after a failure.
const RETRY: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(30));
/// Ours: how soon it is tried again after a lost race.
const RACE_WAIT: Duration = Duration::from_millis(200);
/// Ours: how often it is looked whether siblings have vanished.
const LOOK: Duration = Duration::from_secs(1);
/// Ours: how often shares are read where nothing is awaited, and where something is.
const SLOTS_INTERVAL: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(1));

/// Ours: after how long a silence the shares of a host that was taken out of the cluster may be taken. Its kubelet, if it
/// lives, ends its pods sooner.
const REMOVED_AFTER: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    Own,
    Broker,
}

/// One of the two places where gateways tell of themselves.
#[derive(Debug, Clone)]
struct Place {
    scope: Scope,
    namespace: String,
    config: MembersConfig,
    inputs: Inputs,
    members: watch::Sender<Members>,
    left: watch::Receiver<Leave>,
}

/// When to write again, and how it went.
struct Work {
    again: Option<Instant>,
    backoff: Backoff,
}

impl Work {
    fn new() -> Self {
        Self { again: None, backoff: Backoff::new(RETRY.0, RETRY.1) }
    }

    fn is_due(&self) -> bool {
        self.again.is_none_or(|again| Instant::now() >= again)
    }

    fn settle(&mut self, outcome: &Result<(), StoreError>) {
        self.again = match outcome {
            Ok(()) => {
                self.backoff.reset();
                None
            }
            // What is not there may be the namespace, and that takes longer.
            Err(StoreError::Conflict { .. } | StoreError::AlreadyExists(_)) => {
                Some(Instant::now() + RACE_WAIT)
            }
            Err(_) => Some(Instant::now() + self.backoff.next_wait(&mut OsRng)),
        };
    }
}

impl Place {
    /// The own store: siblings, their heartbeats, shares.
    async fn own<S: Store>(self, store: S, vanished: watch::Sender<BTreeSet<String>>) {
        let mut endpoints = store.list_watch(Kind::Endpoint, &self.namespace);
        let mut gateways = store.list_watch(Kind::Gateway, &self.config.namespace);
        let mut cache = Cache::new();
        let mut janitor = Janitor::new(&self.config.hostname);
        let mut slots = Slots::new(&self.namespace, &self.config.hostname, self.config.times);
        let mut read_at = Instant::now();
        let mut last_read = read_at;
        let mut work = Work::new();
        let mut ticks = ticks();
        let mut left = self.left.clone();
        let mut inputs = self.inputs.clone();
        loop {
            tokio::select! {
                biased;
                () = told_to_leave(&mut left) => break,
                Some(event) = gateways.next() => {
                    janitor.handle_gateways(&event, clock());
                    continue;
                }
                Some(event) = endpoints.next() => {
                    self.hear(&mut cache, &event);
                    // Who comes lacks a share of the ports.
                    read_at = read_at.min(last_read + SLOTS_INTERVAL.1);
                }
                () = inputs.changed() => {}
                _ = ticks.tick() => self.judge(&store, &cache, &mut janitor, &vanished).await,
            }
            let is_multi = self.members.borrow().is_multi;
            if is_multi && self.config.has_slots && Instant::now() >= read_at {
                let is_waiting = self.claim(&store, &cache, &janitor, &mut slots).await;
                let wait = if is_waiting { SLOTS_INTERVAL.1 } else { SLOTS_INTERVAL.0 };
                last_read = Instant::now();
                read_at = last_read + wait;
            }
            if cache.is_complete() && work.is_due() {
                let outcome = self.announce(&store, &mut cache, slots.first()).await;
                work.settle(&outcome);
                self.judge_outcome(&outcome);
            }
        }
        let is_for_good = *left.borrow() == Leave::ForGood;
        tokio::join!(self.withdraw(&store), async {
            if is_for_good && self.config.has_slots {
                self.release(&store, slots).await;
            }
        });
    }

    /// The broker: the gateways of all clusters.
    async fn broker<S: Store>(self, store: S, mut gone: watch::Receiver<BTreeSet<String>>) {
        let mut endpoints = store.list_watch(Kind::Endpoint, &self.namespace);
        let mut known = self.members.subscribe();
        let mut cache = Cache::new();
        let mut work = Work::new();
        let mut ticks = ticks();
        let mut left = self.left.clone();
        let mut inputs = self.inputs.clone();
        loop {
            tokio::select! {
                biased;
                () = told_to_leave(&mut left) => break,
                // A hostile member's objects are not gateways', however many there are of them.
                Some(event) = endpoints.next() => {
                    self.hear(&mut cache, &event.retain(|object| self.is_of_interest(object)));
                }
                () = inputs.changed() => {}
                Ok(()) = known.changed() => {}
                Ok(()) = gone.changed() => {}
                _ = ticks.tick() => {}
            }
            if cache.is_complete() && work.is_due() {
                let vanished = gone.borrow_and_update().clone();
                let mut outcome = self.announce(&store, &mut cache, None).await;
                if outcome.is_ok() {
                    outcome = self.remove_vanished(&store, &mut cache, &vanished).await;
                }
                work.settle(&outcome);
                self.judge_broker(&outcome);
            }
        }
        self.withdraw(&store).await;
    }

    /// Returns whether an object of the broker's may be a further Endpoint that can be read, or has the name of ours.
    fn is_of_interest(&self, object: &Object) -> bool {
        let name = &object.metadata.name;
        let is_ours =
            || further_name(&self.inputs.endpoint.borrow().cable_name).is_ok_and(|own| own == *name);
        name.starts_with(FURTHER_PREFIX) && (object.withheld.is_none() || is_ours())
    }

    /// Takes an event of further Endpoints in, and tells who is there.
    fn hear(&self, cache: &mut Cache, event: &StoreEvent) {
        if let StoreEvent::Unavailable(error @ StoreError::Forbidden { .. }) = event {
            match self.scope {
                Scope::Own => self.say_one(Some(&error.to_string())),
                Scope::Broker if !cache.is_complete() => self.say_not_on_broker(Some(error)),
                Scope::Broker => {}
            }
        }
        if !cache.apply(event) || !cache.is_complete() {
            return;
        }
        self.tell(cache);
    }

    fn tell(&self, cache: &Cache) {
        let mut members: Vec<Member> = cache.objects().filter_map(Member::read).collect();
        let config = &self.config;
        members.retain(|member| match self.scope {
            Scope::Own => {
                member.cluster_id() == config.cluster_id && member.endpoint.spec.hostname != config.hostname
            }
            Scope::Broker => member.cluster_id() != config.cluster_id,
        });
        members.sort_by(|a, b| (a.cluster_id(), a.cable_name()).cmp(&(b.cluster_id(), b.cable_name())));
        self.members.send_if_modified(|known| {
            let list = match self.scope {
                Scope::Own => &mut known.siblings,
                Scope::Broker => &mut known.remote,
            };
            let is_news = *list != members;
            *list = members;
            is_news
        });
    }

    /// Makes the place say what this gateway says of itself.
    async fn announce<S: Store>(
        &self,
        store: &S,
        cache: &mut Cache,
        first_slot: Option<u8>,
    ) -> Result<(), StoreError> {
        let is_multi = self.members.borrow().is_multi;
        let is_wanted = self.config.is_wanted && (self.scope == Scope::Own || is_multi);
        let own = self.own_spec(first_slot);
        let objects: Vec<&Object> = cache.objects().collect();
        let Ok(writes) = plan_own(&self.namespace, &own, is_wanted, &objects) else {
            // A cable's name is made of the cluster's and an address: it is one.
            return Ok(());
        };
        for write in writes {
            let event = write.execute(store).await?;
            cache.apply(&event);
        }
        Ok(())
    }

    fn own_spec(&self, first_slot: Option<u8>) -> EndpointSpec {
        let mut own = self.inputs.endpoint.borrow().clone();
        own.set_knows_paths(true);
        own.set_draining(*self.inputs.draining.borrow());
        if self.scope == Scope::Own {
            own.set_notice_key(self.config.notice_key);
            own.set_nat_slot(first_slot);
        }
        own
    }

    /// Whether the own place takes what we say decides whether all gateways can be active.
    fn judge_outcome(&self, outcome: &Result<(), StoreError>) {
        match outcome {
            Ok(()) => self.say_one(None),
            Err(error @ (StoreError::Forbidden { .. } | StoreError::Denied { .. })) => {
                self.say_one(Some(&error.to_string()));
            }
            // A namespace that is not there says so of what is to be made in it.
            Err(StoreError::NotFound(key)) if key.kind == Kind::Endpoint => {
                self.say_one(Some(&format!("there is no namespace {}", key.namespace)));
            }
            Err(_) => {}
        }
    }

    /// Whether the broker takes what we say. While it is away, or somebody else was faster, nothing is known that was not
    /// known before.
    fn judge_broker(&self, outcome: &Result<(), StoreError>) {
        match outcome {
            Ok(()) => self.say_not_on_broker(None),
            Err(
                error @ (StoreError::Forbidden { .. }
                | StoreError::Denied { .. }
                | StoreError::Invalid { .. }
                | StoreError::NotFound(_)),
            ) => self.say_not_on_broker(Some(error)),
            Err(_) => {}
        }
    }

    fn say_not_on_broker(&self, error: Option<&StoreError>) {
        let problem = error.map(|error| format!("remote clusters see one gateway of ours less: {error}"));
        self.inputs.conditions.put(NOT_ON_BROKER, Severity::Warning, "", problem);
    }

    fn say_one(&self, reason: Option<&str>) {
        let is_multi = self.config.is_wanted && reason.is_none();
        let problem = reason.filter(|_| self.config.is_wanted).map(|reason| {
            format!(
                "gateways cannot tell one another of themselves: {reason}; one of this cluster's gateways carries \
                 everything and the others stand by. trieste join makes the namespace {} and gives the right",
                self.namespace
            )
        });
        self.inputs.conditions.put(ONE_GATEWAY, Severity::Warning, "", problem);
        self.members.send_if_modified(|known| std::mem::replace(&mut known.is_multi, is_multi) != is_multi);
    }

    /// Removes what vanished siblings have said.
    async fn judge<S: Store>(
        &self,
        store: &S,
        cache: &Cache,
        janitor: &mut Janitor,
        vanished: &watch::Sender<BTreeSet<String>>,
    ) {
        let siblings = self.members.borrow().siblings.clone();
        let heard = self.inputs.heard.borrow().clone();
        let gone: Vec<Member> = janitor.vanished(&siblings, &heard, clock()).into_iter().cloned().collect();
        for member in &gone {
            let hostname = &member.endpoint.spec.hostname;
            let further = cache.get(&member.endpoint.metadata.name).cloned();
            // The Gateway object goes first: without the further Endpoint nobody would look for it any more.
            for object in janitor.gateway_of(hostname).cloned().into_iter().chain(further) {
                let key = object.key();
                match Write::Delete(object).execute(store).await {
                    Ok(_) => tracing::info!("{key} is removed: gateway {hostname} has vanished"),
                    Err(error) => {
                        tracing::debug!("{key} of a vanished gateway stays for now: {error}");
                        break;
                    }
                }
            }
        }
        let names: BTreeSet<String> = gone.iter().map(|member| member.cable_name().to_owned()).collect();
        if !names.is_empty() {
            // What the broker has goes in its own time: a name stays here until it is somebody's again.
            vanished.send_modify(|known| known.extend(names));
        }
        let back: BTreeSet<&str> =
            siblings.iter().map(Member::cable_name).filter(|cable| heard.contains(*cable)).collect();
        vanished.send_if_modified(|known| {
            let before = known.len();
            known.retain(|cable| !back.contains(cable.as_str()));
            known.len() != before
        });
    }

    /// Removes the broker's copies of siblings that have vanished from our own store.
    async fn remove_vanished<S: Store>(
        &self,
        store: &S,
        cache: &mut Cache,
        vanished: &BTreeSet<String>,
    ) -> Result<(), StoreError> {
        let present: BTreeSet<String> = {
            let known = self.members.borrow();
            known.siblings.iter().map(|member| member.cable_name().to_owned()).collect()
        };
        let is_gone = |object: &&Object| {
            Member::read(object).is_some_and(|member| {
                member.cluster_id() == self.config.cluster_id
                    && vanished.contains(member.cable_name())
                    && !present.contains(member.cable_name())
            })
        };
        let gone: Vec<Object> = cache.objects().filter(is_gone).cloned().collect();
        for object in gone {
            let event = Write::Delete(object).execute(store).await?;
            cache.apply(&event);
        }
        Ok(())
    }

    /// Reads the shares. Gives whether the store has answered.
    async fn read<S: Store>(&self, store: &S, janitor: &Janitor, slots: &mut Slots) -> bool {
        let asked = clock();
        let read = timeout(REQUEST_TIMEOUT, store.list(Kind::Lease, &self.namespace)).await;
        let Ok(Ok(leases)) = read else { return false };
        slots.handle_read(&leases, asked, janitor.has_proof(clock()));
        true
    }

    /// Reads the shares, and does the one write that is due. Gives whether something is awaited.
    async fn claim<S: Store>(&self, store: &S, cache: &Cache, janitor: &Janitor, slots: &mut Slots) -> bool {
        if !self.read(store, janitor, slots).await {
            return true;
        }
        let again = slots.confirmations(Timestamp::now());
        if !again.is_empty() {
            let again = again.into_iter().map(|write| write.execute(store));
            for outcome in futures::future::join_all(again).await {
                if let Err(error) = outcome {
                    tracing::debug!("a share of the outside ports is not ours again: {error}");
                }
            }
            if !self.read(store, janitor, slots).await {
                return true;
            }
        }
        let siblings = cache.objects().filter_map(Member::read);
        let mut hosts: Vec<String> = siblings.map(|member| member.endpoint.spec.hostname).collect();
        hosts.push(self.config.hostname.clone());
        hosts.sort();
        hosts.dedup();
        let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
        let silence = |host: &str| janitor.silence(host, clock());
        let silent: Vec<String> = slots.absent(&hosts).into_iter().map(str::to_owned).collect();
        let removed = self.removed(store, &silent).await;
        let is_gone = |host: &str| {
            let after = if removed.contains(host) { REMOVED_AFTER } else { self.config.times.silent };
            silence(host).is_some_and(|silence| silence >= after)
        };
        let write = slots.plan(&hosts, is_gone, clock(), Timestamp::now());
        let is_written = match write {
            Some(write) => {
                let outcome = write.execute(store).await;
                if let Err(error) = &outcome {
                    tracing::debug!("a share of the outside ports stays as it is: {error}");
                }
                true
            }
            None => false,
        };
        let newest = slots.slots();
        self.members.send_if_modified(|known| {
            let is_news = known.slots != newest;
            known.slots = newest;
            is_news
        });
        is_written || slots.is_leaving() || newest.is_none()
    }

    /// Which of these hosts were taken out of the cluster: whoever deletes a Node says that nothing runs there any more. Only
    /// where our own host is a Node, as it is not with a directory.
    async fn removed<S: Store>(&self, store: &S, hosts: &[String]) -> BTreeSet<String> {
        let is_node = async |host: &str| {
            let key = ObjectKey::new(Kind::Node, "", host);
            match timeout(REQUEST_TIMEOUT, store.get(&key)).await {
                Ok(Ok(found)) => Some(found.is_some()),
                Ok(Err(_)) | Err(_) => None,
            }
        };
        let mut removed = BTreeSet::new();
        if hosts.is_empty() || is_node(&self.config.hostname).await != Some(true) {
            return removed;
        }
        for host in hosts {
            if is_node(host).await == Some(false) {
                removed.insert(host.clone());
            }
        }
        removed
    }

    /// Gives up all shares that are ours by now.
    async fn release<S: Store>(&self, store: &S, mut slots: Slots) {
        let read = timeout(REQUEST_TIMEOUT, store.list(Kind::Lease, &self.namespace)).await;
        let Ok(Ok(leases)) = read else {
            return tracing::warn!("the shares of the outside ports are kept: their Leases cannot be read");
        };
        slots.handle_read(&leases, clock(), false);
        let writes = slots.release();
        let given = futures::future::join_all(writes.iter().map(|write| write.clone().execute(store))).await;
        let given = given.iter().filter(|outcome| outcome.is_ok()).count();
        tracing::info!("{given} of {} shares of the outside ports are given up for good", writes.len());
    }

    /// Removes what this gateway has said here.
    async fn withdraw<S: Store>(&self, store: &S) {
        let own = self.inputs.endpoint.borrow().cable_name.clone();
        let Ok(name) = further_name(&own) else { return };
        let key = ObjectKey::new(Kind::Endpoint, &self.namespace, name);
        match timeout(REQUEST_TIMEOUT, delete_if_exists(store, &key)).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::debug!("{key} stays behind: {error}"),
            Err(_) => tracing::debug!("{key} may stay behind: no answer"),
        }
    }
}

/// Waits until this gateway is to leave; whoever has let go of the handle wants nothing any more.
async fn told_to_leave(left: &mut watch::Receiver<Leave>) {
    if left.wait_for(|left| *left != Leave::No).await.is_err() {
        std::future::pending().await
    }
}

fn ticks() -> tokio::time::Interval {
    let mut ticks = interval(LOOK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}
