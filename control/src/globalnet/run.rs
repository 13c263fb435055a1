//! Follows the objects, tells the state, and carries plans out while this gateway leads. No decisions.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use rand_core::OsRng;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::follow::Follow;
use super::pace::Pace;
use super::plan::{Outcome, View, Write, plan};
use super::state::{GlobalnetState, Problem};
use crate::api::Kind;
use crate::backoff::Backoff;
use crate::election::{Candidate, Term};
use crate::store::{Store, StoreError};

/// What Globalnet has to know of its gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GlobalnetConfig {
    /// The namespace of Cluster and Gateway objects.
    pub namespace: String,
    /// This cluster's ID.
    pub cluster_id: String,
    /// The name of this gateway's own Gateway object, if the gateway has an address inside of the cluster at which it can
    /// be pinged.
    pub gateway: Option<String>,
}

/// How far this gateway is with what it writes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GlobalnetStatus {
    /// What it does.
    pub phase: GlobalnetPhase,
    /// The term, while it leads.
    pub term: Option<Term>,
    /// What keeps it from reading or writing at all, for people; `None` if nothing does.
    pub problem: Option<String>,
    /// Objects that the store does not take, and why.
    pub refused: Vec<Problem>,
    /// How many writes were done since start.
    pub writes: u64,
}

/// What a gateway does for Globalnet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum GlobalnetPhase {
    /// It does not know enough yet.
    #[default]
    Starting,
    /// This cluster is without Globalnet.
    Off,
    /// It translates, and another gateway writes.
    Standby,
    /// It leads and has something to write.
    Writing,
    /// It leads, and the store says all that it is to say.
    Settled,
}

impl GlobalnetPhase {
    /// Returns the phase as status documents have it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Off => "off",
            Self::Standby => "standby",
            Self::Writing => "writing",
            Self::Settled => "settled",
        }
    }
}

/// Globalnet, running. Dropping it ends it; what it has written stays.
#[derive(Debug)]
pub struct GlobalnetHandle {
    /// What to translate. `None` until all of it is known: what was translated before a restart is to go on until then.
    pub state: watch::Receiver<Option<Arc<GlobalnetState>>>,
    /// How far it is.
    pub status: watch::Receiver<GlobalnetStatus>,
    task: JoinHandle<()>,
}

impl Drop for GlobalnetHandle {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Starts to follow the objects and to tell the state; and to write what is planned for as long as `candidate` leads (see
/// [`ElectionConfig::globalnet`](crate::election::ElectionConfig::globalnet)).
///
/// # Panics
/// Outside a tokio runtime.
pub fn spawn<S: Store + Clone>(store: S, config: GlobalnetConfig, candidate: Candidate) -> GlobalnetHandle {
    let (state_sender, state) = watch::channel(None);
    let (status_sender, status) = watch::channel(GlobalnetStatus::default());
    let runner = Runner {
        follow: Follow::new(store.clone()),
        store,
        config,
        candidate,
        pace: Pace::default(),
        backoff: Backoff::new(RETRY.0, RETRY.1),
        refused: Vec::new(),
        writes: 0,
        rest: SETTLE,
        leads: None,
        state: state_sender,
        status: status_sender,
    };
    GlobalnetHandle { state, status, task: tokio::spawn(runner.run()) }
}

/// Ours: plans are at least so far apart. Changes come in bursts, as when a deployment is scaled.
const SETTLE: Duration = Duration::from_millis(50);
/// Ours: and so many times as far as one takes, up to [`MAX_REST`]: in a large cluster that changes all the time, plans
/// must not take more than a tenth of a core.
const REST: u32 = 9;
/// Ours: the longest pause between two plans for that reason.
const MAX_REST: Duration = Duration::from_secs(5);
/// Ours: how long a new leader looks before it writes: what its predecessor wrote last may still be on its way here.
const TAKE_OVER: Duration = Duration::from_secs(1);
/// Ours: as many writes at most before what others have written meanwhile is looked at.
const MAX_WRITES: usize = 128;
/// Ours: how long to wait for an answer to one write.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// Ours: the first and the longest wait while the store is away.
const RETRY: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(30));
/// Ours: refusals that are told of.
const MAX_REFUSED: usize = 32;

struct Runner<S> {
    store: S,
    follow: Follow<S>,
    config: GlobalnetConfig,
    candidate: Candidate,
    pace: Pace,
    backoff: Backoff,
    refused: Vec<Problem>,
    writes: u64,
    /// The pause between plans.
    rest: Duration,
    /// Since when we lead, and in which term.
    leads: Option<(Term, Instant)>,
    state: watch::Sender<Option<Arc<GlobalnetState>>>,
    status: watch::Sender<GlobalnetStatus>,
}

/// What became of a turn's writes.
enum Turn {
    /// There is nothing to write.
    Settled,
    /// Something was written, or somebody was faster: plan again.
    Again,
    /// What is left may not be written before this.
    Wait(Instant),
    /// The store is away.
    Away(String),
    /// This gateway does not lead.
    Standby,
}

impl<S: Store> Runner<S> {
    async fn run(mut self) {
        let mut leadership = self.candidate.leadership();
        let mut due = Some(Instant::now());
        loop {
            tokio::select! {
                is_news = self.follow.changed() => if is_news {
                    due = Some(sooner(due, Instant::now() + self.rest));
                },
                changed = leadership.changed() => match changed {
                    Ok(()) => {
                        let held = leadership.borrow_and_update().map(|held| held.term);
                        let known = self.status.borrow().term;
                        if held != known {
                            due = Some(Instant::now());
                        }
                    }
                    Err(_) => return,
                },
                () = sleep_until(due) => due = self.turn().await,
            }
        }
    }

