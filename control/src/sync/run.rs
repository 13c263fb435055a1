//! The syncer's loop: follow both stores, decide what is new, write, tell. Nothing is waited for but news, so that a
//! store that hangs holds up nothing but itself.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt};
use futures::stream::{FuturesUnordered, StreamExt};
use jiff::Timestamp;
use rand_core::OsRng;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::book::{Book, Scope};
use super::desk::{Desk, Why};
use super::farewell::{Absence, Farewell};
use super::link::{Batch, Link, wait_until};
use super::name::Name;
use super::plan::{Action, Side};
use super::port::{Answer, Port};
use super::rivals::Rivals;
use super::tell::{Outputs, tell};
use super::{Refused, SyncConfig, SyncMode, SyncStats};
use crate::backoff::Backoff;
use crate::store::StoreError;

/// Ours: how long writes that are under way are waited for at the end. What has been sent takes effect or not; nothing
/// new is sent.
const LAST_ANSWERS: Duration = Duration::from_secs(1);
/// Ours: how often at most the broker is listed anew because places have become free.
const LIST_EVERY: Duration = Duration::from_secs(10);

/// Our own cluster among those who are missed; no cluster has this ID.
const OURS: &str = "";

/// Everything a running syncer has.
pub(super) struct Run {
    pub(super) config: SyncConfig,
    pub(super) book: Book,
    pub(super) local: Link,
    pub(super) broker: Link,
    pub(super) desks: [Desk; 2],
    pub(super) stats: SyncStats,
    /// Whether the list of refused objects may be another one than was told.
    pub(super) has_refusal_news: bool,
    rivals: Rivals,
    farewell: Farewell,
    /// Copies whose removal waits.
    withheld: BTreeSet<Name>,
    withheld_until: Option<Instant>,
    flights: FuturesUnordered<BoxFuture<'static, Landed>>,
    listed: Instant,
    wants_list: bool,
}

/// A write that has come to its end.
struct Landed {
    name: Name,
    action: Action,
    /// The version of what was copied.
    source: Option<String>,
    answer: Answer,
}

enum News {
    Heard(Side, Batch),
    Landed(Box<Landed>),
    Time,
    Stop,
}

impl Run {
    pub(super) fn new(local: Box<dyn Port>, broker: Box<dyn Port>, config: SyncConfig) -> Self {
        let backoff = || Backoff::new(config.retry_initial, config.retry_max);
        let link = |port, side, namespace: &String| {
            Link::new(port, side, namespace.clone(), backoff(), config.answer_within)
        };
        let scope = Scope {
            cluster_id: config.cluster_id.clone(),
            local_namespace: config.local_namespace.clone(),
            broker_namespace: config.broker_namespace.clone(),
            local_subnets: config.local_subnets.clone(),
            limits: config.limits,
            allowed: config.allowed.clone(),
            exports: config.mode == SyncMode::Both,
        };
        Self {
            book: Book::new(scope),
            local: link(local, Side::Local, &config.local_namespace),
            broker: link(broker, Side::Broker, &config.broker_namespace),
            desks: [(); 2].map(|()| Desk::new(backoff(), config.retry_max)),
            stats: SyncStats::default(),
            has_refusal_news: false,
            rivals: Rivals::default(),
            farewell: Farewell::new(config.empty_grace, config.departure_wait),
            withheld: BTreeSet::new(),
            withheld_until: None,
            flights: FuturesUnordered::new(),
            listed: Instant::now(),
            wants_list: false,
            config,
        }
    }

    /// Syncs until told to stop, or until the guard says no.
    pub(super) async fn run(mut self, mut stop: oneshot::Receiver<()>, outputs: Outputs) {
        let mut is_fenced = false;
        while !is_fenced {
            match self.news(&mut stop).await {
                News::Heard(side, batch) => self.hear(side, batch),
                News::Landed(landed) => self.land(*landed),
                News::Time => {}
                News::Stop => break,
            }
            while let Some(Some(landed)) = self.flights.next().now_or_never() {
                self.land(landed);
            }
            is_fenced = self.advance().is_err();
            tell(&outputs, &mut self, is_fenced);
        }
        let answers = async { while self.flights.next().await.is_some() {} };
        // What has not answered by then has been sent all the same; its version protects whoever wrote since.
        let _ = tokio::time::timeout(LAST_ANSWERS, answers).await;
    }

    async fn news(&mut self, stop: &mut oneshot::Receiver<()>) -> News {
        let wake = self.wake();
        let Self { local, broker, flights, .. } = self;
        tokio::select! {
            _ = stop => News::Stop,
            Some(landed) = flights.next(), if !flights.is_empty() => News::Landed(Box::new(landed)),
            batch = local.next() => News::Heard(Side::Local, batch),
            batch = broker.next() => News::Heard(Side::Broker, batch),
            () = wait_until(wake) => News::Time,
        }
    }

