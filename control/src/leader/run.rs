//! Carries out what the [`Announcer`] plans, while this gateway leads. No decisions.

use std::future::{pending, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use futures::{Stream, StreamExt as _};
use rand_core::OsRng;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::{Announcer, Write};
use crate::api::{ClusterSpec, EndpointSpec, Kind, Object};
use crate::backoff::Backoff;
use crate::election::{Candidate, Leadership, Term};
use crate::store::{Cache, Store, StoreError, StoreEvent};

/// What a leader has to know.
#[derive(Debug, Clone)]
pub struct LeaderConfig {
    /// The namespace of our objects.
    pub namespace: String,
    /// What our cluster says of itself.
    pub cluster: ClusterSpec,
}

/// How far this gateway is as its cluster's one Endpoint.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LeaderStatus {
    /// The state.
    pub state: LeaderState,
    /// The term, while this gateway leads.
    pub term: Option<Term>,
    /// What is in the way, for people; `None` if nothing is.
    pub problem: Option<String>,
}

/// Whether this gateway is its cluster's one Endpoint.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum LeaderState {
    /// It does not lead.
    #[default]
    Standby,
    /// It leads, and the store does not say all of it yet.
    Announcing,
    /// It leads, and the store says so.
    Announced,
    /// It leads, but an object carries a newer term: nothing is written until our term has been raised above it.
    Fenced,
}

/// A running leader. Dropping it ends it; what it has written stays.
#[derive(Debug)]
pub struct LeaderHandle {
    /// How far it is.
    pub status: watch::Receiver<LeaderStatus>,
    task: JoinHandle<()>,
}

impl Drop for LeaderHandle {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Starts to keep this gateway its cluster's one Endpoint, for as long as `candidate` leads. `endpoint` may change at
/// any time.
///
/// # Panics
/// Outside a tokio runtime.
pub fn spawn<S: Store>(
    store: S,
    config: LeaderConfig,
    candidate: Candidate,
    endpoint: watch::Receiver<EndpointSpec>,
) -> LeaderHandle {
    let (sender, status) = watch::channel(LeaderStatus::default());
    let task = tokio::spawn(run(store, config, candidate, endpoint, sender));
    LeaderHandle { status, task }
}

/// Ours: how soon a plan is made again after a lost race. The event that tells of the winner mostly comes first.
const RACE_WAIT: Duration = Duration::from_millis(200);

/// Ours: the first and the longest wait after a failure.
const RETRY: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(10));

async fn run<S: Store>(
    store: S,
    config: LeaderConfig,
    candidate: Candidate,
    mut endpoint: watch::Receiver<EndpointSpec>,
    status: watch::Sender<LeaderStatus>,
) {
    let mut local = Local::follow(&store, &config.namespace);
    let mut leadership = candidate.leadership();
    let mut announcer = Announcer::new(config.namespace, config.cluster);
    let mut backoff = Backoff::new(RETRY.0, RETRY.1);
    let mut work = Work { is_due: true, ..Work::default() };
    loop {
        tokio::select! {
            is_news = local.changed() => work.is_due |= is_news,
            changed = leadership.changed() => match changed {
                Ok(()) => {
                    let held = *leadership.borrow_and_update();
                    work.is_due |= work.wants_proof || held.map(|held| held.term) != work.term;
                }
                Err(_) => return,
            },
            // Once nobody changes it any more, the endpoint stays what it is.
            Ok(()) = endpoint.changed() => work.is_due = true,
            () = sleep_until(work.again) => work.is_due = true,
        }
        if std::mem::take(&mut work.is_due) {
            let held = leadership.borrow().filter(|held| held.is_valid(Instant::now().into_std()));
            work.again = None;
            work.wants_proof = false;
            work.term = held.map(|held| held.term);
            let own = endpoint.borrow().clone();
            let told = match held {
                None => LeaderStatus::default(),
                Some(held) => {
                    let mut told = LeaderStatus { term: Some(held.term), ..LeaderStatus::default() };
                    let turn = Turn { store: &store, candidate: &candidate, held };
                    (told.state, told.problem) =
                        turn.take(&own, &mut announcer, &mut local, &mut work, &mut backoff).await;
                    told
                }
            };
            tell(&status, told);
        }
    }
}

/// When to plan again.
#[derive(Debug, Default)]
struct Work {
    is_due: bool,
    again: Option<Instant>,
    term: Option<Term>,
    wants_proof: bool,
}

/// One plan, and its execution.
struct Turn<'a, S> {
    store: &'a S,
    candidate: &'a Candidate,
    held: Leadership,
}

