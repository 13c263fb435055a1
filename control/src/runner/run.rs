//! The loop.

mod events;
mod writes;

use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use futures::stream::{BoxStream, FuturesUnordered, StreamExt as _};
use jiff::Timestamp;
use tokio::sync::{oneshot, watch};

use super::connection::Connection;
use super::echo::PendingEchoes;
use super::fence::Permit;
use super::flight::{Completed, Flight, FlightKey};
use super::limiter::ObjectLimiter;
use super::publisher::Publisher;
use super::queue::{Rank, WorkQueue};
use super::watches::Watches;
use super::{
    Context, Controller, ControllerMetrics, Fence, Hold, Limits, QueueView, Reconciled, StorePort, Watch,
    Write,
};
use crate::api::ObjectKey;
use crate::backoff::Backoff;
use crate::election::Leadership;
use crate::timer::{clock, sleep_until};

/// How long writes under way are waited for when a guard ends the controller. They take effect or not; no new one is sent.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

/// Everything that a running controller has.
pub(super) struct Runner<C: Controller> {
    controller: C,
    stores: Vec<Box<dyn StorePort>>,
    queues: Vec<WorkQueue<C::Key>>,
    fence: Fence,
    limits: Limits,
    watches: Watches,
    echoes: PendingEchoes,
    limiter: ObjectLimiter,
    requests: FuturesUnordered<BoxFuture<'static, Completed<C::Key>>>,
    /// The plans that are being written.
    writing: BTreeMap<FlightKey<C::Key>, Flight>,
    outages: BTreeMap<Watch, Outage>,
    /// Objects that are not taken, of each key; [`MAX_REFUSED`](super::MAX_REFUSED) in all.
    refused: BTreeMap<C::Key, BTreeMap<ObjectKey, String>>,
    /// The right to write, and since when it has been the same.
    leading: Option<(Permit, Instant)>,
    /// The connection to each store, where watches are opened anew here; empty otherwise.
    connections: Vec<Connection>,
    /// When each store that is not written to is asked again, as it is shown.
    next_writes: Vec<Option<Timestamp>>,
    /// Before which nothing is planned anew, after a plan that took long.
    rest_until: Instant,
    /// Why keys are held.
    holds: BTreeMap<C::Key, String>,
    /// Keys of each store of whose plans something was not written, since there was no right to.
    unwritten: BTreeSet<FlightKey<C::Key>>,
    /// The writes that were sent to each store.
    sent: Vec<u64>,
    events: u64,
    writes: u64,
    is_fenced: bool,
    metrics: ControllerMetrics,
}

/// A watch that cannot be read.
struct Outage {
    reason: String,
    since: Instant,
}

impl<C: Controller> Runner<C> {
    pub(super) fn new(
        controller: C,
        stores: Vec<Box<dyn StorePort>>,
        fence: Fence,
        limits: Limits,
        metrics: ControllerMetrics,
    ) -> Self {
        let (shortest, longest) = limits.retry;
        let connection = |within| {
            let connection = |_| Connection::new(within, Backoff::new(shortest, longest), clock());
            stores.iter().map(connection).collect()
        };
        Self {
            queues: stores.iter().map(|_| WorkQueue::new(shortest, longest)).collect(),
            connections: limits.list_within.map_or_else(Vec::new, connection),
            next_writes: vec![None; stores.len()],
            rest_until: clock(),
            sent: vec![0; stores.len()],
            controller,
            stores,
            fence,
            limits,
            watches: Watches::default(),
            echoes: PendingEchoes::default(),
            limiter: ObjectLimiter::default(),
            requests: FuturesUnordered::new(),
            writing: BTreeMap::new(),
            outages: BTreeMap::new(),
            refused: BTreeMap::new(),
            holds: BTreeMap::new(),
            unwritten: BTreeSet::new(),
            leading: None,
            events: 0,
            writes: 0,
            is_fenced: false,
            metrics,
        }
    }