    fn wake(&self) -> Option<Instant> {
        let desks = self.desks.iter().filter_map(Desk::wake);
        let list = self.wants_list.then_some(self.listed + LIST_EVERY);
        desks.chain(self.withheld_until).chain(list).min()
    }

    fn hear(&mut self, side: Side, batch: Batch) {
        self.stats.events += match side {
            Side::Local => self.local.take(batch, &mut self.book),
            Side::Broker => self.broker.take(batch, &mut self.book),
        };
        if self.broker.is_ready() {
            let book = &self.book;
            self.farewell.welcome(|kind, origin| match origin {
                OURS => !book.has_original(kind),
                origin => book.has_departed(kind, origin),
            });
        } else {
            self.farewell.reset();
        }
        self.ask_again();
    }

    /// Those who are missed may be back, or a broker that lost everybody may have shown that it keeps what it is given.
    fn ask_again(&mut self) {
        self.withheld_until = (!self.withheld.is_empty()).then(Instant::now);
    }

    /// Decides what may have changed, and starts what can be started.
    ///
    /// # Errors
    /// The guard does not let us write any more.
    fn advance(&mut self) -> Result<(), Fenced> {
        let now = Instant::now();
        self.list_again(now);
        for desk in &mut self.desks {
            desk.due(now).iter().for_each(|name| self.book.touch(name));
        }
        if self.withheld_until.is_some_and(|until| until <= now) {
            self.withheld_until = None;
            std::mem::take(&mut self.withheld).iter().for_each(|name| self.book.touch(name));
        }
        for name in self.book.take_dirty() {
            self.stats.decisions += 1;
            self.has_refusal_news |= self.book.refresh_refused(&name);
            for (desk, side) in self.desks.iter_mut().zip(Side::ALL) {
                desk.want(&name, self.book.decide(side, &name).map(|action| action.rank()));
            }
        }
        self.stats.judgements = self.book.claims.judged();
        // Ours first: whether the broker has taken it is what an emptied broker is judged by.
        self.start(Side::Broker, now)?;
        self.start(Side::Local, now)?;
        if self.desks.iter().all(Desk::is_idle) {
            self.local.settle();
            self.broker.settle();
        }
        self.desks.iter_mut().filter(|desk| desk.is_idle()).for_each(Desk::settle);
        Ok(())
    }

    fn list_again(&mut self, now: Instant) {
        self.wants_list |= self.book.wants_list();
        if self.wants_list && self.broker.is_ready() && now >= self.listed + LIST_EVERY {
            self.wants_list = false;
            self.listed = now;
            self.broker.open();
        }
    }

    fn start(&mut self, side: Side, now: Instant) -> Result<(), Fenced> {
        let can_start = match side {
            Side::Broker => self.local.is_ready() && self.broker.is_ready(),
            // What the broker said last is good enough to repair a copy by.
            Side::Local => self.local.is_ready() && self.broker.was_complete(),
        };
        while can_start && let Some(name) = self.desk(side).next(now) {
            let Some(action) = self.book.decide(side, &name) else {
                self.desk(side).want(&name, None);
                continue;
            };
            if let Action::Delete(_, copy) = &action {
                let asked = match side {
                    Side::Local => {
                        let absence = self.absence(&name, copy.metadata.origin());
                        self.farewell.ask(&absence, now)
                    }
                    // A gateway that starts with an empty store has yet to publish: its Cluster must not be removed
                    // and made anew, or it is the youngest of all.
                    Side::Broker => {
                        self.farewell.miss(name.kind, OURS, !self.book.has_original(name.kind), now)
                    }
                };
                if let Err(until) = asked {
                    self.withheld.insert(name);
                    self.withheld_until = self.withheld_until.into_iter().chain(until).min();
                    continue;
                }
            }
            let source = match &action {
                Action::Delete(..) => None,
                Action::Create(..) | Action::Update(..) => self.book.source(side, &name),
            };
            let source = source.and_then(|source| source.metadata.resource_version.clone());
            if let Err(wait) = self.rivals.ask(side, &name, source.as_deref(), now) {
                self.stats.rivals += 1;
                let text = rival(side, &action);
                self.desk(side).hold(&name, Why::Rival(text), now + wait);
                continue;
            }
            if !self.config.guard.may_write() {
                return Err(Fenced);
            }
            self.send(side, name, action, source);
        }
        Ok(())
    }

    fn send(&mut self, side: Side, name: Name, action: Action, source: Option<String>) {
        self.book.notes.start(side, &name);
        self.desk(side).depart(name.clone(), action.rank());
        match side {
            Side::Local => self.stats.local_writes += 1,
            Side::Broker => self.stats.broker_writes += 1,
        }
        let port = match side {
            Side::Local => &self.local.port,
            Side::Broker => &self.broker.port,
        };
        let answer = port.write(action.clone(), self.config.answer_within);
        self.flights.push(answer.map(|answer| Landed { name, action, source, answer }).boxed());
    }