impl<S: Store> Turn<'_, S> {
    async fn take(
        &self,
        endpoint: &EndpointSpec,
        announcer: &mut Announcer,
        local: &mut Local,
        work: &mut Work,
        backoff: &mut Backoff,
    ) -> (LeaderState, Option<String>) {
        if let Some(problem) = local.problem() {
            return (LeaderState::Announcing, problem);
        }
        let now = Instant::now().into_std();
        let plan = match announcer.plan(endpoint, &self.held, &local.objects(), now) {
            Ok(plan) => plan,
            Err(error) => return (LeaderState::Announcing, Some(format!("our own settings: {error}"))),
        };
        if let Some(fence) = plan.fenced {
            self.candidate.outbid(fence.term);
            let problem = format!("{} carries term {}, ours is {}", fence.object, fence.term, self.held.term);
            return (LeaderState::Fenced, Some(problem));
        }
        if plan.wants_proof {
            work.wants_proof = true;
            self.candidate.confirm();
        }
        for write in plan.writes {
            // Here and not once for all: a request may have taken long, and the process may have been stopped.
            if self.candidate.term(Instant::now().into_std()) != Some(self.held.term) {
                return (LeaderState::Standby, None);
            }
            if let Err(error) = self.write(write, local).await {
                let is_race = error.is_race();
                let wait = if is_race { RACE_WAIT } else { backoff.next_wait(&mut OsRng) };
                work.again = Some(Instant::now() + wait);
                return (LeaderState::Announcing, (!is_race).then(|| error.to_string()));
            }
        }
        if plan.wants_proof {
            return (LeaderState::Announcing, None);
        }
        announcer.announced();
        backoff.reset();
        (LeaderState::Announced, None)
    }

    /// Does one write, and takes its result in, so that the next plan knows of it before the store's events say so.
    async fn write(&self, write: Write, local: &mut Local) -> Result<(), StoreError> {
        let key = write.object().key();
        let event = write.carry_out(self.store).await?;
        tracing::debug!(object = %key, term = %self.held.term, "announced");
        local.note(&event);
        Ok(())
    }
}

/// What is known of the namespace.
struct Local {
    kinds: [Followed; 2],
}

struct Followed {
    kind: Kind,
    events: Pin<Box<dyn Stream<Item = StoreEvent> + Send>>,
    mirror: Cache,
    outage: Option<String>,
}

impl Local {
    fn follow<S: Store>(store: &S, namespace: &str) -> Self {
        let follow = |kind| Followed {
            kind,
            events: store.list_watch(kind, namespace).boxed(),
            mirror: Cache::new(),
            outage: None,
        };
        Self { kinds: [follow(Kind::Cluster), follow(Kind::Endpoint)] }
    }

    /// Waits for an event; gives whether it says anything new. Can be cancelled.
    async fn changed(&mut self) -> bool {
        let (kind, event) = poll_fn(|context| {
            for (index, followed) in self.kinds.iter_mut().enumerate() {
                // A store's streams do not end.
                if let Poll::Ready(Some(event)) = followed.events.poll_next_unpin(context) {
                    return Poll::Ready((index, event));
                }
            }
            Poll::Pending
        })
        .await;
        let followed = &mut self.kinds[kind];
        let outage = match &event {
            StoreEvent::Unavailable(error) => Some(error.to_string()),
            StoreEvent::Listed(_) | StoreEvent::Applied(_) | StoreEvent::Deleted(_) => None,
        };
        let has_turned = followed.outage.is_some() != outage.is_some();
        followed.outage = outage;
        followed.mirror.apply(&event) || has_turned
    }

    fn note(&mut self, event: &StoreEvent) {
        if let StoreEvent::Applied(object) | StoreEvent::Deleted(object) = event {
            for followed in self.kinds.iter_mut().filter(|followed| followed.kind == object.kind) {
                followed.mirror.apply(event);
            }
        }
    }

    /// Why nothing can be planned; `Some(None)` when it is merely not known yet.
    fn problem(&self) -> Option<Option<String>> {
        if let Some(outage) = self.kinds.iter().find_map(|followed| followed.outage.clone()) {
            return Some(Some(outage));
        }
        self.kinds.iter().any(|followed| !followed.mirror.is_complete()).then_some(None)
    }

    fn objects(&self) -> Vec<&Object> {
        self.kinds.iter().flat_map(|followed| followed.mirror.objects()).collect()
    }
}

fn tell(status: &watch::Sender<LeaderStatus>, told: LeaderStatus) {
    status.send_if_modified(|known| {
        if *known == told {
            return false;
        }
        match &told.problem {
            Some(problem) if known.problem != told.problem => {
                tracing::warn!("this gateway leads and cannot say so yet: {problem}");
            }
            _ if told.state == LeaderState::Announced => {
                tracing::info!("this gateway is its cluster's Endpoint")
            }
            _ => {}
        }
        *known = told;
        true
    });
}

async fn sleep_until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => pending().await,
    }
}
