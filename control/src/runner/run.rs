//! The loop.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::pending;
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use futures::stream::{BoxStream, FuturesUnordered, StreamExt as _};
use jiff::Timestamp;
use rand_core::OsRng;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

use super::clock::clock;
use super::echo::PendingEchoes;
use super::fence::Permit;
use super::limiter::ObjectLimiter;
use super::queue::{Rank, WorkQueue};
use super::watches::Watches;
use super::{
    Context, Controller, ControllerMetrics, Failure, Fence, Limits, MAX_REFUSED, Order, QueueView,
    Reconciled, StorePort, WRITE_TIMEOUT, Watch, Write,
};
use crate::api::ObjectKey;
use crate::election::Leadership;
use crate::store::{StoreError, StoreEvent};

/// A store that was unavailable for longer than this is asked at once when it is back; one that flaps is not.
const LONG_OUTAGE: Duration = Duration::from_secs(1);
/// How soon after its return, so that what else returns is known.
const RETURN_WAIT: Duration = Duration::from_millis(50);

/// A running controller. Dropping it ends it; what it has written stays.
#[derive(Debug)]
pub struct Handle {
    /// What it counts.
    pub metrics: ControllerMetrics,
    stop: Option<oneshot::Sender<Duration>>,
    task: JoinHandle<()>,
}

