//! The writes of a plan: which goes out next, and how its answer changes the others.

use std::collections::BTreeMap;
use std::time::Instant;

use futures::FutureExt as _;
use jiff::Timestamp;
use rand_core::OsRng;

use super::Runner;
use crate::api::ObjectKey;
use crate::runner::connection::later;
use crate::runner::flight::{Completed, End, Flight, FlightKey};
use crate::runner::{Controller, Failure, MAX_REFUSED, Order, Write};
use crate::store::StoreError;
use crate::timer::clock;

/// The number of independent writes of one plan that are under way at once: a store that takes long for each is kept up
/// with, and one that does not answer is asked by one at a time.
const MAX_WRITES_UNDER_WAY: usize = 8;

impl<C: Controller> Runner<C> {
    /// Begins those of a plan's next writes that may be tried now, or ends the plan.
    pub(super) fn write_next(&mut self, key: &FlightKey<C::Key>) {
        let now = clock();
        while let Some(flight) = self.writing.get_mut(key) {
            let is_out = self.queues[key.0].outage().is_some() && !flight.is_answered;
            let most = match flight.order {
                Order::Independent if !is_out => MAX_WRITES_UNDER_WAY,
                Order::Independent | Order::Strict => 1,
            };
            let is_under_way = |write: &Write| flight.under_way.contains(&write.key());
            if flight.under_way.len() >= most || flight.writes.front().is_some_and(is_under_way) {
                return;
            }
            let Some(write) = flight.writes.pop_front() else {
                if flight.under_way.is_empty() {
                    self.end(key, now);
                }
                return;
            };
            if let Some(until) = self.limiter.wait_until(&write.key(), now) {
                flight.try_at(until);
                if flight.order == Order::Strict {
                    flight.stop(End::Written);
                }
                continue;
            }
            if flight.tried >= self.limits.max_writes && now >= self.rest_until {
                flight.stop(End::Written);
                continue;
            }
            // Asked here and not once for all: a request may take long, and the process may be stopped for a while.
            if self.fence.permit(now) != Some(flight.permit) {
                self.is_fenced |= self.fence.is_final();
                flight.stop(End::Fenced);
                continue;
            }
            flight.tried += 1;
            flight.under_way.insert(write.key());
            self.send(key.clone(), write);
        }
    }

    fn send(&mut self, key: FlightKey<C::Key>, write: Write) {
        let store = key.0;
        self.sent[store] += 1;
        self.echoes.start(store, &write);
        let within = self.limits.write_within;
        let request = self.stores[store].write(write.clone(), within, self.fence.clone());
        self.requests.push(request.map(move |outcome| Completed { key, write, outcome }).boxed());
    }

    /// Ends a plan of which nothing is under way. One of which all that could be was written is made again, until nothing
    /// is to be written.
    fn end(&mut self, flight_key: &FlightKey<C::Key>, now: Instant) {
        let Some(flight) = self.writing.remove(flight_key) else { return };
        let (store, key) = flight_key;
        let Flight { rank, tried, next_try, started, end, .. } = flight;
        let queue = &mut self.queues[*store];
        match end {
            End::Written if tried > 0 => {
                queue.add(key, rank, now);
                queue.succeed(key, now);
            }
            End::Written => {
                queue.finish(key, now);
                if let Some(at) = next_try {
                    queue.add_at(key, rank, at, now);
                }
            }
            End::Fenced => {
                queue.finish(key, now);
                self.unwritten.insert((*store, key.clone()));
                return;
            }
            End::Unavailable(error) => {
                queue.fail_store(key, error, now, &mut OsRng);
                let wait = queue.outage_end().map(|end| end.saturating_duration_since(now));
                self.next_writes[*store] = wait.map(|wait| later(Timestamp::now(), wait));
            }
            End::Conflict => queue.conflict(key, now),
            End::Refused => match self.limits.refusal_wait {
                Some(wait) => queue.refuse(key, wait, now),
                None => drop(queue.fail(key, now, &mut OsRng)),
            },
        }
        self.metrics.reconciled(now.saturating_duration_since(started));
    }

    /// Takes in what became of a write.
    pub(super) fn complete(&mut self, completed: Completed<C::Key>) {
        let Completed { key, write, outcome } = completed;
        let now = clock();
        let object = write.key();
        if let Some(flight) = self.writing.get_mut(&key) {
            flight.under_way.remove(&object);
        }
        match outcome {
            Ok(event) => {
                tracing::debug!(controller = self.controller.name(), %object, "written");
                self.writes += 1;
                self.metrics.written(None);
                self.note_write(&object, false, now);
                self.controller.written(&key.1, &write, Ok(&event), now);
                if self.echoes.finish(key.0, &write, &event, now) {
                    self.observe_own(key.0, &object, event, now);
                }
                if let Some(flight) = self.writing.get_mut(&key) {
                    flight.is_answered = true;
                }
            }
            Err(error) => self.fail(&key, &write, &error, now),
        }
        self.write_next(&key);
    }

    fn fail(&mut self, key: &FlightKey<C::Key>, write: &Write, error: &StoreError, now: Instant) {
        let object = write.key();
        self.echoes.abort(key.0, write);
        self.controller.written(&key.1, write, Err(error), now);
        let failure = self.controller.classify(write, error);
        self.metrics.written(Some(failure.as_str()));
        if failure != Failure::Unavailable {
            self.note_write(&object, failure == Failure::Refused, now);
        }
        if failure == Failure::Refused {
            self.refuse(&key.1, &object, error);
        }
        let until = self.limiter.wait_until(&object, now);
        let Some(flight) = self.writing.get_mut(key) else { return };
        match (failure, flight.order) {
            (Failure::Unavailable, _) => flight.stop(End::Unavailable(error.to_string())),
            (Failure::Race | Failure::Refused, Order::Independent) => {
                until.into_iter().for_each(|until| flight.try_at(until));
            }
            (Failure::Race, Order::Strict) => flight.stop(End::Conflict),
            (Failure::Refused, Order::Strict) => flight.stop(End::Refused),
        }
    }

    fn note_write(&mut self, object: &ObjectKey, is_refused: bool, now: Instant) {
        if self.limits.limits_objects {
            self.limiter.note(object, is_refused, now);
        }
    }

    fn refuse(&mut self, key: &C::Key, object: &ObjectKey, error: &StoreError) {
        let reason = error.to_string();
        let former = self.refused.get(key).and_then(|refused| refused.get(object));
        if former != Some(&reason) {
            tracing::warn!(controller = self.controller.name(), %object, %error, "write refused");
        }
        let count: usize = self.refused.values().map(BTreeMap::len).sum();
        let is_known = self.refused.get(key).is_some_and(|refused| refused.contains_key(object));
        if is_known || count < MAX_REFUSED {
            self.refused.entry(key.clone()).or_default().insert(object.clone(), reason);
        }
    }
}
