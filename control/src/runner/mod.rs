//! One loop for every controller: it watches, queues, asks for plans, writes, retries and reports.
//!
//! ```text
//!   stores ──watch──▶ PendingEchoes ──event──▶ Controller::observe ──keys──▶ WorkQueue
//!      ▲                                                                        │ next key
//!      └──write── Fence ◀── one write after the other ◀── Controller::reconcile ◀┘
//!                           (independent ones: several at once)
//! ```
//!
//! A [`Controller`] is pure: it has no store, clock, task or channel. It observes events and of the results of its
//! writes, and returns what to write for one key. The words are those of controller-runtime and kube-rs: a key is
//! *reconciled*; a plan asks to be *requeued*. Rules that hold for every controller:
//!
//! * After its writes a key is reconciled again, until there is nothing to write: plans are level-triggered, and the plan
//!   of the result is empty.
//! * The fence is asked before each write; a plan of one term is not carried on in another.
//! * The result of a write is observed before its event comes, and older events are withheld ([`ECHO_TIMEOUT`]).
//! * A lost race is run again soon, a refused object ever more seldom, and a store that does not answer is asked with
//!   growing waits by one request at a time.
//! * A controller whose guard does not let it write ends.
//! * The status is published when it has changed.
//!
//! Why not kube-rs's `Controller`: it follows API servers only, while ours follow directories and memory too; it
//! has no fence, does not know its own writes before their events, and reconciles without an order among keys. Its
//! client is used below, in [`crate::store::kube`].

mod connection;
mod echo;
mod fence;
mod flight;
mod handle;
mod inputs;
mod limiter;
mod metrics;
mod page;
mod port;
mod publisher;
mod queue;
mod run;
mod watches;
mod write;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use jiff::Timestamp;

pub use connection::RELIST_INTERVAL;
pub use echo::ECHO_TIMEOUT;
pub use fence::{Fence, FenceRequest};
pub use handle::{Handle, spawn};
pub(crate) use inputs::values;
pub use metrics::{ControllerMetrics, ControllerRegistry, Histogram, MetricsSnapshot, RECONCILE_BUCKETS};
pub use page::render;
pub use port::{StorePort, port};
pub use queue::Rank;
pub use write::{WRITE_TIMEOUT, Write};

use crate::api::{Kind, ObjectKey};
use crate::election::Leadership;
use crate::store::{StoreError, StoreEvent};

/// Plans what to write. See the [module](self) for what the runner does with it.
pub trait Controller: Send + 'static {
    /// The unit that is reconciled by itself; `()` where the whole state is planned at once.
    type Key: Ord + Clone + std::fmt::Debug + Send + Sync + 'static;
    /// How far the controller is, for those who read it.
    type Status: Clone + PartialEq + Send + Sync + 'static;
    /// An input from elsewhere than a store; [`std::convert::Infallible`] if nothing does.
    type Input: Send + 'static;

    /// Returns the name in metrics and logs, as `endpoint`.
    fn name(&self) -> &'static str;

    /// Returns what is to be watched. Asked again after each reconciliation.
    fn watches(&self) -> BTreeSet<Watch>;

    /// Returns `true` if the controller does without this watch where its store refuses it so: it observes the error, the store
    /// stays in use, and the watch is tried on. Any other watch that cannot be read closes those of its store.
    fn does_without(&self, _watch: &Watch, _error: &StoreError) -> bool {
        false
    }

    /// Takes in an event of one of the watches, or the result of an own write. Returns the keys that it concerns: none if
    /// it changes nothing.
    fn observe(&mut self, watch: &Watch, event: StoreEvent, now: Instant) -> Vec<Self::Key>;

    /// Takes in an input. Returns the keys that it concerns.
    fn handle_input(&mut self, _input: Self::Input, _now: Instant) -> Vec<Self::Key> {
        Vec::new()
    }

    /// Takes in a change of the leadership, where the fence is a term: each renewal is one. Returns the keys that it
    /// concerns; they are reconciled at once, whatever they wait for, and so is what could not be written before.
    fn handle_leadership(&mut self, _held: Option<&Leadership>, _now: Instant) -> Vec<Self::Key> {
        Vec::new()
    }

    /// Returns the queue of a key: the number of the store that is written to, and the key's rank there. `None` if there
    /// is nothing to write for it, as far as can be said without a plan.
    fn queue(&self, _key: &Self::Key) -> Option<(usize, Rank)> {
        Some((0, 0))
    }

    /// Returns the keys that concern what was observed and written since the last time, beside those that were returned
    /// with each event: where that depends on all events of a batch together. Asked before anything is planned.
    fn drain_changed(&mut self, _now: Instant) -> Vec<Self::Key> {
        Vec::new()
    }

    /// Returns the stores of which lists are wanted, though their watches can be read; says so once. Honoured at most
    /// every [`RELIST_INTERVAL`], and where the runner opens watches anew ([`Limits::list_within`]).
    fn wants_lists(&mut self) -> BTreeSet<usize> {
        BTreeSet::new()
    }

    /// Returns `true` if what is to be written to this store can be planned at present. Its keys wait meanwhile.
    fn is_ready(&self, _store: usize) -> bool {
        true
    }

    /// Plans what to write for a key.
    fn reconcile(&mut self, key: &Self::Key, context: &Context) -> Reconciled;

    /// Returns what an error of a write means.
    fn classify(&self, _write: &Write, error: &StoreError) -> Failure {
        Failure::of(error)
    }

    /// Takes in what became of a write for this key. The result is observed next, unless the watch was faster.
    fn written(
        &mut self,
        _key: &Self::Key,
        _write: &Write,
        _outcome: Result<&StoreEvent, &StoreError>,
        _now: Instant,
    ) {
    }

    /// Returns how far it is.
    fn status(&self, view: &QueueView<'_>) -> Self::Status;
}