impl Handle {
    /// Ends the controller: no new write is started, and those under way are waited for at most `within`.
    pub async fn stop(mut self, within: Duration) {
        // One that has ended by itself has nobody who listens.
        let _ = self.stop.take().map(|stop| stop.send(within));
        if tokio::time::timeout(within, &mut self.task).await.is_err() {
            self.task.abort();
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Starts a controller on these stores, in the background. `inputs` come from elsewhere; when they end, what was last
/// stays so. `publish` gets the status whenever it has changed.
///
/// # Panics
/// Outside a tokio runtime.
pub fn spawn<C: Controller>(
    controller: C,
    stores: Vec<Box<dyn StorePort>>,
    fence: Fence,
    inputs: BoxStream<'static, C::Input>,
    limits: Limits,
    publish: impl FnMut(&C::Status) + Send + 'static,
) -> Handle {
    let metrics = ControllerMetrics::default();
    let (stop, stopped) = oneshot::channel();
    let runner = Runner {
        queues: stores.iter().map(|_| WorkQueue::new(limits.retry.0, limits.retry.1)).collect(),
        controller,
        stores,
        fence,
        limits,
        watches: Watches::default(),
        echoes: PendingEchoes::default(),
        limiter: ObjectLimiter::default(),
        requests: FuturesUnordered::new(),
        outages: BTreeMap::new(),
        refused: BTreeMap::new(),
        leading: None,
        writes: 0,
        metrics: metrics.clone(),
    };
    let publisher = Publisher { publish, last: None };
    Handle { metrics, stop: Some(stop), task: tokio::spawn(runner.run(inputs, stopped, publisher)) }
}

struct Runner<C: Controller> {
    controller: C,
    stores: Vec<Box<dyn StorePort>>,
    queues: Vec<WorkQueue<C::Key>>,
    fence: Fence,
    limits: Limits,
    watches: Watches,
    echoes: PendingEchoes,
    limiter: ObjectLimiter,
    requests: FuturesUnordered<BoxFuture<'static, Completed<C::Key>>>,
    outages: BTreeMap<Watch, Outage>,
    /// Objects that are not taken, of each key; [`MAX_REFUSED`] in all.
    refused: BTreeMap<C::Key, BTreeMap<ObjectKey, String>>,
    /// The right to write, and since when it has been the same.
    leading: Option<(Permit, Instant)>,
    writes: u64,
    metrics: ControllerMetrics,
}

/// A watch that cannot be read.
struct Outage {
    reason: String,
    since: Instant,
}

/// A plan that is being written.
struct Flight<K> {
    key: K,
    store: usize,
    rank: Rank,
    permit: Permit,
    order: Order,
    writes: VecDeque<Write>,
    started: Instant,
    tried: usize,
    /// When the next of the writes that were left out may be tried.
    next_try: Option<Instant>,
}

/// A write that was answered.
struct Completed<K> {
    flight: Flight<K>,
    write: Write,
    outcome: Result<StoreEvent, StoreError>,
}

impl<C: Controller> Runner<C> {
    async fn run(
        mut self,
        mut inputs: BoxStream<'static, C::Input>,
        mut stop: oneshot::Receiver<Duration>,
        mut publisher: Publisher<C::Status, impl FnMut(&C::Status)>,
    ) {
        let mut leadership = self.fence.changes();
        self.open_watches();
        self.leadership_changed();
        let within = loop {
            self.advance();
            self.metrics.set_queue(
                self.queues.iter().map(WorkQueue::depth).sum(),
                self.queues.iter().filter_map(WorkQueue::oldest).min(),
            );
            publisher.publish(self.controller.status(&self.view()));
            let deadline = self.deadline();
            tokio::select! {
                within = &mut stop => break within.unwrap_or_default(),
                Some(completed) = self.requests.next() => self.complete(completed),
                events = self.watches.next() => {
                    events.into_iter().for_each(|(watch, event)| self.observe(&watch, event));
                }
                Some(input) = inputs.next() => {
                    let keys = self.controller.handle_input(input, clock());
                    self.add(&keys);
                }
                is_open = changed(&mut leadership) => {
                    if !is_open {
                        return;
                    }
                    self.leadership_changed();
                }
                () = sleep_until(deadline) => {}
            }
            while let Some(Some(completed)) = self.requests.next().now_or_never() {
                self.complete(completed);
            }
        };
        // What was sent takes effect or not; its versions protect whoever wrote since.
        let answers = async { while self.requests.next().await.is_some() {} };
        let _ = tokio::time::timeout(within, answers).await;
    }

    fn deadline(&self) -> Option<Instant> {
        let queues = self.queues.iter().filter_map(WorkQueue::deadline).min();
        queues.into_iter().chain(self.echoes.deadline()).min()
    }

    /// Takes in an event of a watch, unless it is older than an own write.
    fn observe(&mut self, watch: &Watch, event: StoreEvent) {
        self.note_outage(watch, &event);
        if let Some(event) = self.echoes.filter(watch, event) {
            let keys = self.controller.observe(watch, event, clock());
            self.add(&keys);
        }
    }

    fn note_outage(&mut self, watch: &Watch, event: &StoreEvent) {
        let now = clock();
        if let StoreEvent::Unavailable(error) = event {
            let reason = error.to_string();
            self.outages
                .entry(watch.clone())
                .or_insert_with(|| Outage { reason: String::new(), since: now })
                .reason = reason;
        } else if let Some(outage) = self.outages.remove(watch)
            && now.saturating_duration_since(outage.since) >= LONG_OUTAGE
            && let Some(queue) = self.queues.get_mut(watch.store)
        {
            queue.resume(RETURN_WAIT, now);
        }
    }

    fn leadership_changed(&mut self) {
        let now = clock();
        let held = self.fence.leadership(now);
        let keys = self.controller.handle_leadership(held.as_ref(), now);
        for key in keys {
            if let Some((store, rank)) = self.controller.queue(&key) {
                self.queues[store].add_now(&key, rank, now);
            }
        }
    }

    fn add(&mut self, keys: &[C::Key]) {
        let now = clock();
        for key in keys {
            match self.controller.queue(key) {
                Some((store, rank)) => self.queues[store].add(key, rank, now),
                None => self.queues.iter_mut().for_each(|queue| queue.remove(key)),
            }
        }
    }

    /// Reconciles what is ready, and begins to write.
    fn advance(&mut self) {
        for (watch, event) in self.echoes.expire(clock()) {
            let keys = self.controller.observe(&watch, event, clock());
            self.add(&keys);
        }
        for store in 0..self.queues.len() {
            while let Some((key, rank)) = self.queues[store].next(clock()) {
                self.reconcile(store, key, rank);
            }
        }
        self.queues.iter_mut().for_each(WorkQueue::settle);
    }

    fn reconcile(&mut self, store: usize, key: C::Key, rank: Rank) {
        let started = clock();
        let leadership = self.fence.leadership(started);
        let context = Context { now: started, wall: Timestamp::now(), leadership };
        let Reconciled { writes, order, requeue_after, fence } = self.controller.reconcile(&key, &context);
        self.open_watches();
        self.rest(clock().saturating_duration_since(started));
        if let Some(request) = fence {
            self.fence.request(request);
        }
        let now = clock();
        self.limiter.forget(now);
        if let Some(refused) = self.refused.get_mut(&key) {
            let planned: BTreeSet<ObjectKey> = writes.iter().map(Write::key).collect();
            refused.retain(|object, _| planned.contains(object));
        }
        self.refused.retain(|_, refused| !refused.is_empty());
        let permit = self.permit(now);
        let requeue_at = requeue_after.map(|after| now + after);
        let (permit, settled_at) = match permit {
            Some(permit) if !writes.is_empty() => permit,
            _ => {
                self.metrics.reconciled(now.saturating_duration_since(started));
                self.queues[store].finish(&key, now);
                if let Some(at) = requeue_at {
                    self.queues[store].requeue_at(&key, rank, at, now);
                }
                return;
            }
        };
        if now < settled_at {
            self.queues[store].finish(&key, now);
            self.queues[store].add_at(&key, rank, settled_at, now);
            return;
        }
        let writes = writes.into();
        let flight =
            Flight { key, store, rank, permit, order, writes, started, tried: 0, next_try: requeue_at };
        self.write_next(flight);
    }

    /// Lets changes wait for longer after a plan that took longer.
    fn rest(&mut self, took: Duration) {
        let Limits { settle, rest_factor, max_rest, .. } = self.limits;
        let rest = took.saturating_mul(rest_factor).clamp(settle, max_rest.max(settle));
        self.queues.iter_mut().for_each(|queue| queue.set_rest(rest));
    }

    /// Returns the right to write, and from when on it may be used.
    fn permit(&mut self, now: Instant) -> Option<(Permit, Instant)> {
        let permit = self.fence.permit(now);
        let since = match (permit, self.leading) {
            (Some(permit), Some((known, since))) if known == permit => since,
            _ => now,
        };
        self.leading = permit.map(|permit| (permit, since));
        permit.map(|permit| (permit, since + self.fence.settle()))
    }

    /// Begins the next write of a plan that may be tried now, or ends the plan.
    fn write_next(&mut self, mut flight: Flight<C::Key>) {
        let now = clock();
        while let Some(write) = flight.writes.pop_front() {
            let limited = self.limiter.wait_until(&write.key(), now).filter(|_| self.limits.limits_objects);
            if let Some(until) = limited {
                flight.next_try = Some(flight.next_try.map_or(until, |at| at.min(until)));
                if flight.order == Order::Strict {
                    break;
                }
                continue;
            }
            if flight.tried >= self.limits.max_writes {
                break;
            }
            // Asked here and not once for all: a request may take long, and the process may be stopped for a while.
            if self.fence.permit(now) != Some(flight.permit) {
                self.queues[flight.store].finish(&flight.key, now);
                return;
            }
            flight.tried += 1;
            self.echoes.start(flight.store, &write);
            let request = self.stores[flight.store].write(write.clone(), WRITE_TIMEOUT, self.fence.clone());
            self.requests.push(request.map(move |outcome| Completed { flight, write, outcome }).boxed());
            return;
        }
        self.end(flight, now);
    }

    /// Ends a plan of which all that could be was written: the key is reconciled again, until nothing is to be written.
    fn end(&mut self, flight: Flight<C::Key>, now: Instant) {
        let Flight { key, store, rank, tried, next_try, started, .. } = flight;
        self.metrics.reconciled(now.saturating_duration_since(started));
        let queue = &mut self.queues[store];
        if tried > 0 {
            queue.add(&key, rank, now);
            queue.succeed(&key, now);
        } else {
            queue.finish(&key, now);
            if let Some(at) = next_try {
                queue.add_at(&key, rank, at, now);
            }
        }
    }

    fn complete(&mut self, completed: Completed<C::Key>) {
        let Completed { mut flight, write, outcome } = completed;
        let now = clock();
        let object = write.key();
        let error = match outcome {
            Ok(event) => {
                tracing::debug!(controller = self.controller.name(), %object, "written");
                self.writes += 1;
                self.metrics.written(None);
                self.limiter.note(&object, false, now);
                if self.echoes.finish(flight.store, &write, &event, now) {
                    self.observe_own(flight.store, &object, event, now);
                }
                self.controller.written(&write, Ok(()), now);
                return self.write_next(flight);
            }
            Err(error) => error,
        };
        self.echoes.abort(flight.store, &write);
        self.controller.written(&write, Err(&error), now);
        let failure = self.controller.classify(&write, &error);
        self.metrics.written(Some(failure.as_str()));
        if failure != Failure::Unavailable {
            self.limiter.note(&object, failure == Failure::Refused, now);
        }
        if failure == Failure::Refused {
            self.refuse(&flight.key, &object, &error);
        }
        match (failure, flight.order) {
            (Failure::Unavailable, _) => {
                self.queues[flight.store].fail_store(&flight.key, error.to_string(), now, &mut OsRng);
            }
            (Failure::Race | Failure::Refused, Order::Independent) => {
                let until = self.limiter.wait_until(&object, now);
                flight.next_try = flight.next_try.into_iter().chain(until).min();
                return self.write_next(flight);
            }
            (Failure::Race, Order::Strict) => self.queues[flight.store].conflict(&flight.key, now),
            (Failure::Refused, Order::Strict) => {
                self.queues[flight.store].fail(&flight.key, now, &mut OsRng);
            }
        }
        self.metrics.reconciled(now.saturating_duration_since(flight.started));
    }

    /// Has the controller observe the result of its own write before the watch reports it.
    fn observe_own(&mut self, store: usize, object: &ObjectKey, event: StoreEvent, now: Instant) {
        if let Some(watch) = self.watches.covering(store, object) {
            let keys = self.controller.observe(&watch, event, now);
            self.add(&keys);
        }
    }

    fn refuse(&mut self, key: &C::Key, object: &ObjectKey, error: &StoreError) {
        tracing::warn!(controller = self.controller.name(), %object, %error, "write refused");
        let count: usize = self.refused.values().map(BTreeMap::len).sum();
        let is_known = self.refused.get(key).is_some_and(|refused| refused.contains_key(object));
        if is_known || count < MAX_REFUSED {
            self.refused.entry(key.clone()).or_default().insert(object.clone(), error.to_string());
        }
    }

    fn open_watches(&mut self) {
        let wanted = self.controller.watches();
        for watch in self.watches.set(&wanted, &self.stores) {
            self.outages.remove(&watch);
            self.echoes.remove_watch(&watch);
        }
    }

    fn view(&self) -> QueueView<'_> {
        let refused = self.refused.values().flatten();
        QueueView {
            outages: self.outages.iter().map(|(watch, outage)| (watch, outage.reason.as_str())).collect(),
            unavailable: self.queues.iter().map(WorkQueue::outage).collect(),
            refused: refused.map(|(object, reason)| (object, reason.as_str())).collect(),
            is_idle: self.queues.iter().all(WorkQueue::is_idle),
            leadership: self.fence.leadership(clock()),
            writes: self.writes,
        }
    }
}

/// Publishes a status when it is another one than before.
struct Publisher<T, F> {
    publish: F,
    last: Option<T>,
}

impl<T: PartialEq, F: FnMut(&T)> Publisher<T, F> {
    fn publish(&mut self, status: T) {
        if self.last.as_ref() != Some(&status) {
            (self.publish)(&status);
            self.last = Some(status);
        }
    }
}

/// Waits for a change of the leadership; returns `false` when there will be none any more.
async fn changed(leadership: &mut Option<watch::Receiver<Option<Leadership>>>) -> bool {
    match leadership {
        Some(leadership) => {
            let is_open = leadership.changed().await.is_ok();
            leadership.borrow_and_update();
            is_open
        }
        None => pending().await,
    }
}

async fn sleep_until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time.into()).await,
        None => pending().await,
    }
}