    /// Plans, tells, writes. Gives when to do so again if nothing happens.
    async fn turn(&mut self) -> Option<Instant> {
        let outcome = self.look();
        if !outcome.is_complete {
            let outage = self.follow.outage(|(kind, _)| *kind != Kind::ServiceExport).map(str::to_owned);
            self.tell(GlobalnetPhase::Starting, outage);
            return None;
        }
        if outcome.state.global_cidr.is_none() && outcome.writes.is_empty() {
            self.tell(GlobalnetPhase::Off, None);
            return None;
        }
        let now = Instant::now();
        self.pace.forget(now.into_std());
        let turn = self.write(outcome.writes).await;
        if !matches!(turn, Turn::Away(_)) {
            self.backoff.reset();
        }
        let outage = self.follow.outage(|(kind, _)| *kind != Kind::ServiceExport).map(str::to_owned);
        match turn {
            Turn::Standby => {
                self.refused.clear();
                self.tell(GlobalnetPhase::Standby, outage);
                None
            }
            Turn::Settled => {
                self.refused.clear();
                self.tell(GlobalnetPhase::Settled, outage);
                None
            }
            Turn::Again => {
                self.tell(GlobalnetPhase::Writing, outage);
                Some(Instant::now() + self.rest)
            }
            Turn::Wait(until) => {
                self.tell(GlobalnetPhase::Writing, outage);
                Some(until)
            }
            Turn::Away(problem) => {
                self.tell(GlobalnetPhase::Writing, Some(problem));
                Some(Instant::now() + self.backoff.next_wait(&mut OsRng))
            }
        }
    }

    /// Plans until what is followed is what the plan needs, and tells the state.
    fn look(&mut self) -> Outcome {
        let started = Instant::now();
        let outcome = plan(&View {
            namespace: &self.config.namespace,
            cluster_id: &self.config.cluster_id,
            gateway: self.config.gateway.as_deref(),
            objects: self.follow.objects(),
            now: Timestamp::now(),
        });
        self.rest = started.elapsed().saturating_mul(REST).clamp(SETTLE, MAX_REST);
        self.follow.set(&outcome.needs);
        // Until all has been seen once, a rule without members would send pods out under other addresses than before.
        let is_first = self.state.borrow().is_none();
        if outcome.is_complete || !is_first && outcome.state.global_cidr.is_some() {
            self.state.send_if_modified(|known| {
                let is_news = known.as_deref() != Some(&outcome.state);
                if is_news {
                    *known = Some(Arc::new(outcome.state.clone()));
                }
                is_news
            });
        }
        outcome
    }