/// A watch: one kind in one namespace of a store; in all of them if it is empty. Or one object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Watch {
    /// The number of the store, in the order in which [`spawn`] was given them.
    pub store: usize,
    /// The kind.
    pub kind: Kind,
    /// The namespace.
    pub namespace: String,
    /// The object's name, where it is one; empty for all.
    pub name: String,
}

impl Watch {
    /// Returns a watch of a kind in a namespace of the store of this number.
    pub fn new(store: usize, kind: Kind, namespace: impl Into<String>) -> Self {
        Self { store, kind, namespace: namespace.into(), name: String::new() }
    }

    /// Returns a watch of one object of the store of this number, which costs an API server no more than that object.
    pub fn one(store: usize, key: &ObjectKey) -> Self {
        Self { name: key.name.clone(), ..Self::new(store, key.kind, &*key.namespace) }
    }

    /// Returns `true` if an object of this key is watched.
    pub fn covers(&self, key: &ObjectKey) -> bool {
        let has = |part: &str, of_key: &str| part.is_empty() || part == of_key;
        self.kind == key.kind && has(&self.namespace, &key.namespace) && has(&self.name, &key.name)
    }
}

/// The circumstances of a plan.
#[derive(Debug, Clone, Copy)]
pub struct Context {
    /// The monotonic clock.
    pub now: Instant,
    /// The wall clock, for what is written.
    pub wall: Timestamp,
    /// The leadership, where the fence is a term and this process leads.
    pub leadership: Option<Leadership>,
}

/// A plan.
#[derive(Debug, Default)]
pub struct Reconciled {
    /// The writes, in this order.
    pub writes: Vec<Write>,
    /// Whether a write that fails keeps the later ones from being tried.
    pub order: Order,
    /// When to reconcile again though nothing changes.
    pub requeue_after: Option<Duration>,
    /// The request to the election.
    pub fence: Option<FenceRequest>,
    /// Why nothing is written for now, though something should be.
    pub hold: Option<Hold>,
}

/// A key that must not be written for a while, whatever changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    /// Why, for people.
    pub reason: String,
    /// For how long.
    pub wait: Duration,
}

impl Reconciled {
    /// Returns a plan of these writes, each of which depends on those before it.
    pub fn write(writes: Vec<Write>) -> Self {
        Self { writes, ..Self::default() }
    }

    /// Returns a plan without writes: a change is awaited.
    pub fn await_change() -> Self {
        Self::default()
    }

    /// Returns a plan without writes that is made again after this time.
    pub fn requeue(after: Duration) -> Self {
        Self { requeue_after: Some(after), ..Self::default() }
    }

    /// Returns a plan without writes: none are wanted for this time, for a reason that is shown meanwhile.
    pub fn hold(reason: String, wait: Duration) -> Self {
        Self { hold: Some(Hold { reason, wait }), ..Self::default() }
    }
}

