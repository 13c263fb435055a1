//! Decides what to do next: plan, send a transaction, wait. Without IO, clock or randomness.
//!
//! Order of calls: after every change of what is wanted or of the replicas, as far as it matters ([`Rows::follow`]),
//! [`Controller::handle_change`]; then, while the replicas are synced, [`Controller::poll_transaction`]; for each transaction that it gives [`Controller::handle_outcome`], once the replica has
//! what the transaction changed (a server sends updates before the result). A transaction relies on what its plan was made
//! from: if that is no longer so, it fails as a whole, and the next plan is made from what is.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use trieste_ovsdb::outcome::{Failure, TransactError};
use trieste_ovsdb::schema::Version;

use crate::change::Transaction;
use crate::chassis::Chassis;
use crate::condition::{Condition, Conditions};
use crate::plan::{Plan, plan, uninstall};
use crate::rows::Rows;
use crate::spec::check_schema;
use crate::wanted::Wanted;

/// What decides what is to be done.
#[derive(Debug, Clone, Copy)]
pub struct State<'a> {
    /// What is wanted; `None` for nothing at all: an uninstallation.
    pub wanted: Option<&'a Wanted>,
    /// The northbound database.
    pub rows: &'a Rows,
    /// The southbound database's chassis; empty where it is not read.
    pub chassis: &'a Chassis,
    /// Version of the northbound database's schema.
    pub schema: Option<Version>,
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Send this transaction.
    Transact(Transaction),
    /// Wait for the outcome of the transaction that was sent.
    AwaitOutcome,
    /// Wait until then, or for a change.
    AwaitRetry(Instant),
    /// Wait for a change: the database is as it should be, or cannot be made so.
    AwaitChange,
}

/// Keeps one database as it should be.
#[derive(Debug, Default)]
pub struct Controller {
    /// Transactions of the last plan that were not sent.
    queue: VecDeque<Transaction>,
    is_in_flight: bool,
    /// Whether something changed since the last plan.
    is_stale: bool,
    retry_at: Option<Instant>,
    failures: u32,
    refusal: Option<Condition>,
    conditions: Conditions,
}

impl Controller {
    /// Returns a controller that plans at the first poll.
    #[must_use]
    pub fn new() -> Self {
        Self { is_stale: true, ..Self::default() }
    }

    /// Records that replicas or what is wanted changed.
    pub const fn handle_change(&mut self) {
        self.is_stale = true;
    }

    /// Records that the connection was lost, and with it the transaction in flight: the next replica shows what became of it.
    pub fn handle_disconnect(&mut self) {
        self.is_in_flight = false;
        self.is_stale = true;
        self.queue.clear();
    }

    /// Records what became of the transaction in flight. After a failure the next is not sent for `delay`, which the caller
    /// lets grow with [`Controller::failures`].
    pub fn handle_outcome(&mut self, outcome: Result<(), &TransactError>, now: Instant, delay: Duration) {
        self.is_in_flight = false;
        let Err(error) = outcome else {
            self.failures = 0;
            self.refusal = None;
            return;
        };
        self.queue.clear();
        self.is_stale = true;
        self.failures = self.failures.saturating_add(1);
        self.retry_at = Some(now + delay);
        // That somebody else was faster, or that a connection was lost, is no refusal.
        let is_refusal = error.failure().is_some_and(|failure| *failure != Failure::TimedOut);
        self.refusal = is_refusal.then(|| Condition::TransactionRefused { error: error.to_string() });
    }

    /// Returns how many transactions failed since the last one that did not.
    #[must_use]
    pub const fn failures(&self) -> u32 {
        self.failures
    }

    /// Decides what to do. Plans only if something changed and no transaction of the last plan is left.
    pub fn poll_transaction(&mut self, state: &State<'_>, now: Instant) -> Next {
        if self.is_in_flight {
            return Next::AwaitOutcome;
        }
        if let Some(at) = self.retry_at.filter(|at| *at > now) {
            return Next::AwaitRetry(at);
        }
        self.retry_at = None;
        if self.queue.is_empty() && self.is_stale {
            self.is_stale = false;
            let plan = planned(state);
            self.conditions = plan.conditions;
            self.queue = plan.transactions.into();
            // What was refused is not wanted any more, or there.
            self.refusal.take_if(|_| self.queue.is_empty());
        }
        match self.queue.pop_front() {
            Some(transaction) => {
                self.is_in_flight = true;
                Next::Transact(transaction)
            }
            None => Next::AwaitChange,
        }
    }

    /// Records that what is wanted changed so much that the rest of the last plan should not be carried out.
    pub fn handle_new_wanted(&mut self) {
        self.queue.clear();
        self.is_stale = true;
    }

    /// Returns what is not as it should be.
    #[must_use]
    pub fn conditions(&self) -> Conditions {
        let mut conditions = self.conditions.clone();
        self.refusal.iter().cloned().for_each(|refusal| conditions.add(refusal));
        conditions
    }
}

fn planned(state: &State<'_>) -> Plan {
    let Some(wanted) = state.wanted else { return uninstall(state.rows) };
    match check_schema(state.schema) {
        Ok(()) => plan(wanted, state.rows, state.chassis),
        Err(condition) => {
            let mut conditions = wanted.conditions().clone();
            conditions.add(condition);
            Plan { transactions: Vec::new(), conditions }
        }
    }
}

#[cfg(test)]
mod tests;