    async fn write(&mut self, writes: Vec<Write>) -> Turn {
        let Some(term) = self.candidate.term(clock()) else {
            self.leads = None;
            return Turn::Standby;
        };
        let since =
            self.leads.filter(|(known, _)| *known == term).map_or_else(Instant::now, |(_, since)| since);
        self.leads = Some((term, since));
        if !writes.is_empty() && since.elapsed() < TAKE_OVER {
            return Turn::Wait(since + TAKE_OVER);
        }
        let (mut done, mut wait) = (0, None);
        let mut refused = Vec::new();
        for write in writes {
            let key = write.key();
            if let Some(until) = self.pace.wait_until(&key, clock()) {
                wait = Some(sooner(wait, until.into()));
                refused.extend(self.refused.iter().find(|known| known.subject == key.to_string()).cloned());
                continue;
            }
            if done >= MAX_WRITES {
                break;
            }
            // Here and not once for all: a request may have taken long, and the process may have been stopped.
            if self.candidate.term(clock()) != Some(term) {
                return Turn::Standby;
            }
            done += 1;
            match self.put(write, term).await {
                Ok(()) => {
                    self.writes += 1;
                    self.pace.note(&key, false, clock());
                }
                Err(error) if error.is_race() => self.pace.note(&key, false, clock()),
                Err(error @ (StoreError::Unavailable { .. } | StoreError::Locked { .. })) => {
                    return Turn::Away(error.to_string());
                }
                // Of this object, or of this namespace: others may be taken.
                Err(error) => {
                    self.pace.note(&key, true, clock());
                    tracing::warn!(object = %key, "{error}");
                    let (subject, message) = (key.to_string(), error.to_string());
                    refused.push(Problem { name: "GlobalnetWriteRefused", subject, message });
                    wait =
                        self.pace.wait_until(&key, clock()).map(|until| sooner(wait, until.into())).or(wait);
                }
            }
        }
        refused.truncate(MAX_REFUSED);
        self.refused = refused;
        match (done, wait) {
            (0, None) => Turn::Settled,
            (0, Some(until)) => Turn::Wait(until),
            (_, _) => Turn::Again,
        }
    }

    /// Does one write, and takes its result in, so that the next plan knows of it before the store's events say so.
    async fn put(&mut self, write: Write, term: Term) -> Result<(), StoreError> {
        let key = write.key();
        let store = &self.store;
        let candidate = &self.candidate;
        let written = async {
            match write {
                Write::Create(object) => store.create(object).await.map(Some),
                Write::Update(object) => store.update(object).await.map(Some),
                Write::UpdateStatus(object) => store.update_status(object).await.map(Some),
                Write::Delete(object) => match store.delete_version(&object).await {
                    Ok(()) | Err(StoreError::NotFound(_)) => Ok(None),
                    Err(error) => Err(error),
                },
                Write::Annotate { key, annotation, value } => {
                    let Some(mut object) = store.get(&key).await? else { return Ok(None) };
                    match value {
                        Some(value) => drop(object.metadata.annotations.insert(annotation.to_owned(), value)),
                        None => drop(object.metadata.annotations.remove(annotation)),
                    }
                    if candidate.term(clock()) != Some(term) {
                        let found = "no longer ours to write".to_owned();
                        return Err(StoreError::Conflict { key, expected: term.to_string(), found });
                    }
                    store.update(object).await.map(Some)
                }
            }
        };
        let written = timeout(WRITE_TIMEOUT, written).await.unwrap_or_else(|_| {
            let source = std::io::Error::new(std::io::ErrorKind::TimedOut, "no answer");
            Err(StoreError::Unavailable { doing: format!("write {key}"), source })
        })?;
        tracing::debug!(object = %key, %term, "written");
        match written {
            Some(object) => self.follow.wrote(object),
            None => self.follow.deleted(&key),
        }
        Ok(())
    }

    fn tell(&self, phase: GlobalnetPhase, problem: Option<String>) {
        let told = GlobalnetStatus {
            phase,
            term: self.candidate.term(clock()),
            problem,
            refused: self.refused.clone(),
            writes: self.writes,
        };
        self.status.send_if_modified(|known| {
            if *known == told {
                return false;
            }
            if let Some(problem) =
                told.problem.as_ref().filter(|problem| known.problem.as_ref() != Some(problem))
            {
                tracing::warn!("Globalnet's objects cannot be read or written: {problem}");
            }
            *known = told;
            true
        });
    }
}

/// The monotonic clock that timers follow.
fn clock() -> std::time::Instant {
    Instant::now().into_std()
}

fn sooner(known: Option<Instant>, other: Instant) -> Instant {
    known.map_or(other, |known| known.min(other))
}

async fn sleep_until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => pending().await,
    }
}