/// Whether the writes of a plan depend on one another.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Order {
    /// A write is tried when those before it have succeeded.
    #[default]
    Strict,
    /// Each write is tried, several at once; one that is refused is left out ever more often, by itself.
    Independent,
}

/// The reaction that a failed write calls for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// Somebody else was faster: plan again soon.
    Race,
    /// The store is well and does not take this object from us.
    Refused,
    /// The store does not answer, or cannot do anything.
    Unavailable,
}

impl Failure {
    /// Returns what an error means where nothing else is said.
    pub fn of(error: &StoreError) -> Self {
        match error {
            StoreError::Conflict { .. } | StoreError::AlreadyExists(_) | StoreError::NotFound(_) => {
                Self::Race
            }
            StoreError::Unavailable { .. } | StoreError::Locked { .. } => Self::Unavailable,
            StoreError::Invalid { .. } | StoreError::Denied { .. } | StoreError::Forbidden { .. } => {
                Self::Refused
            }
        }
    }

    /// Returns the failure's name in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Race => "conflict",
            Self::Refused => "refused",
            Self::Unavailable => "unavailable",
        }
    }
}

/// How much a controller may do.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// How long a change waits for others that come with it.
    pub settle: Duration,
    /// How many times as long as a plan took the next one waits, up to `max_rest`: the share of a core is 1 in 1 + this.
    pub rest_factor: u32,
    /// The longest wait for that reason.
    pub max_rest: Duration,
    /// The most writes of one plan, unless there is time until the next one may be made; what is left is planned again,
    /// after what others have written meanwhile.
    pub max_writes: usize,
    /// The first and the longest wait after a failure.
    pub retry: (Duration, Duration),
    /// Whether an object that is written again and again is written ever more seldom.
    pub limits_objects: bool,
    /// How long a write may take.
    pub write_within: Duration,
    /// How long a key whose object is refused waits unless it changes; `None` if it waits as after any other failure.
    pub refusal_wait: Option<Duration>,
    /// Where the watches of a store are one: how long their lists may take. When one of them cannot be read, has ended or
    /// gives no list in time, all are closed and opened after a growing wait; the controller observes that they are
    /// unavailable. `None` if each watch looks after itself.
    pub list_within: Option<Duration>,
}

impl Limits {
    /// The limits where nothing else is said.
    pub const DEFAULT: Self = Self {
        settle: Duration::ZERO,
        rest_factor: 0,
        max_rest: Duration::ZERO,
        max_writes: 128,
        retry: (Duration::from_millis(250), Duration::from_secs(30)),
        limits_objects: true,
        write_within: WRITE_TIMEOUT,
        refusal_wait: None,
        list_within: None,
    };
}

impl Default for Limits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// The queues as a controller sees them when it is asked for its status.
#[derive(Debug)]
pub struct QueueView<'a> {
    /// Watches that cannot be read, and why; where each looks after itself.
    pub outages: Vec<(&'a Watch, &'a str)>,
    /// Why each of the stores is not written to, if it is not.
    pub unavailable: Vec<Option<&'a str>>,
    /// When each of the stores is written to again, if it is not at present.
    pub next_writes: Vec<Option<Timestamp>>,
    /// Why the watches of each of the stores are closed, and when they are opened ([`Limits::list_within`]).
    pub closed: Vec<Option<(&'a str, Timestamp)>>,
    /// One reason why a key is held, if one is.
    pub hold: Option<&'a str>,
    /// Objects that a store does not take, and why; at most [`MAX_REFUSED`].
    pub refused: Vec<(&'a ObjectKey, &'a str)>,
    /// Whether nothing is left to reconcile or to write.
    pub is_idle: bool,
    /// The leadership, where the fence is a term and this process leads.
    pub leadership: Option<Leadership>,
    /// The number of writes that succeeded since the start.
    pub writes: u64,
    /// The number of writes that were sent to each of the stores.
    pub sent: &'a [u64],
    /// The number of events of all watches; a list is one.
    pub events: u64,
    /// Whether the controller ends because its guard does not let it write.
    pub is_fenced: bool,
}

impl QueueView<'_> {
    /// Returns one reason why something is not written, if there is one.
    pub fn problem(&self) -> Option<&str> {
        let unavailable = self.unavailable.iter().flatten().next().copied();
        unavailable.or_else(|| self.refused.first().map(|(_, reason)| *reason))
    }
}

/// The most refused objects that are listed.
pub const MAX_REFUSED: usize = 32;