    /// Runs the controller until it is stopped, or its fence ends it.
    pub(super) async fn run(
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
            if self.is_fenced {
                break LAST_ANSWERS;
            }
            let deadline = self.deadline();
            tokio::select! {
                within = &mut stop => break within.unwrap_or_default(),
                Some(completed) = self.requests.next() => self.complete(completed),
                events = self.watches.next() => {
                    events.into_iter().for_each(|report| self.handle_report(report));
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
        let queues = self.queues.iter().enumerate().filter_map(|(store, queue)| {
            if self.controller.is_ready(store) { queue.deadline() } else { queue.next_release() }
        });
        let connections = self.connections.iter().filter_map(Connection::deadline);
        queues.chain(connections).chain(self.echoes.deadline()).min()
    }

    fn leadership_changed(&mut self) {
        let now = clock();
        let held = self.fence.leadership(now);
        let keys = self.controller.handle_leadership(held.as_ref(), now);
        let unwritten = if held.is_some() { std::mem::take(&mut self.unwritten) } else { BTreeSet::new() };
        for key in keys.into_iter().chain(unwritten.into_iter().map(|(_, key)| key)) {
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
                None => {
                    self.queues.iter_mut().for_each(|queue| queue.remove(key));
                    self.holds.remove(key);
                    self.refused.remove(key);
                }
            }
        }
    }

    /// Reconciles what is ready, and begins to write.
    fn advance(&mut self) {
        for (watch, event) in self.echoes.expire(clock()) {
            let keys = self.controller.observe(&watch, event, clock());
            self.add(&keys);
        }
        self.check_connections();
        let keys = self.controller.drain_changed(clock());
        self.add(&keys);
        for store in 0..self.queues.len() {
            self.queues[store].release_due(clock());
            while !self.is_fenced
                && self.controller.is_ready(store)
                && let Some((key, rank)) = self.queues[store].next(clock())
            {
                self.reconcile(store, key, rank);
            }
        }
        if self.queues.iter().all(WorkQueue::is_idle) {
            self.connections.iter_mut().for_each(Connection::settle);
        }
        self.queues.iter_mut().for_each(WorkQueue::settle);
    }

    fn reconcile(&mut self, store: usize, key: C::Key, rank: Rank) {
        let started = clock();
        let leadership = self.fence.leadership(started);
        let context = Context { now: started, wall: Timestamp::now(), leadership };
        let Reconciled { writes, order, requeue_after, fence, hold } =
            self.controller.reconcile(&key, &context);
        self.open_watches();
        self.rest(clock().saturating_duration_since(started));
        if let Some(request) = fence {
            self.fence.request(request);
        }
        let now = clock();
        self.limiter.expire(now);
        if let Some(refused) = self.refused.get_mut(&key) {
            let planned: BTreeSet<ObjectKey> = writes.iter().map(Write::key).collect();
            refused.retain(|object, _| planned.contains(object));
        }
        self.refused.retain(|_, refused| !refused.is_empty());
        self.holds.remove(&key);
        if let Some(Hold { reason, wait }) = hold {
            self.metrics.reconciled(now.saturating_duration_since(started));
            self.queues[store].hold(&key, now + wait);
            self.holds.insert(key, reason);
            return;
        }
        let permit = self.permit(now);
        self.is_fenced |= permit.is_none() && !writes.is_empty() && self.fence.is_final();
        let requeue_at = requeue_after.map(|after| now + after);
        let (permit, settled_at) = match permit {
            Some(permit) if !writes.is_empty() => permit,
            _ => {
                self.metrics.reconciled(now.saturating_duration_since(started));
                self.queues[store].finish(&key, now);
                if !writes.is_empty() {
                    self.unwritten.insert((store, key.clone()));
                }
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
        let flight = Flight::new(writes, (rank, order, permit), started, requeue_at);
        self.writing.insert((store, key.clone()), flight);
        self.write_next(&(store, key));
    }

    /// Lets changes wait for longer after a plan that took longer. Its writes go on meanwhile.
    fn rest(&mut self, took: Duration) {
        let Limits { settle, rest_factor, max_rest, .. } = self.limits;
        self.rest_until = clock() + took.saturating_mul(rest_factor).min(max_rest);
        self.queues.iter_mut().for_each(|queue| queue.set_rest(settle, self.rest_until));
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

    fn view(&self) -> QueueView<'_> {
        let refused = self.refused.values().flatten();
        QueueView {
            outages: self.outages.iter().map(|(watch, outage)| (watch, outage.reason.as_str())).collect(),
            unavailable: self.queues.iter().map(WorkQueue::outage).collect(),
            next_writes: self
                .next_writes
                .iter()
                .zip(&self.queues)
                .map(|(at, of)| at.filter(|_| of.outage().is_some()))
                .collect(),
            closed: self.connections.iter().map(Connection::outage).collect(),
            hold: self.holds.values().next().map(String::as_str),
            refused: refused.map(|(object, reason)| (object, reason.as_str())).collect(),
            is_idle: self.queues.iter().all(WorkQueue::is_idle),
            leadership: self.fence.leadership(clock()),
            writes: self.writes,
            sent: &self.sent,
            events: self.events,
            is_fenced: self.is_fenced,
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