    fn land(&mut self, landed: Landed) {
        let Landed { name, action, source, answer } = landed;
        self.ask_again();
        let (side, now) = (side_of(&action), Instant::now());
        let is_deletion = matches!(action, Action::Delete(..));
        let error = match answer {
            Answer::Done(stored) => return self.succeed(side, &name, &action, source, stored),
            Answer::Failed(StoreError::NotFound(_)) if is_deletion => {
                return self.succeed(side, &name, &action, source, None);
            }
            Answer::Failed(error) => Ok(error),
            Answer::Silence(within) => {
                Err(format!("writing {} was not answered within {within:?}", action.object().key()))
            }
        };
        self.book.notes.abandon(side, &name);
        let desk = &mut self.desks[side as usize];
        match error {
            // A namespace that does not exist is no race.
            Ok(error) if error.is_race() && !is_missing_namespace(&action, &error) => {
                self.stats.races += 1;
                desk.refuse(&name, Why::Race, now);
            }
            Ok(StoreError::Invalid { source, .. }) => self.reject(&name, &action, &source.to_string(), now),
            Ok(StoreError::Denied { reason, .. }) => self.reject(&name, &action, &reason, now),
            error => {
                self.stats.failures += 1;
                let error = error.map_or_else(|silence| silence, |error| error.to_string());
                desk.fail(&name, error, (now, Timestamp::now()), &mut OsRng);
            }
        }
    }

    /// The store is well and does not take this object.
    fn reject(&mut self, name: &Name, action: &Action, reason: &str, now: Instant) {
        let side = side_of(action);
        self.has_refusal_news = true;
        let reason = format!("the {} store does not take it: {reason}", name_of(side));
        self.desk(side).refuse(name, Why::Rejected(refusal(action, reason)), now);
    }

    fn succeed(
        &mut self,
        side: Side,
        name: &Name,
        action: &Action,
        source: Option<String>,
        stored: Option<crate::api::Object>,
    ) {
        tracing::debug!(?side, object = %action.object().key(), "synced");
        let old = match action {
            Action::Create(..) => None,
            Action::Update(_, object) | Action::Delete(_, object) => object.metadata.resource_version.clone(),
        };
        let version = stored.as_ref().and_then(|stored| stored.metadata.resource_version.clone());
        // An update that changed nothing keeps its version, which nothing has replaced then.
        let old = old.filter(|old| version.as_ref() != Some(old));
        let is_newest = self.book.notes.finish(side, name, old, source.zip(version));
        match stored {
            Some(stored) if is_newest => self.book.put(side, name.clone(), stored),
            None if is_newest => self.book.remove(side, name),
            Some(_) | None => {}
        }
        self.desk(side).succeed(name);
        self.book.touch(name);
    }

    /// What is known of the owner of a copy that is to be removed.
    fn absence<'a>(&self, name: &Name, origin: Option<&'a str>) -> Absence<'a> {
        let origin = origin.unwrap_or_default();
        Absence {
            kind: name.kind,
            origin,
            is_read: self.broker.is_ready(),
            has_ours: self.desks[Side::Broker as usize].is_idle(),
            is_emptied: self.book.is_emptied(name.kind),
            has_departed: self.book.has_departed(name.kind, origin),
            is_urgent: self.book.is_urgent(name),
        }
    }

    fn desk(&mut self, side: Side) -> &mut Desk {
        &mut self.desks[side as usize]
    }
}

/// The guard does not let us write any more.
struct Fenced;

fn is_missing_namespace(action: &Action, error: &StoreError) -> bool {
    matches!((action, error), (Action::Create(..), StoreError::NotFound(_)))
}

fn rival(side: Side, action: &Action) -> String {
    let key = action.object().key();
    match side {
        Side::Broker => format!(
            "{key} on the broker keeps being changed by somebody else; does another cluster use our ID?"
        ),
        Side::Local => format!(
            "{key} in the local store keeps being changed by somebody else; does another agent write there?"
        ),
    }
}

fn refusal(action: &Action, reason: String) -> Refused {
    let metadata = &action.object().metadata;
    Refused {
        cluster: metadata.origin().unwrap_or_default().to_owned(),
        endpoint: Some(metadata.name.clone()),
        reason,
    }
}

fn side_of(action: &Action) -> Side {
    match action {
        Action::Create(side, _) | Action::Update(side, _) | Action::Delete(side, _) => *side,
    }
}

fn name_of(side: Side) -> &'static str {
    match side {
        Side::Local => "local",
        Side::Broker => "broker's",
    }
}
